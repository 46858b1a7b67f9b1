"""A store of every kind, and keys that fit it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.offsets_stores import KINDS, key_of, make_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.offsets import OffsetKey, SyncOffsetStore


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def store(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SyncOffsetStore]:
    """An empty store: in memory, in files of both layouts, in SQLite and in PostgreSQL."""
    made = make_store(kind, tmp_path, request)
    yield made.sync
    made.sync.close()


@pytest.fixture
def key(kind: str) -> OffsetKey:
    return key_of(kind)


@pytest.fixture
def other(kind: str) -> OffsetKey:
    """Another stream of another consumer."""
    return key_of(kind, consumer=2, stream=2)

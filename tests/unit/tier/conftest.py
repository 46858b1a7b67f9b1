"""A log to be copied, and a store that fails when told to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.tier.store.storage_manager import RemoteStorageManager
from tests.support.tier_copies import FailingStore
from tests.support.tier_logs import make_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.log.partition import PartitionLog


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    made = make_log(tmp_path / "log", batches=120, epochs=3, aborts=True)
    yield made
    made.close()


@pytest.fixture
def storage(tmp_path: Path) -> RemoteStorageManager:
    return RemoteStorageManager(FailingStore(tmp_path / "store"), "", "cluster-1")

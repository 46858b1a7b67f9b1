"""Every kind of offset store, made by its name, for tests that hold for all of them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from ottla.offsets import (
    Lance,
    LockFileOffsetStore,
    MemoryOffsetStore,
    OffsetKey,
    PostgresOffsetStore,
    SqliteOffsetStore,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from ottla.offsets.protocol import SyncOffsetStore
    from ottla.offsets.threaded import ThreadedOffsetStore
    from tests.services import PostgresServer

KINDS: Final = ("memory", "v1", "lance", "sqlite", "postgres")
_tables = itertools.count()


def make_store(
    kind: str, directory: Path, request: pytest.FixtureRequest
) -> ThreadedOffsetStore[SyncOffsetStore]:
    """A new, empty store. PostgreSQL is only started for those who ask for it."""
    store: object
    if kind == "memory":
        store = MemoryOffsetStore()
    elif kind == "v1":
        store = LockFileOffsetStore(directory / "v1")
    elif kind == "lance":
        store = LockFileOffsetStore(directory / "lance", Lance("client"))
    elif kind == "sqlite":
        store = SqliteOffsetStore(directory / "offsets.db")
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        store = PostgresOffsetStore(server.url, table=f"offsets_{next(_tables)}")
    return store  # type: ignore[return-value]  # each one is generic over its own synchronous form


def key_of(kind: str, consumer: int = 1, stream: int = 1, shard: int = 0) -> OffsetKey:
    """A key that fits the store: LANCE has numeric ids and no shards."""
    if kind == "lance":
        return OffsetKey(str(consumer), str(1000 * shard + stream))
    return OffsetKey(f"group {consumer}", f"Stream/{stream}", shard)

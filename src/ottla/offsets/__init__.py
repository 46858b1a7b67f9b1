"""Client-managed offsets: stores for positions, and exactly-once as one database transaction.

`OffsetStore` is the protocol, `rules` what every store keeps to. The room imports nothing else of
Ottla, and only `postgres` anything beyond the standard library.
"""

from __future__ import annotations

from ottla.offsets.errors import (
    NotInTransaction,
    OffsetConflict,
    OffsetCorrupt,
    OffsetError,
    OffsetLockTimeout,
    OffsetRegression,
    PostCommitHookError,
    StaleOffset,
)
from ottla.offsets.memory import MemoryOffsetStore, SyncMemoryOffsetStore
from ottla.offsets.protocol import OffsetStore, PostCommitHook, SyncOffsetStore
from ottla.offsets.types import MAX_POSITION, UNSET, CommitInfo, OffsetKey, Unset

__all__ = [
    "MAX_POSITION",
    "UNSET",
    "CommitInfo",
    "MemoryOffsetStore",
    "NotInTransaction",
    "OffsetConflict",
    "OffsetCorrupt",
    "OffsetError",
    "OffsetKey",
    "OffsetLockTimeout",
    "OffsetRegression",
    "OffsetStore",
    "PostCommitHook",
    "PostCommitHookError",
    "StaleOffset",
    "SyncMemoryOffsetStore",
    "SyncOffsetStore",
    "Unset",
]

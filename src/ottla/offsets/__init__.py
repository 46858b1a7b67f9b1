"""Client-managed offsets: stores for positions, and exactly-once as one database transaction.

`OffsetStore` is the protocol, `rules` what every store keeps to. The room imports nothing else of
Ottla but its bottom layer, and only `postgres` anything beyond the standard library.
"""

from __future__ import annotations

from ottla.offsets.assignment import assign_range, assign_round_robin, assign_sticky
from ottla.offsets.bound import AsyncBoundOffsets, BoundOffsets
from ottla.offsets.errors import (
    InvalidOffsetArgument,
    InvalidOffsetType,
    NotInTransaction,
    OffsetConflict,
    OffsetCorrupt,
    OffsetError,
    OffsetLockTimeout,
    OffsetRegression,
    OffsetStoreError,
    PostCommitHookError,
    StaleOffset,
)
from ottla.offsets.files import Durability
from ottla.offsets.hooked import HookedOffsetStore, SyncHookedOffsetStore
from ottla.offsets.hooks import (
    CollectingCommitHook,
    LoggingCommitHook,
    OnHookError,
    PrometheusCommitHook,
)
from ottla.offsets.layouts import V1, Lance
from ottla.offsets.lockfile import LockFileOffsetStore, OnCorrupt, SyncLockFileOffsetStore
from ottla.offsets.memory import MemoryOffsetStore, SyncMemoryOffsetStore
from ottla.offsets.postgres import PostgresOffsetStore, SyncPostgresOffsetStore
from ottla.offsets.protocol import OffsetStore, PostCommitHook, SyncOffsetStore
from ottla.offsets.sqlite import SqliteOffsetStore, SyncSqliteOffsetStore
from ottla.offsets.types import MAX_POSITION, UNSET, CommitInfo, OffsetKey, Unset

__all__ = [
    "MAX_POSITION",
    "UNSET",
    "V1",
    "AsyncBoundOffsets",
    "BoundOffsets",
    "CollectingCommitHook",
    "CommitInfo",
    "Durability",
    "HookedOffsetStore",
    "InvalidOffsetArgument",
    "InvalidOffsetType",
    "Lance",
    "LockFileOffsetStore",
    "LoggingCommitHook",
    "MemoryOffsetStore",
    "NotInTransaction",
    "OffsetConflict",
    "OffsetCorrupt",
    "OffsetError",
    "OffsetKey",
    "OffsetLockTimeout",
    "OffsetRegression",
    "OffsetStore",
    "OffsetStoreError",
    "OnCorrupt",
    "OnHookError",
    "PostCommitHook",
    "PostCommitHookError",
    "PostgresOffsetStore",
    "PrometheusCommitHook",
    "SqliteOffsetStore",
    "StaleOffset",
    "SyncHookedOffsetStore",
    "SyncLockFileOffsetStore",
    "SyncMemoryOffsetStore",
    "SyncOffsetStore",
    "SyncPostgresOffsetStore",
    "SyncSqliteOffsetStore",
    "Unset",
    "assign_range",
    "assign_round_robin",
    "assign_sticky",
]

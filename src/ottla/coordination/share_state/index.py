"""Finds the offset up to which a partition of `__share_group_state` may be pruned.

A share-partition needs the log from its latest snapshot on, so the log is needed from the oldest of
these. The code that writes and replays the log maintains this index, because only it knows the
offsets; it adds every record, in order, once it is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordination.share_state.records import SNAPSHOT, decode_key

if TYPE_CHECKING:
    from ottla.coordination.share_state.records import ShareKey

_SNAPSHOT_KEY = SNAPSHOT.to_bytes(2, "big")  # such keys begin with it


class SnapshotIndex:
    __slots__ = ("_end", "_latest")

    def __init__(self) -> None:
        # In the order of offsets: a key that is written again moves to the end.
        self._latest: dict[ShareKey, int] = {}
        self._end = 0

    def note(self, offset: int, key: bytes, value: bytes | None) -> None:
        self._end = offset + 1
        if key[:2] != _SNAPSHOT_KEY:
            return  # most are updates
        named = decode_key(key)
        if named is not None:
            self._latest.pop(named[1], None)
            if value is not None:
                self._latest[named[1]] = offset

    @property
    def needed_from(self) -> int:
        """Records before this offset can be deleted."""
        return next(iter(self._latest.values()), self._end)

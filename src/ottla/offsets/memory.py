"""Positions in memory, for tests and for programs that store them elsewhere."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ottla.offsets.rules import Stored, current, decide, saved, wish, wishes
from ottla.offsets.threaded import ThreadedOffsetStore
from ottla.offsets.types import UNSET, check_consumer, check_key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from ottla.offsets.rules import Wish
    from ottla.offsets.types import CommitInfo, Expected, OffsetKey


class SyncMemoryOffsetStore:
    """Positions in memory; blocking, thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stored: dict[OffsetKey, Stored] = {}

    def load(self, key: OffsetKey, *, epoch: str | None = None) -> int | None:
        check_key(key)
        with self._lock:
            return current(key, self._stored.get(key), epoch)

    def save(
        self,
        key: OffsetKey,
        position: int,
        *,
        expected: Expected = UNSET,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> CommitInfo:
        check_key(key)
        return self._save({key: wish(position, expected, rewind, epoch)})[0]

    def save_many(
        self,
        items: Mapping[OffsetKey, int],
        *,
        expected: Mapping[OffsetKey, int | None] | None = None,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> list[CommitInfo]:
        return self._save(wishes(items, expected, rewind, epoch))

    def delete(self, key: OffsetKey) -> bool:
        check_key(key)
        with self._lock:
            return self._stored.pop(key, None) is not None

    def list_all(self, consumer: str | None = None) -> dict[OffsetKey, int]:
        check_consumer(consumer)
        with self._lock:
            return {
                key: stored.position
                for key, stored in self._stored.items()
                if consumer is None or key.consumer == consumer
            }

    def close(self) -> None:
        """Does nothing; the positions stay in the object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _save(self, wanted: Mapping[OffsetKey, Wish]) -> list[CommitInfo]:
        with self._lock:
            before = {key: self._stored.get(key) for key in wanted}
            after = {key: decide(key, before[key], each) for key, each in wanted.items()}
            self._stored.update({key: new for key, new in after.items() if new is not None})
        return [saved(key, before[key], new) for key, new in after.items()]


class MemoryOffsetStore(ThreadedOffsetStore[SyncMemoryOffsetStore]):
    """Positions in memory, for asyncio."""

    def __init__(self) -> None:
        super().__init__(SyncMemoryOffsetStore())

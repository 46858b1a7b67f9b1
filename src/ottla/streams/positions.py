"""A consumer's positions in an external offset store: the key is the group, never the worker.

The first save of a shard passes the loaded value as `expected`, and every later one the value saved
before: a zombie whose shard has moved on gets `OffsetConflict` instead of winning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.offsets import OffsetKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.offsets import OffsetStore
    from ottla.streams.types import ShardKey


class StoredPositions:
    """Load and save positions of one consumer name; `epoch` tells one stream from its successor."""

    def __init__(self, store: OffsetStore, consumer: str):
        self.store = store
        self.consumer = consumer
        self.epoch: str | None = None
        self._known: dict[ShardKey, int | None] = {}

    async def load(self, shards: Iterable[ShardKey]) -> dict[ShardKey, int | None]:
        """The stored position of each shard; None where there is none. Errors propagate."""
        loaded: dict[ShardKey, int | None] = {}
        for shard in shards:
            loaded[shard] = await self.store.load(self._key(shard), epoch=self.epoch)
        self._known.update(loaded)
        return loaded

    async def save(self, positions: Mapping[ShardKey, int], *, rewind: bool = False) -> None:
        """Save each shard's position under compare-and-set."""
        for shard, position in positions.items():
            key = self._key(shard)
            if shard in self._known:
                await self.store.save(
                    key, position, expected=self._known[shard], rewind=rewind, epoch=self.epoch
                )
            else:
                await self.store.save(key, position, rewind=rewind, epoch=self.epoch)
            self._known[shard] = position

    def restart(self, shards: Iterable[ShardKey]) -> None:
        """The stored positions of these shards have another epoch: replace them unconditionally."""
        for shard in shards:
            self._known.pop(shard, None)

    def _key(self, shard: ShardKey) -> OffsetKey:
        return OffsetKey(self.consumer, shard.stream, shard.shard)

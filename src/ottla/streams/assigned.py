"""Shards assigned by hand, used from the next seek or rewind on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.errors import ShardNotAssigned, StreamKeyEmpty, StreamKeyNotFound
from ottla.streams.types import WILDCARD, ShardKey

if TYPE_CHECKING:
    from collections.abc import Collection


class Assigned:
    """The shards that were assigned; none means all of the subscribed streams."""

    def __init__(self, streams: Collection[str]):
        self._streams = streams
        self._shards: set[ShardKey] = set()

    def add(self, stream: str, shard: int) -> None:
        if stream not in self._streams and WILDCARD not in self._streams:
            raise StreamKeyNotFound("subscribe to a stream before assigning it", stream=stream)
        self._shards.add(ShardKey(stream, shard))

    def remove(self, stream: str, shard: int) -> None:
        """Raises before anything is removed."""
        key = ShardKey(stream, shard)
        if key not in self._shards:
            raise ShardNotAssigned(
                "assign a shard before unassigning it", stream=stream, shard=shard
            )
        if len(self._shards) == 1:
            raise StreamKeyEmpty(
                "this is the last assigned shard; assign another one first",
                stream=stream,
                shard=shard,
            )
        self._shards.remove(key)

    def shards(self) -> frozenset[ShardKey]:
        return frozenset(self._shards)

"""Partitions, their ends and start offsets. Blocking calls.

These run in the consumer's thread, between reads or inside a rebalance callback.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from ottla.streams.errors import (
    ConnectError,
    NoStoredPosition,
    PositionOutOfRange,
    SeekOutOfRange,
    StreamKeyNotFound,
)
from ottla.streams.types import Reset, ShardKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from confluent_kafka import Consumer

    from ottla.streams.types import ConsumerOptions, SeqPos

GRACE: Final = 2.0  # seconds until all brokers must know a topic that one of them created
LOOK_AGAIN: Final = 0.1
NO_OFFSET: Final = -1001  # OFFSET_INVALID: nothing was committed


def partition(shard: ShardKey, offset: int = NO_OFFSET) -> TopicPartition:
    return TopicPartition(shard.stream, shard.shard, offset)


def shard_of(place: TopicPartition) -> ShardKey:
    return ShardKey(place.topic, place.partition)


class Places:
    """Questions to the cluster, each within `timeout` seconds."""

    def __init__(self, consumer: Consumer, timeout: float) -> None:
        self._consumer = consumer
        self._timeout = timeout

    def shards(self, streams: Sequence[str]) -> list[ShardKey]:
        """All partitions of these topics."""
        return [
            ShardKey(stream, number) for stream in streams for number in self._partitions(stream)
        ]

    def _partitions(self, stream: str) -> list[int]:
        patience = time.monotonic() + GRACE
        while True:
            try:
                # One topic at a time: asking for all of a large cluster would cost megabytes.
                topic = self._consumer.list_topics(stream, timeout=self._timeout).topics[stream]
            except KafkaException as error:
                raise ConnectError(f"no answer about the topic: {error}", stream=stream) from error
            if topic.error is None and topic.partitions:
                return sorted(topic.partitions)
            if time.monotonic() > patience:
                raise StreamKeyNotFound(
                    f"there is no such topic ({topic.error}); create it first", stream=stream
                )
            time.sleep(LOOK_AGAIN)

    def ends(self, shard: ShardKey) -> tuple[int, int]:
        """The first offset, and the one past the last."""
        found: Any = self._consumer.get_watermark_offsets(partition(shard), timeout=self._timeout)
        if found is None:
            raise ConnectError(
                "no answer about offsets; check that the cluster is up",
                stream=shard.stream,
                shard=shard.shard,
            )
        return int(found[0]), int(found[1])

    def committed(self, shards: Iterable[ShardKey]) -> dict[ShardKey, int | None]:
        """The committed offsets of the group."""
        asked = [partition(shard) for shard in shards]
        found = self._consumer.committed(asked, timeout=self._timeout) if asked else []
        return {shard_of(one): one.offset if one.offset >= 0 else None for one in found}

    def later_than(self, shards: Iterable[ShardKey], milliseconds: int) -> list[TopicPartition]:
        """Offset of the first message after that millisecond; the end if there is none."""
        # Times before 1970 have another meaning in this request, or none.
        asked = [partition(shard, max(milliseconds + 1, 0)) for shard in shards]
        found = self._consumer.offsets_for_times(asked, timeout=self._timeout)
        return [
            one if one.offset >= 0 else partition(shard_of(one), self.ends(shard_of(one))[1])
            for one in found
        ]

    def lags(
        self, began: Mapping[ShardKey, int], positions: Mapping[ShardKey, int]
    ) -> Iterator[tuple[ShardKey, int]]:
        """Lag of each shard, from its position, or from what was read, or from where it began."""
        read = self._consumer.position([partition(shard) for shard in began]) if began else []
        for (shard, start), place in zip(began.items(), read, strict=True):
            first, end = self.ends(shard)
            at = positions.get(shard, place.offset if place.offset >= 0 else start)
            yield shard, max(end - max(at, first), 0)

    def ends_after(self, began: Mapping[ShardKey, int]) -> Iterator[tuple[ShardKey, int]]:
        """The ends of shards that have something between where they began and their end."""
        for shard, start in began.items():
            first, end = self.ends(shard)
            if max(start, first) < end:
                yield shard, end

    def at(self, shards: Iterable[ShardKey], to: SeqPos) -> list[TopicPartition]:
        """That place in each shard; the end of those that do not reach so far, but not of all."""
        found = {shard: self.place(shard, to) for shard in shards}
        if to.kind == "at" and found and all(offset < to.seq for offset in found.values()):
            last = max(found.values())
            raise SeekOutOfRange(
                f"there is no offset {to.seq} yet, the end is {last}; rewind to END or to an "
                "offset before it; the position is unchanged"
            )
        return [partition(shard, offset) for shard, offset in found.items()]

    def place(self, shard: ShardKey, to: SeqPos) -> int:
        """The offset of a place, within the log: librdkafka would move others by its reset."""
        if to.kind == "beginning":
            return int(OFFSET_BEGINNING)
        # The end is read now, so that messages sent from here on are delivered.
        first, end = self.ends(shard)
        return end if to.kind == "end" else min(max(to.seq, first), end)

    def by_reset(self, shard: ShardKey, reset: Reset) -> int:
        """Where to begin without prior state."""
        if reset is Reset.NONE:
            raise NoStoredPosition(
                "there is no stored position and reset=NONE forbids to choose one; "
                "choose Reset.EARLIEST or Reset.LATEST",
                stream=shard.stream,
                shard=shard.shard,
            )
        return self.ends(shard)[1] if reset is Reset.LATEST else int(OFFSET_BEGINNING)

    def stored(self, shard: ShardKey, position: int, options: ConsumerOptions) -> int:
        """A position of an external store, if the log reaches that far."""
        end = self.ends(shard)[1]
        if position <= end or options.on_out_of_range == "wait":
            return position
        if options.on_out_of_range == "raise":
            raise PositionOutOfRange(
                f"the stored position {position} is beyond the end {end}; choose "
                "on_out_of_range=wait, earliest or latest",
                stream=shard.stream,
                shard=shard.shard,
            )
        return int(OFFSET_BEGINNING) if options.on_out_of_range == "earliest" else end

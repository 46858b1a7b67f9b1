"""An internal topic as the coordinators see it: append a batch, replay a partition."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.log.errors import StorageFailure
from ottla.log.producer_state import Origin
from ottla.wire.batch import iter_batches, read_batch
from ottla.wire.builder import BatchBuilder
from ottla.wire.records import iter_records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from ottla.broker.node import Node

REPLAY_BYTES: Final = 4 * 1024 * 1024  # one step of a replay; between two the loop serves others


Note: TypeAlias = "Callable[[int, int, bytes, bytes | None], None]"
"""Told of every committed record in order: partition, offset, key, value."""


class InternalTopicLog:
    """The `CoordinatorLog` of one internal topic whose partitions this node leads."""

    def __init__(self, node: Node, topic: str, note: Note | None = None) -> None:
        self._node = node
        self._topic = topic
        self._note = note

    async def append(
        self, partition: int, records: Sequence[tuple[bytes, bytes | None]], now_ms: int
    ) -> None:
        hosted = self._node.partitions.find(self._topic, partition)
        builder = BatchBuilder()
        for key, value in records:
            builder.append(value, key=key, timestamp=now_ms)
        batch = read_batch(memoryview(builder.build()))
        result = hosted.log.append(
            batch, leader_epoch=hosted.leader_epoch, now_ms=now_ms, origin=Origin.COORDINATOR
        )
        durable = self._node.appended([hosted])
        if durable is not None:
            await durable
        if not hosted.log.online:
            raise StorageFailure(f"{hosted!r} went offline")
        if self._note is not None:
            for offset, (key, value) in enumerate(records, result.base_offset):
                self._note(partition, offset, key, value)

    async def replay(self, partition: int) -> AsyncIterator[Sequence[tuple[bytes, bytes | None]]]:
        log = self._node.partitions.find(self._topic, partition).log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            read = partial(
                log.read,
                offset,
                REPLAY_BYTES,
                upper_bound_offset=log.log_end_offset,
                min_one_message=True,
            )
            chunks, _ = await self._node.run_blocking(read)
            if not chunks:
                return
            batches = [batch for chunk in chunks for batch in iter_batches(memoryview(chunk))]
            offset = batches[-1].next_offset
            records = [
                (record.offset, record.key, record.value)
                for batch in batches
                if not batch.is_control
                for record in iter_records(batch)
                if record.key is not None
            ]
            if self._note is not None:
                for record_offset, key, value in records:
                    self._note(partition, record_offset, key, value)
            yield [(key, value) for _, key, value in records]

"""Arrow columns to batches in the accumulator, a slice of rows at a time.

- A slice is as many rows as a quarter of `buffer_memory` holds; its memory is reserved before it is
  encoded, so that a table of any size goes through a buffer of fixed size. (Dictionary and view
  columns may be larger on the wire than in memory; by that much of one slice the bound is passed.)
- Encoding runs in a thread, without the GIL: the next slice is encoded while the last one is sent.
- Keys decide the partition row by row; rows without a key stay together in batches of up to
  `max_request_size`, which take the partitions in turn.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.client import arguments
from ottla.client.cluster.view import Topic, TopicPartition
from ottla.client.errors import BadArgument
from ottla.client.producer.partition_kernels import group_rows, hash_keys
from ottla.client.producer.types import (
    RECORD_OVERHEAD,
    MissingColumn,
    ProducerSettings,
    RecordTooLarge,
)
from ottla.clock import SYSTEM
from ottla.wire import arrow
from ottla.wire.batch import HEADER_SIZE, RecordBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.client.producer.batches import Batch
    from ottla.client.producer.sender import Sender, Waiter
    from ottla.wire.kernels.jit import I32

SLICES_IN_BUFFER: Final = 4
MAX_SLICE_BYTES: Final = 8 * 1024 * 1024  # more makes batches no larger, and the first wait longer


class Columns(NamedTuple):
    """Which columns hold what."""

    key: str | None
    value: str
    headers: str | None
    timestamp: str | None

    @classmethod
    def of(
        cls,
        data: pa.RecordBatch | pa.Table,
        *,
        key: str | None,
        value: str,
        headers: str | None,
        timestamp: str | None,
    ) -> Columns:
        """The columns by their names; those called `key` and `headers` need not be named."""
        if not isinstance(data, pa.RecordBatch | pa.Table):
            raise arguments.wrong_type("data", "a pyarrow.RecordBatch or pyarrow.Table", data)
        arguments.text("value", value, "the name of a column")
        for argument, given in (("key", key), ("headers", headers), ("timestamp", timestamp)):
            arguments.optional_text(argument, given, "the name of a column")
        names = data.schema.names
        for name in (key, value, headers, timestamp):
            if name is not None and name not in names:
                raise MissingColumn(f"no column {name!r} to send; there are {', '.join(names)}")
        return cls(
            "key" if key is None and "key" in names else key,
            value,
            "headers" if headers is None and "headers" in names else headers,
            timestamp,
        )

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name in self if name is not None))


class _Encoded(NamedTuple):
    partition: int
    data: memoryview
    records: int


class ArrowSending:
    """One call of `send_arrow`."""

    def __init__(
        self,
        sender: Sender,
        settings: ProducerSettings,
        topic: Topic,
        candidates: Sequence[int],
        random: Callable[[], float],
        ticket: int,
    ) -> None:
        self._sender = sender
        self._ticket = ticket
        self._settings = settings
        self._topic = topic
        self._candidates = candidates
        self._turn = int(random() * len(candidates))

    async def send(
        self, data: pa.RecordBatch | pa.Table, columns: Columns, *, by_key: bool
    ) -> dict[Batch[Waiter], Waiter]:
        """Hand all rows over; the batches they went into, and what to wait for."""
        table = pa.table(data) if isinstance(data, pa.RecordBatch) else data
        handed_over: dict[Batch[Waiter], Waiter] = {}
        try:
            for part in self._slices(table.select(columns.names())):
                size = min(_bound(part), self._settings.buffer_memory)
                await self._sender.reserve(size)
                try:
                    batches = await asyncio.to_thread(self._encode, part, columns, by_key)
                    self._sender.check(self._ticket)
                except BaseException:
                    self._sender.release(size)
                    raise
                handed_over |= self._hand_over(batches, size)
        except BaseException:
            for waiter in handed_over.values():
                waiter.cancel()
            raise
        return handed_over

    def _slices(self, table: pa.Table) -> Iterator[pa.Table]:
        limit = min(self._settings.buffer_memory // SLICES_IN_BUFFER, MAX_SLICE_BYTES)
        rows = max(1, limit * table.num_rows // max(1, _bound(table)))
        for start in range(0, table.num_rows, rows):
            yield table.slice(start, rows)

    def _encode(self, part: pa.Table, columns: Columns, by_key: bool) -> list[_Encoded]:
        if columns.key is None or not by_key:
            return [
                _Encoded(self._next_partition(), one.data, one.record_count)
                for one in self._batches(part, columns)
            ]
        [chunk] = part.combine_chunks().to_batches()
        partitions = self._hashed(chunk.column(columns.key))
        ends = np.zeros(len(self._topic.partitions), np.int64)
        order = np.empty(len(partitions), np.int64)
        group_rows(partitions, ends, order)
        grouped = chunk.take(pa.array(order))
        found = []
        start = 0
        for partition, end in enumerate(ends.tolist()):
            rows = grouped.slice(start, end - start)
            found += [
                _Encoded(partition, one.data, one.record_count)
                for one in self._batches(rows, columns)
            ]
            start = end
        return found

    def _batches(self, rows: pa.Table | pa.RecordBatch, columns: Columns) -> list[RecordBatch]:
        settings = self._settings
        try:
            encoded = arrow.arrow_to_batches(
                rows,
                now_ms=SYSTEM.wall_ms(),
                key=columns.key,
                value=columns.value,
                headers=columns.headers,
                timestamp=columns.timestamp,
                codec=settings.codec,
                level=settings.compression_level,
                max_batch_bytes=settings.max_request_size,
            )
        except arrow.RecordTooLarge as error:
            raise RecordTooLarge(
                f"{error}, for {self._topic.name!r}; raise max_request_size "
                f"({settings.max_request_size}), and max.message.bytes of the topic"
            ) from None
        except (arrow.NullHeaderKey, arrow.UnsupportedColumn) as error:
            raise BadArgument(f"data: {error}") from None
        return [RecordBatch(one) for one in encoded]

    def _hashed(self, keys: pa.Array) -> I32:
        """The partition of each row; those without a key share the next one in turn."""
        column = keys.cast(pa.large_binary())
        partitions = np.full(len(column), self._next_partition(), np.int32)
        _, offsets, content = column.buffers()
        hash_keys(
            np.frombuffer(offsets, np.int64)[column.offset :],
            0 if content is None else content.address,
            column.is_valid().to_numpy(zero_copy_only=False),
            len(self._topic.partitions),
            partitions,
        )
        return partitions

    def _next_partition(self) -> int:
        self._turn += 1
        return self._candidates[self._turn % len(self._candidates)]

    def _hand_over(self, batches: Sequence[_Encoded], reserved: int) -> dict[Batch[Waiter], Waiter]:
        """Into the accumulator, with what each batch really takes up."""
        sender = self._sender
        now = asyncio.get_running_loop().time()
        sender.release(reserved - sum(len(one.data) for one in batches))
        handed_over = {}
        for partition, data, records in batches:
            place = TopicPartition(self._topic.name, partition)
            batch = sender.records.add(place, data, records, len(data), now)
            handed_over[batch] = sender.waiter(batch)
        sender.changed()
        return handed_over


def _bound(table: pa.Table) -> int:
    """About the most bytes these rows become."""
    return int(table.nbytes + table.num_rows * RECORD_OVERHEAD) + HEADER_SIZE

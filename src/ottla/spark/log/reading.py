"""A task's ranges as Arrow batches, through the client's Reader. Runs in Spark's workers.

Rules:

- A range ends by offset, never by a count of records.
- It uses the client's Reader: it fetches ahead, decodes each fetched blob by one call of the kernel
  outside the GIL, and waits for leaders that move. Connections stay open between tasks.
- Small batches are combined: a batch costs Spark as much as a thousand rows.
- If no records arrive for a while, a separate fetch checks whether the rest of a range is empty.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ottla.client.cluster.cluster import NEWEST, Client
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import KafkaError
from ottla.client.reader.fetching import Asked
from ottla.client.reader.reader import Reader
from ottla.client.reader.types import DataLost, TopicRecreated
from ottla.client.reader.wire import NEWEST_FETCH_BY_NAME, fetch_request
from ottla.spark.background import background, freeze_loaded
from ottla.spark.cluster import make_client, offsets_at
from ottla.spark.errors import NoProgress
from ottla.spark.log.backend import report_loss
from ottla.spark.offsets import EARLIEST, LATEST
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.spark.log.planning import Range
    from ottla.spark.options import SourceOptions
    from ottla.wire.schema.fetch import FetchResponse

FEW_ROWS: Final = 4096
LULL: Final = 1.0  # twice as long as a broker may hold a fetch that finds nothing


def read_ranges(
    ranges: Sequence[Range], options: SourceOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of the ranges; those of a partition are in the order of their offsets."""
    loop = background()
    with loop.borrowed(options.client, lambda: make_client(options.client)) as client:
        for some in _rounds(ranges):
            reading = _Reading(client, some, options, columns)
            try:
                while batches := loop.call(reading.next()):
                    yield from batches
                    freeze_loaded()
            finally:
                loop.call(reading.close())


def _rounds(ranges: Iterable[Range]) -> list[list[Range]]:
    """Group ranges for one reader each: one topic, no partition twice."""
    rounds: list[list[Range]] = []
    for one in ranges:
        for some in rounds:
            if some[0][:2] == one[:2] and all(one.partition != other.partition for other in some):
                some.append(one)
                break
        else:
            rounds.append([one])
    return rounds


class _Reading:
    """Ranges of one topic."""

    def __init__(
        self,
        client: Client,
        ranges: Sequence[Range],
        options: SourceOptions,
        columns: Sequence[str],
    ) -> None:
        self._client = client
        self._options = options
        self._topic = ranges[0].topic
        self._topic_id = ranges[0].topic_id
        self._ends = {one.partition: one.end for one in ranges}
        self._is_open = False
        self._quiet = 0.0
        self._reader = Reader(
            client,
            self._topic,
            start={one.partition: one.first for one in ranges},
            stop=self._ends,
            columns=columns,
            isolation_level=options.client.isolation,
            prefetch=options.prefetch,
            max_batch_rows=options.read_rows,
            max_batch_bytes=options.read_bytes,
            max_wait=options.client.fetch_wait,
            verify_crc=options.verify_crc,
            topic_id=self._topic_id,
        )

    async def next(self) -> list[pa.RecordBatch]:
        """The next batches, none at the end."""
        found: list[pa.RecordBatch] = []
        rows = 0
        while rows < FEW_ROWS:
            batch = await self._next_batch()
            if batch is None:
                break
            found.append(batch)
            rows += batch.num_rows
        if len(found) < 2:
            return found
        joined: list[pa.RecordBatch] = pa.Table.from_batches(found).combine_chunks().to_batches()
        return joined

    async def close(self) -> None:
        await self._reader.close()

    async def _next_batch(self) -> pa.RecordBatch | None:
        while True:
            try:
                if not self._is_open:
                    await self._reader.__aenter__()
                    self._is_open = True
                async with asyncio.timeout(LULL):
                    batch = await self._reader.__anext__()
            except StopAsyncIteration:
                return None
            except TimeoutError:
                await self._lull()
            except DataLost:
                await self._skip_lost()
            except TopicRecreated:
                self._lost(f"topic {self._topic!r} was deleted and created again")
                return None
            except KafkaError as error:
                if error.code not in _GONE:
                    raise
                self._lost(f"topic {self._topic!r} no longer exists")
                return None
            else:
                self._quiet = 0.0
                return batch

    async def _lull(self) -> None:
        self._quiet += LULL
        if self._quiet >= self._options.poll_timeout:
            places = ", ".join(
                f"{self._topic}-{number} at offset {offset}" for number, offset in self._unread()
            )
            raise NoProgress(
                f"nothing came for {self._quiet:g} s from {places or self._topic}; see that its "
                "leader is up, or raise kafkaConsumer.pollTimeoutMs"
            )
        for number, offset in self._unread():
            if await self._rest_is_empty(number, offset):
                await self._reader.seek({number: self._ends[number]})

    def _unread(self) -> list[tuple[int, int]]:
        return [
            (number, offset)
            for number, offset in self._reader.positions.items()
            if offset < self._ends[number]
        ]

    async def _rest_is_empty(self, number: int, offset: int) -> bool:
        """Whether the rest of the range is empty: the log continues after it."""
        asked = {TopicPartition(self._topic, number): Asked(offset, -1, 0)}
        ids = {} if self._topic_id is None else {self._topic: self._topic_id}
        isolation = self._options.client.isolation
        answer: FetchResponse = await self._client.send(
            fetch_request(asked, ids, 1, isolation, 0),
            to=TopicPartition(self._topic, number),
            max_version=NEWEST if self._topic_id else NEWEST_FETCH_BY_NAME,
        )
        for topic in answer.responses:
            for one in topic.partitions:
                committed = isolation == "read_committed"
                end = one.last_stable_offset if committed else one.high_watermark
                return not one.error_code and not one.records and end >= self._ends[number]
        return False

    async def _skip_lost(self) -> None:
        """Continue at the new start of the log, or stop if the log now ends before the range."""
        places = [TopicPartition(self._topic, number) for number, _ in self._unread()]
        settings = self._options.client
        first = await offsets_at(self._client, settings, dict.fromkeys(places, EARLIEST))
        last = await offsets_at(self._client, settings, dict.fromkeys(places, LATEST))
        for number, offset in self._unread():
            place = TopicPartition(self._topic, number)
            if first[place] <= offset <= last[place]:
                continue
            self._lost(
                f"{place} was to be read from offset {offset} to {self._ends[number]} and holds "
                f"{first[place]} to {last[place]}"
            )
            end = self._ends[number]
            to = min(first[place], end) if offset < first[place] else end
            await self._reader.seek({number: to})

    def _lost(self, what: str) -> None:
        report_loss(what, fail=self._options.fail_on_data_loss)


_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

"""Pages of a topic's records, forwards or backwards in time, filtered or not.

A page is a cut of the log: in each partition the offsets from `low` up to but not including `high`.
The next page begins where this one ends, so every record is on one page, once, whatever its
timestamp. Within a page records are merged by time, without changing the order in a partition.
`paging` makes one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.client.admin.offsets import OffsetsBesideFetches
from ottla.client.cluster.view import TopicPartition
from ottla.client.reader.reader import Reader
from ottla.client.reader.rows import decode_records
from ottla.client.reader.types import Timestamp
from ottla.console.paging import READ_AT_ONCE, Making, Part
from ottla.console.query import BadPlace, Bounds, Start
from ottla.console.views.messages import Batch
from ottla.wire.compression import Codec
from ottla.wire.errors import WireError
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.selection import each_batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ottla.client.cluster.cluster import Client
    from ottla.client.reader.types import Isolation
    from ottla.clock import Clock
    from ottla.console.decode.reading import Decoder
    from ottla.console.query import Budget, Cut, Query
    from ottla.console.views.messages import Message, MessagesPage, Scan
    from ottla.wire.batch import RecordBatch
    from ottla.wire.schema.fetch import FetchResponse, PartitionData

LAST_WITH_NAMES: Final = 12
"""From version 13 on Fetch speaks of topic ids."""
CODECS: Final = {int(one): one.name.lower() for one in Codec}
PREFETCH: Final = 1024 * 1024
"""Bytes that are read ahead: more than a page needs, and little enough to throw away."""


class RecordReader(Reader):
    """Makes records without Arrow: its import takes a second and 100 MiB, and a page has 50."""

    _decode = staticmethod(decode_records)


class Browser:
    """Reads pages of one cluster's topics."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self.clock = clock

    async def page(
        self,
        query: Query,
        decoder: Decoder,
        budget: Budget,
        on_turn: Callable[[Scan], Awaitable[None]] | None = None,
    ) -> MessagesPage:
        """The page; `on_turn` hears how far it is, and may raise `Stopped`."""
        bounds = await self.bounds(query)
        making = Making(self, query, decoder, budget, bounds, on_turn)
        parts = await self._parts(query, bounds)
        page = await making.make(parts)
        if query.isolation == "read_uncommitted" and page.messages:
            page = replace(page, messages=await self.with_states(query, page.messages))
        return page

    async def has_topic(self, name: str) -> bool:
        """Whether the topic exists; asked for now."""
        return await self.partitions(name) > 0

    async def partitions(self, name: str) -> int:
        """How many partitions the topic has; 0 if it does not exist."""
        found = (await self._client.refresh([name])).topics.get(name)
        return 0 if found is None else len(found.partitions)

    async def bounds(self, query: Query) -> dict[int, Bounds]:
        """The ends of the partitions; those of open transactions where they are not read."""
        offsets = OffsetsBesideFetches(self._client)
        topic = query.topic
        starts = await offsets.list_offsets([topic], "earliest")
        numbers = [key.partition for key in starts]
        if query.partitions is not None:
            unknown = sorted(set(query.partitions) - set(numbers))
            if unknown:
                raise BadPlace(
                    f"topic {topic!r:.80} has no partition {unknown[0]}; it has {len(numbers)}"
                )
            numbers = sorted(query.partitions)
        if query.isolation == "read_committed":
            async with self.reader(topic, "read_committed", "latest", None, numbers) as reader:
                ends = reader.positions
        else:
            keys = [(topic, number) for number in numbers]
            found = await offsets.list_offsets(keys, "latest")
            ends = {key.partition: one.offset for key, one in found.items()}
        return {
            number: Bounds(starts[TopicPartition(topic, number)].offset, ends[number])
            for number in numbers
        }

    def reader(
        self,
        topic: str,
        isolation: Isolation,
        start: Mapping[int, int] | str,
        stop: Mapping[int, int] | None,
        partitions: Sequence[int] | None = None,
    ) -> RecordReader:
        """A reader that reads ahead little, for what is there already."""
        return RecordReader(
            self._client,
            topic,
            start=start,  # type: ignore[arg-type]  # a text is one of the two ends
            stop=stop,
            partitions=partitions,
            isolation_level=isolation,
            on_data_loss="earliest",
            prefetch=PREFETCH,
            max_wait=0.05,
        )

    async def batch(self, topic: str, partition: int, offset: int) -> Batch | None:
        """The batch that holds an offset; None if the cluster does not give it out."""
        row = await fetch_one(self._client, TopicPartition(topic, partition), offset, 1)
        with suppress(WireError):
            for one in each_batch(row.records or b"", partial_tail=True):
                if one.base_offset <= offset <= one.last_offset:
                    return _described(one)
        return None

    async def span(self, query: Query) -> tuple[Cut, Cut]:
        """From where to where a forward read of the query goes; "newest" means all of it."""
        bounds = await self.bounds(query)
        start = query.start
        if start.newest_first:
            query = replace(query, start=Start("oldest", after=start.after))
        places = await self._places(query, bounds)
        starts = {
            number: min(max(places[number], one.start), max(one.start, one.end))
            for number, one in bounds.items()
        }
        return starts, {number: max(one.start, one.end) for number, one in bounds.items()}

    async def _parts(self, query: Query, bounds: Mapping[int, Bounds]) -> list[Part]:
        start = query.start
        back = (start.newest_first and start.after is None) or start.before is not None
        places = await self._places(query, bounds)
        parts = []
        for number, one in bounds.items():
            at = min(max(places[number], one.start), max(one.end, one.start))
            parts.append(Part(number, one, at, at, back, 0))
        return parts

    async def _places(self, query: Query, bounds: Mapping[int, Bounds]) -> Cut:
        start = query.start
        cut = start.before if start.before is not None else start.after
        if cut is not None:
            # A partition that the page before did not know is new: all of it comes after.
            return {number: cut.get(number, one.start) for number, one in bounds.items()}
        if start.kind == "newest":
            return {number: one.end for number, one in bounds.items()}
        if start.kind == "offset":
            return dict.fromkeys(bounds, start.offset)
        if start.kind == "time":
            keys = [(query.topic, number) for number in bounds]
            asked = OffsetsBesideFetches(self._client)
            found = await asked.list_offsets(keys, Timestamp(start.time_ms))
            return {
                key.partition: bounds[key.partition].end if one.offset < 0 else one.offset
                for key, one in found.items()
            }
        return {number: one.start for number, one in bounds.items()}

    async def with_states(self, query: Query, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The records, those marked that readers of committed records do not see."""
        ranges = _ranges(messages)
        committed_query = replace(query, isolation="read_committed", partitions=list(ranges))
        stable = await self.bounds(committed_query)
        starts = {number: low for number, (low, _) in ranges.items()}
        stops = {
            number: max(low, min(high, stable[number].end))
            for number, (low, high) in ranges.items()
        }
        seen: set[tuple[int, int]] = set()
        async with self.reader(query.topic, "read_committed", starts, stops) as reader:
            while records := await reader.read_many(READ_AT_ONCE):
                seen.update((one.partition, one.offset) for one in records)
        marked = []
        for one in messages:
            if one.offset >= stable[one.partition].end:
                marked.append(replace(one, state="open"))
            elif (one.partition, one.offset) not in seen:
                marked.append(replace(one, state="aborted"))
            else:
                marked.append(one)
        return tuple(marked)


async def fetch_one(client: Client, key: TopicPartition, offset: int, most: int) -> PartitionData:
    """Fetch from one partition: one batch at least, and so many bytes at most."""
    asked = FetchPartition(key.partition, fetch_offset=offset, partition_max_bytes=most)
    answer: FetchResponse = await client.send(
        FetchRequest(max_bytes=most, topics=[FetchTopic(key.topic, partitions=[asked])]),
        to=key,
        max_version=LAST_WITH_NAMES,
    )
    return answer.responses[0].partitions[0]


def _described(batch: RecordBatch) -> Batch:
    has_producer = batch.producer_id >= 0
    return Batch(
        first=batch.base_offset,
        last=batch.last_offset,
        size=batch.size,
        codec=CODECS.get(batch.codec, f"codec {batch.codec}"),
        producer=f"{batch.producer_id}/{batch.producer_epoch}" if has_producer else "",
        is_transactional=batch.is_transactional,
        leader_epoch=batch.partition_leader_epoch,
    )


def _ranges(messages: Sequence[Message]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for one in messages:
        low, high = found.get(one.partition, (one.offset, one.offset + 1))
        found[one.partition] = min(low, one.offset), max(high, one.offset + 1)
    return found

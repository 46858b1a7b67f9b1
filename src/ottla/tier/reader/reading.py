"""Make plans from a source of segments and a store, and read their splits as Arrow.

A reader never returns fewer rows than planned: it reads objects by the ETag that the plan saw,
checks every batch, and checks that the offsets reach from the first to the last. If an object was
deleted or replaced, `read` plans again; if planned offsets are gone it raises `OffsetsExpired`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.reader.rows import Chunk
from ottla.client.reader.types import CorruptRecords
from ottla.log.epochs import LeaderEpochs
from ottla.log.index import AbortedTransaction, CorruptIndex, OffsetIndex, decode_aborted
from ottla.log.producer_state import ProducerStates
from ottla.memory import keep_freed_memory
from ottla.objects.errors import RemoteNotFound, RemoteStorageError
from ottla.objects.store import ObjectReplaced
from ottla.tier.errors import CorruptRemoteData
from ottla.tier.reader.planning import Plan, Request, Split, newest, rows, serving_chain
from ottla.tier.reading.timestamps import first_at_or_after
from ottla.tier.store.layout import Section
from ottla.tier.store.ranges import ByteRange, aborted_within, byte_range, cut
from ottla.wire.batch import LENGTH_OVERHEAD, batch_size_at, iter_batches, read_batch
from ottla.wire.columns import COLUMNS_WITHOUT_HEADERS
from ottla.wire.errors import BatchError, WireError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence
    from uuid import UUID

    import pyarrow as pa

    from ottla.objects.store import ObjectStore
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata
    from ottla.tier.reader.planning import Isolation, PlannedSegment
    from ottla.tier.reader.sources import SegmentSource
    from ottla.tier.store.storage_manager import RemoteStorageManager

SPLIT_BYTES: Final = 96 * 1024 * 1024  # pieces come out between 64 and 144 MiB, most near this
REQUESTS_IN_FLIGHT: Final = 16
PART_BYTES: Final = 8 * 1024 * 1024  # of a split that are asked for at once
PARTS_IN_FLIGHT: Final = 3  # of one split
KEPT_BYTES: Final = 8 * PART_BYTES  # of freed memory: several parts
REPLANS: Final = 3  # after three deleted objects in a row give up


class SegmentGone(RemoteStorageError):
    """An object of the plan was deleted or replaced: plan again."""


class OffsetsExpired(RemoteStorageError):
    """Retention has deleted the requested offsets."""


class RemoteReader:
    """Reads tiered segments from an object store: `plan` what to read, then `read` it as Arrow."""

    def __init__(self, storage: RemoteStorageManager, source: SegmentSource) -> None:
        self._storage = storage
        self._source = source
        self._turn = asyncio.Semaphore(REQUESTS_IN_FLIGHT)

    async def plan(
        self,
        topic: str,
        partition: int,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        start_timestamp_ms: int | None = None,
        end_timestamp_ms: int | None = None,
        topic_id: UUID | None = None,
        isolation_level: Isolation = "read_committed",
        split_bytes: int = SPLIT_BYTES,
        tail_aborted: Sequence[AbortedTransaction] | None = None,
    ) -> Plan:
        """Plan the records from `start_offset` up to, not including, `end_offset`.

        A time stands for the offset of the first record that is not older. By default the plan
        covers everything in the store. With `isolation_level="read_committed"` it ends before the
        first transaction whose outcome is not in the store, unless `tail_aborted` has the aborted
        transactions that a broker reports for the rest of the log.
        """
        tip, segments = await self._source.find(topic, partition, topic_id)
        serving = await self._chain(segments)
        if start_timestamp_ms is not None:
            start_offset = await self._offset_at(serving, start_timestamp_ms)
        if end_timestamp_ms is not None:
            end_offset = await self._offset_at(serving, end_timestamp_ms)
        log_start = serving[0].start_offset if serving else 0
        remote_end = serving[-1].end_offset + 1 if serving else 0
        first = log_start if start_offset is None else start_offset
        if serving and first < log_start:
            raise OffsetsExpired(f"{tip} starts at {log_start} in the remote tier, not at {first}")
        end = remote_end if end_offset is None else min(end_offset, remote_end)
        if isolation_level == "read_committed" and tail_aborted is None and serving:
            end = min(end, await self._decided_until(serving[-1]))
        end = max(first, end)
        request = Request(
            topic, partition, tip.topic_id, first, end, isolation_level, split_bytes, tail_aborted
        )
        wanted = rows(serving, self._storage.prefix, first, end - 1) if first < end else []
        aborted = await self._aborted(serving, request) if wanted else []
        splits = await asyncio.gather(*(self._splits(one, request, aborted) for one in wanted))
        return Plan(tip, log_start, request, tuple(wanted), tuple(chain.from_iterable(splits)))

    async def read(
        self, plan: Plan, *, columns: Sequence[str] = COLUMNS_WITHOUT_HEADERS
    ) -> AsyncIterator[pa.RecordBatch]:
        """The rows of a plan, in order, as Arrow batches.

        If an object was deleted meanwhile it plans again; `OffsetsExpired` if offsets are gone.
        """
        failures = 0
        position = 0
        splits = plan.splits
        while position < len(splits):
            split = splits[position]
            try:
                found = await read_split(self._storage.store, split, columns=columns)
            except SegmentGone:
                failures += 1
                if failures > REPLANS:
                    raise
                # What was given out ends where this split's object begins to be wanted.
                splits, position = await self._again(plan.request, split), 0
                continue
            failures = 0
            position += 1
            for batch in found:
                yield batch

    async def _again(self, request: Request, gone: Split) -> tuple[Split, ...]:
        if not gone.is_first:
            # Rows of the same object are out already, and cuts may differ in the next plan.
            raise SegmentGone(
                f"{gone.key} was deleted meanwhile; plan again from offset {gone.first_offset}"
            )
        again = await self.plan(
            request.topic,
            request.partition,
            start_offset=gone.first_offset,
            end_offset=request.end_offset,
            topic_id=request.topic_id,
            isolation_level=request.isolation_level,
            split_bytes=request.split_bytes,
            tail_aborted=request.tail_aborted,
        )
        if again.end_offset < request.end_offset:
            raise OffsetsExpired(
                f"{again.tip} ends at {again.end_offset} now, no longer at {request.end_offset}"
            )
        return again.splits

    async def _chain(
        self, segments: list[RemoteLogSegmentMetadata]
    ) -> list[RemoteLogSegmentMetadata]:
        if not segments:
            return []
        last = newest(segments)
        text = await self._storage.fetch_index(last, Section.LEADER_EPOCH)
        return serving_chain(segments, LeaderEpochs.decode(bytes(text)).entries)

    async def _offset_at(
        self, serving: list[RemoteLogSegmentMetadata], timestamp_ms: int
    ) -> int | None:
        for one in serving:
            if one.max_timestamp_ms >= timestamp_ms:
                found = await first_at_or_after(self._storage, one, timestamp_ms)
                if found is not None:
                    return found.offset
        return serving[-1].end_offset + 1 if serving else None

    async def _decided_until(self, last: RemoteLogSegmentMetadata) -> int:
        """The first offset of a transaction that was open where the remote log ends."""
        data = await self._storage.fetch_index(last, Section.PRODUCER_SNAPSHOT)
        producers = ProducerStates.decode(bytes(data))
        firsts = [one.current_txn_first_offset for one in producers]
        return min([one for one in firsts if one >= 0], default=last.end_offset + 1)

    async def _aborted(
        self, serving: list[RemoteLogSegmentMetadata], request: Request
    ) -> list[AbortedTransaction]:
        """The aborts of these offsets; each is recorded where its marker is, which may be later."""
        if request.isolation_level == "read_uncommitted":
            return []
        found: list[AbortedTransaction] = []
        for one in serving:
            if one.end_offset < request.start_offset or one.txn_index_empty:
                continue
            data = await self._storage.fetch_index(one, Section.TRANSACTION)
            entries = decode_aborted(bytes(data))
            found += entries
            if any(entry.last_stable_offset >= request.end_offset for entry in entries):
                return found
        return found + list(request.tail_aborted or ())

    async def _splits(
        self, row: PlannedSegment, request: Request, aborted: list[AbortedTransaction]
    ) -> list[Split]:
        async with self._turn:
            info = await self._storage.store.head(row.key)
            if info.size != row.size:
                raise CorruptRemoteData(f"{row.key} has {info.size} bytes, not {row.size}")
            metadata = row.metadata
            is_whole = row.first == metadata.start_offset and row.last == metadata.end_offset
            pieces = [ByteRange(0, row.size)]
            if not is_whole or row.size > request.split_bytes:
                index = await self._offset_index(metadata)
                base = metadata.start_offset
                whole = byte_range(index, base, row.first, row.last, row.size)
                pieces = cut(index, whole, request.split_bytes)
        return [
            Split(
                request.topic,
                request.partition,
                row.key,
                info.etag,
                *piece,
                row.first,
                row.last,
                number == 0,
                number == len(pieces) - 1,
                aborted_within(aborted, row.first, row.last),
            )
            for number, piece in enumerate(pieces)
        ]

    async def _offset_index(self, metadata: RemoteLogSegmentMetadata) -> OffsetIndex:
        """An index that is damaged only costs bytes: all of the object is read then."""
        sections = await self._storage.fetch_indexes(metadata, (Section.OFFSET,))
        data = bytes(sections.get(Section.OFFSET, b""))
        try:
            return OffsetIndex.decode(data, metadata.segment_size)
        except CorruptIndex:
            return OffsetIndex()


async def read_split(
    store: ObjectStore, split: Split, *, columns: Sequence[str] = COLUMNS_WITHOUT_HEADERS
) -> list[pa.RecordBatch]:
    """All rows of a split as a list of Arrow batches; see `stream_split`."""
    return [rows async for rows in stream_split(store, split, columns=columns)]


async def stream_split(
    store: ObjectStore, split: Split, *, columns: Sequence[str] = COLUMNS_WITHOUT_HEADERS
) -> AsyncIterator[pa.RecordBatch]:
    """The rows of a split as Arrow batches; the next parts are read while one is decoded.

    Damaged bytes are read once more; then `CorruptRemoteData` is raised.
    """
    keep_freed_memory(KEPT_BYTES)
    waiting = deque(_parts(split))
    ahead: deque[tuple[ByteRange, asyncio.Task[memoryview]]] = deque()
    state = _State(None, memoryview(b""))
    try:
        while waiting or ahead:
            while waiting and len(ahead) < PARTS_IN_FLIGHT:
                place = waiting.popleft()
                ahead.append((place, asyncio.create_task(_get(store, split, place))))
            place, task = ahead.popleft()
            rows, state = await _decoded(store, split, place, task, state, columns)
            for one in rows:
                yield one
    finally:
        for _, task in ahead:
            task.cancel()
        await asyncio.gather(*(task for _, task in ahead), return_exceptions=True)


class _State(NamedTuple):
    """State between parts: the next offset, and the first bytes of a batch."""

    reached: int | None
    rest: memoryview


def _parts(split: Split) -> list[ByteRange]:
    """Parts to read; the last may be half as large again."""
    starts = list(range(split.start, max(split.end - PART_BYTES // 2, split.start + 1), PART_BYTES))
    return [ByteRange(*pair) for pair in pairwise([*starts, split.end])]


async def _get(store: ObjectStore, split: Split, place: ByteRange) -> memoryview:
    try:
        data = await store.get_range(split.key, place.start, place.end, etag=split.etag)
    except (RemoteNotFound, ObjectReplaced) as error:
        raise SegmentGone(f"{split.key} has changed since it was planned: {error}") from error
    if len(data) != place.end - place.start:
        raise CorruptRemoteData(f"{split.key} ends at {place.start + len(data)}")
    return data


async def _decoded(
    store: ObjectStore,
    split: Split,
    place: ByteRange,
    arriving: Awaitable[memoryview],
    state: _State,
    columns: Sequence[str],
) -> tuple[list[pa.RecordBatch], _State]:
    is_last = place.end == split.end
    try:
        data = await arriving
        return await asyncio.to_thread(_rows, split, data, state, columns, is_last)
    except (CorruptRecords, WireError, CorruptRemoteData):
        pass
    begin = place.start - len(state.rest)
    data = await _get(store, split, ByteRange(begin, place.end))
    state = state._replace(rest=memoryview(b""))
    try:
        return await asyncio.to_thread(_rows, split, data, state, columns, is_last)
    except (CorruptRecords, WireError) as error:
        raise CorruptRemoteData(f"{split.key}: {error}") from error


def _rows(
    split: Split, data: memoryview, state: _State, columns: Sequence[str], is_last: bool
) -> tuple[list[pa.RecordBatch], _State]:
    """The rows of the batches that end in this part."""
    from ottla.client.reader.decode import decode

    blocks, rest = _whole(state.rest, data)
    if rest and is_last:
        raise CorruptRemoteData(f"{split.key} has no batch that ends at {split.end}")
    reached = state.reached
    found: list[pa.RecordBatch] = []
    for block in blocks:
        first, following = _offsets(block, reached, split.key)
        if reached is None and split.is_first and first > split.first_offset:
            raise CorruptRemoteData(
                f"{split.key} has no offset {split.first_offset} at {split.start}"
            )
        # Of one producer only those count that end here or later: earlier markers are not in sight.
        aborted = [(producer, at) for producer, at, marker in split.aborted if marker >= first]
        wanted = (split.first_offset, split.last_offset + 1)
        chunk = Chunk(split.topic, split.partition, *wanted, following, block, aborted)
        found += [rows.select(list(columns)) for rows in decode(chunk, columns, verify_crc=True)]
        reached = following
    if is_last and split.is_last and (reached is None or reached <= split.last_offset):
        raise CorruptRemoteData(f"{split.key} has no offset {split.last_offset} at {split.end}")
    return found, _State(reached, rest)


def _whole(rest: memoryview, data: memoryview) -> tuple[list[memoryview], memoryview]:
    """Blocks of whole batches, and the first bytes of one that ends later.

    A batch that began in the part before is put together; nothing else is copied.
    """
    blocks = []
    if rest:
        joined = memoryview(bytes(rest) + bytes(data[:LENGTH_OVERHEAD]))
        missing = batch_size_at(joined, 0) - len(rest) if len(joined) >= LENGTH_OVERHEAD else None
        if missing is None or missing > len(data):
            return [], memoryview(bytes(rest) + bytes(data))
        blocks.append(memoryview(bytes(rest) + bytes(data[:missing])))
        data = data[missing:]
    end = 0
    while len(data) - end >= LENGTH_OVERHEAD:
        size = batch_size_at(data, end)
        if end + size > len(data):
            break
        end += size
    if end:
        blocks.append(data[:end])
    return blocks, data[end:]


def _offsets(block: memoryview, reached: int | None, key: str) -> tuple[int, int]:
    """The first offset, and the one after the last. They must ascend: no CRC covers them."""
    first = read_batch(block).base_offset
    following = first if reached is None else reached
    for batch in iter_batches(block):
        last = batch.last_offset
        if not following <= batch.base_offset <= last:
            expected = f"offsets from {following} on"
            raise BatchError(expected, f"{batch.base_offset} to {last}", key)
        following = last + 1
    return first, following

"""What a turn at a share-partition looks at of a read, and what leaves of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.shares.reads import MAX_KEPT, KeptReads, UnusedReads, _hidden, deliver, joined
from ottla.log.config import LogConfig
from ottla.log.errors import OffsetOutOfRange
from ottla.log.index import AbortedTransaction
from ottla.log.mapped import MIN_VIEW_BYTES
from ottla.log.os_storage import OsStorage
from ottla.log.partition import PartitionLog
from ottla.log.segment import HOP_BYTES
from ottla.log.tail import TailCache
from ottla.sharing.partition import SharePartition
from ottla.sharing.values import DeliverySettings, FetchTurn, PersistedState
from tests.support.log_batches import batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.shares.cold import ColdReads
    from ottla.broker.workers import Workers
    from ottla.log.segment import FoundBatches
    from ottla.wire.batch import RecordBatch


class FakeLog:
    """Chunks of batches; a read brings so many batches at most, and only whole chunks or less."""

    def __init__(self, chunks: Sequence[Sequence[RecordBatch]], per_read: int) -> None:
        self.chunks = chunks
        self.per_read = per_read
        self.local_start_offset = 0
        self.reads = 0

    def look_up(
        self, offset: int, stop_offset: int, max_bytes: int, *, upper_bound_offset: int
    ) -> FoundBatches | None:
        """These batches are small."""
        if offset < self.local_start_offset:
            raise OffsetOutOfRange("deleted, or elsewhere")
        return None

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound_offset: int,
        min_one_message: bool,
        wait: bool,
    ) -> tuple[list[bytes], int]:
        assert not wait
        if offset < self.local_start_offset:
            raise OffsetOutOfRange("deleted, or elsewhere")
        self.reads += 1
        left = self.per_read
        found = []
        for chunk in self.chunks:
            wanted = [
                batch.data
                for batch in chunk
                if offset < batch.next_offset and batch.base_offset < upper_bound_offset
            ][:left]
            left -= len(wanted)
            if wanted:
                found.append(b"".join(wanted))
        return found, 0


class Counting(OsStorage):
    """Counts the bytes that are read."""

    bytes_read = 0

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self.bytes_read += size
        return super().pread(fd, size, position)


NO_WORKERS = cast("Workers", None)


def ahead_of(log: FakeLog) -> UnusedReads:
    hosted = cast("HostedPartition", SimpleNamespace(log=log))
    return UnusedReads(hosted, NO_WORKERS, lambda: None)


@st.composite
def chunked_logs(draw: st.DrawFn) -> list[list[RecordBatch]]:
    """Batches at growing offsets, with gaps, as they lie in the chunks of a read."""
    chunks: list[list[RecordBatch]] = []
    offset = 0
    for records in draw(st.lists(st.integers(1, 5), min_size=1, max_size=12)):
        batch = batch_of(*[b"v" * draw(st.integers(0, 9))] * records)
        batch.assign(offset + draw(st.integers(0, 9)), 0)
        offset = batch.next_offset
        if not chunks or draw(st.booleans()):
            chunks.append([])
        chunks[-1].append(batch)
    return chunks


@given(chunked_logs(), st.integers(1, 12), st.data())
def test_turns_see_what_the_log_holds_wherever_they_go(
    chunks: list[list[RecordBatch]], per_read: int, data: st.DataObject
) -> None:
    log = FakeLog(chunks, per_read)
    ahead = ahead_of(log)
    batches = [batch for chunk in chunks for batch in chunk]
    offset = 0
    for _ in range(data.draw(st.integers(1, 8))):
        offset = data.draw(st.one_of(st.just(offset), st.integers(0, 130)))
        stop = data.draw(st.integers(0, 130))
        bound = data.draw(st.integers(0, 130))
        max_bytes = data.draw(st.sampled_from([1, 150, 10_000]))
        log.local_start_offset = data.draw(st.sampled_from([log.local_start_offset, offset]))
        if offset < log.local_start_offset:
            with pytest.raises(OffsetOutOfRange):
                ahead.at(offset, stop, bound, max_bytes, min_one=True)
            continue
        there = [one for one in batches if offset < one.next_offset and one.base_offset < bound]
        expected = there[:1] + [one for one in there[1:] if one.base_offset < stop]
        while len(expected) > 1 and sum(one.size for one in expected) > max_bytes:
            expected.pop()
        min_one = data.draw(st.booleans())
        if not min_one and expected and expected[0].size > max_bytes:
            expected = []
        pieces = ahead.at(offset, stop, bound, max_bytes, min_one=min_one)
        assert [piece.batch.data for piece in pieces] == [
            batch.data for batch in expected[: len(pieces)]
        ]
        assert bool(pieces) == bool(expected)
        low = data.draw(st.integers(0, len(pieces)))
        views = joined(cast("PartitionLog", log), pieces[low:], views=False)
        assert b"".join(views) == b"".join(piece.batch.data for piece in pieces[low:])
        assert all(views)
        assert len(views) <= len(chunks)
        if pieces:
            offset = pieces[-1].batch.next_offset


def one_chunk(count: int) -> list[list[RecordBatch]]:
    batches = [batch_of(b"v") for _ in range(count)]
    for offset, batch in enumerate(batches):
        batch.assign(offset, 0)
    return [batches]


def test_turns_that_go_on_share_a_read() -> None:
    log = FakeLog(one_chunk(10), 10)
    ahead = ahead_of(log)
    for offset in range(10):
        [piece] = ahead.at(offset, offset + 1, 10, 10_000, min_one=True)
        assert piece.batch.base_offset == offset
    assert log.reads == 1
    assert ahead.at(10, 11, 10, 10_000, min_one=True) == []
    assert [piece.batch.base_offset for piece in ahead.at(3, 5, 10, 10_000, min_one=True)] == [3, 4]
    assert log.reads == 3
    log.local_start_offset = 6
    with pytest.raises(OffsetOutOfRange):
        ahead.at(5, 7, 10, 10_000, min_one=True)


def test_what_was_read_longest_ago_is_not_kept() -> None:
    kept = KeptReads()
    logs = [FakeLog(one_chunk(2), 2) for _ in range(MAX_KEPT + 1)]
    reads = [ahead_of(log) for log in logs]
    for ahead in reads:
        kept.use(ahead).at(0, 1, 2, 10_000, min_one=True)
    for ahead in reads:
        ahead.at(1, 2, 2, 10_000, min_one=True)
    assert [log.reads for log in logs] == [2] + [1] * MAX_KEPT
    kept.drop(reads[-1])
    reads[-1].at(1, 2, 2, 10_000, min_one=True)
    assert logs[-1].reads == 2


def test_of_large_batches_a_turn_reads_those_that_it_delivers(tmp_path: Path) -> None:
    """The headers of the others, and no other byte."""
    storage = Counting()
    log = PartitionLog.open(
        tmp_path / "t-0", LogConfig(), now_ms=0, tail=TailCache(0), storage=storage
    )
    large = bytes(MIN_VIEW_BYTES // 2)
    for _ in range(20):
        log.append(batch_of(large), leader_epoch=0, now_ms=0)
    log.advance_high_watermark(20)
    machine = SharePartition(DeliverySettings(), PersistedState(0, 0, ()))
    ahead = UnusedReads(cast("HostedPartition", SimpleNamespace(log=log)), NO_WORKERS, print)
    for offset in range(0, 20, 2):
        storage.bytes_read = 0
        delivered = deliver(
            log,
            ahead,
            cast("ColdReads", None),
            machine,
            FetchTurn("m", 2, 2),
            1 << 24,
            committed=False,
            views=False,
            min_one=True,
            now_ms=0,
        )
        assert storage.bytes_read < delivered.size + 3 * HOP_BYTES
        assert [tuple(one) for one in delivered.ranges] == [(offset, offset + 1, 1)]
        expected, size = log.read(
            offset, delivered.size, upper_bound_offset=20, min_one_message=True
        )
        assert b"".join(delivered.records) == b"".join(expected)
        assert delivered.size == size
    log.close()


# -- aborted transactions -------------------------------------------------------------------------


def transactional(offset: int, producer_id: int) -> RecordBatch:
    batch = batch_of(b"v", producer_id=producer_id, epoch=0, sequence=0, transactional=True)
    batch.assign(offset, 0)
    return batch


@given(st.data())
def test_batches_of_aborted_transactions_are_hidden(data: st.DataObject) -> None:
    """Against the plain rule: the producer's own, from its first offset to its last."""
    aborted: list[AbortedTransaction] = []
    for producer_id in range(3):
        edges = sorted(data.draw(st.sets(st.integers(0, 40), max_size=8)))
        for first, last in zip(edges[::2], edges[1::2], strict=False):
            aborted.append(AbortedTransaction(producer_id, first, last, last + 1))
    aborted.sort(key=lambda entry: entry.first_offset)
    offsets = sorted(data.draw(st.sets(st.integers(0, 45), max_size=20)))
    batches = [transactional(offset, data.draw(st.integers(0, 3))) for offset in offsets]
    assert _hidden(aborted, batches) == {
        batch.base_offset
        for batch in batches
        if any(
            entry.producer_id == batch.producer_id
            and entry.first_offset <= batch.base_offset <= entry.last_offset
            for entry in aborted
        )
    }


class Counted(list[AbortedTransaction]):
    """Knows how many entries have been looked at."""

    looks = 0

    def __iter__(self) -> Iterator[AbortedTransaction]:
        for entry in super().__iter__():
            self.looks += 1
            yield entry


def test_the_aborted_are_walked_once_for_all_batches() -> None:
    aborted = Counted(AbortedTransaction(n, 0, 10_000, 10_001) for n in range(1000))
    batches = [transactional(offset, 7) for offset in range(50)]
    assert len(_hidden(aborted, batches)) == 50
    assert aborted.looks == 1000


class TransactionalLog(FakeLog):
    """Remembers for which offsets it was asked about aborted transactions."""

    last_stable_offset = high_watermark = 1000
    log_start_offset = 0
    asked: tuple[int, int] | None = None

    def aborted_transactions(self, first: int, end: int, *, wait: bool) -> list[AbortedTransaction]:
        self.asked = first, end
        return []


def test_only_the_aborted_of_what_was_read_are_asked_for() -> None:
    log = TransactionalLog(one_chunk(10), 4)
    machine = SharePartition(DeliverySettings(), PersistedState(0, 0, ()))
    deliver(
        cast("PartitionLog", log),
        ahead_of(log),
        cast("ColdReads", None),
        machine,
        FetchTurn("m", 4, 4),
        10_000,
        committed=True,
        views=False,
        min_one=True,
        now_ms=0,
    )
    assert log.asked == (0, 4)


@pytest.mark.parametrize(
    ("max_bytes", "min_one", "expected"),
    [(1, True, 1), (1, False, 0), (1.5, True, 1), (1.5, False, 1), (2, False, 2), (3.9, True, 3)],
)
def test_no_more_is_delivered_than_asked_for(
    max_bytes: float, min_one: bool, expected: int
) -> None:
    """Fault: every further look added a batch, however little of the limit was left."""
    log = TransactionalLog(one_chunk(10), 1)
    size = log.chunks[0][0].size
    delivered = deliver(
        cast("PartitionLog", log),
        ahead_of(log),
        cast("ColdReads", None),
        SharePartition(DeliverySettings(), PersistedState(0, 0, ())),
        FetchTurn("m", 500, 500),
        int(max_bytes * size) if max_bytes > 1 else 1,
        committed=True,
        views=False,
        min_one=min_one,
        now_ms=0,
    )
    assert (delivered.offsets, delivered.size) == (expected, expected * size)

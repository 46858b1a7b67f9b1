"""Append, read and roll: what Produce and Fetch rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.log.appending import KEPT_BYTES, AppendResult
from ottla.log.config import LogConfig
from ottla.log.errors import OffsetOutOfRange
from ottla.log.partition import PartitionLog
from ottla.log.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, segment_path
from ottla.log.tail import LOG_TAIL_BYTES, TailCache
from ottla.wire.batch import RecordBatch
from ottla.wire.records import iter_records
from tests.support.log_batches import batch_of, batches_in, joined, read_all

if TYPE_CHECKING:
    from pathlib import Path

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)


def open_log(directory: Path, config: LogConfig = SMALL, *, tail_bytes: int = 0) -> PartitionLog:
    return PartitionLog.open(directory, config, now_ms=0, tail=TailCache(tail_bytes))


def append(log: PartitionLog, *values: bytes, now_ms: int = 0, epoch: int = 0) -> AppendResult:
    result = log.append(batch_of(*values), leader_epoch=epoch, now_ms=now_ms)
    log.advance_high_watermark(log.log_end_offset)
    return result


def read(log: PartitionLog, offset: int, max_bytes: int = 1 << 20) -> list[RecordBatch]:
    result = log.read(
        offset, max_bytes, upper_bound_offset=log.high_watermark, min_one_message=True
    )
    return batches_in(result)


@pytest.fixture(params=[0, 1 << 20], ids=["from files", "from the tail"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path / "t-0", tail_bytes=request.param)


def test_offsets_are_given_in_order(log: PartitionLog) -> None:
    assert append(log, b"a", b"b") == AppendResult(0, 1, -1, 0, duplicate=False)
    assert append(log, b"c") == AppendResult(2, 2, -1, 0, duplicate=False)
    assert log.log_end_offset == 3


def test_batches_are_patched_and_their_records_kept(log: PartitionLog) -> None:
    append(log, b"a")
    append(log, b"b", b"c", epoch=7)
    (_, batch) = read(log, 0)
    assert (batch.base_offset, batch.partition_leader_epoch) == (1, 7)
    assert [(r.offset, r.value) for r in iter_records(batch)] == [(1, b"b"), (2, b"c")]


def test_a_batch_may_lie_in_a_read_only_buffer(log: PartitionLog) -> None:
    batch = RecordBatch(memoryview(bytes(batch_of(b"a").data)))
    log.append(batch, leader_epoch=3, now_ms=0)
    log.advance_high_watermark(1)
    assert read(log, 0)[0].partition_leader_epoch == 3


def test_the_log_keeps_its_own_copy(log: PartitionLog) -> None:
    batch = batch_of(b"a")
    log.append(batch, leader_epoch=0, now_ms=0)
    batch.data[:] = bytes(len(batch.data))
    log.advance_high_watermark(1)
    assert [r.value for r in iter_records(read(log, 0)[0])] == [b"a"]


def test_an_offset_inside_a_batch_gets_that_batch(log: PartitionLog) -> None:
    append(log, b"a", b"b", b"c")
    append(log, b"d", b"e", b"f")
    for offset, expected in [(0, [0, 3]), (1, [0, 3]), (2, [0, 3]), (3, [3]), (4, [3]), (5, [3])]:
        assert [batch.base_offset for batch in read(log, offset)] == expected


def test_reads_at_and_past_the_ends(log: PartitionLog) -> None:
    append(log, b"a")
    assert read(log, 1) == []
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange):
            read(log, offset)


def test_nothing_is_served_at_or_past_the_upper_bound(log: PartitionLog) -> None:
    for value in (b"a", b"b", b"c"):
        append(log, value)
    for bound in range(4):
        result = log.read(0, 1 << 20, upper_bound_offset=bound, min_one_message=True)
        assert [batch.base_offset for batch in batches_in(result)] == list(range(bound))


def test_the_first_batch_comes_whole_whatever_its_size(log: PartitionLog) -> None:
    append(log, b"x" * 5000)
    append(log, b"y")
    assert [batch.base_offset for batch in read(log, 0, max_bytes=1)] == [0]
    result = log.read(0, 1, upper_bound_offset=2, min_one_message=False)
    assert result.chunks == []


def test_a_read_stopped_inside_a_sealed_segment_does_not_skip_the_rest(log: PartitionLog) -> None:
    sizes = []
    for number in range(40):
        batch = batch_of(bytes([number]) * 60)
        sizes.append(batch.size)
        log.append(batch, leader_epoch=0, now_ms=0)
    log.advance_high_watermark(40)
    assert len(log.segments) > 5
    for offset in range(40):
        for max_bytes in (1, sizes[0], sizes[0] + 1, 3 * sizes[0] - 1, 9 * sizes[0]):
            bases = [batch.base_offset for batch in read(log, offset, max_bytes)]
            count = max(1, max_bytes // sizes[0])
            assert bases == list(range(offset, min(40, offset + count)))


def test_many_batches_are_appended_at_once(log: PartitionLog) -> None:
    batches = [batch_of(bytes([number]) * 50) for number in range(30)]
    results = log.append_many(batches, leader_epoch=0, now_ms=0)
    assert [r.base_offset for r in results if isinstance(r, AppendResult)] == list(range(30))
    log.advance_high_watermark(30)
    assert len(log.segments) > 3
    assert b"".join(batch.data for batch in read(log, 0)) == read_all(log)


def test_log_append_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    sent = batch_of(b"a", b"b", timestamps=[5, 6])
    assert log.append(sent, leader_epoch=0, now_ms=99).log_append_time_ms == 99
    log.advance_high_watermark(2)
    (batch,) = read(log, 0)
    assert batch.is_log_append_time
    assert [record.timestamp for record in iter_records(batch)] == [99, 99]
    assert not sent.is_log_append_time


class TestRoll:
    def bases(self, log: PartitionLog) -> list[int]:
        return [segment.base_offset for segment in log.segments]

    def test_by_size(self, tmp_path: Path) -> None:
        size = batch_of(b"x").size
        log = open_log(tmp_path, LogConfig(segment_bytes=2 * size))
        for _ in range(5):
            append(log, b"x")
        assert self.bases(log) == [0, 2, 4]
        assert [segment.size for segment in log.segments] == [2 * size, 2 * size, size]

    def test_by_record_time(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(segment_ms=100))
        for timestamp in (1000, 1100, 1101, 1201, 1202):
            batch = batch_of(b"x", timestamps=[timestamp])
            log.append(batch, leader_epoch=0, now_ms=0)
        assert self.bases(log) == [0, 2, 4]

    def test_by_the_clock_when_records_have_no_time(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(segment_ms=100))
        for now_ms in (0, 100, 101, 200, 202):
            batch = batch_of(b"x", timestamps=[-1])
            log.append(batch, leader_epoch=0, now_ms=now_ms)
        assert self.bases(log) == [0, 2, 4]

    @pytest.mark.parametrize(("index_bytes", "entries"), [(24, 1), (8 * 6, 3)])
    def test_by_a_full_index(self, tmp_path: Path, index_bytes: int, entries: int) -> None:
        log = open_log(tmp_path, LogConfig(segment_index_bytes=index_bytes, index_interval_bytes=1))
        for number in range(12):
            log.append(batch_of(b"x", timestamps=[number]), leader_epoch=0, now_ms=0)
        assert {len(segment.offset_index) for segment in log.segments[:-1]} == {entries}

    def test_by_offset_span(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig())
        span = 0x7FFFFFFF
        for delta in (0, span - 1, 0, 0):
            batch = batch_of(b"x")
            batch.last_offset_delta = delta  # the header field itself is not looked at again
            log.append(batch, leader_epoch=0, now_ms=0)
        assert self.bases(log) == [0, span + 1]

    def test_leaves_indexes_and_a_snapshot(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        for _ in range(20):
            append(log, b"x" * 50)
        sealed, following = log.segments[0], log.segments[1]
        assert segment_path(tmp_path, 0, INDEX).read_bytes() == sealed.offset_index.encode()
        assert segment_path(tmp_path, 0, TIME_INDEX).read_bytes() == sealed.time_index.encode()
        assert segment_path(tmp_path, following.base_offset, SNAPSHOT).exists()
        assert not segment_path(tmp_path, 0, LOG).read_bytes().endswith(b"\0" * 61)


def test_a_reader_goes_on_where_it_stopped(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(index_interval_bytes=400))
    for number in range(200):
        append(log, bytes([number]) * (1 + number % 70))
    expected = (tmp_path / f"{0:020d}.log").read_bytes()
    assert read_all(log) == expected


def test_more_readers_than_are_remembered(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(index_interval_bytes=400))
    for _ in range(200):
        append(log, b"x" * 20)
    size = log.segments[0].size // 200
    for _ in range(2):
        for offset in range(198):
            assert [b.base_offset for b in read(log, offset, size)] == [offset]


def test_a_misleading_index_entry_is_found_out(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(index_interval_bytes=100))
    for _ in range(40):
        append(log, b"x" * 30)
    index = log.segments[0].offset_index
    good = index.encode()
    index.positions[5] += 3
    assert [batch.base_offset for batch in read(log, index.offsets[5], 1)] == [index.offsets[5]]
    assert log.segments[0].offset_index.encode() == good


def test_chunks_are_the_bytes_on_disk(tmp_path: Path) -> None:
    cached = open_log(tmp_path / "a-0", tail_bytes=1 << 20)
    plain = open_log(tmp_path / "b-0")
    for number in range(30):
        for log in (cached, plain):
            append(log, bytes([number]) * 40)
    for offset in range(31):
        for max_bytes in (0, 1, 300, 900):
            for at_least_one in (True, False):
                first, second = (
                    log.read(offset, max_bytes, upper_bound_offset=27, min_one_message=at_least_one)
                    for log in (cached, plain)
                )
                assert joined(first) == joined(second)


def test_the_tail_forgets_the_oldest(tmp_path: Path) -> None:
    log = open_log(tmp_path, tail_bytes=300)
    for number in range(60):
        append(log, bytes([number]) * 40)
    assert [batch.base_offset for batch in read(log, 0)] == list(range(60))
    assert log._tail.read(0, 1, 60, at_least_one=True) is None
    assert log._tail.read(59, 1, 60, at_least_one=True) is not None


@pytest.mark.parametrize("segment_bytes", [1 << 20, 250])
def test_all_batches_in_flight_are_known_again_after_a_clean_restart(
    tmp_path: Path, segment_bytes: int
) -> None:
    config = LogConfig(segment_bytes=segment_bytes)
    log = PartitionLog.open(tmp_path, config, now_ms=0)
    first = [
        log.append(
            batch_of(b"v", producer_id=7, epoch=0, sequence=number), leader_epoch=0, now_ms=0
        )
        for number in range(4)
    ]
    assert log.close(clean=True)
    log = PartitionLog.open(tmp_path, config, now_ms=0, clean=True, recovery_point=4)
    kept = 4 if segment_bytes > 250 else 2  # the two last segments are looked at
    for number in range(4 - kept, 4):
        again = log.append(
            batch_of(b"v", producer_id=7, epoch=0, sequence=number), leader_epoch=0, now_ms=0
        )
        assert again.duplicate
        assert again.base_offset == first[number].base_offset
    assert log.log_end_offset == 4
    log.close(clean=False)


@pytest.mark.parametrize("tail_bytes", [0, 64 << 20])
def test_batches_too_large_to_be_cached_keep_their_place(tmp_path: Path, tail_bytes: int) -> None:
    log = open_log(tmp_path, LogConfig(), tail_bytes=tail_bytes)
    large = LOG_TAIL_BYTES + 1
    sizes = [10, large, 20, 30, large, large, 40]
    batches = [batch_of(bytes([65 + number]) * size) for number, size in enumerate(sizes)]
    before = [bytes(batch.data) for batch in batches]
    results = log.append_many(batches, leader_epoch=3, now_ms=0)
    assert [result.base_offset for result in results if isinstance(result, AppendResult)] == list(
        range(7)
    )
    assert [bytes(batch.data) for batch in batches] == before, "the request's bytes are not ours"
    for offset, batch in enumerate(batches):
        result = log.read(offset, 1, upper_bound_offset=7, min_one_message=True)
        (found,) = batches_in(result)
        batch.assign(offset, 3)
        assert found.data == batch.data
    assert log.size_bytes == sum(batch.size for batch in batches)


@pytest.mark.parametrize("stopped", [False, True])
def test_empty_indexes_that_a_tool_left_beside_the_active_segment_do_no_harm(
    tmp_path: Path, stopped: bool
) -> None:
    """As `kafka-dump-log --files X.index` leaves them: it opens for writing what is not there."""
    directory = tmp_path / "t-0"
    log = open_log(directory)
    append(log, b"a" * 100)
    if stopped:
        log.close()
    for kind in (INDEX, TIME_INDEX):
        segment_path(directory, 0, kind).touch()
    if stopped:
        log = open_log(directory)
    for number in range(30):  # rolls several times
        append(log, b"%d" % number * 50, now_ms=number)
    assert len(list(directory.glob(f"*{LOG}"))) > 3
    log.close()
    # A sealed segment has its index, in which what is looked for is found.
    assert segment_path(directory, 0, INDEX).stat().st_size > 0
    log = open_log(directory)
    log.advance_high_watermark(log.log_end_offset)
    assert [read(log, offset)[0].base_offset for offset in range(31)] == list(range(31))
    log.close()


def batch_in(memory: bytearray, size: int) -> RecordBatch:
    """A batch at the start of some memory."""
    data = batch_of(bytes(size)).data
    memory[: len(data)] = data
    return RecordBatch(memoryview(memory)[: len(data)])


def kept(log: PartitionLog) -> bytes | memoryview:
    found = log.read(0, 1 << 20, upper_bound_offset=log.log_end_offset, min_one_message=True)
    (chunk,) = found.chunks
    return chunk


def test_a_large_batch_of_the_log_is_patched_where_it_is(tmp_path: Path) -> None:
    size = KEPT_BYTES
    memory = bytearray(batch_of(bytes(size)).size)
    log = PartitionLog.open(tmp_path / "t-0", LogConfig(), now_ms=0)
    log.append(batch_in(memory, size), leader_epoch=7, now_ms=0, owned=True)
    chunk = kept(log)
    assert isinstance(chunk, memoryview)
    assert chunk.obj is memory
    batch = RecordBatch(chunk)
    batch.verify_crc()
    assert batch.partition_leader_epoch == 7
    (path,) = (tmp_path / "t-0").glob("*.log")
    assert path.read_bytes() == bytes(memory)
    log.close()


@pytest.mark.parametrize(
    ("size", "others", "owned"),
    [(KEPT_BYTES, 0, False), (KEPT_BYTES, KEPT_BYTES // 2, True), (100, 0, True)],
)
def test_a_batch_of_others_or_with_others_is_copied(
    tmp_path: Path, size: int, others: int, *, owned: bool
) -> None:
    """One that is not the log's, one that would keep other bytes in memory, and a small one."""
    memory = bytearray(batch_of(bytes(size)).size + others)
    log = PartitionLog.open(tmp_path / "t-0", LogConfig(), now_ms=0)
    batch = batch_in(memory, size)
    before = bytes(memory)
    log.append(batch, leader_epoch=7, now_ms=0, owned=owned)
    assert isinstance(kept(log), bytes)
    assert bytes(memory) == before
    log.close()

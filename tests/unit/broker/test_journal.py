"""Acknowledgement by one durable write: who waits for what, and what happens when a disk fails.

The numbers are those of the journal's acceptance cases.
"""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from ottla.broker.hosting import journal as journal_module
from ottla.broker.hosting.partitions import Partitions
from ottla.log.journal.files import SPARE_BYTES, STATE_FILE
from ottla.log.journal.replay import scan
from tests.support.journal_room import (
    EXTENT_MAX_BYTES,
    FILE_BYTES,
    PATIENCE,
    Answer,
    Disk,
    Room,
    journal_files,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from ottla.broker.hosting.hosted import HostedPartition

LOG = ".log"
SLOTS = FILE_BYTES // 4096  # in a file, if they are small


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal is never idle, however slow the machine is."""
    monkeypatch.setattr(journal_module, "IDLE_SECONDS", 1000.0)


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    opened = Room(tmp_path, Disk())
    yield opened
    await opened.close()


async def fill(room: Room, partition: HostedPartition) -> None:
    """Use up all files of the journal; what they cover must be held."""
    while room.disk.written().count("1") < SLOTS:
        if len(room.disk.written()) == SLOTS - 1:
            await until(lambda: bool(room.journal.free_files))  # the second is made meanwhile
        await room.write(partition)


# -- rounds ---------------------------------------------------------------------------------------


async def test_an_acknowledgement_is_one_durable_write(room: Room) -> None:
    """Case 1: the log's own file is not synced. Case 10: flush.ms finds nothing to do."""
    (one,) = room.open("one")
    await room.ready(one)
    await room.write(one)
    assert room.disk.calls == [("write_durably", str(room.data.path / f"{STATE_FILE}.0"))]
    assert one.log.high_watermark == one.log.log_end_offset == one.log.durable_offset == 2
    assert one.log.recovery_point == 1
    assert one.log.unflushed == 0
    assert not one.flush_due(1e9)


async def test_requests_of_one_turn_share_a_slot(room: Room) -> None:
    """Case 2: a request that comes while a slot is written is in the next one, which is cut before
    the answers of the first are sent."""
    one, other = room.open("one", "other")
    await room.ready(one, other)
    write = room.disk.hold("write_durably", STATE_FILE)
    seen: list[int] = []
    before = room.journal.rounds
    answers = [Answer(lambda: seen.append(room.journal.rounds - before)) for _ in range(4)]
    for partition, answer in zip((one, other), answers, strict=False):
        room.append(partition)
        assert room.journal.enlist([partition], answer)
    await write.wait()
    for answer in answers[2:]:
        room.append(one)
        assert room.journal.enlist([one], answer)
    room.disk.release()
    await until(lambda: all(answer.is_sent for answer in answers))
    assert len(room.disk.written()) == 2
    assert seen == [2, 2, 2, 2]


async def test_a_large_batch_is_synced_by_itself_and_delays_nobody(room: Room) -> None:
    """Case 3: an answer that has both kinds waits for both."""
    large, small = room.open("large", "small")
    await room.ready(large, small)
    sync = room.disk.hold("fdatasync", "/large-0/")
    room.append(large, EXTENT_MAX_BYTES + 1)
    room.append(small)
    both, alone = Answer(), Answer()
    assert room.journal.enlist([large, small], both)
    assert room.journal.enlist([small], alone)
    await until(lambda: alone.is_sent)
    await sync.wait()
    assert small.log.high_watermark == 2
    assert not both.is_sent
    room.disk.release()
    await until(lambda: both.is_sent)
    assert large.log.high_watermark == large.log.recovery_point == 2
    assert room.journal.counts.direct == 2 + 1  # the first round made the file


async def test_a_partition_whose_sync_is_under_way_is_held(room: Room) -> None:
    """Case 24: its later batches would be acknowledged before those below them."""
    held, other = room.open("held", "other")
    await room.ready(held, other)
    sync = room.disk.hold("fdatasync", "/held-0/")
    first = room.join(held, size=EXTENT_MAX_BYTES + 1)
    await sync.wait()
    second = room.join(held, other)
    await room.write(other)  # the round that had to leave the second one behind
    assert not first.done()
    assert not second.done()
    assert held.log.high_watermark == 1
    room.disk.release()
    await asyncio.wait_for(asyncio.gather(first, second), PATIENCE)
    assert held.log.high_watermark == 3


async def test_the_next_direct_sync_begins_before_answers_are_sent(room: Room) -> None:
    """The disk works while the answers of the one before are written."""
    (large,) = room.open("large")
    await room.ready(large)
    before = room.journal.counts.direct
    begun: list[int] = []
    sync = room.disk.hold("fdatasync", "/large-0/")
    answers = [Answer(lambda: begun.append(room.journal.counts.direct - before)) for _ in range(2)]
    room.append(large, EXTENT_MAX_BYTES + 1)
    room.journal.enlist([large], answers[0])
    await sync.wait()
    room.append(large, EXTENT_MAX_BYTES + 1)
    room.journal.enlist([large], answers[1])
    await asyncio.sleep(0)  # its turn comes while the first sync is under way
    room.disk.release()
    await until(lambda: all(answer.is_sent for answer in answers))
    assert begun == [2, 2]


async def test_a_barrier_needs_nobody_else(room: Room) -> None:
    """It waited for the next slot that somebody else would write."""
    await asyncio.wait_for(room.journal.barrier(), PATIENCE)
    (one,) = room.open("one")
    await room.ready(one)
    await asyncio.wait_for(room.journal.barrier(), PATIENCE)
    joined = room.join(one)
    await asyncio.wait_for(room.journal.barrier(), PATIENCE)
    assert joined.done()


async def test_answers_that_nobody_waits_for_are_in_the_next_slot(room: Room) -> None:
    """Case 8: acks=0 and acks=1."""
    one, other = room.open("one", "other")
    await room.ready(one, other)
    room.append(one)
    room.journal.enlist([one], None)
    await room.write(other)
    assert len(room.disk.written()) == 1
    leftover = scan(room.data.directory)
    assert leftover is not None
    assert len(leftover) == 2


async def test_a_connection_that_fails_delays_no_other(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    """Case 12."""
    (one,) = room.open("one")
    await room.ready(one)

    def fail() -> None:
        raise RuntimeError("closed")

    answers = [Answer(fail), Answer()]
    for answer in answers:
        room.append(one)
        room.journal.enlist([one], answer)
    await until(lambda: answers[1].is_sent)
    assert "acknowledgements could not be sent" in caplog.text


async def test_batches_that_the_journal_will_not_take_are_not_kept(room: Room) -> None:
    """A slow sync and producers that do not wait: memory had no limit."""
    (one,) = room.open("one")
    await room.ready(one)
    sync = room.disk.hold("fdatasync", "/one-0/")
    first = room.join(one, size=EXTENT_MAX_BYTES + 1)
    await sync.wait()
    for _ in range(100):
        room.append(one, 1000)
        room.journal.enlist([one], None)
    assert one.log.fresh is not None
    assert one.log.fresh.lacks_some
    assert not one.log.fresh.chunks
    room.disk.release()
    await asyncio.wait_for(first, PATIENCE)
    unkept = one.log.log_end_offset
    await room.write(one)
    assert one.log.recovery_point >= unkept
    assert one.log.high_watermark == one.log.log_end_offset == unkept + 1


# -- files ----------------------------------------------------------------------------------------


async def test_files_are_used_again_in_order_after_their_logs_are_synced(room: Room) -> None:
    """Case 5."""
    (one,) = room.open("one")
    await room.ready(one)
    while len(room.disk.written()) < 6 * SLOTS:
        await room.write(one)
    used: list[str] = []
    last_writes: dict[str, int] = {}
    last_sync = -1
    for number, (call, path) in enumerate(room.disk.calls):
        if call == "fdatasync" and LOG in path:
            last_sync = number
        elif call == "write_durably":
            file = path[-1]
            if not used or used[-1] != file:
                used.append(file)
                assert last_sync >= last_writes.get(file, -1)
            last_writes[file] = number
    assert used[:4] == ["0", "1", "0", "1"]


async def test_rounds_are_direct_while_no_file_is_free(room: Room) -> None:
    """Case 6: the checkpoint is slower than the producers; the journal resumes afterwards."""
    slow, other = room.open("slow", "other")
    await room.ready(slow, other)
    room.disk.hold("fdatasync", "/slow-0/")
    await fill(room, slow)
    slots = len(room.disk.written())
    room.disk.calls.clear()
    for _ in range(3):
        await room.write(other)
    assert room.disk.written() == []
    assert room.disk.synced("/other-0/") == 3
    room.disk.release()
    await until(lambda: bool(room.journal.free_files))
    await room.write(other)
    assert len(room.disk.written()) == 1
    assert slots == 2 * SLOTS


async def test_files_are_checkpointed_one_at_a_time(room: Room) -> None:
    """They are free in order anyway, and one sync of the disk for many logs covers both."""
    slow, other, third = room.open("slow", "other", "third")
    await room.ready(slow, other, third)
    sync = room.disk.hold("fdatasync", "/slow-0/")
    for _ in range(SLOTS):
        await room.write(slow)
    await until(lambda: bool(room.journal.free_files))
    for _ in range(SLOTS):
        await room.write(other)
    await room.write(third)  # no file is free
    await sync.wait()
    assert not room.disk.synced("/other-0/")
    room.disk.release()
    await until(lambda: room.journal.counts.checkpoints == 2)


async def test_an_idle_journal_covers_nothing(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 7."""
    monkeypatch.setattr(journal_module, "IDLE_SECONDS", 0.01)
    (one,) = room.open("one")
    await room.ready(one)
    await room.write(one)
    await until(lambda: one.log.recovery_point == one.log.log_end_offset)
    assert room.journal.counts.checkpoints == 1
    assert room.journal.counts.checkpoint_seconds > 0


async def test_a_journal_on_another_disk_goes_on_while_the_logs_cannot_be_synced(
    tmp_path: Path,
) -> None:
    """Case 29: until its files are used up; then answers wait."""
    (tmp_path / "fast").mkdir()
    room = Room(tmp_path / "data", Disk(), journal_dir=tmp_path / "fast")
    (one,) = room.open("one")
    await room.ready(one)
    room.disk.hold("fdatasync", "/one-0/")
    await fill(room, one)
    waits = room.join(one)
    done, _ = await asyncio.wait([waits], timeout=0.05)
    assert not done
    room.disk.release()
    await asyncio.wait_for(waits, PATIENCE)
    await room.close()
    assert journal_files(tmp_path / "fast") == []


# -- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
async def test_a_write_that_fails_acknowledges_nothing(
    room: Room, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    """Cases 26 and 27: the logs are synced instead, the journal is off and gone."""
    one, other = room.open("one", "other")
    await room.ready(one, other)
    await room.write(other)
    sync = room.disk.hold("fdatasync", "/one-0/")
    room.disk.break_("write_durably", STATE_FILE, error)
    joined = room.join(one)
    await sync.wait()
    assert not joined.done()
    assert one.log.high_watermark == 1
    room.disk.release()
    await asyncio.wait_for(joined, PATIENCE)
    assert one.log.high_watermark == one.log.recovery_point == 2
    assert room.journal.is_off
    room.disk.repair()
    await room.write(one, other)
    assert len(room.disk.written()) == 2, "one that was written and one that failed"
    await until(lambda: journal_files(room.data.path) == [])
    assert other.log.recovery_point == other.log.log_end_offset
    (told,) = caplog.messages
    assert "writing the journal failed" in told


async def test_a_file_that_cannot_be_made_is_told_once_and_tried_again(
    room: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Case 27."""
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 0.001)
    room.disk.break_("open", f"{STATE_FILE}.0", errno.ENOSPC)
    (one,) = room.open("one")

    async def write_until_struck(times: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while room.disk.struck < times:
                await room.write(one)

    await write_until_struck(3)
    assert room.disk.written() == []
    assert one.log.high_watermark == one.log.recovery_point == one.log.log_end_offset
    (told,) = caplog.messages
    assert "no new file for the journal" in told
    assert "simulated failure" in told
    room.disk.repair()
    async with asyncio.timeout(PATIENCE):
        while not room.disk.written():
            await room.write(one)


async def test_a_disk_that_is_nearly_full_gets_no_journal(
    room: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal's zeros took the room that the logs needed."""
    monkeypatch.setattr(room.disk, "free_bytes", lambda _: SPARE_BYTES)
    (one,) = room.open("one")
    await room.write(one)
    await until(lambda: bool(caplog.messages))
    assert "are left to the logs" in caplog.text
    assert journal_files(room.data.path) == []
    assert "version=1" in (room.data.path / "meta.properties").read_text()


async def test_a_file_that_cannot_be_filled_leaves_no_part_of_it(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    room.disk.break_("fdatasync", f"{STATE_FILE}.0", errno.ENOSPC)
    (one,) = room.open("one")
    await room.write(one)
    await until(lambda: bool(caplog.messages))
    assert journal_files(room.data.path) == []


async def test_a_log_that_cannot_be_synced_is_offline_alone(room: Room) -> None:
    """Case 28, and case 50: the answer of the other partition is sent."""
    struck, spared = room.open("struck", "spared")
    await room.ready(struck, spared)
    room.disk.break_("fdatasync", "/struck-0/")
    await asyncio.wait_for(room.join(struck, size=EXTENT_MAX_BYTES + 1), PATIENCE)
    assert not struck.log.online
    assert struck.log.high_watermark == 1
    await room.write(spared)
    assert spared.log.high_watermark == 2
    assert len(room.disk.written()) == 1
    joined = room.journal.join([struck])
    assert joined is not None
    await asyncio.wait_for(joined, PATIENCE)


async def test_an_offline_log_keeps_its_part_of_the_journal_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each try to sync it was told with a traceback. The next start has what it acknowledged."""
    monkeypatch.setattr(journal_module, "IDLE_SECONDS", 0.001)
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 0.001)
    room = Room(tmp_path, Disk())
    (struck,) = room.open("struck")
    await room.ready(struck)
    room.disk.break_("fdatasync", "/struck-0/")
    await room.write(struck)
    await until(lambda: not struck.log.online)
    tries = []
    checkpoint = room.journal._checkpoint

    def count(file: int, covers: Mapping[HostedPartition, int]) -> None:
        tries.append(file)
        checkpoint(file, covers)

    monkeypatch.setattr(room.journal, "_checkpoint", count)
    await until(lambda: len(tries) > 3)
    assert len([text for text in caplog.messages if "its log is offline" in text]) == 1
    await room.close()
    # A try after the end would find no executor.
    tries.clear()
    await asyncio.sleep(0.002)
    assert not tries
    leftover = scan(room.data.directory)
    assert leftover is not None
    assert leftover.first_offset((struck.topic_id, 0)) == 1


# -- closing --------------------------------------------------------------------------------------


async def test_a_clean_stop_leaves_no_journal(tmp_path: Path) -> None:
    room = Room(tmp_path, Disk())
    one, other = room.open("one", "other")
    await room.ready(one, other)
    await room.write(one, other)
    await room.close()
    assert journal_files(tmp_path) == []
    assert "version=1" in (tmp_path / "meta.properties").read_text()


async def test_nothing_is_begun_while_the_journal_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that ended then had a new file made, which a clean stop left behind."""
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 0.001)
    room = Room(tmp_path, Disk(), files=3)
    oldest, newer, direct = room.open("oldest", "newer", "direct")
    await room.ready(oldest, newer, direct)
    room.disk.break_("open", f"{STATE_FILE}.2", errno.ENOSPC)
    sync = room.disk.hold("fdatasync", "/oldest-0/")
    for partition in (oldest, newer):
        for _ in range(SLOTS):
            await room.write(partition)
        if partition is oldest:
            await until(lambda: bool(room.journal.free_files))
    await room.write(direct)  # there is no room, and no third file
    await until(lambda: room.disk.struck > 0)
    room.disk.repair()
    await asyncio.sleep(0.002)  # until another try would be made
    await room.journal.drain()
    closing = asyncio.ensure_future(room.journal.close())
    await asyncio.sleep(0)
    sync.release()
    await asyncio.wait_for(closing, PATIENCE)
    assert newer.log.recovery_point < newer.log.log_end_offset  # no checkpoint began, either
    assert journal_files(tmp_path) == [STATE_FILE, f"{STATE_FILE}.0", f"{STATE_FILE}.1"]
    room.executor.shutdown()
    room.data.close()


# -- the journal of the run before ----------------------------------------------------------------


async def test_an_old_journal_is_dropped_once(tmp_path: Path) -> None:
    """A checkpoint that met the end of recovery dropped it a second time, and with it the new one,
    whose first slots were acknowledged by then."""
    before = Room(tmp_path, Disk())
    (one,) = before.open("one")
    await before.ready(one)
    await before.write(one)
    await before.close(clean=False)
    room = Room(tmp_path, Disk())
    workers: Any = SimpleNamespace(
        run=lambda work: asyncio.get_running_loop().run_in_executor(room.executor, work)
    )
    partitions = Partitions(SimpleNamespace(), room.data, workers)  # type: ignore[arg-type]
    (one,) = room.open("one")
    assert one.log.log_end_offset == 2
    dropped: list[str] = []
    drop_journal = room.data.drop_journal

    def drop() -> None:
        dropped.append("again" if dropped else "once")
        drop_journal()

    room.data.drop_journal = drop  # type: ignore[method-assign]
    await asyncio.gather(partitions.finish_replay(), partitions.finish_replay())
    assert dropped == ["once"]
    assert journal_files(tmp_path) == []
    await room.ready(one)
    await room.write(one)
    await partitions.finish_replay()
    assert dropped == ["once"]
    assert STATE_FILE in journal_files(tmp_path)
    await room.close()


async def test_a_partition_that_was_handed_over_is_not_made_again(tmp_path: Path) -> None:
    """Case 36: another node has its directory; the journal had batches of it."""
    before = Room(tmp_path, Disk())
    moved, stays = before.open("moved", "stays")
    await before.ready(moved, stays)
    await before.write(moved, stays)
    await before.close(clean=False)
    (tmp_path / "moved-0").rename(tmp_path.with_name("other-node"))
    room = Room(tmp_path, Disk())
    assert room.data.leftover is not None
    names = {UUID(bytes=one.topic_id): one.topic for one in (moved, stays)}
    room.data.keep_leftover_of(SimpleNamespace(topic_names=names))  # type: ignore[arg-type]
    assert room.data.leftover.unsettled() == [(stays.topic_id, 0)]
    assert not (tmp_path / "moved-0").exists()
    await room.close()


async def test_a_log_that_was_closed_cleanly_is_synced(tmp_path: Path) -> None:
    """Else none of its segments may leave: nobody would sync it before the next append."""
    before = Room(tmp_path, Disk())
    (one,) = before.open("one")
    await before.write(one)
    await before.close()
    room = Room(tmp_path, Disk())
    (one,) = room.open("one")
    assert one.log.high_watermark == one.log.recovery_point == one.log.log_end_offset == 1
    await room.close()

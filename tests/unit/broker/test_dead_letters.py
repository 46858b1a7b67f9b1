"""What the log still gives for dead letters: in parts, and as far as it can be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.broker.shares import dead_letters
from ottla.broker.shares.dead_letters import DeadLetters
from ottla.broker.workers import Workers
from ottla.log.config import LogConfig
from ottla.log.errors import LogClosed
from ottla.log.partition import PartitionLog
from ottla.log.reading import ReadResult
from ottla.sharing.values import Archived, ArchiveReason
from tests.support.log_batches import batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.broker.hosting.hosted import HostedPartition


class Log:
    """Batches of three records each from offset `start` on; one of them may be unreadable."""

    def __init__(self, batches: int, *, start: int = 0, broken: int | None = None) -> None:
        self.high_watermark = 3 * batches
        self.log_start_offset = self.local_start_offset = start
        self._batches = []
        for index in range(batches):
            batch = batch_of(*[b"v%d" % (3 * index + each) for each in range(3)])
            batch.assign(3 * index, 0)
            if index == broken:
                batch.data[-1] ^= 0xFF
            self._batches.append(batch)

    def read_files(
        self, offset: int, max_bytes: int, *, upper_bound_offset: int, min_one_message: bool
    ) -> ReadResult:
        assert self.log_start_offset <= offset < upper_bound_offset
        chunks: list[bytes | memoryview] = []
        for batch in self._batches:
            if batch.last_offset >= offset and (not chunks or max_bytes >= batch.size):
                chunks.append(batch.data)
                max_bytes -= batch.size
        return ReadResult(chunks, 0)


@pytest.fixture
def letters() -> Iterator[DeadLetters]:
    workers = Workers()
    nothing: Any = None
    yield DeadLetters(nothing, nothing, nothing, nothing, nothing, workers, nothing)
    workers.close()


async def copied(
    letters: DeadLetters, log: Log | PartitionLog, first: int, last: int, *, copy: bool = True
) -> dict[int, bytes | None]:
    """Every offset of the range once, in order, with the value that its letter gets."""
    archived = Archived(first, last, 1, ArchiveReason.REJECTED)
    found: dict[int, bytes | None] = {}
    source = cast("HostedPartition", SimpleNamespace(log=log))
    async for part, records in letters._parts(source, archived, copy=copy):
        for offset in range(part.first_offset, part.last_offset + 1):
            assert offset not in found
            found[offset] = records[offset].value if offset in records else None
    assert list(found) == list(range(first, last + 1))
    return found


async def test_the_records_of_a_range_come_in_parts(
    letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "READ_BYTES", 1)
    assert await copied(letters, Log(4), 1, 10) == {
        offset: b"v%d" % offset for offset in range(1, 11)
    }


async def test_what_is_deleted_or_not_to_be_copied_has_letters_without_it(
    letters: DeadLetters,
) -> None:
    kept = {offset: b"v%d" % offset for offset in range(3, 8)}
    assert await copied(letters, Log(4, start=3), 1, 7) == {1: None, 2: None, **kept}
    assert await copied(letters, Log(4, start=9), 1, 7) == dict.fromkeys(range(1, 8))
    assert await copied(letters, Log(4), 1, 7, copy=False) == dict.fromkeys(range(1, 8))


async def test_an_unreadable_batch_costs_its_own_records_alone(letters: DeadLetters) -> None:
    found = await copied(letters, Log(3, broken=1), 0, 8)
    assert [offset for offset, value in found.items() if value is None] == [3, 4, 5]


async def test_a_log_that_is_closed_meanwhile_gives_nothing(
    letters: DeadLetters, tmp_path: Path
) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(), now_ms=0)
    log.append(batch_of(b"a", b"b"), leader_epoch=0, now_ms=0)
    log.advance_high_watermark(2)
    assert await copied(letters, log, 0, 1) == {0: b"a", 1: b"b"}
    log.close()
    with pytest.raises(LogClosed):
        await copied(letters, log, 0, 1)

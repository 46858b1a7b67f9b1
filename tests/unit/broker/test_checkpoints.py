"""The owner of the offset checkpoints: its rules in any order of events, and its writes."""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.broker.hosting.checkpoints import ALL_FILES, CheckpointBook, Checkpoints, Write
from ottla.log.checkpoints import Checkpoint, TopicPartition, read_offsets
from ottla.log.errors import StorageFailure
from tests.support.faults_disk import FaultyStorage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.log.storage import Entry

NAMES: Final = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
names = st.sampled_from(NAMES)
files = st.sampled_from(list(Checkpoint))


class Waiting(NamedTuple):
    """What must be on disk when a ticket is answered."""

    file: Checkpoint
    name: TopicPartition
    owner: int
    offset: int


class Books(RuleBasedStateMachine):
    """Topics come and go under two names; a crash may come at any time.

    Offsets are `owner * 1000 + n`, so that a file shows whose value it holds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.disk: dict[Checkpoint, dict[TopicPartition, int]] = {file: {} for file in Checkpoint}
        self.book = CheckpointBook({})
        self.owners: dict[TopicPartition, int] = {}  # topics that have a directory
        self.next_owner = 1
        self.n = 0
        self.write: Write | None = None
        self.waiting: dict[int, list[Waiting]] = {}
        self.vacancies: dict[int, TopicPartition] = {}

    def values(self) -> list[Waiting]:
        return [
            Waiting(file, name, owner, self.book.offset(file, name))
            for file in Checkpoint
            for name, owner in self.owners.items()
        ]

    # -- topics

    @rule(name=names)
    def create(self, name: TopicPartition) -> None:
        """A directory is made at once if no old value is left, else when the ticket is answered."""
        if name in self.owners or name in self.vacancies.values():
            return
        ticket = self.book.ask_vacant(name)
        if ticket is None:
            self.make(name)
        else:
            self.vacancies[ticket] = name

    def make(self, name: TopicPartition) -> None:
        for file in Checkpoint:
            assert name not in self.disk[file], "a new directory would be given an old value"
        self.owners[name] = self.next_owner
        self.book.own(name, bytes([self.next_owner]))
        assert not any(self.book.offset(file, name) for file in Checkpoint)
        self.next_owner += 1

    @rule(name=names)
    def delete(self, name: TopicPartition) -> None:
        if (owner := self.owners.pop(name, None)) is not None:
            self.book.forget(name, bytes([owner]))

    @rule(name=names, file=files, late=st.booleans())
    def put(self, name: TopicPartition, file: Checkpoint, late: bool) -> None:
        """Also from a job of a topic that is gone."""
        self.n += 1
        owner = self.owners.get(name, 0)
        if late:
            before = self.book.offset(file, name)
            assert not self.book.put(file, name, bytes([owner + 100]), self.n)
            assert self.book.offset(file, name) == before
        elif owner:
            assert self.book.put(file, name, bytes([owner]), owner * 1000 + self.n)

    @rule(name=names)
    def forget_another(self, name: TopicPartition) -> None:
        owner = self.owners.get(name)
        if owner is not None:
            before = [self.book.offset(file, name) for file in Checkpoint]
            self.book.forget(name, bytes([owner + 100]))
            assert [self.book.offset(file, name) for file in Checkpoint] == before

    # -- durability

    @rule(wanted=st.frozensets(files, min_size=1))
    def ask(self, wanted: frozenset[Checkpoint]) -> None:
        now = [value for value in self.values() if value.file in wanted]
        ticket = self.book.ask(wanted)
        if ticket is None:
            self.check_on_disk(now)
        else:
            self.waiting[ticket] = now

    def check_on_disk(self, wanted: list[Waiting]) -> None:
        for file, name, owner, offset in wanted:
            if self.owners.get(name) == owner:  # else nobody asks for it any more
                assert self.disk[file].get(name, 0) >= offset

    @precondition(lambda self: self.write is None)
    @rule()
    def begin(self) -> None:
        self.write = self.book.begin()
        assert (self.write is None) == (not self.waiting and not self.vacancies)
        assert self.book.begin() is None

    @precondition(lambda self: self.write is not None)
    @rule(broken=st.frozensets(files), renamed=st.booleans())
    def finish(self, broken: frozenset[Checkpoint], renamed: bool) -> None:
        """A file that fails may have been replaced nevertheless."""
        assert self.write is not None
        for file, column in self.write.contents.items():
            if file not in broken or renamed:
                self.disk[file] = dict(column)
        written = [file for file in self.write.contents if file not in broken]
        attempted = set(self.write.contents)
        self.write = None
        durable, failed = self.book.finish(written)
        for ticket in durable:
            if ticket in self.vacancies:
                self.make(self.vacancies.pop(ticket))
            else:
                self.check_on_disk(self.waiting.pop(ticket))
        for ticket in failed:
            assert attempted & broken
            self.vacancies.pop(ticket, None)
            self.waiting.pop(ticket, None)

    @rule()
    def crash(self) -> None:
        """The next start finds the directories and the files, and owns what is there."""
        self.book = CheckpointBook(self.disk)
        for name in self.book.names() - set(self.owners):
            self.book.forget(name)
        for name, owner in self.owners.items():
            self.book.own(name, bytes([owner]))
        self.write = None
        self.waiting.clear()
        self.vacancies.clear()

    @invariant()
    def values_are_their_topics(self) -> None:
        for file in Checkpoint:
            for name, owner in self.owners.items():
                assert self.disk[file].get(name, 0) // 1000 in (0, owner)
                assert self.book.offset(file, name) // 1000 in (0, owner)


TestBooks = Books.TestCase


# -- the shell


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


class Log(NamedTuple):
    recovery_point: int = 7
    high_watermark: int = 7
    log_start_offset: int = 3


class Partition:
    """As much of a hosted partition as checkpoints look at."""

    topic_id = bytes(16)

    def __init__(self, name: TopicPartition, log: Log) -> None:
        self.name = name
        self.log = log


class CountingStorage(FaultyStorage):
    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[str] = []

    def replace_file(self, path: Path | Entry, data: bytes) -> None:
        super().replace_file(path, data)
        self.replaced.append(path.name)


def started(
    storage: CountingStorage, path: Path, executor: ThreadPoolExecutor, count: int = 1
) -> tuple[Checkpoints, list[Partition]]:
    checkpoints = Checkpoints(storage, path, {})
    checkpoints.start(executor)
    partitions = [Partition(TopicPartition("orders", index), Log()) for index in range(count)]
    for partition in partitions:
        checkpoints.own(partition.name, partition.topic_id)
    return checkpoints, partitions


async def test_log_starts_that_are_asked_for_together_cost_one_write(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    storage = CountingStorage()
    checkpoints, partitions = started(storage, tmp_path, executor, 1000)
    await asyncio.gather(*(checkpoints.log_starts_durable([one]) for one in partitions))  # type: ignore[list-item]
    assert storage.replaced == [Checkpoint.LOG_START.value]
    found = read_offsets(storage, tmp_path, Checkpoint.LOG_START)
    assert found == {partition.name: 3 for partition in partitions}


async def test_checkpoints_and_log_starts_do_not_race(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    """Fault 4: both at once, each told "durable" only when its own value is in the file."""
    storage = CountingStorage()
    checkpoints, (partition, other) = started(storage, tmp_path, executor, 2)

    async def delete_records() -> None:
        for start in range(1, 200):
            partition.log = Log(log_start_offset=start)
            await checkpoints.log_starts_durable([partition])  # type: ignore[list-item]
            found = read_offsets(storage, tmp_path, Checkpoint.LOG_START)
            assert found[partition.name] >= start

    async def checkpoint() -> None:
        for point in range(1, 100):
            other.log = Log(recovery_point=point)
            checkpoints.note(other)  # type: ignore[arg-type]
            await checkpoints.durable()
            found = read_offsets(storage, tmp_path, Checkpoint.RECOVERY_POINT)
            assert found[other.name] >= point

    await asyncio.gather(delete_records(), checkpoint())


async def test_a_write_that_fails_is_told_and_made_up_for(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    storage = CountingStorage()
    checkpoints, (partition,) = started(storage, tmp_path, executor)
    storage.break_("fdatasync", Checkpoint.LOG_START.value, errno.ENOSPC)
    with pytest.raises(StorageFailure, match="not written"):
        await checkpoints.log_starts_durable([partition])  # type: ignore[list-item]
    storage.repair()
    await checkpoints.durable()
    assert read_offsets(storage, tmp_path, Checkpoint.LOG_START) == {partition.name: 3}


async def test_a_write_in_which_the_code_fails_keeps_nobody_waiting(
    tmp_path: Path, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = CountingStorage()
    checkpoints, (partition,) = started(storage, tmp_path, executor)

    def broken(*_: object) -> None:
        raise RuntimeError("not a disk's fault")

    with monkeypatch.context() as patched:
        patched.setattr(storage, "replace_file", broken)
        with pytest.raises(StorageFailure, match="not a disk's fault"):
            await checkpoints.log_starts_durable([partition])  # type: ignore[list-item]
    await checkpoints.log_starts_durable([partition])  # type: ignore[list-item]
    assert read_offsets(storage, tmp_path, Checkpoint.LOG_START) == {partition.name: 3}


async def test_a_name_is_vacant_when_its_old_values_are_off_the_disk(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    storage = CountingStorage()
    checkpoints, (partition,) = started(storage, tmp_path, executor)
    checkpoints.note(partition)  # type: ignore[arg-type]
    await checkpoints.durable()
    checkpoints.forget(partition.name, partition.topic_id)
    await checkpoints.vacant(partition.name)
    assert all(not read_offsets(storage, tmp_path, file) for file in ALL_FILES)
    storage.replaced.clear()
    await checkpoints.vacant(partition.name)
    assert not storage.replaced

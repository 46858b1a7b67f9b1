"""The lives of topics in a real broker core, with workers that are paused anywhere.

Rules of the machine, in any order: create, write, delete, create again under the same name,
compact, expire, checkpoint, flush, DeleteRecords, look up a time, read files in a worker, commit an
offset, load the group coordinator anew, delete its topic, transactions, stop, kill, start. Requests
and background work begin and then wait for workers; `let_go` lets one worker go on, for a few calls
of the file system or to its end. So any two activities meet where one of them waits. Some rules do
several of these steps at once, so that a search meets often what is likely to hurt.

After each step:

- Every open log has all acknowledged records of its topic above the log start, byte for byte, at
  the offset that was acknowledged, and no record that was not sent to that very topic. Of a
  compacted topic the last record of each key is there. What a reader has seen stays, too.
- A reader with isolation read_committed sees all of committed transactions and nothing of aborted
  ones, up to the last stable offset.
- The log start is no less than what DeleteRecords was answered with, and no more than what
  DeleteRecords was asked for or retention may take.
- What was answered (offsets of times, reads of files, committed offsets) is true of the topic that
  it was asked of, or an error that says to ask again.
- Nobody used a descriptor that had been closed, no worker failed, the broker logged no error.

After a stop or a kill all of that holds for what the next start finds; records that were sent and
not acknowledged may be there. At the end all workers go, all topics are read through the wire, the
broker is stopped or killed, and all topics are read again.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ottla.log.errors import LogClosed, LogError
from ottla.metadata.changes.topics import DeleteTopic
from ottla.metadata.names import CONSUMER_OFFSETS_TOPIC
from ottla.wire.batch import iter_batches
from ottla.wire.error_codes import ErrorCode
from ottla.wire.errors import WireError
from ottla.wire.records import ControlType, iter_records, read_control_record
from ottla.wire.schema.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.schema.delete_topics import DeleteTopicsRequest
from ottla.wire.schema.end_txn import EndTxnRequest
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.init_producer_id import InitProducerIdRequest
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.raw_client import batch
from tests.support.simulated_node import SimulatedNode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from ottla.log.reading import ReadResult
    from ottla.wire.batch import RecordBatch

NAMES: Final = ("a", "b")  # few, so that names come back
ANCHOR: Final = "anchor"  # never deleted: offsets are committed for it
GROUP: Final = "g"
TRANSACTION: Final = "t"
KEYS: Final = (b"k0", b"k1", b"k2")
HOUR_MS: Final = 3_600_000
DELETES: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(HOUR_MS),
    "segment.ms": "1000",
    "file.delete.delay.ms": "0",
}
COMPACTS: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "segment.ms": "1000",
    "file.delete.delay.ms": "0",
}
# Background work is begun by the machine; the node's own timers never fire.
NEVER_MS: Final = 2**31 - 1
SETS: Final = (
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    f"log.retention.check.interval.ms={NEVER_MS}",
    f"log.flush.offset.checkpoint.interval.ms={NEVER_MS}",
    f"log.cleaner.backoff.ms={NEVER_MS}",
)
# What a client is told that asks a coordinator which is not there yet, or no more.
COORDINATOR_MOVES: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
# In memory where there is such a place: a killed process loses nothing there either.
SHM: Final = Path("/dev/shm")
CALLS: Final = st.one_of(st.none(), st.integers(0, 12))
FEW_CALLS: Final = st.integers(0, 3)  # into what a worker does, and not out of it
ORDERS: Final = st.integers(0, 2**16)


class Outcome(Enum):
    """How a transaction ended, as its client knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(eq=False)
class Sent:
    """One batch that was sent to a topic."""

    values: list[bytes]
    keys: list[bytes]
    timestamp: int
    payload: bytes
    """From the magic byte on: what no broker changes."""
    base: int | None = None
    """Where it is, once that was told or seen."""
    outcome: Outcome = Outcome.COMMITTED
    """Of its transaction; what is in none counts at once."""

    @property
    def end(self) -> int:
        assert self.base is not None
        return self.base + len(self.values)


@dataclass(eq=False)
class Topic:
    """One life of a name."""

    name: str
    topic_id: bytes
    compacts: bool
    alive: bool = True
    sent: dict[bytes, Sent] = field(default_factory=dict)
    by_value: dict[bytes, tuple[Sent, int]] = field(default_factory=dict)
    deleted_to: int = 0
    """Answered by DeleteRecords."""
    asked_to: int = 0
    """The most that DeleteRecords was asked for."""
    has_markers: bool = False
    """Ends of transactions: a time may be found there."""

    def __repr__(self) -> str:
        return f"<{self.name} {self.topic_id.hex()[:6]}>"

    @property
    def end(self) -> int:
        return max((one.end for one in self.sent.values() if one.base is not None), default=0)

    def add(self, one: Sent) -> None:
        self.sent[one.payload] = one
        for place, value in enumerate(one.values):
            self.by_value[value] = one, place

    def placed(self, one: Sent, base: int) -> None:
        assert one.base in (None, base), f"{self}: {one.values} was at {one.base}, is at {base}"
        one.base = base

    def start_limit(self, now_ms: int) -> float:
        """How far the log may begin after its first record: retention spares young ones."""
        young = (
            one.base
            for one in self.sent.values()
            if one.base is not None and now_ms - one.timestamp <= HOUR_MS
        )
        return max(self.asked_to, self.deleted_to, min(young, default=math.inf))

    def check(self, start: int, batches: Iterable[RecordBatch], now_ms: int) -> None:
        """All that a log holds from its start to its high watermark."""
        if self.compacts:
            assert start == 0, f"{self} begins at {start}"
            self._check_compacted(batches)
            return
        assert self.deleted_to <= start, f"{self} begins at {start}, not at {self.deleted_to}"
        assert start <= self.start_limit(now_ms), f"{self} begins at {start}"
        found = set()
        end = None
        for one in batches:
            assert end in (None, one.base_offset), f"{self} has nothing from {end} on"
            end = one.next_offset
            if not one.is_control:
                found.add(self.known(one))
        missing = [
            sent.values
            for sent in self.sent.values()
            if sent.base is not None and sent.end > start and sent not in found
        ]
        assert not missing, f"{self} from {start} to {end} lost {missing}"

    def check_committed(self, start: int, stable: int, visible: set[Sent]) -> None:
        """What a reader with isolation read_committed saw from the log start on."""
        wrong = [one.values for one in visible if one.outcome is Outcome.ABORTED]
        assert not wrong, f"{self} shows aborted records: {wrong}"
        missing = [
            one.values
            for one in self.sent.values()
            if one.base is not None
            and start <= one.base
            and one.end <= stable
            and one.outcome is Outcome.COMMITTED
            and one not in visible
        ]
        assert not missing, f"{self} hides committed records: {missing}"

    def known(self, found: RecordBatch) -> Sent:
        """The batch as it was sent to this topic, at its own place."""
        sent = self.sent.get(bytes(found.data[16:]))
        assert sent is not None, f"{self} has what was never sent to it: {_shown(found)}"
        self.placed(sent, found.base_offset)
        return sent

    def _check_compacted(self, batches: Iterable[RecordBatch]) -> None:
        found: dict[int, bytes | None] = {}
        last = -1
        for one in batches:
            for record in iter_records(one):
                assert record.offset > last, f"{self}: {record.offset} after {last}"
                last = record.offset
                assert record.value is not None
                assert record.value in self.by_value, (
                    f"{self} has what was never sent to it: {record.value!r}"
                )
                sent, place = self.by_value[record.value]
                assert (record.key, record.timestamp) == (sent.keys[place], sent.timestamp)
                self.placed(sent, record.offset - place)
                found[record.offset] = record.value
        newest: dict[bytes, tuple[int, bytes]] = {}
        for value, (sent, place) in self.by_value.items():
            if sent.base is not None:
                key, offset = sent.keys[place], sent.base + place
                newest[key] = max(newest.get(key, (-1, b"")), (offset, value))
        missing = {key: one for key, one in newest.items() if found.get(one[0]) != one[1]}
        assert not missing, f"{self} lost the last values {missing}"


def _shown(found: RecordBatch) -> str:
    return f"{[record.value for record in iter_records(found)]} at {found.base_offset}"


@dataclass(eq=False)
class Commit:
    """One offset that a client committed for the group; the offset is its number, too."""

    offset: int
    ended: int | None = None
    """The number that was given out last when it could not be written any more."""
    answered: bool = False
    acknowledged: bool = False


@dataclass(eq=False)
class Begun:
    """A request or background work that is under way."""

    task: asyncio.Task[Any]
    then: Callable[[Any], None]
    topic: Topic | None = None


class Lifecycle(RuleBasedStateMachine):
    """See the module's docstring."""

    watches_workers = True
    """Without it only records, log starts and answers are looked at, not what workers meet."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(dir=SHM if SHM.is_dir() else None))
        self.world = SimulatedNode(self.home, SETS)
        self.topics: dict[str, Topic] = {}
        self.begun: list[Begun] = []
        self.busy: dict[str, asyncio.Task[Any]] = {}
        self.numbers = 0
        self.commits: dict[int, Commit] = {}
        self.sound = False

    def teardown(self) -> None:
        try:
            if self.sound:
                self.last_words()
        finally:
            self.world.close()
            shutil.rmtree(self.home)

    def last_words(self) -> None:
        order = Random(self.numbers)
        with self.step():
            self.world.go_all(order)
        with self.step():
            self.look_at_all()
        with self.step():
            if self.numbers % 2:
                self.stop_now(order)
            else:
                self.kill_now()
            self.world.start(order)
        with self.step():
            self.look_at_all()
            self.world.go_all(order)

    # -- steps ------------------------------------------------------------------------------------

    @contextmanager
    def step(self) -> Iterator[None]:
        """What a rule does, and the look at everything after it."""
        self.sound = False
        yield
        self.world.settle()
        self.collect()
        self.check()
        self.sound = True

    def begin(
        self,
        work: Coroutine[Any, Any, Any],
        then: Callable[[Any], None] = lambda _: None,
        topic: Topic | None = None,
    ) -> None:
        self.begun.append(Begun(self.world.begin(work), then, topic))

    def alone(self, kind: str, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Begin background work, unless the last of its kind is still under way."""
        last = self.busy.get(kind)
        if last is None or last.done():
            self.begin(work())
            self.busy[kind] = self.begun[-1].task

    def collect(self) -> None:
        """Take the answers that are there, those of writers first: others may have seen them."""
        done = [one for one in self.begun if one.task.done()]
        self.begun = [one for one in self.begun if not one.task.done()]
        for one in sorted(done, key=lambda one: one.topic is None):
            one.then(one.task.result())

    def check_workers(self) -> None:
        world = self.world
        if self.watches_workers:
            assert not world.storage.used_closed, world.storage.used_closed
            assert not world.executor.failed, [(job, job.error) for job in world.executor.failed]
            assert not world.errors.found, "\n".join(world.errors.found)

    def check(self) -> None:
        self.check_workers()
        world = self.world
        for hosted in world.node.partitions:
            topic = self.topics.get(hosted.topic)
            if topic is None:
                continue
            assert topic.topic_id == hosted.topic_id
            log = hosted.log
            assert log.online
            start, end = log.log_start_offset, log.high_watermark
            batches: list[RecordBatch] = []
            offset = start
            for read in (log.read, log.read_files):
                batches, offset = [], start
                while offset < end:
                    result = read(offset, 1 << 20, upper_bound_offset=end, min_one_message=True)
                    found = _batches(result)
                    if not found:
                        break
                    batches += found
                    offset = found[-1].next_offset
                assert topic.end <= offset, f"{topic} ends at {offset}, not at {topic.end}"
                topic.check(start, batches, world.clock.wall_ms())

    def abandon(self) -> None:
        """Nobody waits for answers any more: a client that is gone never learns them."""
        for commit in self.commits.values():
            commit.answered = True
            commit.ended = self.numbers if commit.ended is None else commit.ended
        for one in self.begun:
            one.task.cancel()
        self.begun.clear()
        self.busy.clear()

    def stop_now(self, order: Random) -> None:
        self.abandon()
        self.world.stop(order)
        self.check_workers()

    def kill_now(self) -> None:
        self.abandon()
        self.world.kill()

    def look_at_all(self) -> None:
        for topic in tuple(self.topics.values()):
            self.read_through_the_wire(topic)
        self.fetch_offset()

    def read_through_the_wire(self, topic: Topic) -> None:
        """Everything, as a consumer gets it; workers that this needs go."""
        request = ListOffsetsRequest(-1, 0, [_list(topic.name, -2)])
        (row,) = self.world.complete(self.world.ask("list_offsets", 11, request)).topics
        (first,) = row.partitions
        assert first.error_code == 0, ErrorCode(first.error_code)
        batches: list[RecordBatch] = []
        offset, end = first.offset, -1
        while offset != end:
            wanted = FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)
            fetch = FetchRequest(
                max_bytes=1 << 20, topics=[FetchTopic(topic_id=topic.topic_id, partitions=[wanted])]
            )
            answer = self.world.complete(self.world.ask("fetch", 13, fetch))
            (data,) = answer.responses[0].partitions
            assert data.error_code == 0, ErrorCode(data.error_code)
            found = list(iter_batches(memoryview(data.records or b"")))
            for one in found:
                one.verify_crc()
            batches += found
            end = data.high_watermark
            assert found or offset == end, f"{topic} gives nothing from {offset} to {end}"
            offset = found[-1].next_offset if found else end
        self.collect()
        assert topic.end <= end, f"{topic} ends at {end}, not at {topic.end}"
        topic.check(first.offset, batches, self.world.clock.wall_ms())
        if topic.has_markers:
            self.read_committed(topic, first.offset)

    def read_committed(self, topic: Topic, start: int) -> None:
        """As a consumer does that leaves out what the answer lists as aborted."""
        visible: set[Sent] = set()
        aborting: set[int] = set()
        offset, stable = start, -1
        while offset != stable:
            wanted = FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)
            fetch = FetchRequest(
                max_bytes=1 << 20,
                isolation_level=1,
                topics=[FetchTopic(topic_id=topic.topic_id, partitions=[wanted])],
            )
            answer = self.world.complete(self.world.ask("fetch", 13, fetch))
            (data,) = answer.responses[0].partitions
            assert data.error_code == 0, ErrorCode(data.error_code)
            aborted = sorted(data.aborted_transactions or (), key=attrgetter("first_offset"))
            found = list(iter_batches(memoryview(data.records or b"")))
            for one in found:
                while aborted and aborted[0].first_offset <= one.last_offset:
                    aborting.add(aborted.pop(0).producer_id)
                if one.is_control:
                    if read_control_record(one).type is ControlType.ABORT:
                        aborting.discard(one.producer_id)
                elif not (one.is_transactional and one.producer_id in aborting):
                    visible.add(topic.known(one))
            stable = data.last_stable_offset
            assert found or offset == stable, f"{topic} gives nothing from {offset} to {stable}"
            offset = found[-1].next_offset if found else stable
        self.collect()
        topic.check_committed(start, stable, visible)

    # -- rules: topics ----------------------------------------------------------------------------

    @initialize()
    def start(self) -> None:
        with self.step():
            self.world.start()
            self.create_now(ANCHOR, compacts=False)

    @rule(name=st.sampled_from(NAMES), compacts=st.booleans())
    def create(self, name: str, *, compacts: bool) -> None:
        with self.step():
            if name not in self.topics:
                self.create_now(name, compacts=compacts)

    def create_now(self, name: str, *, compacts: bool) -> None:
        configs = [
            CreatableTopicConfig(*one) for one in (COMPACTS if compacts else DELETES).items()
        ]
        request = CreateTopicsRequest([CreatableTopic(name, 1, -1, (), configs)])
        (made,) = self.world.complete(self.world.ask("create_topics", 7, request)).topics
        assert made.error_code == 0, ErrorCode(made.error_code)
        self.topics[name] = Topic(name, made.topic_id, compacts)

    @rule(name=st.sampled_from(NAMES), again=st.booleans(), compacts=st.booleans())
    def delete(self, name: str, *, again: bool, compacts: bool) -> None:
        with self.step():
            topic = self.topics.pop(name, None)
            if topic is not None:
                topic.alive = False
                request = DeleteTopicsRequest(topic_names=[name])
                (gone,) = self.world.complete(self.world.ask("delete_topics", 5, request)).responses
                assert gone.error_code == 0, ErrorCode(gone.error_code)
                if again:
                    self.create_now(name, compacts=compacts)

    # -- rules: records ---------------------------------------------------------------------------

    @rule(
        name=st.sampled_from((*NAMES, ANCHOR)),
        sizes=st.lists(st.integers(0, 40), min_size=1, max_size=2),
        key=st.integers(0, len(KEYS) - 1),
        later=st.sampled_from([0, 2000]),
        batches=st.integers(1, 3),
        waits=st.booleans(),
    )
    def write(
        self, name: str, sizes: list[int], key: int, later: int, batches: int, *, waits: bool
    ) -> None:
        """Produce with acks=all. After more than a second a log begins a new segment.

        A client that waits gets its answer; the workers that are needed for it go.
        """
        with self.step():
            topic = self.topics.get(name)
            for _ in range(0 if topic is None else batches):
                assert topic is not None
                self.world.pass_time(later)
                self.send(topic, sizes, KEYS[key], waits=waits)

    def send(self, topic: Topic, sizes: list[int], key: bytes, *, waits: bool) -> None:
        self.numbers += 1
        values = [b"%d.%d." % (self.numbers, i) + b"x" * size for i, size in enumerate(sizes)]
        now_ms = self.world.clock.wall_ms()
        data = bytes(batch(*values, key=key, timestamp=now_ms))
        sent = Sent(values, [key] * len(values), now_ms, data[16:])
        topic.add(sent)
        place = [PartitionProduceData(0, data)]
        topics = [TopicProduceData(topic_id=topic.topic_id, partition_data=place)]
        work = self.world.ask("produce", 13, ProduceRequest(None, -1, 1000, topics))
        if waits:
            answer = self.world.complete(work)
            self.collect()
            self.written(topic, sent, answer)
        else:
            self.begin(work, partial(self.written, topic, sent), topic)

    def written(self, topic: Topic, sent: Sent, answer: Any) -> None:
        (told,) = answer.responses[0].partition_responses
        if told.error_code == 0:
            topic.placed(sent, told.base_offset)
        else:
            assert not topic.alive, f"{topic} refused a record: {ErrorCode(told.error_code)!r}"

    @rule(name=st.sampled_from((*NAMES, ANCHOR)), share=st.floats(0, 1))
    def delete_records(self, name: str, share: float) -> None:
        with self.step():
            topic = self.topics.get(name)
            if topic is None:
                return
            offset = int(topic.end * share)
            if not topic.compacts:
                topic.asked_to = max(topic.asked_to, offset)
            rows = [DeleteRecordsTopic(name, [DeleteRecordsPartition(0, offset)])]
            work = self.world.ask("delete_records", 2, DeleteRecordsRequest(rows, 1000))
            self.begin(work, partial(self.records_deleted, topic, offset))

    def records_deleted(self, topic: Topic, offset: int, answer: Any) -> None:
        (told,) = answer.topics[0].partitions
        if told.error_code == 0:
            if topic.alive:
                assert told.low_watermark >= offset
                topic.deleted_to = max(topic.deleted_to, told.low_watermark)
        elif topic.compacts:
            assert told.error_code == ErrorCode.POLICY_VIOLATION
        else:
            assert not topic.alive, f"{topic}: DeleteRecords says {ErrorCode(told.error_code)!r}"

    @rule(name=st.sampled_from((*NAMES, ANCHOR)), back=st.integers(-1000, 10_000))
    def look_up_a_time(self, name: str, back: int) -> None:
        with self.step():
            topic = self.topics.get(name)
            if topic is not None:
                time = self.world.clock.wall_ms() - back
                request = ListOffsetsRequest(-1, 0, [_list(name, time)])
                work = self.world.ask("list_offsets", 11, request)
                self.begin(work, partial(self.time_found, topic, time))

    def time_found(self, topic: Topic, time: int, answer: Any) -> None:
        (told,) = answer.topics[0].partitions
        if told.error_code != 0:
            assert not topic.alive, f"{topic}: ListOffsets says {ErrorCode(told.error_code)!r}"
        elif told.offset >= 0 and not topic.has_markers:
            now = self.topics.get(topic.name)
            assert any(
                one.base is not None
                and one.base <= told.offset < one.end
                and told.timestamp == one.timestamp >= time
                for life in (topic, now)
                if life is not None
                for one in life.sent.values()
            ), f"{topic}: time {time} is at {told.offset}, {told.timestamp}"

    @rule(name=st.sampled_from((*NAMES, ANCHOR)))
    def read_files(self, name: str) -> None:
        """What dead letters, replays and copies to the tier do in a worker."""
        with self.step():
            topic = self.topics.get(name)
            if topic is None or (name, 0) not in self.world.node.partitions.open_names:
                return
            log = self.world.node.partitions.find(name, 0).log
            read = partial(
                log.read_files,
                log.local_start_offset,
                1 << 20,
                upper_bound_offset=log.high_watermark,
                min_one_message=True,
            )
            self.begin(self._read(read), partial(self.files_read, topic))

    async def _read(self, read: Callable[[], ReadResult]) -> ReadResult | LogError:
        try:
            return await self.world.node.workers.run(read)
        except LogError as error:
            return error

    def files_read(self, topic: Topic, result: ReadResult | LogError) -> None:
        if isinstance(result, LogError):
            assert not topic.alive
            assert isinstance(result, LogClosed) or not self.watches_workers, result
        elif topic.compacts:
            for one in _batches(result):
                for record in iter_records(one):
                    assert record.value in topic.by_value, f"{topic}: read {record.value!r}"
        else:
            for one in _batches(result):
                if not one.is_control:
                    topic.known(one)

    # -- rules: background work -------------------------------------------------------------------

    @rule()
    def compact(self) -> None:
        with self.step():
            self.alone("compact", self.world.node.services.cleaner().compact_dirtiest)

    @rule(hours=st.integers(0, 2))
    def expire(self, hours: int) -> None:
        with self.step():
            self.world.pass_time(hours * HOUR_MS)
            self.alone("expire", self.world.node.jobs._retain)

    @rule()
    def checkpoint(self) -> None:
        with self.step():
            self.alone("checkpoint", self.world.node.jobs._checkpoint)

    @rule()
    def flush(self) -> None:
        with self.step():
            node = self.world.node

            async def sync() -> None:
                await node.durability.sync(list(node.partitions))

            self.begin(sync())

    @rule(which=st.integers(0, 20), calls=CALLS)
    def let_go(self, which: int, calls: int | None) -> None:
        """One worker goes on for some calls of the file system, or to its end."""
        with self.step():
            jobs = self.world.jobs
            if jobs:
                self.world.go(jobs[which % len(jobs)], calls)

    @rule(order=ORDERS)
    def let_all_go(self, order: int) -> None:
        with self.step():
            self.world.go_all(Random(order))

    @rule(name=st.sampled_from((*NAMES, ANCHOR)))
    def consume(self, name: str) -> None:
        with self.step():
            topic = self.topics.get(name)
            if topic is not None:
                self.read_through_the_wire(topic)

    # -- rules: meetings --------------------------------------------------------------------------
    # Several steps at once, so that a search comes to where two activities meet: it decides where
    # the one of them stands, and what happens before and after.

    def pause(self, kind: str, calls: int | None) -> None:
        """Let the workers of a kind go on for some calls, and no further."""
        for job in [job for job in self.world.jobs if job.kind == kind]:
            if not job.done:
                with self.step():
                    self.world.go(job, calls)

    def let_others_go(self, kind: str) -> None:
        while others := [at for at, job in enumerate(self.world.jobs) if job.kind != kind]:
            self.let_go(which=others[0], calls=None)

    def write_segments(self, name: str, count: int) -> None:
        """Acknowledged records, each batch in a segment of its own."""
        self.write(name=name, sizes=[5], key=0, later=2000, batches=count, waits=True)

    @rule(name=st.sampled_from(NAMES), calls=FEW_CALLS, compacts=st.booleans())
    def create_again_while_it_is_compacted(self, name: str, calls: int, *, compacts: bool) -> None:
        self.create(name=name, compacts=True)
        self.write_segments(name, 3)
        self.compact()
        self.pause("compaction", calls)
        self.delete(name=name, again=True, compacts=compacts)
        self.let_others_go("compaction")
        self.write_segments(name, 2)

    @rule(name=st.sampled_from(NAMES), calls=FEW_CALLS, compacts=st.booleans())
    def create_again_while_it_is_read(self, name: str, calls: int, *, compacts: bool) -> None:
        self.create(name=name, compacts=compacts)
        self.write_segments(name, 2)
        self.read_files(name=name)
        self.pause("read_files", calls)
        self.delete(name=name, again=True, compacts=compacts)
        self.let_others_go("read_files")
        self.write_segments(name, 2)

    @rule(share=st.floats(0, 1), calls=FEW_CALLS)
    def delete_records_while_starts_are_written(self, share: float, calls: int) -> None:
        self.write_segments(ANCHOR, 2)
        self.delete_records(name=ANCHOR, share=share)
        self.checkpoint()
        self.pause("replace", calls)
        self.delete_records(name=ANCHOR, share=1.0)

    # -- rules: a coordinator ---------------------------------------------------------------------

    @rule()
    def commit(self) -> None:
        with self.step():
            self.numbers += 1
            commit = self.commits[self.numbers] = Commit(self.numbers)
            self.begin(self._commit(commit.offset), partial(self.offset_committed, commit))

    async def _commit(self, offset: int) -> int:
        """The answer's code. The first client of a group makes the coordinator's topic."""
        await self.world.ask("find_coordinator", 4, FindCoordinatorRequest("", 0, [GROUP]))
        place = OffsetCommitRequestPartition(0, offset)
        topics = [OffsetCommitRequestTopic(ANCHOR, partitions=[place])]
        answer = await self.world.ask("offset_commit", 9, OffsetCommitRequest(GROUP, topics=topics))
        (told,) = answer.topics[0].partitions
        code: int = told.error_code
        return code

    def offset_committed(self, commit: Commit, code: int) -> None:
        commit.answered = True
        if code == 0:
            commit.ended = self.numbers
            commit.acknowledged = True
        else:
            # It may have been written all the same, or be on its way.
            assert code in COORDINATOR_MOVES, ErrorCode(code)

    def may_be_committed(self, offset: int) -> bool:
        """Whether no commit was acknowledged that began after this one had ended."""
        acknowledged = [one.offset for one in self.commits.values() if one.acknowledged]
        if offset == -1:
            return not acknowledged
        commit = self.commits.get(offset)
        if commit is None:
            return False
        return commit.ended is None or not any(one > commit.ended for one in acknowledged)

    def fetch_offset(self) -> None:
        """As a client does: again, while the coordinator is on its way."""
        for _ in range(100):
            code, offset = self.world.complete(self._fetch_offset())
            if code not in COORDINATOR_MOVES:
                break
            self.world.pass_time(1000)
        assert code == 0, ErrorCode(code)
        self.collect()
        assert self.may_be_committed(offset), f"{offset} of {list(self.commits.values())}"

    async def _fetch_offset(self) -> tuple[int, int]:
        await self.world.ask("find_coordinator", 4, FindCoordinatorRequest("", 0, [GROUP]))
        group = OffsetFetchRequestGroup(
            GROUP, topics=[OffsetFetchRequestTopics(ANCHOR, partition_indexes=[0])]
        )
        answer = await self.world.ask("offset_fetch", 9, OffsetFetchRequest(groups=[group]))
        (told,) = answer.groups
        if told.error_code != 0:
            return told.error_code, -1
        (place,) = told.topics[0].partitions if told.topics else (None,)
        if place is None:
            return 0, -1
        return place.error_code, place.committed_offset

    @rule()
    def look_at_the_offset(self) -> None:
        with self.step():
            self.fetch_offset()

    @precondition(lambda self: self.has_coordinator)
    @rule()
    def load_the_coordinator_anew(self) -> None:
        """As when its leadership went to another node and came back."""
        with self.step():
            service = self.world.node.services.groups()._service

            async def again() -> None:
                service._loads.pop(0, None)
                service._runtime.unload(0)
                service.load(0)

            self.begin(again())

    @precondition(lambda self: self.has_coordinator)
    @rule()
    def delete_the_coordinators_topic(self) -> None:
        with self.step():
            node = self.world.node
            topic_id = node.image.topics_by_name[CONSUMER_OFFSETS_TOPIC].topic_id
            self.world.complete(node.metadata.change(DeleteTopic(topic_id)))
            # A client that still waits for its answer may come to the next topic of that name.
            self.commits = {k: one for k, one in self.commits.items() if not one.answered}

    @property
    def has_coordinator(self) -> bool:
        return self.world.node.image.topic(CONSUMER_OFFSETS_TOPIC) is not None

    # -- rules: transactions ----------------------------------------------------------------------

    @rule(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=2), commits=st.booleans())
    def transact(self, sizes: list[int], *, commits: bool) -> None:
        """One transaction of the one producer there is; the one before it is aborted if open."""
        with self.step():
            self.begin(self._transact(sizes, commits=commits), topic=self.topics[ANCHOR])

    @rule(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=2), commits=st.booleans())
    def transact_to_the_end(self, sizes: list[int], *, commits: bool) -> None:
        """The workers that it needs go."""
        with self.step():
            self.world.complete(self._transact(sizes, commits=commits))

    async def _transact(self, sizes: list[int], *, commits: bool) -> None:
        """Up to the first refusal: what became of it then is not known."""
        topic, ask = self.topics[ANCHOR], self.world.ask
        await ask("find_coordinator", 4, FindCoordinatorRequest("", 1, [TRANSACTION]))
        for _ in range(10):
            request = InitProducerIdRequest(TRANSACTION, HOUR_MS // 4)
            mine = await ask("init_producer_id", 4, request)
            if mine.error_code not in (ErrorCode.CONCURRENT_TRANSACTIONS, *COORDINATOR_MOVES):
                break
            await asyncio.sleep(0.1)
        if mine.error_code:
            return
        identity = (mine.producer_id, mine.producer_epoch)
        rows = [AddPartitionsToTxnTopic(ANCHOR, [0])]
        adding = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_producer_id=identity[0],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=rows,
        )
        added = await ask("add_partitions_to_txn", 3, adding)
        (row,) = added.results_by_topic_v3_and_below[0].results_by_partition
        if row.partition_error_code:
            return
        self.numbers += 1
        values = [b"%d.%d." % (self.numbers, i) + b"t" * size for i, size in enumerate(sizes)]
        now_ms = self.world.clock.wall_ms()
        data = bytes(
            batch(
                *values,
                key=KEYS[0],
                timestamp=now_ms,
                producer_id=identity[0],
                producer_epoch=identity[1],
                base_sequence=0,
                transactional=True,
            )
        )
        sent = Sent(values, [KEYS[0]] * len(values), now_ms, data[16:], outcome=Outcome.UNKNOWN)
        topic.add(sent)
        topic.has_markers = True
        place = [TopicProduceData(ANCHOR, partition_data=[PartitionProduceData(0, data)])]
        answer = await ask("produce", 11, ProduceRequest(TRANSACTION, -1, 1000, place))
        (told,) = answer.responses[0].partition_responses
        if told.error_code:
            return
        topic.placed(sent, told.base_offset)
        ended = await ask("end_txn", 3, EndTxnRequest(TRANSACTION, *identity, commits))
        if ended.error_code == 0:
            sent.outcome = Outcome.COMMITTED if commits else Outcome.ABORTED

    # -- rules: the broker ------------------------------------------------------------------------

    @rule(order=ORDERS)
    def stop_and_start(self, order: int) -> None:
        with self.step():
            self.stop_now(Random(order))
            self.world.start(Random(order))

    @rule(order=ORDERS)
    def kill_and_start(self, order: int) -> None:
        with self.step():
            self.kill_now()
            self.world.start(Random(order))

    @rule(seconds=st.integers(1, 5))
    def wait(self, seconds: int) -> None:
        with self.step():
            self.world.pass_time(seconds * 1000)


def _list(name: str, time: int) -> ListOffsetsTopic:
    return ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, time)])


def _batches(result: ReadResult) -> list[RecordBatch]:
    try:
        found = [one for chunk in result.chunks for one in iter_batches(memoryview(chunk))]
        for one in found:
            one.verify_crc()
    except WireError as error:
        raise AssertionError(f"read bytes that are no batches: {error}") from error
    return found

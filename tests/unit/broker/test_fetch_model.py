"""Fetch sessions look at what has news; a model that looks at everything must see the same.

The handler runs over real `HostedPartition`s with logs that are lists. The model knows what a
consumer wants and was told, looks at all partitions for each request, and says what KIP-227 lists.
"""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from ottla.broker.errors import ApiError
from ottla.broker.handlers.fetch import fetch
from ottla.broker.hosting.hosted import HostedPartition
from ottla.broker.serving.answer_memory import AnswerMemory
from ottla.broker.serving.context import Peer, RequestContext
from ottla.broker.serving.fetch_sessions import RECHECK_MS, FetchSessions
from ottla.log.errors import OffsetOutOfRange, StorageFailure
from ottla.log.reading import ReadResult
from ottla.metadata.image import Partition, Topic
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tests.support.log_batches import batch_of
from tests.support.sizes import examples

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS = 4
INDEXES = st.integers(0, PARTITIONS - 1)
BATCH = bytes(batch_of(b"v").data)
RECORD = len(BATCH)  # each record is a batch of its own
ENOUGH = 1_000_000
LONG_MS = 600_000
BY_NAME, BY_ID = 12, 13
TOPIC_ID = UUID(int=7)


class ListLog:
    """Records of one size; only the marks matter."""

    def __init__(self) -> None:
        self.log_start_offset = self.last_stable_offset = self.high_watermark = 0
        self.offline = False

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound_offset: int,
        min_one_message: bool,
        wait: bool,
        views: bool,
    ) -> ReadResult:
        if self.offline:
            raise StorageFailure("offline")
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange("out of range")
        records = min(
            max(0, upper_bound_offset - offset), max(max_bytes // RECORD, min_one_message)
        )
        return ReadResult([BATCH] * records, records * RECORD)

    def may_have_aborted(self, first: int) -> bool:
        return False


class Directory:
    """Finds partitions, or not."""

    def __init__(self) -> None:
        self.hosted: dict[int, HostedPartition] = {}

    def find(self, topic: str, index: int) -> HostedPartition:
        if index not in self.hosted:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.hosted[index]

    def find_by_id(self, topic_id: bytes, index: int) -> HostedPartition:
        return self.find("t", index)


class Wish:
    """What the consumer asks of a partition, and the marks that it knows."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.told: tuple[int, int] | None = None


class Fetches(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Directory()
        self.image = SimpleNamespace(version=1)
        self.now = 0
        numbers = count(1)
        self.sessions = FetchSessions(1, lambda: next(numbers))
        self.loop = asyncio.new_event_loop()
        self.wishes: dict[int, Wish] = {}
        self.session_id = self.epoch = 0
        self.isolation = 0
        self.gone: list[HostedPartition] = []
        for index in range(PARTITIONS):
            self._host(index)

    def teardown(self) -> None:
        self.loop.close()

    def _host(self, index: int, epoch: int = 0) -> None:
        topic = Topic("t", TOPIC_ID, (Partition(1, epoch, 0, (1,)),) * PARTITIONS)
        self.directory.hosted[index] = HostedPartition(topic, index, ListLog())  # type: ignore[arg-type]

    # -- the logs -------------------------------------------------------------------------------

    @rule(index=INDEXES, records=st.integers(1, 3), stable=st.booleans())
    def write(self, index: int, records: int, stable: bool) -> None:
        """Without `stable`, in a transaction that stays open."""
        hosted = self.directory.hosted.get(index)
        if hosted is not None:
            hosted.log.high_watermark += records
            if stable:
                hosted.log.last_stable_offset = hosted.log.high_watermark  # type: ignore[misc]
            hosted.wake()

    @rule(index=INDEXES)
    def delete_records(self, index: int) -> None:
        hosted = self.directory.hosted.get(index)
        if hosted is not None:
            hosted.log.log_start_offset = hosted.log.last_stable_offset
            hosted.wake()

    @rule(index=INDEXES)
    def delete(self, index: int) -> None:
        hosted = self.directory.hosted.pop(index, None)
        if hosted is not None:
            self.image.version += 1
            hosted.gone = True
            self.gone.append(hosted)
            hosted.wake()

    @rule(index=INDEXES, epoch=st.integers(0, 1))
    def create(self, index: int, epoch: int) -> None:
        if index not in self.directory.hosted:
            self.image.version += 1
            self._host(index, epoch)

    @rule(index=INDEXES)
    def lead_again(self, index: int) -> None:
        """A new leader epoch: who knows an older one is refused. Nobody is woken for it."""
        hosted = self.directory.hosted.get(index)
        if hosted is not None:
            self.image.version += 1
            hosted.leader_epoch += 1

    @rule(index=INDEXES, isolation=st.integers(0, 1))
    def fail(self, index: int, isolation: int) -> None:
        """The log goes offline, which nobody is told: sessions find out at their next recheck."""
        self.settle(isolation)
        self.directory.hosted[index].log.offline = True  # type: ignore[attr-defined]
        self.now += RECHECK_MS
        self.ask({}, [], isolation)

    # -- the model ------------------------------------------------------------------------------

    def data(self, index: int) -> PartitionData:
        """What a look with no limit of bytes finds."""
        wish = self.wishes[index]
        hosted = self.directory.hosted.get(index)
        if hosted is None:
            return PartitionData(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
        log = hosted.log
        if hosted.leader_epoch > 0:  # the consumer names epoch 0
            return PartitionData(index, ErrorCode.FENCED_LEADER_EPOCH, -1, -1, -1)
        if log.offline:  # type: ignore[attr-defined]
            return PartitionData(index, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1)
        if not log.log_start_offset <= wish.offset <= log.high_watermark:
            start = log.log_start_offset
            return PartitionData(index, ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, start)
        bound = log.last_stable_offset if self.isolation else log.high_watermark
        return PartitionData(
            index,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            records=[BATCH] * max(0, bound - wish.offset),
        )

    def expected(self) -> dict[int, PartitionData]:
        """What an answer with no limit of bytes lists."""
        found = {index: self.data(index) for index in self.wishes}
        return {
            index: data
            for index, data in found.items()
            if data.error_code or data.records or self.wishes[index].told != _marks(data)
        }

    def is_enough(self) -> bool:
        return any(data.error_code or data.records for data in self.expected().values())

    # -- the consumer ---------------------------------------------------------------------------

    def request(
        self, asked: list[int], forget: list[int], *, max_bytes: int = ENOUGH, max_wait_ms: int = 0
    ) -> FetchRequest:
        by_id = self.version == BY_ID
        topic_id, name = (TOPIC_ID.bytes, "") if by_id else (bytes(16), "t")
        partitions = [
            FetchPartition(index, 0, self.wishes[index].offset, partition_max_bytes=ENOUGH)
            for index in asked
        ]
        return FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            isolation_level=self.isolation,
            topics=[FetchTopic(name, topic_id, partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(name, topic_id, forget)] if forget else [],
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
        )

    def send(self, request: FetchRequest) -> Any:
        return fetch(
            RequestContext(Peer("", "PLAINTEXT"), 1, self.version, None),
            request,
            SimpleNamespace(image=self.image),  # type: ignore[arg-type]
            self.directory,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            self.sessions,
            SimpleNamespace(fetch_max_bytes=ENOUGH, fetch_mapped=False),  # type: ignore[arg-type]
            SimpleNamespace(monotonic_ms=lambda: self.now),  # type: ignore[arg-type]
            AnswerMemory(ENOUGH, lambda: 0.0),
            SimpleNamespace(has_read=lambda _: None),  # type: ignore[arg-type]
        )

    def heard(self, answer: FetchResponse) -> dict[int, PartitionData]:
        assert answer.error_code == 0
        found = {
            data.partition_index: data for topic in answer.responses for data in topic.partitions
        }
        for index, data in found.items():
            if index in self.wishes:
                self.wishes[index].told = _marks(data)
        return found

    @initialize(version=st.sampled_from([BY_NAME, BY_ID]), isolation=st.integers(0, 1))
    def open_session(self, version: int, isolation: int) -> None:
        self.version, self.isolation = version, isolation
        self.wishes = {index: Wish(0) for index in range(PARTITIONS)}
        expected = {index: self.data(index) for index in self.wishes}
        answer = self.send(self.request([*self.wishes], []))
        _same(self.heard(answer), expected)
        self.session_id, self.epoch = answer.session_id, 1

    def readable(self, index: int) -> int:
        hosted = self.directory.hosted.get(index)
        if hosted is None:
            return 0
        return hosted.log.last_stable_offset if self.isolation else hosted.log.high_watermark

    def changes(self, moves: dict[int, int | None], forget: list[int]) -> list[int]:
        """Move positions by so much, or to the end of what can be read; the indexes to name."""
        for index, move in moves.items():
            wish = self.wishes.setdefault(index, Wish(0))
            wish.offset = self.readable(index) if move is None else max(0, wish.offset + move)
        for index in forget:
            self.wishes.pop(index, None)
        return [index for index in moves if index not in forget]

    MOVES = st.dictionaries(INDEXES, st.sampled_from([None, None, None, 0, 1, -1]))
    FORGET = st.lists(INDEXES, max_size=1)

    @rule(isolation=st.integers(0, 1))
    def settle(self, isolation: int) -> None:
        """All partitions can be read, have been read, and are told of."""
        self.isolation = isolation
        for index in range(PARTITIONS):
            hosted = self.directory.hosted.get(index)
            if hosted is None or hosted.leader_epoch or hosted.log.offline:  # type: ignore[attr-defined]
                self.delete(index)
                self.create(index, 0)
        for _ in range(2):
            self.ask(dict.fromkeys(range(PARTITIONS)), [], isolation)
        session = self.sessions._sessions[self.session_id]
        assert not session.due, "nothing is looked at without news"
        assert not any(hosted.watchers for hosted in self.gone)

    @rule(moves=MOVES, forget=FORGET, isolation=st.integers(0, 1))
    def ask(self, moves: dict[int, int | None], forget: list[int], isolation: int) -> None:
        self.isolation = isolation
        asked = self.changes(moves, forget)
        expected = self.expected()
        answer = self.send(self.request(asked, forget))
        self.epoch += 1
        _same(self.heard(answer), expected)

    @rule(moves=MOVES, records=st.integers(0, 2))
    def ask_for_little(self, moves: dict[int, int | None], records: int) -> None:
        """What a limit leaves out is still to be told, which `ask` sees."""
        asked = self.changes(moves, [])
        expected = self.expected()
        answer = self.send(self.request(asked, [], max_bytes=records * RECORD))
        self.epoch += 1
        found = self.heard(answer)
        assert found.keys() <= expected.keys()
        for index, data in found.items():
            assert data.error_code == expected[index].error_code
            assert _marks(data) == _marks(expected[index])
        with_records = [index for index, data in expected.items() if data.records]
        if with_records:
            assert any(found[index].records for index in with_records if index in found)

    @rule(moves=MOVES, data=st.data())
    def ask_and_wait(self, moves: dict[int, int | None], data: st.DataObject) -> None:
        if data.draw(st.booleans()):
            self.settle(data.draw(st.integers(0, 1)))
            moves = {}
        if not self.wishes:
            return
        asked = self.changes(moves, [])
        at_once = self.is_enough()
        answer = self.send(self.request(asked, [], max_wait_ms=LONG_MS))
        self.epoch += 1
        assert isinstance(answer, FetchResponse) == at_once
        if at_once:
            self.heard(answer)
            return
        happens: list[Callable[[], None]] = [
            lambda: self.write(data.draw(INDEXES), 1, data.draw(st.booleans())),
            lambda: self.delete_records(data.draw(INDEXES)),
            lambda: self.delete(data.draw(INDEXES)),
        ]

        async def wait() -> None:
            waiting = asyncio.ensure_future(answer)
            if data.draw(st.booleans()):
                await asyncio.sleep(0)
            for _ in range(4):
                data.draw(st.sampled_from(happens))()
                for _ in range(5):
                    await asyncio.sleep(0)
                expected = self.expected()
                assert waiting.done() == self.is_enough()
                if waiting.done():
                    _same(self.heard(waiting.result()), expected)
                    return
            waiting.cancel()

        self.loop.run_until_complete(wait())

    @rule(data=st.data(), offset=st.integers(0, 3))
    def ask_without_a_session(self, data: st.DataObject, offset: int) -> None:
        """Lists all, whoever has news while it waits."""
        wishes = self.wishes
        self.wishes = {index: Wish(offset) for index in range(PARTITIONS)}
        request = self.request([*self.wishes], [], max_wait_ms=LONG_MS)
        at_once = self.is_enough()
        answer = self.send(request._replace(session_id=0, session_epoch=-1))
        if isinstance(answer, FetchResponse):
            assert at_once
            _same(self.heard(answer), {index: self.data(index) for index in self.wishes})
        else:

            async def wait() -> None:
                waiting = asyncio.ensure_future(answer)
                for index in [*self.directory.hosted]:
                    self.write(index, 1, data.draw(st.booleans()))
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    if waiting.done():
                        everything = {index: self.data(index) for index in self.wishes}
                        _same(self.heard(waiting.result()), everything)
                        return
                waiting.cancel()

            self.loop.run_until_complete(wait())
        self.wishes = wishes
        for hosted in self.directory.hosted.values():
            assert len(hosted.watchers) <= 1, "only the session stays"


def _marks(data: PartitionData) -> tuple[int, int]:
    return data.high_watermark, data.log_start_offset


def _same(found: dict[int, PartitionData], expected: dict[int, PartitionData]) -> None:
    def seen(listed: dict[int, PartitionData]) -> dict[int, Any]:
        return {
            index: (data.error_code, *_marks(data), len(list(data.records or ())))
            for index, data in sorted(listed.items())
        }

    assert seen(found) == seen(expected)


TestFetches = Fetches.TestCase
TestFetches.settings = settings(
    max_examples=examples(150), stateful_step_count=40, suppress_health_check=list(HealthCheck)
)

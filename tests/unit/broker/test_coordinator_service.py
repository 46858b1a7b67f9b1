"""Loading the coordinators of an internal topic: from files alone, and again after a failure."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

import pytest

from ottla.broker.coordinators import service as service_module
from ottla.broker.coordinators.log import Hosting, InternalTopicLog
from ottla.broker.coordinators.service import RETRY_SECONDS, CoordinatorService
from ottla.broker.errors import ApiError
from ottla.broker.workers import Workers
from ottla.coordination.machine import Batch, Decision, Token
from ottla.coordination.runtime import NotCoordinator
from ottla.log.config import LogConfig
from ottla.log.errors import LogClosed, StorageFailure
from ottla.log.partition import PartitionLog
from ottla.log.producer_state import Origin
from ottla.wire.error_codes import ErrorCode
from tests.support.clocks import ManualClock
from tests.support.groups_log import MemoryLog, Pair
from tests.support.log_batches import batch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ottla.clock import Now
    from ottla.metadata.image import MetadataImage

T = TypeVar("T")
TOPIC = "__internal"
FIRST, SECOND = UUID(int=1), UUID(int=2)


# -- replay ---------------------------------------------------------------------------------------


class Interrupted:
    """Workers beside whom something happens: before, or after, the work is done."""

    def __init__(self, *, before: Callable[[], object], after: Callable[[], object]) -> None:
        self._before, self._after = before, after

    async def run(self, function: Callable[[], T]) -> T:
        self._before()
        found = await asyncio.to_thread(function)
        self._after()
        return found


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    log = PartitionLog.open(tmp_path, LogConfig(), now_ms=0)
    for number in range(3):
        batch = batch_of(b"value", key=b"%d" % number)
        log.append(batch, leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
    yield log
    log.close()


async def replayed(log: PartitionLog, workers: object) -> list[bytes]:
    async def opened(_topic: str, _index: int) -> SimpleNamespace:
        return SimpleNamespace(log=log)

    partitions = SimpleNamespace(open=opened)
    hosting: Any = SimpleNamespace(partitions=partitions, workers=workers)
    internal = InternalTopicLog(cast("Hosting", hosting), TOPIC)
    keys: list[bytes] = []
    async for batches in internal.replay(0):
        keys += [key for batch in batches for key, _ in batch.records]
    return keys


async def test_a_replay_does_not_touch_the_tail_cache(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("the cache is the event loop's")

    monkeypatch.setattr(type(log._tail), "read", never)
    workers = Workers()
    assert await replayed(log, workers) == [b"0", b"1", b"2"]
    workers.close()


async def test_a_log_that_is_closed_before_its_turn_is_not_read(log: PartitionLog) -> None:
    with pytest.raises(LogClosed):
        await replayed(log, Interrupted(before=log.close, after=lambda: None))


async def test_what_was_read_of_a_log_that_is_closed_since_is_dropped(log: PartitionLog) -> None:
    with pytest.raises(NotCoordinator):
        await replayed(log, Interrupted(before=lambda: None, after=log.close))


async def test_what_was_decided_for_a_deleted_topic_is_not_for_its_successor(
    log: PartitionLog, tmp_path: Path
) -> None:
    """The append had been begun and waited for the log to be opened, which was another one then."""
    successor = PartitionLog.open(tmp_path / "successor", LogConfig(), now_ms=0)
    hosted = [SimpleNamespace(log=one, gone=False) for one in (log, successor)]

    async def opened(_topic: str, _index: int, **_: object) -> SimpleNamespace:
        return hosted[0]

    workers = Workers()
    hosting: Any = SimpleNamespace(partitions=SimpleNamespace(open=opened), workers=workers)
    internal = InternalTopicLog(cast("Hosting", hosting), TOPIC)
    async for _ in internal.replay(0):
        pass
    hosted.pop(0)
    with pytest.raises(NotCoordinator):
        await internal.append(0, [Batch([(b"k", b"v")])], 0)
    assert successor.log_end_offset == 0
    workers.close()
    successor.close()


# -- loading --------------------------------------------------------------------------------------


class Sum:
    """Adds; -1 fails."""

    def __init__(self) -> None:
        self.total = 0

    def replay(self, key: bytes, value: bytes | None) -> None:
        self.total += int(key)

    def loaded(self, now: Now) -> None:
        pass

    def decide(self, request: int, token: Token, now: Now) -> Decision[int, int]:
        decision: Decision[int, int] = Decision()
        if request < 0:
            raise ZeroDivisionError
        if request:
            decision.records.append(request)
            self.total += request
        decision.reply(token, self.total)
        return decision

    def tick(self, now: Now) -> Decision[int, int]:
        return Decision()

    def next_deadline(self) -> int | None:
        return None

    def encode(self, record: int) -> Pair:
        return b"%d" % record, b""


class Unreadable(MemoryLog):
    """Of which some partitions cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable: set[int] = set()
        self.replays = 0

    async def replay(self, partition: int) -> Any:
        self.replays += 1
        if partition in self.unreadable:
            raise StorageFailure("a bad disk")
        async for batches in super().replay(partition):
            yield batches


class Place:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = Unreadable()
        self.clock = ManualClock()
        monkeypatch.setattr(service_module, "InternalTopicLog", lambda *_: self.log)
        cluster = SimpleNamespace(node_id=1, image=self.image(FIRST))
        hosting: Any = SimpleNamespace(cluster=cluster, data=None, clock=self.clock)
        self.service: CoordinatorService[int, int, int] = CoordinatorService(
            hosting, TOPIC, lambda _index: Sum(), lambda _effect: None
        )

    def image(self, topic_id: UUID) -> MetadataImage:
        partitions = [SimpleNamespace(leader=1)] * 2
        topic = SimpleNamespace(topic_id=topic_id, partitions=partitions)
        return cast("MetadataImage", SimpleNamespace(topic=lambda _name: topic))

    async def ask(self, index: int, request: int) -> int:
        key = next(key for key in map(str, range(100)) if self.service.index_of(key) == index)
        return await self.service.ask(key, request, int)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(monkeypatch)


async def test_an_unreadable_partition_is_tried_again_but_not_by_every_request(
    place: Place,
) -> None:
    place.log.unreadable = {0}
    for _ in range(3):
        with pytest.raises(ApiError) as refusal:
            await place.ask(0, 1)
        assert refusal.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert place.log.replays == 1
    assert await place.ask(1, 5) == 5
    assert await place.service.ask_all(0, int) == [5]
    place.log.unreadable.clear()
    place.clock.advance(int(RETRY_SECONDS * 1000))
    assert await place.ask(0, 1) == 6, "both partitions are one log here"
    await place.service.close()


async def test_a_partition_whose_reload_failed_is_loaded_when_it_can_be_read(place: Place) -> None:
    assert await place.ask(0, 5) == 5
    place.log.unreadable = {0}
    with pytest.raises(ApiError):
        await place.ask(0, -1)
    while place.service.loaded:  # noqa: ASYNC110  # until the reload has failed
        await asyncio.sleep(0)
    place.clock.advance(int(RETRY_SECONDS * 1000))
    with pytest.raises(ApiError) as refusal:
        await place.ask(0, 1)
    assert refusal.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    place.log.unreadable.clear()
    place.clock.advance(int(RETRY_SECONDS * 1000))
    assert await place.ask(0, 1) == 6
    await place.service.close()


async def test_a_topic_that_is_made_anew_has_new_coordinators(place: Place) -> None:
    assert await place.ask(0, 5) == 5
    place.service.leaders_changed(place.image(FIRST))
    assert place.service.loaded == [0]
    place.service.leaders_changed(place.image(SECOND))
    assert place.service.loaded == []
    place.log.appends = [[Batch([(b"1", b"")])]]
    assert await place.ask(0, 0) == 1
    await place.service.close()

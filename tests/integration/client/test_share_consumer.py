"""The ShareConsumer with stand-ins for brokers: what cannot be provoked with real ones at will."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.cluster.exchange import api_key_of
from ottla.client.errors import (
    BadArgument,
    ClientClosed,
    KafkaError,
    RequestTimedOut,
    UnsupportedApi,
)
from ottla.client.share.consumer import ShareConsumer
from ottla.client.share.member import Member
from ottla.client.share.membership import Membership
from ottla.client.share.types import Kind, RecordNotHeld, UndecodableRecords
from ottla.wire.error_codes import ErrorCode
from ottla.wire.records import Record
from ottla.wire.schema import share_acknowledge
from ottla.wire.schema.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.wire.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.schema.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.wire.schema.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.wire.schema.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.support.build import build_batch
from tests.support.client_broker import Instead, ScriptedBroker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ottla.client.share.types import Acknowledged, ShareRecord

PATIENCE = 20.0
TOPIC = b"t" * 16
BEAT_MS = 20
LOCK_MS = 30_000


def joined(request: ShareGroupHeartbeatRequest, *partitions: int) -> ShareGroupHeartbeatResponse:
    assignment = Assignment([TopicPartitions(TOPIC, partitions)])
    return ShareGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=-1 if request.member_epoch == -1 else 1,
        heartbeat_interval_ms=BEAT_MS,
        assignment=assignment if request.member_epoch == 0 else None,
    )


def delivered(
    *acquired: tuple[int, int], records: bytes = b"", partition: int = 0, **options: Any
) -> ShareFetchResponse:
    ranges = [AcquiredRecords(first, last, 1) for first, last in acquired]
    data = PartitionData(partition, records=records, acquired_records=ranges, **options)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=LOCK_MS, responses=[ShareFetchableTopicResponse(TOPIC, [data])]
    )


def acknowledged(request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    """All is well."""
    return ShareAcknowledgeResponse(
        responses=[
            ShareAcknowledgeTopicResponse(
                topic.topic_id,
                [share_acknowledge.PartitionData(one.partition_index) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def batch(*offsets: int) -> bytes:
    records = [Record(offset, 0, None, b"%d" % offset) for offset in offsets]
    return bytes(build_batch(records, base_offset=offsets[0]))


def acks(request: Any) -> list[tuple[int, int, list[int]]]:
    return [
        (one.first_offset, one.last_offset, list(one.acknowledge_types))
        for topic in request.topics
        for partition in topic.partitions
        for one in partition.acknowledgement_batches
    ]


def describe(brokers: dict[int, ScriptedBroker], leaders: list[int]) -> None:
    topic = MetadataResponseTopic(
        name="t",
        topic_id=TOPIC,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=leader)
            for index, leader in enumerate(leaders)
        ],
    )
    answer = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node, "127.0.0.1", broker.port)
            for node, broker in brokers.items()
        ],
        topics=[topic],
    )
    for broker in brokers.values():
        broker.metadata = answer


@pytest.fixture
async def brokers() -> AsyncIterator[dict[int, ScriptedBroker]]:
    """Two: the first coordinates the group and leads its one partition, the second has none."""
    async with AsyncExitStack() as stack:
        found = {node: await stack.enter_async_context(ScriptedBroker()) for node in (1, 2)}
        coordinator = Coordinator("g", 1, "127.0.0.1", found[1].port)
        for broker in found.values():
            broker.script(
                FindCoordinatorRequest, FindCoordinatorResponse(coordinators=[coordinator])
            )
            broker.script(ShareGroupHeartbeatRequest, lambda request: joined(request, 0))
            broker.script(ShareAcknowledgeRequest, acknowledged)
            broker.script(ShareFetchRequest, ShareFetchResponse())
        describe(found, [1])
        yield found


@pytest.fixture
def broker(brokers: dict[int, ScriptedBroker]) -> ScriptedBroker:
    return brokers[1]


def consumer_of(broker: ScriptedBroker, **options: Any) -> ShareConsumer:
    options = {"max_wait": 0.01, "api_timeout": 5.0, **options}
    return ShareConsumer(broker.bootstrap, group="g", topics=["t"], **options)


async def first_records(consumer: ShareConsumer) -> list[ShareRecord]:
    async with asyncio.timeout(PATIENCE):
        while not (found := await consumer.poll()):
            pass
    return found


async def test_a_waiting_fetch_does_not_delay_heartbeats(broker: ScriptedBroker) -> None:
    broker.script(ShareFetchRequest, Instead.SILENCE)
    async with consumer_of(broker) as consumer:
        polling = asyncio.create_task(consumer.poll(timeout=PATIENCE))
        await broker.until(lambda: bool(broker.asked(ShareFetchRequest)))
        before = len(broker.asked(ShareGroupHeartbeatRequest))
        await broker.until(lambda: len(broker.asked(ShareGroupHeartbeatRequest)) >= before + 5)
        assert len(broker.asked(ShareFetchRequest)) == 1
        polling.cancel()
        await asyncio.wait([polling])
        await consumer.close(0.05)


async def test_a_fenced_member_joins_again_and_keeps_its_records(broker: ScriptedBroker) -> None:
    broker.script(ShareFetchRequest, delivered((0, 1), records=batch(0, 1)), ShareFetchResponse())
    async with consumer_of(broker, ack_mode="explicit") as consumer:
        found = await first_records(consumer)
        fenced = ShareGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        broker.script(ShareGroupHeartbeatRequest, fenced, lambda request: joined(request, 0))

        def joins() -> int:
            beats = broker.asked(ShareGroupHeartbeatRequest)
            return sum(beat.member_epoch == 0 for beat in beats)

        await broker.until(lambda: joins() == 2)
        assert {one.member_id for one in broker.asked(ShareGroupHeartbeatRequest)} == {
            consumer.member_id
        }
        for record in found:
            consumer.acknowledge(record)
        assert set((await consumer.commit()).values()) == {None}


async def test_a_group_that_refuses_is_told_to_the_caller(broker: ScriptedBroker) -> None:
    full = ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
    broker.script(ShareGroupHeartbeatRequest, full)
    with pytest.raises(KafkaError, match="GROUP_MAX_SIZE_REACHED"):
        await consumer_of(broker).__aenter__()
    await broker.until_left()


async def test_a_silent_coordinator_is_given_up(broker: ScriptedBroker) -> None:
    broker.script(ShareGroupHeartbeatRequest, Instead.SILENCE)
    with pytest.raises(RequestTimedOut, match="share group 'g'"):
        await consumer_of(broker, api_timeout=0.1).__aenter__()
    await broker.until_left()


async def test_63_an_acknowledged_partition_that_is_not_answered_has_failed(
    broker: ScriptedBroker,
) -> None:
    broker.script(ShareFetchRequest, delivered((0, 0), records=batch(0)), ShareFetchResponse())
    heard: list[Acknowledged] = []
    async with consumer_of(broker, on_acknowledge=heard.append) as consumer:
        await first_records(consumer)
        assert await consumer.poll(timeout=0.1) == []
    [only] = heard
    assert isinstance(only.error, KafkaError)
    assert only.error.code == ErrorCode.INVALID_RECORD_STATE


async def test_64_gaps_are_acknowledged_even_if_there_is_nothing_else(
    broker: ScriptedBroker,
) -> None:
    broker.script(
        ShareFetchRequest,
        delivered((0, 9), records=batch(20)),
        delivered((10, 19), records=batch(12, 14)),
    )
    broker.scripts[ShareFetchRequest].append(ShareFetchResponse())
    async with consumer_of(broker, ack_mode="explicit") as consumer:
        found = await first_records(consumer)
        assert [one.offset for one in found] == [12, 14]
        for record in found:
            consumer.acknowledge(record, "release")
    sent = [acks(one) for one in broker.asked(ShareFetchRequest)]
    assert sent[:2] == [[], [(0, 9, [0])]]
    [closing] = broker.asked(ShareAcknowledgeRequest)
    assert closing.share_session_epoch == -1
    assert acks(closing) == [(10, 19, [0, 0, 2, 0, 2, 0, 0, 0, 0, 0])]
    assert broker.asked(ShareGroupHeartbeatRequest)[-1].member_epoch == -1


@pytest.mark.parametrize("arrow", [False, True])
async def test_a_broken_batch_is_rejected_and_told(broker: ScriptedBroker, arrow: bool) -> None:
    broken = bytearray(batch(0, 1))
    broken[-1] ^= 1
    broker.script(
        ShareFetchRequest,
        delivered((0, 3), records=bytes(broken) + batch(2, 3)),
        ShareFetchResponse(),
    )
    async with consumer_of(broker) as consumer:
        if arrow:
            table = await consumer.poll_arrow(timeout=PATIENCE)
            assert table.column("offset").to_pylist() == [2, 3]
        else:
            assert [one.offset for one in await first_records(consumer)] == [2, 3]
        with pytest.raises(UndecodableRecords, match="offsets 0 to 1 are rejected"):
            await consumer.poll(timeout=PATIENCE)
    [closing] = broker.asked(ShareAcknowledgeRequest)
    assert acks(closing) == [(0, 3, [3, 3, 1, 1])]


@pytest.mark.parametrize(
    "answer",
    [
        ShareFetchResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_NOT_FOUND),
        Instead.HANG_UP,
        Instead.GARBAGE,
    ],
)
async def test_a_session_that_ends_is_opened_again(broker: ScriptedBroker, answer: Any) -> None:
    broker.script(
        ShareFetchRequest,
        delivered((0, 1), records=batch(0, 1)),
        answer,
        delivered((0, 1), records=batch(0, 1)),
        ShareFetchResponse(),
    )
    heard: list[Acknowledged] = []
    async with consumer_of(broker, on_acknowledge=heard.append) as consumer:
        first = await first_records(consumer)
        again = await first_records(consumer)
    assert [one.offset for one in first] == [one.offset for one in again] == [0, 1]
    epochs = [one.share_session_epoch for one in broker.asked(ShareFetchRequest)]
    assert epochs[:3] == [0, 1, 0]
    assert [acks(one) for one in broker.asked(ShareFetchRequest)[:3]] == [[], [(0, 1, [1])], []]
    assert [one.error is None for one in heard] == [False, True]


async def test_partitions_of_several_leaders_come_together(
    brokers: dict[int, ScriptedBroker],
) -> None:
    describe(brokers, [1, 2])
    brokers[1].script(ShareGroupHeartbeatRequest, lambda request: joined(request, 0, 1))
    brokers[1].script(ShareFetchRequest, delivered((0, 0), records=batch(0)), ShareFetchResponse())
    brokers[2].script(
        ShareFetchRequest,
        delivered((5, 5), records=batch(5), partition=1),
        ShareFetchResponse(),
    )
    found: list[ShareRecord] = []
    async with consumer_of(brokers[1]) as consumer, asyncio.timeout(PATIENCE):
        while len(found) < 2:
            found += await consumer.poll()
        await consumer.commit()
    assert {(one.partition, one.offset) for one in found} == {(0, 0), (1, 5)}
    for node, offset in ((1, 0), (2, 5)):
        sent = brokers[node].asked(ShareFetchRequest) + brokers[node].asked(ShareAcknowledgeRequest)
        assert [one for request in sent for one in acks(request)] == [(offset, offset, [1])]


async def test_a_partition_that_moves_is_followed(brokers: dict[int, ScriptedBroker]) -> None:
    brokers[1].script(ShareFetchRequest, delivered(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    brokers[2].script(ShareFetchRequest, delivered((7, 7), records=batch(7)), ShareFetchResponse())
    async with consumer_of(brokers[1]) as consumer:
        polling = asyncio.create_task(first_records(consumer))
        await brokers[1].until(lambda: bool(brokers[1].asked(ShareFetchRequest)))
        describe(brokers, [2])
        assert [one.offset for one in await polling] == [7]
        # The session with the old leader forgets it.
        brokers[1].script(ShareFetchRequest, ShareFetchResponse())
        await consumer.poll(timeout=0.5)
    forgotten = [
        one
        for request in brokers[1].asked(ShareFetchRequest)
        for one in request.forgotten_topics_data
    ]
    assert [(one.topic_id, list(one.partitions)) for one in forgotten] == [(TOPIC, [0])]


async def test_what_waits_longer_than_its_lock_is_not_given(broker: ScriptedBroker) -> None:
    async with consumer_of(broker) as consumer:
        while not broker.asked(ShareFetchRequest):
            await consumer.poll(timeout=0.01)
        short = delivered((0, 0), records=batch(0))._replace(acquisition_lock_timeout_ms=1)
        broker.script(ShareFetchRequest, short, ShareFetchResponse())
        while len(broker.scripts[ShareFetchRequest]) == 2:
            # Asks, and does not wait for the answer.
            assert await consumer.poll(timeout=0) == []
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert await consumer.poll(timeout=0.05) == []
    assert not [one for one in broker.asked(ShareFetchRequest) if acks(one)]


@pytest.mark.parametrize("silent", [ShareAcknowledgeRequest, ShareFetchRequest])
async def test_closing_waits_for_nobody_longer_than_it_may(
    broker: ScriptedBroker, silent: type
) -> None:
    heard: list[Acknowledged] = []
    broker.script(ShareFetchRequest, delivered((0, 0), records=batch(0)))
    options = {"ack_mode": "explicit", "on_acknowledge": heard.append}
    consumer = await consumer_of(broker, **options).__aenter__()
    [record] = await first_records(consumer)
    broker.script(ShareFetchRequest, ShareFetchResponse())
    broker.script(silent, Instead.SILENCE)
    consumer.acknowledge(record, "renew")
    if silent is ShareFetchRequest:
        await consumer.commit()
        asked = len(broker.asked(ShareFetchRequest))
        await consumer.poll(timeout=0)
        await broker.until(lambda: len(broker.asked(ShareFetchRequest)) > asked)
        heard.clear()
        consumer.acknowledge(record, "accept")
    async with asyncio.timeout(PATIENCE):
        await consumer.close(0.1)
    await broker.until_left()
    # Nobody knows what became of it, so it counts as failed.
    assert [one.error is None for one in heard] == [False]
    assert broker.asked(ShareGroupHeartbeatRequest)[-1].member_epoch == -1


async def test_a_callback_that_fails_is_told_and_the_rest_goes_on(broker: ScriptedBroker) -> None:
    broker.script(ShareFetchRequest, delivered((0, 0), records=batch(0)), delivered())
    heard: list[Acknowledged] = []

    def fail(result: Acknowledged) -> None:
        heard.append(result)
        raise ZeroDivisionError

    async with consumer_of(broker, on_acknowledge=fail) as consumer:
        await first_records(consumer)
        with pytest.raises(ZeroDivisionError):
            await consumer.poll(timeout=PATIENCE)
        assert [one.error for one in heard] == [None]
        assert await consumer.poll(timeout=0.05) == []


async def test_with_a_strict_limit_leaders_are_asked_in_turn(
    brokers: dict[int, ScriptedBroker],
) -> None:
    describe(brokers, [1, 2])
    brokers[1].script(ShareGroupHeartbeatRequest, lambda request: joined(request, 0, 1))
    brokers[2].script(
        ShareFetchRequest, delivered((5, 5), records=batch(5), partition=1), ShareFetchResponse()
    )
    async with consumer_of(brokers[1], acquire_mode="record_limit") as consumer:
        assert [one.offset for one in await first_records(consumer)] == [5]
        before = len(brokers[1].asked(ShareFetchRequest))
        await consumer.poll(timeout=0.1)
    modes = {one.share_acquire_mode for one in brokers[2].asked(ShareFetchRequest)}
    assert modes == {1}
    counts = [len(brokers[node].asked(ShareFetchRequest)) for node in (1, 2)]
    assert counts[0] > before
    assert abs(counts[0] - counts[1]) <= 1


async def test_a_broker_that_cannot_renew_leaves_the_record_held(broker: ScriptedBroker) -> None:
    broker.script(ShareFetchRequest, delivered((0, 0), records=batch(0)), delivered())
    oldest = {api_key_of(ShareFetchRequest()): 1, api_key_of(ShareAcknowledgeRequest()): 1}
    async with consumer_of(broker, ack_mode="explicit", max_versions=oldest) as consumer:
        [record] = await first_records(consumer)
        consumer.acknowledge(record, "renew")
        [error] = (await consumer.commit(return_errors=True)).values()
        assert isinstance(error, UnsupportedApi)
        consumer.acknowledge(record, "renew")
        with pytest.raises(UnsupportedApi):
            await consumer.commit()
        consumer.acknowledge(record, "accept")
        assert set((await consumer.commit()).values()) == {None}


@pytest.mark.parametrize("loop", ["heartbeat", "_route"])
async def test_the_background_survives_an_unforeseen_error(
    broker: ScriptedBroker, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.script(ShareFetchRequest, delivered((0, 0), records=batch(0)), delivered())
    calls: list[str] = []

    def fail_once(self: Any) -> Any:
        calls.append(loop)
        return real(self) if len(calls) > 1 else 1 / 0

    owner: Any = Membership if loop == "heartbeat" else Member
    real = getattr(owner, loop)
    monkeypatch.setattr(owner, loop, fail_once)
    async with consumer_of(broker) as consumer:
        assert len(await first_records(consumer)) == 1
    assert len(calls) > 1


async def test_only_what_was_given_can_be_decided_about(broker: ScriptedBroker) -> None:
    some = delivered((3, 4), (7, 8), records=batch(3, 4) + batch(7, 8))
    broker.script(ShareFetchRequest, some, ShareFetchResponse())
    consumer = consumer_of(broker, ack_mode="explicit")
    async with consumer:
        found = await first_records(consumer)
        for offset in (2, 5, 9, -1):
            # What is next to a range must not be taken for something in it, from either end.
            with pytest.raises(RecordNotHeld, match="is not held"):
                consumer.acknowledge(found[0]._replace(offset=offset))
        with pytest.raises(BadArgument, match="kind: expected one of accept, release"):
            consumer.acknowledge(found[0], "maybe")  # type: ignore[arg-type]
        for record, kind in zip(found, ("reject", "accept", "release", "accept"), strict=True):
            consumer.acknowledge(record, "accept")
            consumer.acknowledge(record, kind)  # type: ignore[arg-type]  # the last word counts
        await consumer.commit()
        with pytest.raises(RecordNotHeld, match="is not held"):
            consumer.acknowledge(found[0])
    with pytest.raises(ClientClosed):
        consumer.acknowledge(found[0])
    [request] = [one for one in broker.asked(ShareAcknowledgeRequest) if acks(one)]
    assert acks(request) == [
        (3, 4, [Kind.REJECT, Kind.ACCEPT]),
        (7, 8, [Kind.RELEASE, Kind.ACCEPT]),
    ]


async def test_nothing_is_said_of_records_while_a_consumer_closes(broker: ScriptedBroker) -> None:
    broker.script(ShareFetchRequest, delivered((0, 1), records=batch(0, 1)), ShareFetchResponse())
    consumer = consumer_of(broker, ack_mode="explicit")
    async with consumer:
        found = await first_records(consumer)
        consumer.acknowledge(found[0])
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            consumer.acknowledge(found[1])
        await closing
    [request] = broker.asked(ShareAcknowledgeRequest)
    assert acks(request) == [(0, 0, [Kind.ACCEPT])]

"""The pure parts: what is retried, how long to wait, what addresses and answers mean."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.admin.resets import ShiftBy, ToOffset, new_offset
from ottla.client.cluster.bootstrap import BadBootstrap, parse_bootstrap
from ottla.client.cluster.connection import Address
from ottla.client.cluster.retry import MISSING_TOPIC_ATTEMPTS, Backoff, Stale, forgets
from ottla.client.cluster.turns import Turns
from ottla.client.cluster.view import ClusterView, TopicPartition
from ottla.client.consumer.protocol import read_assignment
from ottla.client.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    KafkaError,
    RequestTimedOut,
    UnsupportedApi,
    check,
)
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 , a:1 ,", [("a", 1)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
        ("[::1]:7,[::2]", [("::1", 7), ("::2", 9092)]),
    ],
)
def test_bootstrap_lists(text: str | list[str], found: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == found


@pytest.mark.parametrize("text", ["", " , ", "a:b", "a:0", "a:65536", ":1", "::1", "a:-1", "a:²"])
def test_bootstrap_lists_that_name_no_broker(text: str) -> None:
    with pytest.raises(BadBootstrap, match="HOST:PORT"):
        parse_bootstrap(text)


@given(
    failures=st.integers(1, 10**6),
    random=st.floats(0, 1, exclude_max=True),
)
def test_waits_grow_to_a_limit_and_are_never_short(failures: int, random: float) -> None:
    backoff = Backoff(0.1, 2.0)
    whole = min(2.0, 0.1 * 2 ** min(failures - 1, 10))
    assert whole / 2 <= backoff.delay(failures, random) <= whole


def test_what_was_surely_not_served_is_always_repeated() -> None:
    error = BrokerUnreachable("down")
    assert forgets(error, 1, repeatable=False) == Stale.EVERYTHING


@pytest.mark.parametrize("error", [ConnectionLost("x"), RequestTimedOut("x")])
def test_what_may_have_been_served_is_repeated_only_if_that_does_no_harm(
    error: ConnectionLost | RequestTimedOut,
) -> None:
    assert forgets(error, 1, repeatable=True) == Stale.EVERYTHING
    assert forgets(error, 1, repeatable=False) is None
    timed_out = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "x")
    assert forgets(timed_out, 1, repeatable=True) == Stale.NOTHING
    assert forgets(timed_out, 1, repeatable=False) is None


@pytest.mark.parametrize(
    ("code", "stale"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Stale.METADATA),
        (ErrorCode.NOT_CONTROLLER, Stale.METADATA),
        (ErrorCode.NOT_COORDINATOR, Stale.COORDINATORS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Stale.NOTHING),
        (ErrorCode.TOPIC_ALREADY_EXISTS, None),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None),
        (9999, None),
    ],
)
def test_codes_say_what_is_stale(code: int, stale: Stale | None) -> None:
    assert forgets(KafkaError(code, "x"), 1, repeatable=False) == stale


def test_a_missing_topic_is_waited_for_but_not_for_long() -> None:
    error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "x")
    assert forgets(error, MISSING_TOPIC_ATTEMPTS - 1, repeatable=True) == Stale.METADATA
    assert forgets(error, MISSING_TOPIC_ATTEMPTS, repeatable=True) is None


def test_what_no_attempt_can_change_is_not_repeated() -> None:
    for error in (ClientClosed("x"), UnsupportedApi("x")):
        assert forgets(error, 1, repeatable=True) is None


def test_errors_read_as_one_sentence() -> None:
    check(0, "x")
    with pytest.raises(KafkaError) as raised:
        check(36, "create topic 'a'", "Topic 'a' already exists.")
    assert str(raised.value) == (
        "create topic 'a': TOPIC_ALREADY_EXISTS (Topic 'a' already exists); "
        "choose another name, or delete the topic first"
    )
    assert str(KafkaError(9999, "x")) == "x: ERROR_CODE_9999"


def answer(**topics: list[int]) -> MetadataResponse:
    """Topics with these leaders; no leaders stand for a topic that is missing."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(1, "h", 1), MetadataResponseBroker(2, "h", 2)],
        topics=[
            MetadataResponseTopic(
                error_code=0 if leaders else 3,
                name=name,
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=leader)
                    for index, leader in reversed(list(enumerate(leaders)))
                ],
            )
            for name, leaders in topics.items()
        ],
    )


def test_an_answer_replaces_what_it_names() -> None:
    view = ClusterView().after(answer(a=[1, 2], b=[2]))
    assert view.brokers[2].address == Address("h", 2)
    assert [view.topics["a"].leader_of(index) for index in (0, 1, 2)] == [1, 2, -1]
    assert [one.index for one in view.topics["a"].partitions] == [0, 1]
    later = view.after(answer(a=[2], c=[]))
    assert {name: len(one.partitions) for name, one in later.topics.items()} == {"a": 1, "b": 1}
    assert later.missing == {"c": 3}
    gone = later.after(answer(b=[], c=[1]))
    assert set(gone.topics) == {"a", "c"}
    assert gone.missing == {"b": 3}


def test_assignments_of_classic_consumers() -> None:
    data = struct.pack(">hih2siii", 1, 1, 2, b"or", 2, 0, 3) + b"\xff\xff\xff\xff"
    assert read_assignment(data) == [TopicPartition("or", 0), TopicPartition("or", 3)]
    assert read_assignment(b"") == []
    assert read_assignment(struct.pack(">hihi", 1, 0x7FFF_FFFF, -6, 0)) == []


@given(st.binary(max_size=40))
def test_assignments_of_others_are_none(data: bytes) -> None:
    assert isinstance(read_assignment(data), list)


@given(
    to=st.one_of(
        st.sampled_from(["earliest", "latest"]),
        st.integers().map(ToOffset),
        st.integers().map(ShiftBy),
        st.datetimes(),
    ),
    before=st.integers(0, 100),
    start=st.integers(0, 50),
    length=st.integers(0, 50),
    at_time=st.integers(-1, 100),
)
def test_new_offsets_lie_in_the_log(
    to: object, before: int, start: int, length: int, at_time: int
) -> None:
    end = start + length
    after = new_offset(to, before, start, end, at_time)  # type: ignore[arg-type]  # all of its cases
    assert start <= after <= end
    match to:
        case "earliest":
            assert after == start
        case "latest":
            assert after == end
        case ToOffset(offset) if start <= offset <= end:
            assert after == offset
        case ShiftBy(records) if start <= before + records <= end:
            assert after == before + records


async def test_turns_are_taken_until_the_work_is_done() -> None:
    turns, done, began = Turns(), asyncio.Event(), []

    async def work() -> None:
        began.append(1)
        await asyncio.sleep(0)
        if len(began) == 1:
            raise BrokerUnreachable("first")
        done.set()

    early = [asyncio.create_task(turns.take(done.is_set, work)) for _ in range(5)]
    failures = await asyncio.gather(*early, return_exceptions=True)
    assert [str(one) for one in failures] == ["first"] * 5
    assert len(began) == 1
    await asyncio.gather(*(turns.take(done.is_set, work) for _ in range(5)))
    assert len(began) == 2

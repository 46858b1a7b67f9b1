"""Fetch sessions (KIP-227) on the wire, and what breaks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla import EmbeddedBroker
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.fetch import FetchRequest, FetchTopic, ForgottenTopic
from tests.support.raw_client import RawClient, batch, fetch_request, values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.wire.schema.fetch import FetchResponse


class SessionClient:
    """Keeps a session's id and epoch, as a consumer does."""

    def __init__(self, raw: RawClient, topic: str) -> None:
        self._raw = raw
        self.topic = topic
        self.session_id = self.epoch = 0

    def fetch(
        self, offsets: dict[int, int], *, forget: tuple[int, ...] = (), max_wait_ms: int = 0
    ) -> FetchResponse:
        request = fetch_request(
            {(self.topic, p): offset for p, offset in offsets.items()},
            session_id=self.session_id,
            session_epoch=self.epoch,
            max_wait_ms=max_wait_ms,
        )
        if forget:
            gone = [ForgottenTopic(self.topic, partitions=forget)]
            request = request._replace(forgotten_topics_data=gone)
        answer = self._raw.fetch(request)
        self.session_id = answer.session_id
        self.epoch += 1
        return answer


def listed(answer: FetchResponse) -> dict[int, list[bytes | None]]:
    return {p.partition_index: list(values_of(p)) for t in answer.responses for p in t.partitions}


@pytest.fixture
def session(raw: RawClient, new_topic: Callable[..., str]) -> SessionClient:
    """A session over partitions 0 to 2, all empty and all told."""
    client = SessionClient(raw, new_topic(3))
    assert listed(client.fetch({0: 0, 1: 0, 2: 0})) == {0: [], 1: [], 2: []}
    assert client.session_id > 0
    return client


def test_an_increment_lists_only_what_changed(raw: RawClient, session: SessionClient) -> None:
    assert listed(session.fetch({})) == {}
    raw.produce(session.topic, batch(b"a"), partition=1)
    assert listed(session.fetch({})) == {1: [b"a"]}
    # Not moved on, so it is still there; then moved on, so it is not.
    assert listed(session.fetch({})) == {1: [b"a"]}
    assert listed(session.fetch({1: 1})) == {}


def test_a_session_waits_for_all_its_partitions(
    ottla_broker: EmbeddedBroker, raw: RawClient, session: SessionClient
) -> None:
    request = fetch_request(
        {}, session_id=session.session_id, session_epoch=session.epoch, max_wait_ms=600_000
    )
    raw.send("fetch", 12, request)
    with RawClient(ottla_broker.bootstrap) as other:
        other.produce(session.topic, batch(b"late"), partition=2)
    assert listed(raw.receive("fetch", 12)[1]) == {2: [b"late"]}


def test_forgotten_and_added_partitions(raw: RawClient, session: SessionClient) -> None:
    for partition in range(3):
        raw.produce(session.topic, batch(b"%d" % partition), partition=partition)
    assert listed(session.fetch({}, forget=(0, 2))) == {1: [b"1"]}
    assert listed(session.fetch({1: 1, 2: 0})) == {2: [b"2"]}


def test_errors_are_listed_every_time(raw: RawClient, session: SessionClient) -> None:
    for _ in range(2):
        (topic,) = session.fetch({1: 99}).responses
        assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(1, 1)]


def test_a_moved_log_start_is_listed(raw: RawClient, session: SessionClient) -> None:
    from ottla.wire.schema.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    raw.produce(session.topic, batch(b"a"), partition=0)
    assert listed(session.fetch({0: 1})) == {0: []}  # the high watermark moved
    wanted = [DeleteRecordsTopic(session.topic, [DeleteRecordsPartition(0, 1)])]
    raw.ask("delete_records", 2, DeleteRecordsRequest(wanted))
    (topic,) = session.fetch({}).responses
    assert [(p.partition_index, p.log_start_offset) for p in topic.partitions] == [(0, 1)]


@pytest.mark.parametrize("epoch", [2, 5, 0x7FFFFFFF])
def test_a_wrong_epoch(raw: RawClient, session: SessionClient, epoch: int) -> None:
    wrong = FetchRequest(session_id=session.session_id, session_epoch=epoch)
    assert raw.fetch(wrong).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert listed(session.fetch({})) == {}  # the session survives it


def test_an_unknown_session(raw: RawClient, session: SessionClient) -> None:
    wrong = FetchRequest(session_id=session.session_id ^ 1, session_epoch=1)
    assert raw.fetch(wrong).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_closed_session_is_gone(raw: RawClient, session: SessionClient) -> None:
    closing = fetch_request(
        {(session.topic, 0): 0}, session_id=session.session_id, session_epoch=-1
    )
    answer = raw.fetch(closing)
    assert (answer.session_id, answer.error_code) == (0, 0)
    assert listed(answer) == {0: []}
    gone = FetchRequest(session_id=session.session_id, session_epoch=1)
    assert raw.fetch(gone).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epoch_0_replaces_the_session(raw: RawClient, session: SessionClient) -> None:
    old = session.session_id
    session.epoch = 0
    assert listed(session.fetch({2: 0})) == {2: []}
    assert session.session_id not in (0, old)
    gone = FetchRequest(session_id=old, session_epoch=1)
    assert raw.fetch(gone).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_names_and_ids_do_not_mix(raw: RawClient, session: SessionClient) -> None:
    """A session begun with names cannot go on with ids: the client has to begin a new one."""
    by_id = FetchRequest(session_id=session.session_id, session_epoch=1)
    answer = raw.fetch(by_id, version=13)
    assert answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_recreated_topic_is_unknown_by_its_old_id(
    ottla_broker: EmbeddedBroker, raw: RawClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    old = raw.topic(topic).topic_id
    request = fetch_request({("", 0): 0}, session_epoch=0)
    topics = [FetchTopic("", old, request.topics[0].partitions)]
    opened = raw.fetch(request._replace(topics=topics), version=13)
    ottla_broker.delete_topic(topic)
    ottla_broker.create_topic(topic)
    again = FetchRequest(session_id=opened.session_id, session_epoch=1, max_wait_ms=600_000)
    (answer,) = raw.fetch(again, version=13).responses
    assert answer.topic_id == old
    assert answer.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_full_cache_answers_without_a_session() -> None:
    settings = {"max.incremental.fetch.session.cache.slots": "1"}
    with EmbeddedBroker(config=settings) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t")
        request = fetch_request({("t", 0): 0}, session_epoch=0)
        assert client.fetch(request).session_id > 0
        assert client.fetch(request).session_id == 0

"""Transactions request by request, on Ottla and on Apache Kafka: both have to answer alike."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.list_transactions import ListTransactionsRequest
from ottla.wire.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.raw_client import (
    LATEST,
    RawClient,
    batch,
    batches_of,
    now_ms,
    values_of,
)
from tests.support.raw_transactions import (
    READ_COMMITTED,
    TRANSACTION,
    RawProducer,
    committed,
    describe,
    producers_of,
    wait_for,
)


def test_find_coordinator(raw: RawClient) -> None:
    """Of any id, an empty one too, which no other request accepts."""
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["a", ""])

    def found() -> list[tuple[str, int]]:
        answer = raw.ask("find_coordinator", 4, request)
        return [(each.key, each.error_code) for each in answer.coordinators]

    wait_for(lambda: found() == [("a", 0), ("", 0)])


@pytest.mark.parametrize(("timeout_ms", "code"), [(0, 50), (-1, 50), (400_001, 50), (400_000, 0)])
def test_t50_the_timeout_has_limits(raw: RawClient, timeout_ms: int, code: int) -> None:
    assert RawProducer(raw).init(timeout_ms).error_code == code


def test_an_empty_transactional_id(raw: RawClient) -> None:
    raw_producer = RawProducer(raw)
    raw_producer.name = ""
    assert raw_producer.try_init().error_code == ErrorCode.INVALID_REQUEST


def test_t48_the_second_one_fences_the_first(raw: RawClient, topic: str) -> None:
    first = RawProducer(raw)
    first.init()
    second = RawProducer(raw, first.name)
    answer = second.init()
    assert (answer.producer_id, answer.producer_epoch) == (first.producer_id, first.epoch + 1)
    fenced, older = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
    assert [first.add(topic, 0, version=v) for v in (0, 1, 2, 3)] == [
        [older],
        [older],
        [fenced],
        [fenced],
    ]
    assert [first.add_offsets("g", version=v) for v in (1, 2, 3, 4)] == [
        older,
        fenced,
        fenced,
        fenced,
    ]
    ends = [first.end(commit=True, version=v).error_code for v in (0, 1, 2, 4, 5)]
    assert ends == [older, older, fenced, fenced, fenced]
    identity = first.producer_id, first.epoch
    second.init()
    inits = [first.try_init(version=v, identity=identity).error_code for v in (3, 4, 5)]
    assert inits == [older, fenced, fenced]
    assert first.send(topic).error_code == older
    assert first.send(topic, version=12).error_code == older


def test_t48_an_open_transaction_is_aborted(raw: RawClient, topic: str) -> None:
    first = RawProducer(raw)
    first.init()
    first.add_until_done(topic, 0)
    assert first.send(topic).error_code == 0
    second = RawProducer(raw, first.name)
    assert second.try_init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert second.init().error_code == 0
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 2)
    assert committed(raw, topic) == 2
    found = raw.fetch_one(topic, 0, isolation_level=READ_COMMITTED)
    assert [(a.producer_id, a.first_offset) for a in found.aborted_transactions or ()] == [
        (first.producer_id, 0)
    ]
    assert first.end(commit=True).error_code == ErrorCode.PRODUCER_FENCED


def test_a_producer_that_names_its_identity(raw: RawClient, producer: RawProducer) -> None:
    identity = producer.producer_id, producer.epoch
    bumped = producer.try_init(identity=identity)
    assert (bumped.error_code, bumped.producer_epoch) == (0, producer.epoch + 1)
    again = producer.try_init(identity=identity)
    assert (again.error_code, again.producer_epoch) == (0, producer.epoch + 1)
    unknown = producer.try_init(identity=(producer.producer_id, producer.epoch + 5))
    assert unknown.error_code == ErrorCode.PRODUCER_FENCED


def test_nobody_was_initialised(raw: RawClient, topic: str, producer: RawProducer) -> None:
    """`producer` is there for its coordinator to be loaded."""
    stranger = RawProducer(raw)
    stranger.producer_id, stranger.epoch = 7, 0
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    stranger_of_producer = RawProducer(raw, producer.name)
    stranger_of_producer.producer_id, stranger_of_producer.epoch = producer.producer_id + 1, 0
    for one in (stranger, stranger_of_producer):
        assert one.add(topic, 0) == [unknown]
        assert one.add_offsets("g") == unknown
        assert one.end(commit=True).error_code == unknown
        assert one.send(topic).error_code == unknown
        assert one.send(topic, version=12).error_code == unknown


def test_partitions_that_do_not_exist(raw: RawClient, topic: str, producer: RawProducer) -> None:
    missing, skipped = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert producer.add(topic, 0, 1, 2) == [skipped, skipped, missing]
    assert producer.add("no-such-topic", 0) == [missing]
    assert producer.describe().transaction_state == "Empty"
    assert producer.ask_as_broker(topic, 0, 2, verify_only=False) == [skipped, missing]


def test_t49_commit_and_abort(raw: RawClient, topic: str, producer: RawProducer) -> None:
    producer.add_until_done(topic, 0, 1)
    assert producer.send(topic, 0, b"a").base_offset == 0
    assert producer.send(topic, 1, b"b").base_offset == 0
    assert producer.send(topic, 0, b"c").base_offset == 1
    assert (raw.offset(topic, LATEST).offset, committed(raw, topic)) == (2, 0)
    found = producer.describe()
    assert (found.transaction_state, found.producer_id) == ("Ongoing", producer.producer_id)
    assert [(t.topic, sorted(t.partitions)) for t in found.topics] == [(topic, [0, 1])]
    assert producer.end(commit=True).error_code == 0
    done = producer.wait_until("CompleteCommit")
    assert (list(done.topics), done.transaction_start_time_ms > 0) == ([], True)
    assert [committed(raw, topic, index) for index in (0, 1)] == [3, 2]
    assert values_of(raw.fetch_one(topic, 0))[:2] == [b"a", b"c"]
    producer.add_until_done(topic, 0)
    assert producer.send(topic, 0, b"d").base_offset == 3
    assert producer.end(commit=False).error_code == 0
    producer.wait_until("CompleteAbort")
    assert committed(raw, topic) == 5
    fetched = raw.fetch_one(topic, 3, isolation_level=READ_COMMITTED)
    assert [tuple(each) for each in fetched.aborted_transactions or ()] == [
        (producer.producer_id, 3)
    ]
    marker = batches_of(fetched)[-1]
    assert (marker.is_control, marker.is_transactional, marker.base_sequence) == (True, True, -1)
    assert (marker.producer_id, marker.producer_epoch) == (producer.producer_id, producer.epoch)


def test_ending_again(raw: RawClient, topic: str, producer: RawProducer) -> None:
    wrong = ErrorCode.INVALID_TXN_STATE
    assert producer.end(commit=True).error_code == wrong
    assert producer.end(commit=False).error_code == wrong
    producer.add_until_done(topic, 0)
    assert producer.end(commit=True).error_code == 0
    producer.wait_until("CompleteCommit")
    assert producer.end(commit=True).error_code == 0
    assert producer.end(commit=False).error_code == wrong
    producer.add_until_done(topic, 0)
    assert producer.end(commit=False).error_code == 0
    producer.wait_until("CompleteAbort")
    assert producer.end(commit=False).error_code == 0
    assert producer.end(commit=True).error_code == wrong


def test_t50_a_timeout_aborts(raw: RawClient, topic: str) -> None:
    producer = RawProducer(raw)
    assert producer.init(300).error_code == 0
    producer.add_until_done(topic, 0)
    assert producer.send(topic).error_code == 0
    found = producer.wait_until("CompleteAbort")
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch + 1)
    assert committed(raw, topic) == 2
    assert producer.end(commit=True).error_code == ErrorCode.PRODUCER_FENCED
    assert producer.end(commit=True, version=1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.send(topic).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_t54_an_abort_of_nothing(producer: RawProducer) -> None:
    epoch = producer.epoch
    assert producer.end(commit=True, version=5).error_code == ErrorCode.INVALID_TXN_STATE
    assert producer.end_and_go_on(commit=False).error_code == 0
    assert producer.epoch == epoch + 1
    producer.wait_until("CompleteAbort")
    assert producer.end_and_go_on(commit=False).error_code == 0
    assert producer.epoch == epoch + 2


def test_questions_of_brokers(raw: RawClient, topic: str, producer: RawProducer) -> None:
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert producer.ask_as_broker(topic, 0, verify_only=True) == [abortable]
    assert producer.ask_as_broker(topic, 0, verify_only=False) == [0]
    assert producer.ask_as_broker(topic, 0, 1, verify_only=True) == [0, abortable]
    assert producer.ask_as_broker(topic, 0, 1, verify_only=True, version=4) == [0, abortable]
    producer.epoch += 1
    assert producer.ask_as_broker(topic, 0, verify_only=True) == [ErrorCode.PRODUCER_FENCED]


def test_describe_and_list(raw: RawClient, topic: str, producer: RawProducer) -> None:
    unknown = describe(raw, "nobody")
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert describe(raw, "").error_code == ErrorCode.INVALID_REQUEST
    fresh = producer.describe()
    assert (fresh.error_code, fresh.transaction_state, fresh.transaction_timeout_ms) == (
        0,
        "Empty",
        60_000,
    )
    assert (fresh.transaction_start_time_ms, list(fresh.topics)) == (-1, [])
    producer.add_until_done(topic, 0)

    def listed(version: int = 2, **filters: Any) -> list[tuple[str, str]]:
        answer = raw.ask("list_transactions", version, ListTransactionsRequest(**filters))
        assert answer.error_code == 0
        return [
            (found.transactional_id, found.transaction_state)
            for found in answer.transaction_states
            if found.transactional_id == producer.name
        ]

    here = [(producer.name, "Ongoing")]
    assert listed(0) == here
    assert listed(state_filters=["Ongoing"]) == here
    assert listed(state_filters=["Empty"]) == []
    assert listed(producer_id_filters=[producer.producer_id]) == here
    assert listed(producer_id_filters=[producer.producer_id + 1]) == []
    assert listed(duration_filter=3_600_000) == []
    wait_for(lambda: listed(duration_filter=1) == here)
    assert listed(transactional_id_pattern=producer.name[:3] + ".*") == here
    assert listed(transactional_id_pattern="raw") == []
    assert listed(transactional_id_pattern="") == here
    answer = raw.ask("list_transactions", 0, ListTransactionsRequest(["Ongoing", "Nonsense"]))
    assert list(answer.unknown_state_filters) == ["Nonsense"]
    assert producer.name in [found.transactional_id for found in answer.transaction_states]
    answer = raw.ask("list_transactions", 0, ListTransactionsRequest(["Nonsense"]))
    assert (list(answer.unknown_state_filters), list(answer.transaction_states)) == (
        ["Nonsense"],
        [],
    )
    bad = ListTransactionsRequest(transactional_id_pattern="(")
    assert raw.ask("list_transactions", 2, bad).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_describe_producers(raw: RawClient, topic: str, producer: RawProducer) -> None:
    producer.add_until_done(topic, 0)
    raw.produce(topic, batch(b"before"))
    producer.send(topic)
    found = producers_of(raw, topic)[producer.producer_id]
    assert (found.producer_epoch, found.last_sequence) == (producer.epoch, 0)
    assert (found.current_txn_start_offset, found.coordinator_epoch) == (1, -1)
    assert producer.end(commit=True).error_code == 0
    producer.wait_until("CompleteCommit")
    found = producers_of(raw, topic)[producer.producer_id]
    assert found.current_txn_start_offset == -1
    assert found.coordinator_epoch >= 0


def markers(
    raw: RawClient, producer_id: int, epoch: int, coordinator_epoch: int, topics: dict[str, int]
) -> list[int]:
    marker = WritableTxnMarker(
        producer_id,
        epoch,
        False,
        [WritableTxnMarkerTopic(topic, [index]) for topic, index in topics.items()],
        coordinator_epoch,
    )
    (result,) = raw.ask("write_txn_markers", 1, WriteTxnMarkersRequest([marker])).markers
    assert result.producer_id == producer_id
    found = {topic.name: topic.partitions[0].error_code for topic in result.topics}
    return [found[topic] for topic in topics]


def test_write_txn_markers(raw: RawClient, topic: str, producer: RawProducer) -> None:
    producer.init()
    producer.add_until_done(topic, 0)
    producer.send(topic)
    pid, epoch = producer.producer_id, producer.epoch
    assert epoch == 1
    assert markers(raw, pid, epoch, 100, {topic: 0, "no-such-topic": 0}) == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert committed(raw, topic) == 2
    assert markers(raw, pid, epoch, 99, {topic: 0}) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    stale = markers(raw, pid, epoch - 1, 100, {topic: 0})
    assert stale == [ErrorCode.INVALID_PRODUCER_EPOCH]
    # The coordinator still says that the partition is in the transaction.
    assert producer.send(topic).error_code == 0


def test_offsets_join_the_transaction(raw: RawClient, producer: RawProducer) -> None:
    wait_for(lambda: producer.add_offsets("group") == 0)
    (found,) = producer.describe().topics
    assert (found.topic, len(found.partitions)) == ("__consumer_offsets", 1)
    assert producer.end(commit=True).error_code == 0
    producer.wait_until("CompleteCommit")
    assert now_ms() >= producer.describe().transaction_start_time_ms

"""Fetch on the wire: where batches begin and end, limits, waiting."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from ottla import EmbeddedBroker
from ottla.broker.serving.answer_memory import MAX_READ_BYTES
from ottla.wire.compression import Codec
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.fetch import FetchTopic
from ottla.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.raw_client import (
    EARLIEST,
    TIMEOUT_SECONDS,
    RawClient,
    batch,
    batches_of,
    fetch_request,
    produce_request,
    values_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def filled(raw: RawClient, new_topic: Callable[..., str]) -> str:
    """A topic with batches of offsets 0-2, 3-5 and 6."""
    topic = new_topic()
    raw.produce(topic, batch(b"0", b"1", b"2"))
    raw.produce(topic, batch(b"3", b"4", b"5", codec=Codec.GZIP))
    raw.produce(topic, batch(b"6"))
    return topic


@pytest.mark.parametrize(
    ("offset", "bases"), [(0, [0, 3, 6]), (1, [0, 3, 6]), (4, [3, 6]), (5, [3, 6]), (6, [6])]
)
def test_an_offset_inside_a_batch_gets_the_whole_batch(
    raw: RawClient, filled: str, offset: int, bases: list[int]
) -> None:
    """A broker that starts at the next batch loses records, and clients skip what is too much."""
    data = raw.fetch_one(filled, offset)
    assert [b.base_offset for b in batches_of(data)] == bases
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (7, 7, 0)


def test_at_the_end_there_is_nothing_yet(raw: RawClient, filled: str) -> None:
    data = raw.fetch_one(filled, 7)
    assert (data.error_code, data.high_watermark) == (0, 7)
    assert not data.records


@pytest.mark.parametrize("offset", [8, 1_000_000, -1])
def test_outside_the_log_is_error_1(raw: RawClient, filled: str, offset: int) -> None:
    data = raw.fetch_one(filled, offset, max_wait_ms=10_000)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_topic_that_is_not_there(raw: RawClient) -> None:
    data = raw.fetch_one("nowhere", 0, max_wait_ms=10_000)
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_by_topic_id(raw: RawClient, filled: str) -> None:
    topic_id = raw.topic(filled).topic_id
    request = fetch_request({("", 0): 3})
    for wanted, error, values in (
        (topic_id, 0, [b"3", b"4", b"5", b"6"]),
        (b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID, []),
    ):
        topics = [FetchTopic("", wanted, request.topics[0].partitions)]
        (answer,) = raw.fetch(request._replace(topics=topics), version=17).responses
        assert answer.topic_id == wanted
        assert answer.partitions[0].error_code == error
        assert values_of(answer.partitions[0]) == values


def test_the_first_batch_comes_whole_whatever_its_size(
    raw: RawClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2, max_message_bytes="6000000")
    large = batch(b"x" * 5_000_000)
    raw.produce(topic, large)
    raw.produce(topic, batch(b"after"))
    raw.produce(topic, batch(b"other partition"), partition=1)
    request = fetch_request({(topic, 0): 0, (topic, 1): 0}, max_bytes=1, partition_max_bytes=1)
    (answer,) = raw.fetch(request).responses
    first, second = answer.partitions
    assert [b.size for b in batches_of(first)] == [len(large)]
    assert (second.partition_index, second.error_code, second.high_watermark) == (1, 0, 1)
    assert not second.records


def test_a_small_limit_reads_a_segmented_log_without_gaps(
    raw: RawClient, new_topic: Callable[..., str]
) -> None:
    """A read that the limit stops inside a sealed segment must not go on in the next one."""
    topic = new_topic(segment_bytes=str(1024 * 1024))
    count = 200
    for start in range(0, count, 10):
        partition_data = [batch(b"%d" % n + b"." * 20_000) for n in range(start, start + 10)]
        for data in partition_data:
            raw.send("produce", 9, produce_request(topic, {0: data}))
        for _ in partition_data:
            raw.receive("produce", 9)
    for limit in (30_000, 70_000, 1_000_000):
        offset = 0
        while offset < count:
            found = batches_of(raw.fetch_one(topic, offset, partition_max_bytes=limit))
            assert [b.base_offset for b in found] == list(range(offset, offset + len(found)))
            assert found
            offset = found[-1].next_offset


def test_max_wait_ends_an_empty_fetch(raw: RawClient, new_topic: Callable[..., str]) -> None:
    data = raw.fetch_one(new_topic(), 0, max_wait_ms=20)
    assert (data.error_code, data.high_watermark) == (0, 0)


def test_an_append_ends_the_wait(
    ottla_broker: EmbeddedBroker, raw: RawClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    # Far longer than this test may take: only the append can end it.
    raw.send("fetch", 12, fetch_request({(topic, 0): 0, (topic, 1): 0}, max_wait_ms=600_000))
    with RawClient(ottla_broker.bootstrap) as other:
        other.produce(topic, batch(b"news"), partition=1)
    _, answer = raw.receive("fetch", 12)
    empty, found = answer.responses[0].partitions
    assert not empty.records
    assert values_of(found) == [b"news"]


def test_min_bytes_waits_for_enough(
    ottla_broker: EmbeddedBroker, raw: RawClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    request = fetch_request({(topic, 0): 0}, max_wait_ms=600_000, min_bytes=10_000)
    raw.send("fetch", 12, request)
    with RawClient(ottla_broker.bootstrap) as other:
        for number in range(4):
            other.produce(topic, batch(b"%d" % number + b"." * 3_000))
    _, answer = raw.receive("fetch", 12)
    found = values_of(answer.responses[0].partitions[0])
    assert [value[:1] for value in found if value is not None] == [b"0", b"1", b"2", b"3"]


def test_deleting_the_topic_ends_the_wait(
    ottla_broker: EmbeddedBroker, raw: RawClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    raw.send("fetch", 12, fetch_request({(topic, 0): 0}, max_wait_ms=600_000))
    ottla_broker.delete_topic(topic)
    _, answer = raw.receive("fetch", 12)
    error = answer.responses[0].partitions[0].error_code
    assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_parked_fetch_holds_only_its_own_connection(
    ottla_broker: EmbeddedBroker, raw: RawClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    raw.send("fetch", 12, fetch_request({(topic, 0): 0}, max_wait_ms=600_000))
    behind = raw.send("produce", 9, produce_request(topic, {0: batch(b"behind")}))
    with RawClient(ottla_broker.bootstrap) as other:
        assert other.produce(topic, batch(b"first")).base_offset == 0
    _, fetched = raw.receive("fetch", 12)
    assert values_of(fetched.responses[0].partitions[0]) == [b"first"]
    correlation_id, answer = raw.receive("produce", 9)
    assert correlation_id == behind
    assert answer.responses[0].partition_responses[0].base_offset == 1


def test_many_waiters_on_one_partition_all_wake(
    ottla_broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    clients = [RawClient(ottla_broker.bootstrap) for _ in range(20)]
    found: list[list[bytes | None]] = []

    def read(client: RawClient) -> None:
        found.append(list(values_of(client.fetch_one(topic, 0, max_wait_ms=600_000))))

    threads = [threading.Thread(target=read, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    with RawClient(ottla_broker.bootstrap) as producer:
        producer.produce(topic, batch(b"all"))
    for thread, client in zip(threads, clients, strict=True):
        thread.join()
        client.close()
    assert found == [[b"all"]] * 20


def test_isolation_1_without_transactions_reads_everything(raw: RawClient, filled: str) -> None:
    """librdkafka's default; the aborted list is empty, not null."""
    data = raw.fetch_one(filled, 0, isolation_level=1)
    assert len(values_of(data)) == 7
    assert list(data.aborted_transactions or ()) == []


@pytest.mark.parametrize("version", range(4, 13))
def test_every_named_version_carries_the_records(raw: RawClient, filled: str, version: int) -> None:
    assert len(values_of(raw.fetch_one(filled, 0, version=version))) == 7


def keep_only(raw: RawClient, topic: str, size: int) -> None:
    """Lower the topic's retention.bytes, and wait until the log starts later for it."""
    resource = AlterConfigsResource(2, topic, (AlterableConfig("retention.bytes", 0, str(size)),))
    answer = raw.ask("incremental_alter_configs", 1, IncrementalAlterConfigsRequest((resource,)))
    assert answer.responses[0].error_code == ErrorCode.NONE
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while raw.offset(topic, EARLIEST).offset == 0:
        assert time.monotonic() < deadline, "retention deletes nothing"
        time.sleep(0.01)


def test_case_32_what_retention_deletes_meanwhile_is_still_delivered(tmp_path: Path) -> None:
    """The answer is on its way, its reader takes its time, and the files go."""
    values = [bytes([number]) * 900_000 for number in range(20)]
    broker = EmbeddedBroker(tmp_path, config={"log.retention.check.interval.ms": "20"})
    with broker, RawClient(broker.bootstrap) as admin, RawClient(broker.bootstrap) as reader:
        configs = {"segment.bytes": "2000000", "file.delete.delay.ms": "1"}
        broker.create_topic("orders", configs=configs)
        for value in values:
            assert admin.produce("orders", batch(value)).error_code == ErrorCode.NONE
        size = 50_000_000
        request = fetch_request({("orders", 0): 0}, max_bytes=size, partition_max_bytes=size)
        reader.keep_waiting()
        reader.send("fetch", 12, request)
        keep_only(admin, "orders", 1)
        while any(tmp_path.glob("orders-0/*.deleted")):
            time.sleep(0.01)
        assert admin.fetch_one("orders", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        _, answer = reader.receive("fetch", 12)
        found = values_of(answer.responses[0].partitions[0])
        assert found == values[: MAX_READ_BYTES // 900_000]

"""The producer's shell: what it asks brokers, how it waits, what it raises, what it leaves behind.

The brokers are stand-ins where a failure has to come at a chosen moment.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ottla.client.cluster.connection import Connection
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientClosed,
    ClientFault,
    KafkaError,
    RequestTimedOut,
)
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import (
    MissingColumn,
    ProducerRecord,
    RecordMetadata,
    RecordTooLarge,
)
from ottla.wire.batch import iter_batches, read_batch
from ottla.wire.builder import BatchBuilder
from ottla.wire.error_codes import ErrorCode
from ottla.wire.records import Record, iter_records
from ottla.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.schema.metadata import MetadataRequest
from ottla.wire.schema.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.client_broker import Instead, ScriptedBroker, describe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Log:
    """Takes whatever is produced, and answers with offsets."""

    def __init__(self) -> None:
        self.values: dict[TopicPartition, list[bytes | None]] = {}
        self.seals: list[tuple[int, int, int]] = []

    def __call__(self, request: ProduceRequest) -> ProduceResponse:
        return respond(request, self.append)

    def append(self, partition: TopicPartition, data: Any) -> PartitionProduceResponse:
        batch = read_batch(memoryview(data))
        self.seals.append((batch.producer_id, batch.producer_epoch, batch.base_sequence))
        log = self.values.setdefault(partition, [])
        offset = len(log)
        log += [record.value for record in iter_records(batch)]
        return PartitionProduceResponse(partition.partition, base_offset=offset)


def respond(
    request: ProduceRequest, answer: Callable[[TopicPartition, Any], PartitionProduceResponse]
) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                partition_responses=[
                    answer(TopicPartition(topic.name, one.index_), one.records)
                    for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def refuse(code: int, **details: Any) -> Callable[[ProduceRequest], ProduceResponse]:
    def answer(request: ProduceRequest) -> ProduceResponse:
        return respond(
            request,
            lambda partition, _: PartitionProduceResponse(partition.partition, code, **details),
        )

    return answer


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def brokers(log: Log) -> AsyncIterator[dict[int, ScriptedBroker]]:
    """Two brokers that keep the same log; each leads one partition of topic t."""
    async with AsyncExitStack() as stack:
        found = {node: await stack.enter_async_context(ScriptedBroker()) for node in (1, 2)}
        describe(found, {"t": [1, 2], "one": [1]})
        for broker in found.values():
            broker.script(ProduceRequest, log)
            broker.script(InitProducerIdRequest, InitProducerIdResponse(producer_id=7))
        yield found


def producer_of(brokers: dict[int, ScriptedBroker], **options: Any) -> Producer:
    return Producer(brokers[1].bootstrap, random=lambda: 0.0, **options)


async def test_a_record_is_acknowledged_with_its_place(
    brokers: dict[int, ScriptedBroker], log: Log
) -> None:
    async with producer_of(brokers) as producer:
        first = await producer.send("t", b"a", partition=1, timestamp_ms=5)
        second = await producer.send("t", b"b", partition=1, timestamp_ms=6)
    assert first == RecordMetadata("t", 1, 0, 5)
    assert second == RecordMetadata("t", 1, 1, 6)
    assert log.seals == [(7, 0, 0), (7, 0, 1)]
    for broker in brokers.values():
        await broker.until_left()


async def test_calls_at_the_same_time_share_one_request(brokers: dict[int, ScriptedBroker]) -> None:
    describe(brokers, {"t": [1, 1]})
    async with producer_of(brokers) as producer:
        await producer.send("t", b"", partition=0)
        await producer.send("t", b"", partition=1)
        calls = [producer.send("t", b"%d" % n, partition=n % 2) for n in range(20)]
        found = await asyncio.gather(*calls)
    assert [one.offset for one in found] == [1 + n // 2 for n in range(20)]
    assert len(brokers[1].asked(ProduceRequest)) == 3


async def test_linger_waits_and_flush_does_not(brokers: dict[int, ScriptedBroker]) -> None:
    async with producer_of(brokers, linger_ms=60_000) as producer:
        calls = [asyncio.create_task(producer.send("one", b"%d" % n)) for n in range(3)]
        await brokers[1].until(lambda: bool(brokers[1].asked(MetadataRequest)))
        await asyncio.sleep(0.05)
        assert not any(call.done() for call in calls)
        await producer.flush()
        assert [(await call).offset for call in calls] == [0, 1, 2]


async def test_a_full_batch_does_not_linger(brokers: dict[int, ScriptedBroker]) -> None:
    async with producer_of(brokers, linger_ms=60_000, batch_size=300) as producer:
        calls = [asyncio.create_task(producer.send("one", bytes(200))) for _ in range(3)]
        await brokers[1].until(lambda: len(brokers[1].asked(ProduceRequest)) == 2)
        await asyncio.gather(calls[0], calls[1])
        assert not calls[2].done()


async def test_order_survives_a_broker_that_hangs_up(
    brokers: dict[int, ScriptedBroker], log: Log
) -> None:
    brokers[1].script(ProduceRequest, log, Instead.HANG_UP, Instead.HANG_UP, log)
    async with producer_of(brokers) as producer:
        await producer.send("one", b"0")
        calls = [asyncio.create_task(producer.send("one", b"1"))]
        await brokers[1].until(lambda: len(brokers[1].asked(ProduceRequest)) == 2)
        calls += [asyncio.create_task(producer.send("one", b"2"))]
        assert [(await call).offset for call in calls] == [1, 2]
    assert log.values == {TopicPartition("one", 0): [b"0", b"1", b"2"]}
    assert log.seals == [(7, 0, 0), (7, 0, 1), (7, 0, 2)]


async def test_a_leader_that_has_moved_is_followed(
    brokers: dict[int, ScriptedBroker], log: Log
) -> None:
    async with producer_of(brokers) as producer:
        await producer.send("one", b"0")
        brokers[1].script(ProduceRequest, refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        describe(brokers, {"t": [1, 2], "one": [2]})
        assert (await producer.send("one", b"1")).offset == 1
    assert len(brokers[2].asked(ProduceRequest)) == 1


async def test_partitions_that_are_added_are_used_in_time(
    brokers: dict[int, ScriptedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.client.producer.sender.METADATA_MAX_AGE", 0.0)
    async with producer_of(brokers) as producer:
        await producer.send("one", b"0")
        describe(brokers, {"t": [1, 2], "one": [1, 2]})
        async with asyncio.timeout(20.0):
            while len(producer._client.view.topics["one"].partitions) == 1:
                await producer.send("one", b"more")
        assert (await producer.send("one", b"there", partition=1)).offset == 0


async def test_a_lost_place_is_found_under_a_fresh_id(
    brokers: dict[int, ScriptedBroker], log: Log
) -> None:
    for broker in brokers.values():
        broker.script(InitProducerIdRequest, *(InitProducerIdResponse(0, 0, n) for n in (7, 8)))
    brokers[2].scripts = brokers[1].scripts
    brokers[1].script(ProduceRequest, log, refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), log)
    async with producer_of(brokers) as producer:
        await producer.send("one", b"0")
        await producer.send("one", b"1")
    assert log.seals == [(7, 0, 0), (8, 0, 0)]


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, RecordTooLarge, "raise max.message.bytes of the topic"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, KafkaError, "send to one-0: TOPIC_AUTHORIZATION"),
        (ErrorCode.INVALID_RECORD, KafkaError, "one-0: INVALID_RECORD \\(it has no key\\)"),
    ],
)
async def test_refusals_are_raised_and_do_not_stop_what_follows(
    brokers: dict[int, ScriptedBroker], log: Log, code: int, kind: type[Exception], words: str
) -> None:
    said = "it has no key" if code == ErrorCode.INVALID_RECORD else None
    brokers[1].script(ProduceRequest, refuse(code, error_message=said), log)
    async with producer_of(brokers) as producer:
        with pytest.raises(kind, match=words):
            await producer.send("one", b"0")
        await producer.send("one", b"1")


async def test_no_producer_id_no_records(brokers: dict[int, ScriptedBroker]) -> None:
    denied = InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    for broker in brokers.values():
        broker.script(InitProducerIdRequest, denied)
    async with producer_of(brokers) as producer:
        with pytest.raises(KafkaError, match=r"get a producer id .*: CLUSTER_AUTHORIZATION_FAILED"):
            await producer.send("one", b"0")
    async with producer_of(brokers, enable_idempotence=False) as producer:
        assert (await producer.send("one", b"0")).offset == 0


async def test_silence_ends_with_the_delivery_timeout(brokers: dict[int, ScriptedBroker]) -> None:
    brokers[1].script(ProduceRequest, Instead.SILENCE)
    async with producer_of(brokers, delivery_timeout_ms=200) as producer:
        with pytest.raises(RequestTimedOut, match=r"one-0 not acknowledged in 0\.2 s.*raise deli"):
            await producer.send("one", b"0")


async def test_a_broker_that_is_gone_is_named(brokers: dict[int, ScriptedBroker]) -> None:
    async with producer_of(brokers, delivery_timeout_ms=500) as producer:
        await producer.send("one", b"0")
        await brokers[1].stop()
        await brokers[2].stop()
        with pytest.raises(RequestTimedOut, match=r"cannot connect|closed the connection"):
            await producer.send("one", b"1")


async def test_nobody_listens_or_speaks_another_protocol() -> None:
    # The time given may also end within an attempt, not between two.
    kinds = (BrokerUnreachable, RequestTimedOut)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    async with Producer(f"127.0.0.1:{port}", max_block_ms=1000) as producer:
        with pytest.raises(kinds, match=r"cannot connect to .*connection refused"):
            await producer.send("t", b"v")

    async def say_http(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(say_http, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Producer(f"127.0.0.1:{port}", max_block_ms=1000) as producer:
            with pytest.raises(kinds, match="does not answer as a Kafka broker"):
                await producer.send("t", b"v")


async def test_a_broker_that_never_answers_is_not_a_missing_topic() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with Producer(f"127.0.0.1:{silent.getsockname()[1]}", max_block_ms=100) as producer:
            with pytest.raises(RequestTimedOut, match="answer") as told:
                await producer.send("t", b"v")
    assert "not found" not in str(told.value)


async def test_an_unreachable_broker_comes_with_advice(brokers: dict[int, ScriptedBroker]) -> None:
    # Too short for a second attempt, whatever the first one costs.
    async with producer_of(brokers, max_block_ms=60_000) as producer:
        producer._client.api_timeout = 0.04
        await brokers[1].stop()
        with pytest.raises(BrokerUnreachable, match="that bootstrap names its address"):
            await producer.send("t", b"v")


def test_records_one_by_one_need_no_heavy_library() -> None:
    heavy = "('numpy', 'numba', 'pyarrow', 'ottla.broker')"
    code = f"import sys, ottla; ottla.Producer; print([m for m in {heavy} if m in sys.modules])"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False, timeout=60
    )
    assert ended.stdout == "[]\n", ended.stderr


async def test_a_topic_that_is_missing(brokers: dict[int, ScriptedBroker]) -> None:
    async with producer_of(brokers) as producer:
        calls = [producer.send("nope", b"v") for _ in range(3)]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, KafkaError)
            assert "send to 'nope': UNKNOWN_TOPIC_OR_PARTITION" in str(outcome)
            assert "create it first" in str(outcome)
        with pytest.raises(KafkaError, match=r"send to t-2: .*its partitions are 0 to 1"):
            await producer.send("t", b"v", partition=2)


async def test_a_topic_that_is_deleted_takes_its_records_with_it(
    brokers: dict[int, ScriptedBroker],
) -> None:
    async with producer_of(brokers) as producer:
        await producer.send("one", b"0")
        brokers[1].script(ProduceRequest, refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        describe(brokers, {"t": [1, 2]})
        with pytest.raises(KafkaError, match="'one': UNKNOWN_TOPIC_OR_PARTITION"):
            await producer.send("one", b"1")


async def test_memory_is_bounded_and_calls_wait_their_turn(
    brokers: dict[int, ScriptedBroker], log: Log
) -> None:
    brokers[1].script(ProduceRequest, Instead.SILENCE)
    options = {"buffer_memory": 4000, "max_request_size": 1500, "batch_size": 0}
    async with producer_of(brokers, **options, request_timeout_ms=300) as producer:
        calls = [asyncio.create_task(producer.send("one", bytes(1000))) for _ in range(10)]
        await brokers[1].until(lambda: bool(brokers[1].asked(ProduceRequest)))
        records = producer._sender.records
        assert len(list(records)) == 3
        assert records.used <= 4000
        calls[4].cancel()  # it waits for memory, and is the next but one
        brokers[1].script(ProduceRequest, log)
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert records.used == 0
    assert [isinstance(one, asyncio.CancelledError) for one in found].index(True) == 4
    assert len(log.values[TopicPartition("one", 0)]) == 9


async def test_a_cancelled_send_may_still_be_written_and_leaves_nothing(
    brokers: dict[int, ScriptedBroker], log: Log
) -> None:
    async with producer_of(brokers) as producer:
        await producer.send("one", b"0")
        call = asyncio.create_task(producer.send("one", b"1"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await producer.flush()
        assert not list(producer._sender.records)
        assert producer._sender.records.used == 0
    assert log.values == {TopicPartition("one", 0): [b"0", b"1"]}


async def test_close_sends_what_is_there_and_refuses_the_rest(
    brokers: dict[int, ScriptedBroker], log: Log
) -> None:
    before = asyncio.all_tasks()
    producer = producer_of(brokers, linger_ms=60_000)
    await producer.connect()
    call = asyncio.create_task(producer.send("one", b"0"))
    await asyncio.sleep(0.05)
    await producer.close()
    assert (await call).offset == 0
    await producer.close()
    with pytest.raises(ClientClosed, match="make a new one"):
        await producer.send("one", b"1")
    assert asyncio.all_tasks() - {call} == before


async def test_close_ends_in_time(brokers: dict[int, ScriptedBroker]) -> None:
    brokers[1].script(ProduceRequest, Instead.SILENCE)
    options = {"buffer_memory": 1500, "max_request_size": 1500}
    producer = producer_of(brokers, **options)
    calls = [asyncio.create_task(producer.send("one", bytes(1000))) for _ in range(2)]
    await brokers[1].until(lambda: bool(brokers[1].asked(ProduceRequest)))
    await producer.close(timeout=0.01)
    for call, words in zip(calls, ("before the record was acknowledged", "full"), strict=True):
        with pytest.raises(ClientClosed, match=words):
            await call


async def test_many_records_and_the_one_that_does_not_fit(
    brokers: dict[int, ScriptedBroker],
) -> None:
    async with producer_of(brokers, max_request_size=1000) as producer:
        records = [ProducerRecord(bytes(100), b"%d" % n, (("h", None),)) for n in range(50)]
        found = await producer.send_many("t", records)
        assert {one.partition for one in found} == {0, 1}
        for partition in (0, 1):
            offsets = [one.offset for one in found if one.partition == partition]
            assert offsets == list(range(len(offsets)))
        with pytest.raises(RecordTooLarge, match="max_request_size"):
            await producer.send_many("t", [ProducerRecord(b"v"), ProducerRecord(bytes(1000))])
        await producer.flush()
        assert producer._sender.records.used == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"timestamp_ms": 1.5}, r"timestamp_ms: expected whole milliseconds .*, got 1.5 \(float\)"),
        ({"timestamp_ms": 2**70}, "timestamp_ms: expected at most 9223372036854775807"),
        ({"headers": [("trace", "text")]}, "value of 'trace': expected bytes or None, got str"),
        ({"headers": [b"trace"]}, r"headers\[0\]: expected a pair such as"),
        ({"headers": [("\ud800", b"")]}, "cannot be encoded as UTF-8"),
        ({"partition": "0"}, r"partition: expected a whole number, got '0' \(str\)"),
        ({"topic": ["t"]}, r"topic: expected a name \(str\), got \['t'\]"),
    ],
)
async def test_a_wrong_argument_leaves_nothing_behind(
    brokers: dict[int, ScriptedBroker], log: Log, given: dict[str, Any], words: str
) -> None:
    async with producer_of(brokers, delivery_timeout_ms=5000) as producer:
        with pytest.raises(BadArgument, match=words):
            await producer.send(**{"topic": "one", "value": b"wrong", **given})
        with pytest.raises(BadArgument, match="records"):
            await producer.send_many("one", [ProducerRecord(b"x"), "y"])  # type: ignore[list-item]
        await producer.send("one", b"right")
    assert log.values == {("one", 0): [b"right"]}
    assert producer._sender.records.used == 0


async def test_headers_may_be_a_mapping(brokers: dict[int, ScriptedBroker]) -> None:
    seen: list[Record] = []

    def note(request: ProduceRequest) -> ProduceResponse:
        for topic in request.topic_data:
            for one in topic.partition_data:
                seen.extend(iter_records(read_batch(memoryview(one.records))))  # type: ignore[arg-type]
        return respond(request, lambda place, _: PartitionProduceResponse(place.partition))

    brokers[1].script(ProduceRequest, note)
    async with producer_of(brokers) as producer:
        await producer.send("one", b"v", headers={"a": b"1", "b": None})
    assert seen[0].headers == (("a", b"1"), ("b", None))


async def test_a_batch_that_cannot_be_encoded_fails_alone(
    brokers: dict[int, ScriptedBroker], log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(builder: BatchBuilder) -> bytearray:
        if b"spoil" in builder._records:
            raise RuntimeError("this codec is broken")
        return real(builder)

    real = BatchBuilder.build
    monkeypatch.setattr(BatchBuilder, "build", build)
    async with producer_of(brokers, delivery_timeout_ms=5000) as producer:
        outcomes = await asyncio.gather(
            producer.send("t", b"spoil", partition=0),
            producer.send("t", b"good", partition=1),
            producer.send("one", b"good"),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], ClientFault)
        assert "encode records for t-0: unexpected RuntimeError" in str(outcomes[0])
        await producer.send("t", b"after", partition=0)
    assert log.values == {("t", 1): [b"good"], ("one", 0): [b"good"], ("t", 0): [b"after"]}


async def test_a_request_that_cannot_be_written_fails_the_batch_to_blame(
    brokers: dict[int, ScriptedBroker], log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(connection: Connection, request: object, *rest: Any) -> asyncio.TimerHandle:
        if isinstance(request, ProduceRequest):
            values = [bytes(one.records) for of in request.topic_data for one in of.partition_data]  # type: ignore[arg-type]
            if any(b"spoil" in one for one in values):
                raise RuntimeError("no such field")
        return real(connection, request, *rest)

    real = Connection.ask
    monkeypatch.setattr(Connection, "ask", ask)
    describe(brokers, {"t": [1, 1], "one": [1]})
    async with producer_of(brokers, delivery_timeout_ms=5000) as producer:
        outcomes = await asyncio.gather(
            producer.send("t", b"spoil", partition=0),
            producer.send("t", b"good", partition=1),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], ClientFault)
        assert isinstance(outcomes[1], RecordMetadata)
        await producer.send("t", b"after", partition=0)
    assert log.values == {("t", 1): [b"good"], ("t", 0): [b"after"]}


async def test_an_unforeseen_error_in_the_pump_leaves_nobody_waiting(
    brokers: dict[int, ScriptedBroker], log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with producer_of(brokers, delivery_timeout_ms=5000) as producer:
        await producer.send("one", b"before")
        with monkeypatch.context() as broken:
            broken.setattr(producer._sender, "_by_leader", lambda _: 1 / 0)
            with pytest.raises(ClientFault, match="unexpected ZeroDivisionError"):
                await producer.send("one", b"lost")
        await producer.send("one", b"after")
    assert log.values == {("one", 0): [b"before", b"after"]}


async def test_memory_is_waited_for_no_longer_than_max_block_ms(
    brokers: dict[int, ScriptedBroker],
) -> None:
    for broker in brokers.values():
        broker.script(ProduceRequest, Instead.SILENCE)
    options = {"max_request_size": 1000, "buffer_memory": 1000, "max_block_ms": 200}
    async with producer_of(brokers, delivery_timeout_ms=60_000, **options) as producer:
        first = asyncio.create_task(producer.send("one", bytes(800)))
        await brokers[1].until(lambda: bool(brokers[1].asked(ProduceRequest)))
        with pytest.raises(RequestTimedOut, match=r"buffer_memory \(1000\) is full"):
            await producer.send("one", bytes(800))
        await producer.close(timeout=0)
        with pytest.raises(ClientClosed):
            await first


@pytest.mark.parametrize("field", ["value", "key"])
async def test_text_is_refused(brokers: dict[int, ScriptedBroker], field: str) -> None:
    async with producer_of(brokers) as producer:
        with pytest.raises(TypeError, match=f"{field}: expected bytes or None, got str; encode"):
            await producer.send("t", **{field: "text"})  # type: ignore[arg-type]  # on purpose
        assert producer._sender.records.used == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"acks": 2}, "acks: expected 0, 1 or 'all', got 2"),
        ({"acks": 1}, "use acks='all' or enable_idempotence=False"),
        ({"max_request_size": 10}, "max_request_size: expected 62 or more, got 10"),
        (
            {"compression_type": "brotli"},
            "compression_type: expected one of none, .* 'brotli'",
        ),
        ({"compression_type": "zstd", "compression_level": 99}, "expected at most 22, got 99"),
        ({"batch_size": 1e6}, r"batch_size: expected a whole number, got 1000000.0 \(float\)"),
        ({"buffer_memory": 100}, "give at least max_request_size"),
        ({"linger_ms": -1}, "linger_ms: expected 0 or more, got -1"),
        ({"max_block_ms": 0}, "max_block_ms: expected 1 or more"),
    ],
)
async def test_settings_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadArgument, match=words):
        Producer("127.0.0.1:1", **options)


async def test_columns_go_by_their_names(brokers: dict[int, ScriptedBroker], log: Log) -> None:
    data = pa.record_batch({"value": [b"a", b"b"], "id": ["1", "2"], "key": [b"x", None]})
    async with producer_of(brokers) as producer:
        with pytest.raises(MissingColumn, match="no column 'nope' to send; there are value, id"):
            await producer.send_arrow("t", data, key="nope")
        with pytest.raises(KafkaError, match="t-5"):
            await producer.send_arrow("t", data, partition=5)
        [delivered] = await producer.send_arrow("t", data, partition=1)
        assert delivered == ("t", 1, 0, 2)
        assert await producer.send_arrow("t", data.slice(0, 0)) == []
    [request] = brokers[2].asked(ProduceRequest)
    [batch] = iter_batches(memoryview(request.topic_data[0].partition_data[0].records))
    assert [(one.key, one.value) for one in iter_records(batch)] == [(b"x", b"a"), (None, b"b")]


async def test_a_table_larger_than_the_buffer_goes_through_it(
    brokers: dict[int, ScriptedBroker], log: Log
) -> None:
    rows = [b"%05d" % n + bytes(95) for n in range(2000)]
    options = {"buffer_memory": 40_000, "max_request_size": 10_000}
    async with producer_of(brokers, **options) as producer:
        table = pa.table({"value": pa.chunked_array([rows[:7], rows[7:]], pa.binary())})
        delivered = await producer.send_arrow("one", table)
        assert producer._sender.records.used == 0
        assert sum(one.records for one in delivered) == 2000
        with pytest.raises(RecordTooLarge, match="raise max_request_size"):
            await producer.send_arrow("one", pa.table({"value": [bytes(20_000)]}))
        assert producer._sender.records.used == 0
    assert log.values[TopicPartition("one", 0)] == rows

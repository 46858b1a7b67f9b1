"""`ottla.sync.connect`: streams without async, over files, Redis and a broker."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, assert_type

import pytest

from ottla.streams import (
    AutoCommit,
    ConsumerOptions,
    ConsumerState,
    FileOptions,
    KafkaOptions,
    Message,
    Receipt,
)
from ottla.streams.errors import (
    CommitNotAllowed,
    ConfigError,
    ConsumerBusy,
    ConsumerClosed,
    DeliveryError,
)
from ottla.sync import WrongPlace, connect
from ottla.sync.streams import Delivery

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.embedded import EmbeddedBroker
    from tests.services import RedisServer

WRITE = FileOptions(create="if_missing")  # type: ignore[arg-type]  # words do
REPLAY = ConsumerOptions(reset="earliest", file=FileOptions(follow=False))  # type: ignore[arg-type]  # the same


def test_a_file_is_written_and_read(tmp_path: Path) -> None:
    with connect(f"file://{tmp_path}/x.ss/a", WRITE) as streamer:
        with streamer.producer() as producer, producer.clone() as other:
            delivery = producer.send(b"one")
            assert_type(delivery, Delivery)
            assert_type(delivery.wait(), Receipt)
            other.send(json={"two": 2})
            assert (delivery.done, delivery.result().seq) == (True, 1)
        with streamer.consumer(options=REPLAY) as consumer:
            assert consumer.next(timeout=5).text() == "one"
            found = list(consumer)
            assert_type(found, list[Message])
            assert [one.json() for one in found] == [{"two": 2}]
            assert consumer.state is ConsumerState.ENDED
    with pytest.raises(ConsumerClosed):
        consumer.next()


def test_errors_are_those_of_the_async_classes(tmp_path: Path) -> None:
    with connect(f"file://{tmp_path}/x.ss/a", WRITE) as streamer, streamer.producer() as producer:
        producer.send(b"1").wait()
        refused = producer.send(b"2", shard=2**64)
        with pytest.raises(DeliveryError, match="shards up to"):
            refused.wait()
        with streamer.consumer(options=REPLAY) as consumer:
            messages = iter(consumer)
            assert next(messages).payload == b"1"
            with pytest.raises(ConsumerBusy):
                consumer.next()


def test_threads_share_a_consumer_and_each_message_goes_to_one(redis_server: RedisServer) -> None:
    with connect(f"{redis_server.url}/threads") as streamer:
        with streamer.producer() as producer:
            for number in range(60):
                producer.send(b"%d" % number)
        options = ConsumerOptions(
            mode="load_balanced",  # type: ignore[arg-type]  # words do
            group="g",
            reset="earliest",  # type: ignore[arg-type]  # the same
            auto_commit=AutoCommit.ROLLING,
        )
        with streamer.consumer(options=options) as consumer:

            def work(_: int) -> bytes:
                message = consumer.next(timeout=10)
                consumer.ack(message)
                return message.payload

            with ThreadPoolExecutor(4) as pool:
                found = sorted(pool.map(work, range(60)), key=int)
            assert found == [b"%d" % number for number in range(60)]
            consumer.commit()
        with streamer.consumer(options=options) as again, pytest.raises(TimeoutError):
            again.next(timeout=0.1)


def test_under_next_a_second_thread_is_refused_while_the_first_holds_a_message(
    redis_server: RedisServer,
) -> None:
    with connect(f"{redis_server.url}/next") as streamer:
        with streamer.producer() as producer:
            for payload in (b"1", b"2"):
                producer.send(payload)
        options = ConsumerOptions(mode="resumable", group="g", reset="earliest")  # type: ignore[arg-type]  # words do
        with streamer.consumer(options=options) as consumer:
            taken, leave = threading.Event(), threading.Event()

            def first() -> bytes:
                message = consumer.next(timeout=10)
                taken.set()
                leave.wait(10)
                return message.payload

            with ThreadPoolExecutor(1) as pool:
                holding = pool.submit(first)
                taken.wait(10)
                with pytest.raises(ConfigError, match="ROLLING"):
                    consumer.next(timeout=1)
                leave.set()
                assert holding.result(10) == b"1"
            # That thread has ended, and its message counts as done.
            assert consumer.next(timeout=10).payload == b"2"


def test_a_transaction_takes_effect_together_or_not_at_all(
    ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    source, target = ottla_topic, f"{ottla_topic}-out"
    ottla_broker.create_topic(target)
    reading = ConsumerOptions(
        mode="resumable",  # type: ignore[arg-type]  # words do
        group=f"g-{source}",
        reset="earliest",  # type: ignore[arg-type]  # the same
        auto_commit=AutoCommit.DISABLED,
    )
    kafka = KafkaOptions(
        transactional_id=f"t-{source}", extra={"isolation.level": "read_committed"}
    )
    with connect(f"kafka://{ottla_broker.bootstrap}", kafka) as streamer:
        with connect(f"kafka://{ottla_broker.bootstrap}/{source}") as plain, plain.producer() as p:
            p.send(b"in").wait()
        with streamer.producer(target) as producer:
            with streamer.consumer(source, options=reading) as consumer:
                consumer.ack(consumer.next(timeout=30))
                with suppress(ZeroDivisionError), producer.transaction(consumer):
                    producer.send(b"lost")
                    raise ZeroDivisionError
                with pytest.raises(CommitNotAllowed, match="transaction"):
                    consumer.commit()
            with streamer.consumer(source, options=reading) as consumer:
                message = consumer.next(timeout=30)
                assert message.payload == b"in"
                consumer.ack(message)
                with producer.transaction(consumer):
                    producer.send(b"kept")
        every = ConsumerOptions(reset="earliest")  # type: ignore[arg-type]  # words do
        with streamer.consumer(target, options=every) as consumer:
            assert consumer.next(timeout=30).payload == b"kept"


def test_a_callback_of_the_loop_cannot_wait_for_it(redis_server: RedisServer) -> None:
    with connect(f"{redis_server.url}/loop") as streamer, pytest.raises(WrongPlace):
        streamer._call(lambda: streamer.backend)

"""Clients that send or read as fast as they are let, and how fast that is.

Each runs in a thread or a process of its own. A rate is taken from a client's first record on: what
it may use at once is gone after the warm-up.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import ottla
from tests.support.jvm import QUICK_START, java_command, needed_classpath, tool_call

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # see tests.support.python_clients
    import kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

RATE: Final = 1_000_000
VALUE_BYTES: Final = 10_000
WARM_UP_SECONDS: Final = 12.0
SECONDS: Final = 33.0
"""Three times all windows: a client may use what it has at once, and then waits."""
START_SECONDS: Final = 60.0
"""For a JVM on a busy machine."""

RECORDS: Final = int((WARM_UP_SECONDS + SECONDS + 15) * RATE / VALUE_BYTES)
"""More than a client may have in that time, with what it may use at once."""


def value(number: int) -> bytes:
    return number.to_bytes(4, "big") + bytes(VALUE_BYTES - 4)


class Client:
    """One that works in the background."""

    def __init__(self) -> None:
        self.read: list[int] = []
        """The numbers in the records that came, or their offsets, which are the same."""
        self.throttled = 0.0
        """What it knows of being throttled; 0 if nothing."""
        self.stopping = threading.Event()

    def stop(self) -> None:
        raise NotImplementedError


class Threaded(Client):
    """Runs one of the functions below."""

    def __init__(self, work: Callable[..., None], *args: str) -> None:
        super().__init__()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work, args), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[..., None], args: Sequence[str]) -> None:
        try:
            work(self, *args)
        except BaseException as failure:
            self.failure = failure
            raise

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        assert self.failure is None


def produce_confluent(client: Client, bootstrap: str, topic: str, name: str) -> None:
    def told(event: Any) -> None:
        client.throttled = max(client.throttled, event.throttle_time)

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "queue.buffering.max.kbytes": 1000,
            "batch.size": 100_000,
            "throttle_cb": told,
        }
    )
    while not client.stopping.is_set():
        try:
            producer.produce(topic, value(0))
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.flush(60)


def produce_kafka_python(client: Client, bootstrap: str, topic: str, name: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        client_id=name,
        batch_size=100_000,
        max_in_flight_requests_per_connection=1,
    )
    while not client.stopping.is_set():
        for one in [producer.send(topic, value(0)) for _ in range(100)]:
            one.get(timeout=60)
        told = producer.metrics()["producer-metrics"]["throttle-time-max"]
        client.throttled = max(client.throttled, told)
    producer.close(60)


def produce_aiokafka(client: Client, bootstrap: str, topic: str, name: str) -> None:
    async def work() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, client_id=name, max_batch_size=100_000
        ) as producer:
            while not client.stopping.is_set():
                await producer.send(topic, value(0))

    asyncio.run(work())


def consume_confluent(client: Client, bootstrap: str, topic: str, name: str) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 1000,
        }
    )
    consumer.subscribe([topic])
    while not client.stopping.is_set():
        message = consumer.poll(0.2)
        found = None if message is None or message.error() is not None else message.value()
        if found is not None:
            client.read.append(int.from_bytes(found[:4], "big"))
    consumer.close()


def consume_kafka_python(client: Client, bootstrap: str, topic: str, name: str) -> None:
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, client_id=name, auto_offset_reset="earliest"
    )
    while not client.stopping.is_set():
        for found in consumer.poll(200).values():
            client.read += [int.from_bytes(one.value[:4], "big") for one in found]
    consumer.close()


def consume_aiokafka(client: Client, bootstrap: str, topic: str, name: str) -> None:
    async def work() -> None:
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, client_id=name, auto_offset_reset="earliest"
        ) as consumer:
            while not client.stopping.is_set():
                for found in (await consumer.getmany(timeout_ms=200)).values():
                    client.read += [int.from_bytes(one.value[:4], "big") for one in found]

    asyncio.run(work())


PRODUCERS: Final = {
    "confluent": produce_confluent,
    "kafka-python": produce_kafka_python,
    "aiokafka": produce_aiokafka,
}
CONSUMERS: Final = {
    "confluent": consume_confluent,
    "kafka-python": consume_kafka_python,
    "aiokafka": consume_aiokafka,
}


class Tool(Client):
    """One of Kafka's tools, which prints a line for each record, or figures at its end."""

    LINE: Final = re.compile(r"^Offset:(\d+)(?:\tDelivery:(\d+))?$")
    FIGURE: Final = re.compile(r"^producer-metrics:produce-throttle-time-max:.*: ([\d.]+)$")

    def __init__(self, tool: str, *args: str, bootstrap: str | None = None) -> None:
        super().__init__()
        self.deliveries: set[int] = set()
        main, *rest = tool_call(tool, *args, bootstrap=bootstrap)
        command = java_command(main, *rest, classpath=needed_classpath(), options=QUICK_START)
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if figure := self.FIGURE.match(line):
                self.throttled = float(figure[1])
            elif found := self.LINE.match(line):
                if found[2]:
                    self.deliveries.add(int(found[2]))
                self.read.append(int(found[1]))

    def finished(self) -> None:
        """Wait until the tool ends by itself."""
        assert self._process.wait(120) == 0
        self._thread.join()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def java_producer(bootstrap: str, topic: str, name: str) -> Tool:
    return Tool(
        *("kafka-producer-perf-test", "--topic", topic, "--num-records", str(RECORDS)),
        *("--record-size", str(VALUE_BYTES), "--throughput", "-1", "--print-metrics"),
        *("--command-property", f"bootstrap.servers={bootstrap}", f"client.id={name}"),
    )


def java_consumer(bootstrap: str, topic: str, name: str, *, shares: bool = False) -> Tool:
    tool = "kafka-console-share-consumer" if shares else "kafka-console-consumer"
    printed = {"print.offset": "true", "print.value": "false"}
    printed |= {"print.delivery": "true"} if shares else {}
    return Tool(
        *(tool, "--topic", topic, "--group", name),
        *(() if shares else ("--from-beginning",)),
        *("--command-property", f"client.id={name}"),
        *(part for key, on in printed.items() for part in ("--formatter-property", f"{key}={on}")),
        bootstrap=bootstrap,
    )


def end_of(broker: ottla.EmbeddedBroker, topic: str) -> int:
    with ottla.sync.Admin(broker.bootstrap, client_id="judge") as admin:
        at = ottla.TopicPartition(topic, 0)
        return int(admin.list_offsets({at: "latest"})[at].offset)


def of_quota(count: Callable[[], int]) -> float:
    """How much of the rate is used, from the first record on; `count` tells records so far."""
    patience = time.monotonic() + START_SECONDS
    while not count():
        assert time.monotonic() < patience, "not a single record"
        time.sleep(0.1)
    time.sleep(WARM_UP_SECONDS)
    before, began = count(), time.monotonic()
    time.sleep(SECONDS)
    return (count() - before) * VALUE_BYTES / (time.monotonic() - began) / RATE


def rates(counts: Mapping[str, Callable[[], int]]) -> dict[str, float]:
    """Of all of them, at the same time."""
    found: dict[str, float] = {}

    def measure(name: str, count: Callable[[], int]) -> None:
        found[name] = of_quota(count)

    with ThreadPoolExecutor(len(counts)) as pool:
        for done in [pool.submit(measure, *one) for one in counts.items()]:
            done.result()
    return found

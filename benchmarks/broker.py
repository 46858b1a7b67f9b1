"""The broker against Apache Kafka and against librdkafka's mock cluster.

    python -m benchmarks.broker [--quick] [--only=TEXT]

The same librdkafka drives every broker, without Python between it and the records
(`benchmarks._librdkafka`), and counts are checked at the end offsets: what a client has buffered is
not throughput. Java's own tools do so in rows of their own, at their
defaults. A row whose range is wider than its distance from the target runs up to `MAX_ROUNDS`
rounds. `--quick` writes less and leaves out the long row. Where there is no JVM the script says
which peers it skipped. `--only` runs one part: start, process, load, latency, java, growth.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import _librdkafka as librdkafka
from benchmarks._harness import Row, part, report, skipped, until_clear
from benchmarks._ottla import OttlaProcess
from benchmarks._peers import PERF_TOOL_JVM, RdkafkaMock, apache_kafka, run_tool, why_no_jvm
from ottla import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

QUICK = "--quick" in sys.argv
ROUNDS = 2 if QUICK else 5
MAX_ROUNDS = 2 if QUICK else 11
VALUE = b"v" * 1024
PARTITIONS = 6
RECORDS = 100_000 if QUICK else 1_000_000
JAVA_RECORDS = 100_000 if QUICK else 1_000_000
JAVA_BYTES = 500
JAVA_SECONDS = 300.0
LATENCY_RATE = 5_000
LATENCY_SECONDS = 3 if QUICK else 10
STARTS = 3 if QUICK else 5
GROWTH_BYTES = (1 if QUICK else 10) * 1024**3
KAFKA_CONFIG = {"num.partitions": str(PARTITIONS), "log.segment.delete.delay.ms": "0"}
AS_KAFKA = {"ottla.flush.mode": "os"}


class Broker(Protocol):
    bootstrap: str
    seconds_to_ready: float

    def rss_bytes(self) -> int: ...
    def cpu_seconds(self) -> float: ...


@dataclass
class Load:
    """One measurement of throughput."""

    records_per_second: float
    cpu_us_per_record: float
    rss_mib: float
    client_us_per_record: float  # with the start of a JVM, where it is one
    record_bytes: int = len(VALUE)

    def __str__(self) -> str:
        mib = self.records_per_second * self.record_bytes / 1024**2
        return (
            f"{self.records_per_second / 1000:.0f}k rec/s ({mib:.0f} MiB/s, "
            f"{self.cpu_us_per_record:.1f} us CPU/rec, {self.rss_mib:.0f} MiB; "
            f"client {self.client_us_per_record:.1f} us CPU/rec)"
        )


def main() -> None:
    rows = part("start", lambda: [first_ack_row()])
    missing = why_no_jvm()
    if missing is not None:
        skipped("Apache Kafka", missing)
    else:
        rows += part("process", process_rows)
        rows += part("load", load_rows)
        rows += part("latency", latency_rows)
        rows += part("java", java_rows)
    rows += part("growth", growth_rows)
    report("broker: a durable node", rows, ("confluent-kafka", "uvloop"))


# -- starting -------------------------------------------------------------------------------------


def first_ack_row() -> Row:
    """From nothing to the first acknowledged record, in this process."""

    def ours() -> float:
        began = time.perf_counter()
        with EmbeddedBroker() as broker:
            _first_ack(broker.bootstrap)
            return time.perf_counter() - began

    def mock() -> float:
        began = time.perf_counter()
        with RdkafkaMock() as broker:
            _first_ack(broker.bootstrap)
            return time.perf_counter() - began

    ours(), mock()
    own, theirs = _in_turns(ours, mock, rounds=41)
    return _row(
        "EmbeddedBroker: start and first ack, peer librdkafka's mock",
        own,
        theirs,
        1.5,
        at_most=True,
        show=lambda seconds: f"{seconds * 1000:.0f} ms",
    )


def _first_ack(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce("first", b"record")
    assert producer.flush(20) == 0


def process_rows() -> list[Row]:
    starts: tuple[list[float], list[float]] = ([], [])
    memory: tuple[list[float], list[float]] = ([], [])
    for _ in range(STARTS):
        for index, broker in enumerate((OttlaProcess(), _kafka())):
            with broker:
                starts[index].append(broker.seconds_to_ready)
                memory[index].append(broker.rss_bytes() / 1024**2)
    return [
        _row(
            "process to ready, peer Apache Kafka",
            *starts,
            10.0,
            inverse=True,
            show=lambda seconds: f"{seconds * 1000:.0f} ms",
        ),
        _row(
            "idle resident memory, peer Apache Kafka",
            *memory,
            5.0,
            inverse=True,
            show=lambda mib: f"{mib:.0f} MiB",
        ),
    ]


# -- load -----------------------------------------------------------------------------------------


@contextmanager
def three_brokers() -> Iterator[tuple[Broker, Broker, Broker]]:
    """Ours as durable as Kafka, ours by default, and Kafka: up together, so that noise hits all.

    Before one is measured, `os.sync` writes what another has left in the page cache: otherwise the
    disk would write it in the time of the next. Each topic is deleted after its round, so that all
    rounds find the same amount of free memory.
    """
    with ExitStack() as stack:
        ours = stack.enter_context(OttlaProcess({**KAFKA_CONFIG, **AS_KAFKA}))
        synced = stack.enter_context(OttlaProcess(KAFKA_CONFIG))
        brokers = ours, synced, stack.enter_context(_kafka())
        for broker in brokers:
            produce(broker, "warm-up", RECORDS // 10)
        yield brokers


def load_rows() -> list[Row]:
    produced: list[list[Load]] = [[], [], []]
    consumed: list[list[Load]] = [[], [], []]

    def rows() -> list[Row]:
        return [
            _load_row(
                "produce 1 KiB, acks=all, page cache as Kafka", produced[0], produced[2], 0.8
            ),
            _load_row("produce 1 KiB, acks=all, synced to disk", produced[1], produced[2], 1.6),
            _load_row("consume 1 KiB from page cache", consumed[0], consumed[2], 1.15),
        ]

    with three_brokers() as brokers:

        def one_round(turn: int) -> None:
            for index, broker in enumerate(brokers):
                os.sync()
                produced[index].append(produce(broker, f"load-{turn}", RECORDS))
                consumed[index].append(consume(broker, f"load-{turn}", RECORDS))
                delete_topic(broker.bootstrap, f"load-{turn}")

        return until_clear(one_round, rows, ROUNDS, MAX_ROUNDS)


def latency_rows() -> list[Row]:
    seen: list[list[float]] = [[], [], []]
    rate = f"produce p99 at {LATENCY_RATE} rec/s"

    def rows() -> list[Row]:
        return [
            _latency_row(f"{rate}, page cache as Kafka", seen[0], seen[2], 1.5),
            _latency_row(f"{rate}, synced to disk", seen[1], seen[2], 0.9),
        ]

    with three_brokers() as brokers:

        def one_round(_: int) -> None:
            for index, broker in enumerate(brokers):
                os.sync()
                seen[index].append(p99(broker))

        return until_clear(one_round, rows, ROUNDS, MAX_ROUNDS)


def java_rows() -> list[Row]:
    """Kafka's own performance tools at their defaults."""
    produced: list[list[Load]] = [[], [], []]
    consumed: list[list[Load]] = [[], [], []]
    what = f"{JAVA_BYTES} bytes, acks=all"

    def rows() -> list[Row]:
        return [
            _load_row(
                f"Java producer, {what}, page cache as Kafka", produced[0], produced[2], None
            ),
            _load_row(f"Java producer, {what}, synced to disk", produced[1], produced[2], 1.05),
            _load_row("Java consumer, fetch rate", consumed[1], consumed[2], 1.15),
        ]

    with three_brokers() as brokers:
        for broker in brokers:
            java_produce(broker, "java-warm-up", JAVA_RECORDS // 10)

        def one_round(turn: int) -> None:
            for index, broker in enumerate(brokers):
                os.sync()
                produced[index].append(java_produce(broker, f"java-{turn}", JAVA_RECORDS))
                consumed[index].append(java_consume(broker, f"java-{turn}", JAVA_RECORDS))
                delete_topic(broker.bootstrap, f"java-{turn}")

        return until_clear(one_round, rows, ROUNDS, MAX_ROUNDS)


def java_produce(broker: Broker, topic: str, records: int) -> Load:
    create_topic(broker.bootstrap, topic, PARTITIONS)
    began = Spent(broker)
    done = run_tool(
        *("kafka-producer-perf-test", "--topic", topic, "--num-records", str(records)),
        *("--record-size", str(JAVA_BYTES), "--throughput", "-1"),
        *("--command-property", "acks=all"),
        bootstrap=broker.bootstrap,
        timeout=JAVA_SECONDS,
        jvm_options=PERF_TOOL_JVM,
    )
    found = re.search(rf"^{records} records sent, ([\d.]+) records/sec", done.stdout, re.MULTILINE)
    assert found, f"{done.stdout}\n{done.stderr}"
    assert end_offsets(broker.bootstrap, topic) == records
    return began.load(float(found[1]), records, JAVA_BYTES)


def java_consume(broker: Broker, topic: str, records: int) -> Load:
    """The rate from the first fetch on: without joining the group."""
    began = Spent(broker)
    done = run_tool(
        *("kafka-consumer-perf-test", "--topic", topic, "--num-records", str(records)),
        bootstrap=broker.bootstrap,
        timeout=JAVA_SECONDS,
        jvm_options=PERF_TOOL_JVM,
    )
    lines = done.stdout.splitlines()
    assert len(lines) > 1, f"{done.stdout}\n{done.stderr}"
    figures = dict(zip(lines[0].split(", "), lines[-1].split(", "), strict=True))
    assert int(figures["data.consumed.in.nMsg"]) >= records, figures
    return began.load(float(figures["fetch.nMsg.sec"]), records, JAVA_BYTES)


class Spent:
    """What broker and client, which is this process or its child, use from now on."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._cpu = broker.cpu_seconds()
        self._client = _own_seconds()

    def load(self, rate: float, records: int, record_bytes: int = len(VALUE)) -> Load:
        cpu = (self._broker.cpu_seconds() - self._cpu) / records * 1e6
        client = (_own_seconds() - self._client) / records * 1e6
        return Load(rate, cpu, self._broker.rss_bytes() / 1024**2, client, record_bytes)


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def produce(
    broker: Broker, topic: str, records: int, client: Mapping[str, str] | None = None
) -> Load:
    """Default batching, acks=all; done when the end offsets say so.

    `client` has settings that differ, such as another address and TLS.
    """
    create_topic(broker.bootstrap, topic, PARTITIONS)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        **(client or {}),
        "acks": "all",
        "queue.buffering.max.messages": "2000000",
        "queue.buffering.max.kbytes": "2000000",
    }
    with librdkafka.Client(librdkafka.PRODUCER, settings) as producer:
        began = Spent(broker)
        seconds = producer.produce(topic, VALUE, records)
        load = began.load(records / seconds, records)
    assert end_offsets(broker.bootstrap, topic) == records
    return load


def consume(
    broker: Broker, topic: str, records: int, client: Mapping[str, str] | None = None
) -> Load:
    settings = {
        "bootstrap.servers": broker.bootstrap,
        **(client or {}),
        # Room for the whole run: librdkafka pauses for a second whenever its queue is full,
        # which would punish the faster broker.
        "queued.min.messages": "1000000",
        "queued.max.messages.kbytes": "2000000",
    }
    with librdkafka.Client(librdkafka.CONSUMER, settings) as consumer:
        began = Spent(broker)
        seconds = consumer.consume(topic, PARTITIONS, records, len(VALUE))
        return began.load(records / seconds, records)


def p99(broker: Broker, seconds: int = LATENCY_SECONDS) -> float:
    """Seconds from produce() to the delivery report at a steady rate, 99th percentile."""
    create_topic(broker.bootstrap, "latency", PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0})
    seen: list[float] = []

    def delivered(began: float) -> Callable[[Any, Any], None]:
        def record(error: Any, message: Any) -> None:
            assert error is None, error
            seen.append(time.perf_counter() - began)

        return record

    start = time.perf_counter()
    count = LATENCY_RATE * seconds
    for index in range(count):
        due = start + index / LATENCY_RATE
        while (now := time.perf_counter()) < due:
            producer.poll(min(0.001, due - now))
        producer.produce("latency", VALUE, on_delivery=delivered(now))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert len(seen) == count
    settled = sorted(seen[LATENCY_RATE:])  # the first second warms up
    return settled[int(len(settled) * 0.99)]


# -- growth ---------------------------------------------------------------------------------------


def growth_rows() -> list[Row]:
    """Whether appending costs more with ten times the partitions, or on a log of many segments."""
    rows = []
    with OttlaProcess(AS_KAFKA) as broker:
        produce(broker, "warm-up", RECORDS // 10)
        few, many = [], []
        for turn in range(ROUNDS):
            few.append(_produce_to(broker, f"few-{turn}", PARTITIONS))
            many.append(_produce_to(broker, f"many-{turn}", 10 * PARTITIONS))
        rows.append(_self_row("throughput at 10x the partitions, against itself", many, few))
        broker.settle_disk()
        first = [_produce_to(broker, "grown", PARTITIONS) for _ in range(ROUNDS)]
        written = 0
        while written < GROWTH_BYTES:
            _produce_to(broker, "grown", PARTITIONS)
            written += RECORDS * len(VALUE)
        broker.settle_disk()
        last = [_produce_to(broker, "grown", PARTITIONS) for _ in range(ROUNDS)]
        gib = GROWTH_BYTES // 1024**3
        rows.append(_self_row(f"throughput after {gib} GiB written, against itself", last, first))
    return rows


def _produce_to(broker: Broker, topic: str, partitions: int) -> float:
    create_topic(broker.bootstrap, topic, partitions)
    before = end_offsets(broker.bootstrap, topic)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    began = time.perf_counter()
    for _ in range(RECORDS):
        producer.produce(topic, VALUE)
    assert producer.flush(120) == 0
    seconds = time.perf_counter() - began
    assert end_offsets(broker.bootstrap, topic) == before + RECORDS
    return RECORDS / seconds


# -- helpers --------------------------------------------------------------------------------------


def _kafka() -> Any:
    return apache_kafka(config=KAFKA_CONFIG)


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic in admin.list_topics(timeout=20).topics:
        return
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)
    while len(admin.list_topics(topic, timeout=20).topics[topic].partitions) != partitions:
        time.sleep(0.05)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(20)


def end_offsets(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    found = consumer.list_topics(topic, timeout=20).topics[topic].partitions
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=20)[1]
        for index in found
    ]
    consumer.close()
    return sum(ends)


def _in_turns(*candidates: Callable[[], float], rounds: int) -> list[list[float]]:
    results: list[list[float]] = [[] for _ in candidates]
    for _ in range(rounds):
        for index, candidate in enumerate(candidates):
            results[index].append(candidate())
    return results


def _row(
    what: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    target: float | None,
    *,
    show: Callable[[float], str],
    at_most: bool = False,
    inverse: bool = False,
) -> Row:
    """Ours over theirs, or theirs over ours where less is better and the row says how much."""
    pairs = list(zip(ours, theirs, strict=True))
    ratios = [theirs / own if inverse else own / theirs for own, theirs in pairs]
    own, peer = statistics.median(ours), statistics.median(theirs)
    ratio = peer / own if inverse else own / peer
    spread = (min(ratios), max(ratios))
    return Row(what, show(own), show(peer), ratio, spread, target, at_most=at_most)


def _load_row(what: str, ours: list[Load], theirs: list[Load], target: float | None) -> Row:
    row = _row(
        what,
        [load.records_per_second for load in ours],
        [load.records_per_second for load in theirs],
        target,
        show=str,
    )
    return Row(what, _median(ours), _median(theirs), row.ratio, row.spread, target)


def _median(loads: list[Load]) -> str:
    return str(sorted(loads, key=lambda load: load.records_per_second)[len(loads) // 2])


def _latency_row(what: str, ours: list[float], theirs: list[float], target: float) -> Row:
    return _row(
        what, ours, theirs, target, at_most=True, show=lambda seconds: f"{seconds * 1000:.2f} ms"
    )


def _self_row(what: str, later: list[float], earlier: list[float]) -> Row:
    return _row(what, later, earlier, 0.8, show=lambda rate: f"{rate / 1000:.0f}k rec/s")


if __name__ == "__main__":
    main()

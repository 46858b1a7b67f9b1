"""The broker against Apache Kafka and against librdkafka's mock cluster.

    python -m benchmarks.broker [--quick]

The same confluent-kafka client drives every broker, and counts are checked at the end offsets:
what a client has buffered is not throughput. `--quick` writes less and leaves out the long row.
Where there is no JVM the script says which peers it skipped.
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks._harness import Row, report, skipped
from benchmarks._ottla import OttlaProcess
from benchmarks._peers import RdkafkaMock, apache_kafka, why_no_jvm
from ottla import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

QUICK = "--quick" in sys.argv
ROUNDS = 3
VALUE = b"v" * 1024
PARTITIONS = 6
RECORDS = 100_000 if QUICK else 300_000
LATENCY_RATE = 5_000
LATENCY_SECONDS = 3 if QUICK else 10
STARTS = 3
GROWTH_BYTES = (1 if QUICK else 10) * 1024**3
KAFKA_CONFIG = {"num.partitions": str(PARTITIONS)}
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

    def __str__(self) -> str:
        mib = self.records_per_second / 1024
        return (
            f"{self.records_per_second / 1000:.0f}k rec/s ({mib:.0f} MiB/s, "
            f"{self.cpu_us_per_record:.1f} us CPU/rec, {self.rss_mib:.0f} MiB)"
        )


def main() -> None:
    rows = [first_ack_row()]
    peer = apache_kafka(config=KAFKA_CONFIG)
    if peer is None:
        skipped("Apache Kafka", str(why_no_jvm()))
    else:
        rows += process_rows()
        rows += load_rows()
    rows += growth_rows()
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
        2.0,
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


def load_rows() -> list[Row]:
    """Throughput and latency; brokers are up together and take turns, so that noise hits both."""
    with ExitStack() as stack:
        ours = stack.enter_context(OttlaProcess({**KAFKA_CONFIG, **AS_KAFKA}))
        synced = stack.enter_context(OttlaProcess(KAFKA_CONFIG))
        kafka = stack.enter_context(_kafka())
        brokers: Sequence[Broker] = (ours, synced, kafka)
        for broker in brokers:
            produce(broker, "warm-up", RECORDS // 10)
        produced: list[list[Load]] = [[], [], []]
        consumed: list[list[Load]] = [[], [], []]
        for turn in range(ROUNDS):
            for index, broker in enumerate(brokers):
                produced[index].append(produce(broker, f"load-{turn}", RECORDS))
                consumed[index].append(consume(broker, f"load-{turn}", RECORDS))
        latencies: list[list[float]] = [[], [], []]
        for _ in range(ROUNDS):
            for index, broker in enumerate(brokers):
                latencies[index].append(p99(broker))
    return [
        _load_row("produce 1 KiB, acks=all, page cache as Kafka", produced[0], produced[2], 0.8),
        _load_row("produce 1 KiB, acks=all, synced to disk", produced[1], produced[2], None),
        _load_row("consume 1 KiB from page cache", consumed[0], consumed[2], 1.0),
        _latency_row(
            f"produce p99 at {LATENCY_RATE} rec/s, page cache as Kafka", latencies[0], latencies[2]
        ),
        _latency_row(
            f"produce p99 at {LATENCY_RATE} rec/s, synced to disk", latencies[1], latencies[2], None
        ),
    ]


def produce(broker: Broker, topic: str, records: int) -> Load:
    """Default batching, acks=all; done when the end offsets say so."""
    create_topic(broker.bootstrap, topic, PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": "all",
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    cpu, began = broker.cpu_seconds(), time.perf_counter()
    for _ in range(records):
        producer.produce(topic, VALUE)
    assert producer.flush(120) == 0
    seconds = time.perf_counter() - began
    used = broker.cpu_seconds() - cpu
    assert end_offsets(broker.bootstrap, topic) == records
    return Load(records / seconds, used / records * 1e6, broker.rss_bytes() / 1024**2)


def consume(broker: Broker, topic: str, records: int) -> Load:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # Room for the whole run: librdkafka pauses for a second whenever its queue is full,
            # which would punish the faster broker.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 2_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    cpu, began = broker.cpu_seconds(), time.perf_counter()
    seen = 0
    while seen < records:
        batch = consumer.consume(10_000, timeout=20)
        assert batch, f"{seen} of {records} records arrived"
        seen += len(batch)
    seconds = time.perf_counter() - began
    used = broker.cpu_seconds() - cpu
    consumer.close()
    return Load(records / seconds, used / records * 1e6, broker.rss_bytes() / 1024**2)


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


def _latency_row(
    what: str, ours: list[float], theirs: list[float], target: float | None = 1.5
) -> Row:
    return _row(
        what, ours, theirs, target, at_most=True, show=lambda seconds: f"{seconds * 1000:.2f} ms"
    )


def _self_row(what: str, later: list[float], earlier: list[float]) -> Row:
    return _row(what, later, earlier, 0.8, show=lambda rate: f"{rate / 1000:.0f}k rec/s")


if __name__ == "__main__":
    main()

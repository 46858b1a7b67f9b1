"""Two pictures of the broker beside Apache Kafka: throughput by record size, latency by percentile.

    python -m benchmarks.sizes [--quick]

One confluent-kafka client drives both, in turns and in one run. Throughput is counted at the end
offsets; latency is the time from produce() to the delivery report at a steady rate.
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks._harness import Plot, plotted, skipped
from benchmarks._ottla import OttlaProcess
from benchmarks._peers import apache_kafka, why_no_jvm
from benchmarks.broker import AS_KAFKA, PARTITIONS, create_topic, end_offsets

if TYPE_CHECKING:
    from benchmarks.broker import Broker

QUICK: Final = "--quick" in sys.argv
ROUNDS: Final = 3 if QUICK else 5
SIZES: Final = (100, 1_000, 10_000, 100_000)
TOTAL_BYTES: Final = (20 if QUICK else 200) * 1024**2
MAX_RECORDS: Final = 200_000 if QUICK else 500_000
RATE: Final = 2_000
SECONDS: Final = 3 if QUICK else 10
PERCENTILES: Final = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
Lines = dict[str, list[tuple[str, float]]]


def main() -> None:
    produced: Lines = {}
    consumed: Lines = {}
    latency: Lines = {}
    with ExitStack() as stack:
        brokers: dict[str, Broker] = {"Ottla": stack.enter_context(OttlaProcess(AS_KAFKA))}
        peer = apache_kafka()
        if peer is None:
            skipped("the lines of Apache Kafka", str(why_no_jvm()))
        else:
            brokers["Apache Kafka"] = stack.enter_context(peer)
        for size in SIZES:
            for name, (wrote, read) in throughput(brokers, size).items():
                produced.setdefault(name, []).append((str(size), wrote))
                consumed.setdefault(name, []).append((str(size), read))
        for name, broker in brokers.items():
            latency[name] = percentiles(broker)
    bytes_label, mib_label = "bytes per record", "MiB/s"
    plotted(Plot("produce", "Produce, acks=all", bytes_label, mib_label, produced))
    plotted(Plot("consume", "Consume", bytes_label, mib_label, consumed))
    title = f"Produce latency at {RATE:,} records/s of 1 KiB"
    plotted(Plot("latency", title, "percentile", "ms", latency))


def throughput(brokers: dict[str, Broker], size: int) -> dict[str, tuple[float, float]]:
    """MiB/s written and read, medians over rounds in which the brokers take turns."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in brokers}
    for turn in range(ROUNDS):
        for name, broker in brokers.items():
            seen[name].append(_once(broker, f"size-{size}-{turn}", size))
    return {
        name: (statistics.median(w for w, _ in pairs), statistics.median(r for _, r in pairs))
        for name, pairs in seen.items()
    }


def _once(broker: Broker, topic: str, size: int) -> tuple[float, float]:
    records = min(MAX_RECORDS, TOTAL_BYTES // size)
    create_topic(broker.bootstrap, topic, PARTITIONS)
    value = b"v" * size
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    began = time.perf_counter()
    for _ in range(records):
        producer.produce(topic, value)
    assert producer.flush(120) == 0
    wrote = records * size / 1024**2 / (time.perf_counter() - began)
    assert end_offsets(broker.bootstrap, topic) == records
    return wrote, _read(broker, topic, records) * size / 1024**2


def _read(broker: Broker, topic: str, records: int) -> float:
    """Records per second."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "sizes",
            "enable.auto.commit": False,
            # Otherwise a full queue makes the client pause for a second.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 2_000_000,
        }
    )
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    seen = 0
    while seen < records:
        batch = consumer.consume(min(10_000, records - seen), timeout=60)
        assert batch, f"nothing after {seen} of {records} records"
        seen += len(batch)
    seconds = time.perf_counter() - began
    consumer.close()
    return records / seconds


def percentiles(broker: Broker) -> list[tuple[str, float]]:
    """Milliseconds by percentile; the first second warms up and is left out."""
    create_topic(broker.bootstrap, "latency", PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0})
    seen: list[float] = []
    start = time.perf_counter()
    for index in range(RATE * (SECONDS + 1)):
        due = start + index / RATE
        while (now := time.perf_counter()) < due:
            producer.poll(min(0.001, due - now))

        def delivered(error: Any, _: Any, began: float = now) -> None:
            assert error is None, error
            seen.append(time.perf_counter() - began)

        producer.produce("latency", b"v" * 1024, on_delivery=delivered)
    assert producer.flush(60) == 0
    settled = sorted(seen[RATE:])
    return [
        (f"{each:g}", settled[min(len(settled) - 1, int(len(settled) * each / 100))] * 1000)
        for each in PERCENTILES
    ]


if __name__ == "__main__":
    main()

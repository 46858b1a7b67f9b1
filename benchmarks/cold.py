"""Old records that are on disk alone: how long a reader of them keeps the event loop from others.

    python -m benchmarks.cold [--quick] [--only=TEXT]

A topic is written, the broker stops, the page cache gives its files back, and the broker starts
again. Then everything is read, while a second client produces. The longest turn of the event loop
counts as far as the loop computed or waited (`_scale_monitor`), so a busy machine is not blamed on
it. Parts: plain (mapped files), tls, share, tier (a directory as object store).
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks._harness import Row, part, report
from benchmarks._ottla import WatchedOttla, give_back
from benchmarks._scale_probe import Probe
from benchmarks.security import LISTENERS, PROTOCOLS, Certificates
from benchmarks.share import start_at_nought
from ottla.tier.reading.answers import EARLIEST_LOCAL
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

QUICK: Final = "--quick" in sys.argv
MIB: Final = 1024 * 1024
BYTES: Final = (96 if QUICK else 1024) * MIB
VALUE: Final = b"v" * 1024
RECORDS: Final = BYTES // len(VALUE)
TOPIC: Final = "old"
PARTITIONS: Final = 6
LIMIT_SECONDS: Final = 0.020
PATIENCE: Final = 600.0
SEGMENT_BYTES: Final = (4 if QUICK else 16) * MIB
SEGMENT: Final = {"segment.bytes": str(SEGMENT_BYTES)}
TIERED: Final = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
}
TIER: Final = {
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
}


def main() -> None:
    rows = part("plain", lambda: [row("plain TCP, mapped files", consumed)])
    rows += part("tls", tls_rows)
    rows += part("share", lambda: [row("a share group", shared)])
    rows += part("tier", tier_rows)
    report("cold: readers of old records", rows, ("confluent-kafka", "uvloop"))


def tls_rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        certificates = Certificates(Path(directory))
        config = {
            "listeners": LISTENERS,
            "listener.security.protocol.map": PROTOCOLS,
            "ssl.keystore.location": str(certificates.store),
        }
        return [row("TLS", lambda broker: consumed(broker, certificates.client), config)]


def tier_rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as store:
        config = {**TIER, "rsm.config.url": Path(store).as_uri()}
        return [row("the remote tier", consumed, config, TIERED, Path(store))]


def row(
    what: str,
    read: Callable[[WatchedOttla], None],
    config: Mapping[str, str] | None = None,
    topic: Mapping[str, str] | None = None,
    store: Path | None = None,
) -> Row:
    """The longest turn between the start after the cache was dropped and the stop."""
    with ExitStack() as stack:
        broker = WatchedOttla(config)
        stack.callback(broker.__exit__, None, None, None)
        broker.start()
        fill(broker, {**SEGMENT, **(topic or {})})
        if topic is not None:
            wait_for_tier(broker)
        broker.stop()
        broker.settle_disk()
        if store is not None:
            give_back(store)
        broker.start()
        with Probe(broker.addresses[0]) as probe:
            read(broker)
            longest = probe.longest()
        broker.stop()
        seconds, where = broker.longest_turn()
    if seconds > LIMIT_SECONDS:
        print(where)
    mib = BYTES // MIB
    return Row(
        f"longest turn of the event loop, {mib:,} MiB on disk alone, {what}",
        f"{seconds * 1000:.0f} ms (longest produce request {longest * 1000:.0f} ms)",
        f"{LIMIT_SECONDS * 1000:.0f} ms allowed",
        seconds / LIMIT_SECONDS,
        (seconds / LIMIT_SECONDS, seconds / LIMIT_SECONDS),
        1.0,
        at_most=True,
    )


def fill(broker: WatchedOttla, config: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    made = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=dict(config))])
    made[TOPIC].result(PATIENCE)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": 100_000}
    )
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(TOPIC, VALUE, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(PATIENCE) == 0


def wait_for_tier(broker: WatchedOttla) -> None:
    """Until all closed segments have left the local disk."""
    deadline = time.monotonic() + PATIENCE
    last = RECORDS // PARTITIONS - 2 * SEGMENT_BYTES // len(VALUE)
    with RawClient(broker.bootstrap) as client:
        for index in range(PARTITIONS):
            while client.offset(TOPIC, EARLIEST_LOCAL, partition=index).offset < last:
                assert time.monotonic() < deadline, "segments stay on the local disk"
                time.sleep(0.2)


def consumed(broker: WatchedOttla, client: Mapping[str, str] | None = None) -> None:
    """Everything, by one consumer; `client` has settings of another listener, the second."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.addresses[0 if client is None else 1],
            **(client or {}),
            "group.id": "readers",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    seen = 0
    deadline = time.monotonic() + PATIENCE
    while seen < RECORDS:
        assert time.monotonic() < deadline, f"{seen} of {RECORDS} records came"
        seen += len(consumer.consume(10_000, timeout=0.1))
    consumer.close()


def shared(broker: WatchedOttla) -> None:
    """Everything, by one member of a share group."""
    start_at_nought(broker.bootstrap, "workers", [(TOPIC, index) for index in range(PARTITIONS)])
    consumer = ShareConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "workers", "log_level": 3}
    )
    consumer.subscribe([TOPIC])
    seen = 0
    deadline = time.monotonic() + PATIENCE
    while seen < RECORDS:
        assert time.monotonic() < deadline, f"{seen} of {RECORDS} records came"
        seen += len(consumer.poll(0.1))
    consumer.close()


if __name__ == "__main__":
    main()

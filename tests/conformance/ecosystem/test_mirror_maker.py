"""MirrorMaker 2 copies from one Ottla broker to another.

Records arrive with keys, values, headers and timestamps in their partitions, in order. The offsets
of a consumer group arrive, too: the group goes on at the target behind what it read at the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, TopicPartition

from ottla.wire.records import Record
from tests.support.ecosystem import PATIENCE_SECONDS, JavaProcess, ottla_process
from tests.support.topics import create_topic, produce, read_all

if TYPE_CHECKING:
    from pathlib import Path

TOPIC: Final = "orders"
COPY: Final = "source.orders"
GROUP: Final = "billing"
PARTITIONS: Final = 2
TIME: Final = 1_750_000_000_000
RECORDS: Final = [
    Record(0, TIME, b"key", b"value", (("a", b"1"), ("none", None), ("\u00fc", b""), ("a", b"2"))),
    Record(1, TIME + 1, None, b"no key"),
    Record(2, TIME + 2, b"tombstone", None),
    *(Record(3 + n, TIME + 3 + n, b"%d" % n, b"order %d" % n) for n in range(497)),
]
LATER: Final = [
    Record(len(RECORDS) + n, TIME + 10_000 + n, b"later", b"%d" % n, (("n", b"%d" % n),))
    for n in range(10)
]


def mirror(source: str, target: str, directory: Path, classpath: str) -> JavaProcess:
    settings = {
        "clusters": "source, target",
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "topics": TOPIC,
        "groups": GROUP,
        "replication.factor": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        # An offset is translated exactly where the pair of it was noted.
        "offset.lag.max": "0",
    }
    for name in ("config.storage", "offset.storage", "status.storage"):
        settings[f"{name}.replication.factor"] = "1"
    for name in ("checkpoints", "heartbeats", "offset-syncs"):
        settings[f"{name}.topic.replication.factor"] = "1"
    file = directory / "mirror.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return JavaProcess(
        directory / "mirror.log",
        "org.apache.kafka.connect.mirror.MirrorMaker",
        *(str(file), "--clusters", "target"),
        classpath=classpath,
    )


def group_of(bootstrap: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    )


def commit(bootstrap: str) -> None:
    """Partition 0 is read to its end, partition 1 not at all."""
    consumer = group_of(bootstrap)
    try:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, len(RECORDS))], asynchronous=False)
    finally:
        consumer.close()


def committed(consumer: Consumer, topic: str) -> list[int]:
    wanted = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    return [one.offset for one in consumer.committed(wanted, PATIENCE_SECONDS)]


def test_records_and_offsets_arrive(bootstrap: str, tmp_path: Path, jvm: str) -> None:
    create_topic(bootstrap, TOPIC, PARTITIONS)
    for partition in range(PARTITIONS):
        produce(bootstrap, TOPIC, RECORDS, partition=partition)
    commit(bootstrap)
    with (
        ottla_process(tmp_path / "target") as target,
        mirror(bootstrap, target, tmp_path, jvm) as mirroring,
    ):
        there = group_of(target)
        nothing = committed(there, COPY)[1]
        mirroring.wait_for(
            lambda: committed(there, COPY) == [len(RECORDS), nothing], "the offset of the group"
        )
        produce(bootstrap, TOPIC, LATER, partition=0)
        count = PARTITIONS * len(RECORDS) + len(LATER)
        mirroring.read_until(target, COPY, lambda found: len(found) >= count)
        mirroring.kill()
        assert read_all(target, COPY) == read_all(bootstrap, TOPIC)
        positions = committed(there, COPY)
        there.close()
    assert positions == [len(RECORDS), nothing]

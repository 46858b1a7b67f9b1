"""A log directory is the same to Apache Kafka and to Ottla.

One way, Kafka's dump tool reads every file that Ottla wrote. The other way, Ottla serves the
directory of a Kafka broker that was killed, and of one that was stopped; and Kafka that directory
again. Where Apache Kafka cannot run, the reason is the skip's reason.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from ottla.broker.hosting.data import METADATA_FILE
from ottla.log.directory import KRAFT_LOG
from ottla.log.journal.files import STATE_FILE
from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.compression import Codec
from ottla.wire.records import Record
from tests.support.faults_broker import BrokerProcess
from tests.support.java_client import JavaClient
from tests.support.jvm import ApacheKafka, run_tool, why_no_jvm
from tests.support.topics import PATIENCE, Placed, create_topic, produce, read_all

if TYPE_CHECKING:
    from pathlib import Path

NOW: Final = int(time.time() * 1000)
SEGMENT_BYTES: Final = 1 << 20  # the smallest there is
QUICK: Final = ("-XX:TieredStopAtLevel=1",)

# Half of a value is random, so that compression pays and yet the log has several segments.
HALF: Final = 1500

PROTOCOLS: Final = ("classic", "consumer")
DECODE: Final = ("--offsets-decoder", "--deep-iteration")

SPECIAL: Final = [
    Record(0, NOW, b"key", b"value", (("a", b"1"), ("none", None), ("\u00fc", b""), ("a", b"2"))),
    Record(0, NOW + 7, None, b"no key"),
    Record(0, NOW - 3_600_000, b"tombstone", None),
    Record(0, NOW, b"", b""),
]


@pytest.fixture(scope="module", autouse=True)
def jvm() -> None:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)


def records_of(codec: Codec) -> list[Record]:
    """About 900 KB, half of that if compressed."""
    noise = random.Random(codec)
    keys = [b"%s-%d" % (codec.name.encode(), n % 50) for n in range(300)]
    values = [noise.randbytes(HALF) + b"x" * HALF for _ in keys]
    pairs = enumerate(zip(keys, values, strict=True))
    return SPECIAL + [Record(0, NOW + n, key, value) for n, (key, value) in pairs]


def written(codecs: list[Codec]) -> list[Record]:
    """All of it in the order of the log."""
    everything = [record for codec in codecs for record in records_of(codec)]
    return [record._replace(offset=offset) for offset, record in enumerate(everything)]


def write_every_codec(bootstrap: str, topic: str) -> list[Record]:
    """Through idempotent producers and others, in batches of up to 100 KB."""
    for codec in Codec:
        config = {
            "compression.type": codec.name.lower(),
            "enable.idempotence": codec in (Codec.NONE, Codec.ZSTD),
            "batch.size": 100_000,
        }
        produce(bootstrap, topic, records_of(codec), config=config)
    records = records_of(Codec.SNAPPY)
    JavaClient(bootstrap).produce(
        topic, records, partition=0, config={"compression.type": "snappy", "batch.size": "100000"}
    )
    return written([*Codec, Codec.SNAPPY])


def dump(files: list[Path], *options: str) -> dict[Path, str]:
    """What kafka-dump-log says of each file, which must be no complaint.

    It expects every segment to begin with offset 0 and says so of Kafka's own segments too.
    """
    done = run_tool("kafka-dump-log", *options, "--files", ",".join(map(str, files)))
    assert done.returncode == 0, done.stderr
    first = re.compile(r"Non-consecutive offsets in .*/0*(\d+)\.log\n  -1 is followed by \1\n")
    assert first.sub("", done.stderr) == ""
    said = done.stdout.split("Dumping ")[1:]
    return dict(zip(files, said, strict=True))


def dumped_records(said: str) -> list[tuple[int, int, int, int, str]]:
    """Offset, timestamp, sizes of key and value, header keys; -1 is the size of nothing."""
    pattern = re.compile(
        r"^\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+)"
        r" sequence: -?\d+ headerKeys: \[(.*?)\]",
        re.MULTILINE,
    )
    return [(int(o), int(t), int(k), int(v), h) for o, t, k, v, h in pattern.findall(said)]


def as_dumped(record: Record) -> tuple[int, int, int, int, str]:
    sizes = [-1 if part is None else len(part) for part in (record.key, record.value)]
    keys = ",".join(key for key, _ in record.headers)
    return (record.offset, record.timestamp, sizes[0], sizes[1], keys)


def test_kafkas_dump_tool_reads_what_ottla_wrote(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", configs={"segment.bytes": str(SEGMENT_BYTES)})
        expected = write_every_codec(broker.bootstrap, "t")
        assert read_all(broker.bootstrap, "t") == [Placed(0, record) for record in expected]
        for protocol in PROTOCOLS:
            read_in_a_group(broker.bootstrap, "t", 3, protocol)
    directory = tmp_path / "t-0"
    logs = sorted(directory.glob("*.log"))
    indexes = sorted(directory.glob("*.index")) + sorted(directory.glob("*.timeindex"))
    snapshots = sorted(directory.glob("*.snapshot"))
    assert len(logs) > 3
    assert len(indexes) == 2 * len(logs)
    # One at each roll, one at the stop.
    assert len(snapshots) == len(logs)

    of_logs = dump(logs, "--deep-iteration", "--print-data-log")
    seen = [one for log in logs for one in dumped_records(of_logs[log])]
    assert seen == [as_dumped(record) for record in expected]
    whole = "".join(of_logs.values())
    assert set(re.findall(r"isvalid: (\w+)", whole)) == {"true"}
    assert set(re.findall(r"compresscodec: (\w+)", whole)) == {c.name.lower() for c in Codec}
    assert "payload: no key" in whole

    of_indexes = dump(indexes)
    for index in indexes:
        lines = of_indexes[index].splitlines()[1:]
        assert all(line.startswith(("offset: ", "timestamp: ")) for line in lines), lines
        assert lines or index == indexes[len(logs) - 1]
    checked = dump(indexes, "--index-sanity-check")
    assert [text.splitlines()[1:] for text in checked.values()] == [
        [f"{index} passed sanity check."] for index in indexes
    ]
    of_groups = "".join(dump(sorted(tmp_path.glob("__consumer_offsets-*/*.log")), *DECODE).values())
    for protocol in PROTOCOLS:
        assert f'"group":"{protocol}-readers","topic":"t"' in of_groups, of_groups
    assert '"type":"3"' in of_groups  # the first record of a group of the new protocol
    assert "Could not decode" not in of_groups
    last = dump(snapshots)[snapshots[-1]]
    assert len(re.findall(r"producerId: \d+ producerEpoch: 0", last)) == 3, last


TOPICS: Final = ("codecs", "compacted", "transactions")
KAFKA_SETTINGS: Final = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
}


def write_compacted(bootstrap: str) -> None:
    """The same keys over and over, in several segments, until the cleaner has been there."""
    create_topic(
        bootstrap,
        "compacted",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_bytes=str(SEGMENT_BYTES),
    )
    keyed = [record for record in records_of(Codec.NONE) if record.key]
    for _ in range(4):
        produce(bootstrap, "compacted", keyed, config={"batch.size": 100_000})
    deadline = time.monotonic() + PATIENCE
    while len(read_all(bootstrap, "compacted")) > 3 * len(keyed):
        assert time.monotonic() < deadline, "the cleaner did nothing"
        time.sleep(0.2)


def write_transactions(bootstrap: str) -> None:
    create_topic(bootstrap, "transactions")
    for value, commit in ((b"kept", True), (b"lost", False), (b"kept too", True)):
        record = Record(0, NOW, None, value)
        config = {"transactional.id": "t"}
        produce(bootstrap, "transactions", [record], transaction=commit, config=config)


def read_in_a_group(bootstrap: str, topic: str, count: int, protocol: str) -> None:
    """Read so many records of a topic with one partition, and commit that."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": f"{protocol}-readers",
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(config)
    consumer.subscribe([topic])
    found = consumer.consume(count, PATIENCE)
    assert len(found) == count
    consumer.commit(message=found[-1], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, topic: str) -> dict[str, int]:
    offsets = {}
    for protocol in PROTOCOLS:
        config = {"bootstrap.servers": bootstrap, "group.id": f"{protocol}-readers"}
        consumer = Consumer(config)
        (position,) = consumer.committed([Position(topic, 0)], PATIENCE)
        consumer.close()
        offsets[protocol] = int(position.offset)
    return offsets


def write_as_kafka(bootstrap: str) -> None:
    create_topic(bootstrap, "gone")
    create_topic(bootstrap, "codecs", 2, segment_bytes=str(SEGMENT_BYTES), retention_ms="-1")
    write_every_codec(bootstrap, "codecs")
    produce(bootstrap, "codecs", SPECIAL, partition=1)
    write_compacted(bootstrap)
    write_transactions(bootstrap)
    for protocol in PROTOCOLS:
        read_in_a_group(bootstrap, "compacted", 3, protocol)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_topics(["gone"]).values():
        deleted.result()


class Contents(NamedTuple):
    topics: dict[str, list[Placed]]
    committed: dict[str, int]


def contents(bootstrap: str) -> Contents:
    found = {topic: read_all(bootstrap, topic) for topic in TOPICS}
    found["read committed"] = read_all(bootstrap, "transactions", isolation="read_committed")
    return Contents(found, committed(bootstrap, "compacted"))


def check_served(bootstrap: str, expected: Contents) -> None:
    """The records, and what Kafka knew of them."""
    assert contents(bootstrap) == expected
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert set(admin.list_topics(timeout=PATIENCE).topics) >= {*TOPICS, "__consumer_offsets"}
    assert "gone" not in admin.list_topics(timeout=PATIENCE).topics
    resource = ConfigResource(ConfigResource.Type.TOPIC, "compacted")
    (configs,) = admin.describe_configs([resource]).values()
    assert configs.result()["cleanup.policy"].value == "compact"


def go_on(bootstrap: str, expected: Contents) -> None:
    """One record from a new idempotent producer, not to be taken for an old one; groups read on."""
    _, last = expected.topics["codecs"][-1]
    record = Record(last.offset + 1, NOW, b"more", b"of it")
    produce(bootstrap, "codecs", [record], partition=1, config={"enable.idempotence": True})
    expected.topics["codecs"].append(Placed(1, record))
    for protocol in PROTOCOLS:
        read_in_a_group(bootstrap, "compacted", 2, protocol)
        expected.committed[protocol] = expected.topics["compacted"][4].record.offset + 1


def go_on_in_transactions(bootstrap: str, expected: Contents) -> None:
    """By the same transactional id, which its coordinator knows from Kafka's log."""
    last = expected.topics["transactions"][-1].record.offset
    record = Record(last + 2, NOW, None, b"of Ottla")  # behind the last one's marker
    config = {"transactional.id": "t"}
    produce(bootstrap, "transactions", [record], transaction=True, config=config)
    for topic in ("transactions", "read committed"):
        expected.topics[topic].append(Placed(0, record))


def test_ottla_serves_what_kafka_wrote_and_kafka_what_ottla_wrote(tmp_path: Path) -> None:
    with ApacheKafka(
        config=KAFKA_SETTINGS, heap="512m", jvm_options=QUICK, directory=tmp_path
    ) as kafka:
        write_as_kafka(kafka.bootstrap)
        expected = contents(kafka.bootstrap)
        os.kill(kafka.pid, signal.SIGKILL)
    assert not (kafka.data_dir / ".kafka_cleanshutdown").exists()
    kept = [one.record.value for one in expected.topics["read committed"]]
    assert kept == [b"kept", b"kept too"]

    with EmbeddedBroker(kafka.data_dir) as broker:
        check_served(broker.bootstrap, expected)
        go_on(broker.bootstrap, expected)
        go_on_in_transactions(broker.bootstrap, expected)
    with EmbeddedBroker(kafka.data_dir) as broker:
        check_served(broker.bootstrap, expected)

    with ApacheKafka(
        config=KAFKA_SETTINGS, heap="512m", jvm_options=QUICK, directory=tmp_path
    ) as kafka:
        check_served(kafka.bootstrap, expected)
    assert (kafka.data_dir / ".kafka_cleanshutdown").exists()

    # As it is when Ottla has never been there.
    for file in kafka.data_dir.glob(f"{METADATA_FILE}*"):
        file.unlink()
    with EmbeddedBroker(kafka.data_dir) as broker:
        check_served(broker.bootstrap, expected)
    assert (kafka.data_dir / KRAFT_LOG).is_dir()
    assert not list(kafka.data_dir.glob("*-stray"))


def test_kafka_refuses_a_directory_whose_journal_is_needed(tmp_path: Path) -> None:
    """Case 32 of the journal: after a kill acknowledged records may be in the journal alone. After
    a clean stop there is none, and Kafka reads every record."""
    kafka: dict[str, Any] = {"heap": "512m", "jvm_options": QUICK, "directory": tmp_path}
    with ApacheKafka(config=KAFKA_SETTINGS, **kafka) as first:
        create_topic(first.bootstrap, "orders")
    sent: list[Record] = []
    with BrokerProcess(tmp_path, config={"node.id": "1"}) as broker:
        while not (tmp_path / "data" / STATE_FILE).exists() or len(sent) < 20:
            sent.append(Record(len(sent), NOW, b"k", b"%d" % len(sent)))
            produce(broker.bootstrap, "orders", sent[-1:])
        broker.kill()
    with pytest.raises(RuntimeError, match="version"), ApacheKafka(config=KAFKA_SETTINGS, **kafka):
        pass
    with BrokerProcess(tmp_path, config={"node.id": "1"}) as broker:
        assert [one.record.value for one in read_all(broker.bootstrap, "orders")] == [
            record.value for record in sent
        ]
        assert broker.stop() == 0
    with ApacheKafka(config=KAFKA_SETTINGS, **kafka) as again:
        assert [one.record.value for one in read_all(again.bootstrap, "orders")] == [
            record.value for record in sent
        ]

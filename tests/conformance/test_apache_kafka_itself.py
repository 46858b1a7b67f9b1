"""Apache Kafka itself is at hand as a judge, and `ottla.wire` agrees with it on what a log holds.

One broker serves the whole file. Where Apache Kafka cannot run, the reason is the skip's reason.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.wire.batch import RecordBatch, iter_batches
from ottla.wire.compression import Codec
from ottla.wire.records import ControlType, Record, iter_records, read_control_record
from tests.support.build import build_batch
from tests.support.java_client import JavaClient
from tests.support.jvm import ApacheKafka, run_tool, why_no_jvm

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
# Of today, lest the broker roll a segment or drop it for its age.
NOW: Final = int(time.time() * 1000)

# Clients send a batch uncompressed where compression does not pay. With this it does.
FILLER: Final = b"ottla " * 60

# Nothing is measured here, so the better compiler only costs.
QUICK: Final = ("-XX:TieredStopAtLevel=1",)

WRITERS: Final = ("java", "librdkafka", "broker")

RECORDS: Final = [
    Record(0, NOW, b"key", FILLER, (("a", b"1"), ("none", None), ("\u00fc", b""), ("a", b"2"))),
    Record(1, NOW + 7, None, b"no key"),
    Record(2, NOW - 3_600_000, b"tombstone", None),
    Record(3, NOW, b"", b""),
    *(Record(4 + n, NOW + n, b"%d" % (n % 3), FILLER + b"%d" % n) for n in range(500)),
]

# One batch as kafka-dump-log prints it.
DUMPED: Final = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+)"
    r" lastSequence: (-?\d+) producerId: (-?\d+) producerEpoch: (-?\d+)"
    r" partitionLeaderEpoch: (-?\d+) isTransactional: (\w+) isControl: (\w+)"
    r" .* (?:CreateTime|LogAppendTime): (-?\d+) size: (\d+) magic: 2"
    r" compresscodec: (\w+) crc: (\d+) isvalid: (\w+)"
)

each_codec = pytest.mark.parametrize("codec", Codec, ids=[codec.name.lower() for codec in Codec])


pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def jvm() -> None:
    """Asked for here and not in a mark, as the first answer may take a download."""
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def kafka(jvm: None) -> Iterator[ApacheKafka]:
    config = {
        # Fifty partitions each, and heartbeats 5 s apart, are for others.
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.heartbeat.interval.ms": "500",
    }
    with ApacheKafka(config=config, jvm_options=QUICK) as broker:
        yield broker


@pytest.fixture(scope="module")
def java(kafka: ApacheKafka) -> JavaClient:
    return JavaClient(kafka.bootstrap)


def tool(name: str, *args: str, bootstrap: str | None = None) -> str:
    done = run_tool(name, *args, bootstrap=bootstrap)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(program: str, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def create_topic(kafka: ApacheKafka, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    for created in admin.create_topics([NewTopic(name, 1, 1, config=settings)]).values():
        created.result()


def produce_with_librdkafka(kafka: ApacheKafka, topic: str, codec: Codec) -> None:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "compression.type": codec.name.lower(),
            "enable.idempotence": True,
            "linger.ms": 100,
        }
    )
    errors: list[Any] = []
    for record in RECORDS:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition=0,
            timestamp=record.timestamp,
            headers=list(record.headers),
            on_delivery=lambda error, _: errors.append(error),
        )
    assert producer.flush(30) == 0
    assert errors == [None] * len(RECORDS)


def batches_in(kafka: ApacheKafka, topic: str) -> list[RecordBatch]:
    """What the only segment of a topic holds, every batch sound."""
    (segment,) = kafka.segments(topic)
    batches = list(iter_batches(memoryview(segment.read_bytes())))
    for batch in batches:
        batch.verify_crc()
    return batches


def as_dumped(batch: RecordBatch) -> tuple[str, ...]:
    numbers = (
        batch.base_offset,
        batch.last_offset,
        batch.record_count,
        batch.base_sequence,
        batch.last_sequence,
        batch.producer_id,
        batch.producer_epoch,
        batch.partition_leader_epoch,
    )
    flags = (str(flag).lower() for flag in (batch.is_transactional, batch.is_control))
    codec = Codec(batch.codec).name.lower()
    rest = (str(batch.max_timestamp), str(batch.size), codec, str(batch.crc), "true")
    return (*map(str, numbers), *flags, *rest)


def write(kafka: ApacheKafka, java: JavaClient, writer: str, codec: Codec) -> str:
    """The topic that got RECORDS, compressed by a client or, sent plain, by the broker."""
    name = codec.name.lower()
    topic = f"{writer}-{name}"
    if writer == "java":
        create_topic(kafka, topic)
        config = {"compression.type": name, "linger.ms": "100"}
        sent = java.produce(topic, RECORDS, partition=0, config=config)
        assert [one[:2] for one in sent] == [(0, record) for record in RECORDS]
    elif writer == "librdkafka":
        create_topic(kafka, topic)
        produce_with_librdkafka(kafka, topic, codec)
    else:
        create_topic(kafka, topic, compression_type=name if codec else "uncompressed")
        produce_with_librdkafka(kafka, topic, Codec.NONE)
    return topic


@pytest.fixture(scope="module")
def dumps(kafka: ApacheKafka, java: JavaClient) -> dict[str, list[tuple[str, ...]]]:
    """What kafka-dump-log says of the batches in each topic: all in one run, as runs are slow."""
    topics = [write(kafka, java, writer, codec) for writer in WRITERS for codec in Codec]
    segments = ",".join(str(segment) for topic in topics for segment in kafka.segments(topic))
    files = tool("kafka-dump-log", "--files", segments).split("Dumping ")[1:]
    return {topic: DUMPED.findall(said) for topic, said in zip(topics, files, strict=True)}


@each_codec
@pytest.mark.parametrize("writer", WRITERS)
def test_a_segment_that_kafka_wrote_is_read_here(
    kafka: ApacheKafka, dumps: dict[str, list[tuple[str, ...]]], writer: str, codec: Codec
) -> None:
    topic = f"{writer}-{codec.name.lower()}"
    batches = batches_in(kafka, topic)
    assert {batch.codec for batch in batches} == {codec}
    assert [record for batch in batches for record in iter_records(batch)] == RECORDS
    assert dumps[topic] == [as_dumped(batch) for batch in batches]


@pytest.mark.usefixtures("jvm")
def test_kafka_reads_a_segment_that_was_written_here(tmp_path: Path) -> None:
    segment = tmp_path / f"{0:020d}.log"
    data = bytearray()
    for position, codec in enumerate(Codec):
        records = [one._replace(offset=position * len(RECORDS) + one.offset) for one in RECORDS]
        data += build_batch(records, codec=codec, partition_leader_epoch=0)
    segment.write_bytes(data)

    said = tool("kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", str(segment))
    assert DUMPED.findall(said) == [as_dumped(one) for one in iter_batches(memoryview(data))]
    seen = re.findall(r"\n\| offset: (\d+) .*CreateTime: (\d+) .*?headerKeys: \[(.*?)\]", said)
    keys = [",".join(key for key, _ in one.headers) for one in RECORDS]
    times = [str(one.timestamp) for one in RECORDS]
    offsets = map(str, range(len(RECORDS) * len(Codec)))
    assert seen == list(zip(offsets, times * len(Codec), keys * len(Codec), strict=True))


def test_the_command_line_tools_work(kafka: ApacheKafka, java: JavaClient) -> None:
    bootstrap = kafka.bootstrap
    made = tool("kafka-topics", "--create", "--topic", "tools", bootstrap=bootstrap)
    assert made == "Created topic tools.\n"
    done = run_tool(
        "kafka-console-producer", "--topic", "tools", bootstrap=bootstrap, input="one\n"
    )
    assert done.returncode == 0, done.stderr
    java.produce("tools", [Record(0, NOW, b"k", "zw\u00f6lf".encode())])

    limits = ("--max-messages", "2", "--timeout-ms", "20000")
    options = (*limits, "--from-beginning", "--formatter-property", "print.offset=true")
    read = tool("kafka-console-consumer", "--topic", "tools", *options, bootstrap=bootstrap)
    assert read.splitlines() == ["Offset:0\tone", "Offset:1\tzw\u00f6lf"]
    assert tool("kafka-get-offsets", "--topic", "tools", bootstrap=bootstrap) == "tools:0:2\n"


def test_the_java_client_ends_transactions_and_reads_as_a_group(
    kafka: ApacheKafka, java: JavaClient
) -> None:
    create_topic(kafka, "transactions")
    config = {"transactional.id": "t"}
    for value, end in ((b"lost", ControlType.ABORT), (b"kept", ControlType.COMMIT)):
        name: Literal["commit", "abort"] = "commit" if end else "abort"
        java.produce("transactions", [Record(0, NOW, None, value)], transaction=name, config=config)
    batches = batches_in(kafka, "transactions")
    assert [batch.is_control for batch in batches] == [False, True, False, True]
    markers = [read_control_record(batch) for batch in batches if batch.is_control]
    assert [(one.offset, one.type) for one in markers] == [
        (1, ControlType.ABORT),
        (3, ControlType.COMMIT),
    ]

    config = {
        "group.id": "g",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    (kept,) = java.consume("transactions", 1, idle=20, config=config)
    assert kept.record == Record(2, NOW, None, b"kept")
    everything = java.consume("transactions", 2, idle=20)
    assert [one.record.value for one in everything] == [b"lost", b"kept"]


def test_share_groups_are_on(kafka: ApacheKafka, java: JavaClient) -> None:
    create_topic(kafka, "queue")
    tool(
        *("kafka-configs", "--alter", "--entity-type", "groups", "--entity-name", "workers"),
        *("--add-config", "share.auto.offset.reset=earliest"),
        bootstrap=kafka.bootstrap,
    )
    java.produce("queue", [Record(0, NOW, None, b"job")])
    (first,) = java.share_consume("queue", 1, group="workers", acknowledge="RELEASE")
    (second,) = java.share_consume("queue", 1, group="workers")
    assert first.record == second.record == Record(0, NOW, None, b"job")
    assert (first.delivery_count, second.delivery_count) == (1, 2)


def test_what_is_measured_is_the_broker(kafka: ApacheKafka) -> None:
    assert str(kafka.config_file) in Path(f"/proc/{kafka.pid}/cmdline").read_text()
    assert kafka.rss_bytes() > 100 * 2**20
    assert kafka.cpu_seconds() > 0


@pytest.mark.usefixtures("jvm")
def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        there = f"127.0.0.1:{taken.getsockname()[1]}"
        broker = ApacheKafka(
            heap="256m",
            jvm_options=QUICK,
            directory=tmp_path,
            config={
                "controller.quorum.voters": f"1@{there}",
                "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://{there}",
            },
        )
        with pytest.raises(RuntimeError, match=r"(?s)ended: 1.*Address already in use"), broker:
            pass
    assert "Address already in use" in broker.log_file.read_text()
    with pytest.raises(ProcessLookupError):
        os.kill(broker.pid, 0)


@pytest.mark.usefixtures("jvm")
def test_a_broker_does_not_outlive_the_one_who_started_it(tmp_path: Path) -> None:
    program = (
        "import os, sys, pathlib; from tests.support.jvm import ApacheKafka\n"
        "directory, *options = sys.argv[1:]; directory = pathlib.Path(directory)\n"
        "with ApacheKafka(heap='256m', jvm_options=options, directory=directory) as broker:\n"
        "    print(broker.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = python(program, str(tmp_path), *QUICK)
    assert done.returncode == -signal.SIGKILL
    broker = Path(f"/proc/{int(done.stdout)}")
    deadline = time.monotonic() + 30
    while broker.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not broker.exists()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_machine_without_java_is_told_so() -> None:
    program = "from tests.support.jvm import *; print(kafka_classpath(), why_no_jvm())"
    done = python(program, PATH="")
    assert done.stdout == "None Apache Kafka needs a JDK, and there is no java here\n"

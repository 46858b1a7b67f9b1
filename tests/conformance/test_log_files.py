"""Apache Kafka reads the files of our logs, and we read those of its logs.

Where Apache Kafka cannot run, the reason is the skip's reason.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.log.compaction import plan_compaction, run_compaction
from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.log.producer_state import Origin
from ottla.wire.batch import RecordBatch, iter_batches
from ottla.wire.builder import BatchBuilder
from ottla.wire.compression import Codec
from ottla.wire.records import ControlType, iter_records
from tests.support.jvm import ApacheKafka, run_tool, why_no_jvm
from tests.support.log_batches import marker, read_all

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.skipif(why_no_jvm() is not None, reason=str(why_no_jvm())),
]

CONFIG: Final = LogConfig(
    segment_bytes=6000,
    index_interval_bytes=300,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
)
START_MS: Final = 1_700_000_000_000
FILE_KINDS: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


class Writer:
    """Plain, idempotent and transactional batches in every codec, tombstones among them."""

    def __init__(self, directory: Path) -> None:
        self.log = PartitionLog.open(directory, CONFIG, now_ms=0)
        self._sequences: dict[int, int] = {}

    def send(self, number: int, producer_id: int = -1, *, transactional: bool = False) -> None:
        sequence = self._sequences.get(producer_id, 0)
        builder = BatchBuilder(
            codec=list(Codec)[number % 5],
            producer_id=producer_id,
            producer_epoch=min(producer_id, 0),
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=transactional,
        )
        for index in range(3):
            builder.append(
                None if (number + index) % 7 == 0 else b"value %d " % number * 9,
                key=b"key %d" % ((number + index) % 11),
                timestamp=START_MS + number * 10 + index,
                headers=[("name", b"content")],
            )
        self._sequences[producer_id] = sequence + 3
        batch = RecordBatch(memoryview(builder.build()))
        self.log.append(batch, leader_epoch=number // 40, now_ms=0)

    def write(self) -> None:
        for number in range(120):
            self.send(number)
            if number % 10 == 0:
                self.send(number, 5, transactional=True)
                kind = ControlType.ABORT if number % 20 else ControlType.COMMIT
                self.log.append(
                    marker(kind, 5, 0),
                    leader_epoch=number // 40,
                    now_ms=0,
                    origin=Origin.COORDINATOR,
                )
            if number % 9 == 0:
                self.send(number, 6)
        self.log.advance_high_watermark(self.log.flush())

    def compact(self) -> None:
        plan = plan_compaction(self.log, 0, START_MS + 10_000)
        assert plan is not None
        for group in run_compaction(plan).groups:
            assert self.log.install(group, 0)
        self.log.purge(CONFIG.file_delete_delay_ms)


@pytest.mark.parametrize("compacted", [False, True], ids=["as appended", "compacted"])
def test_kafka_reads_our_files(tmp_path: Path, *, compacted: bool) -> None:
    directory = tmp_path / "topic-0"
    writer = Writer(directory)
    writer.write()
    if compacted:
        writer.compact()
    batches = list(iter_batches(memoryview(read_all(writer.log))))
    aborted = sum(len(segment.aborted) for segment in writer.log.segments)
    assert writer.log.close()
    files = [path for path in sorted(directory.iterdir()) if path.suffix in FILE_KINDS]
    # Compaction leaves no record of an aborted transaction, and nothing that tells of it.
    assert (aborted == 0) is compacted
    kinds = {kind for kind in FILE_KINDS if kind != ".txnindex" or aborted}
    assert {path.suffix for path in files} == kinds
    dumped = run_tool(
        "kafka-dump-log", "--deep-iteration", "--files", ",".join(map(str, files))
    ).stdout
    assert dumped.count("isvalid: true") == len(batches)
    assert "isvalid: false" not in dumped
    assert dumped.count("lastStableOffset: ") == aborted
    indexes = [str(path) for path in files if path.suffix in (".index", ".timeindex")]
    verified = run_tool("kafka-dump-log", "--verify-index-only", "--files", ",".join(indexes))
    report = (verified.stdout + verified.stderr).splitlines()
    harmless = [line.startswith("Dumping ") or line.endswith(" is empty.") for line in report]
    assert all(harmless), report


def test_we_read_kafkas_files(tmp_path: Path) -> None:
    """Opened as after a clean stop and as after a crash; the rebuilt indexes are Kafka's own."""
    config = {"log.segment.bytes": str(1 << 20), "log.index.interval.bytes": "4096"}
    with ApacheKafka(config=config, directory=tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for created in admin.create_topics([NewTopic("topic", 1, 1)]).values():
            created.result()
        producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "enable.idempotence": True,
                "batch.size": 20_000,
            }
        )
        for number in range(3000):
            producer.produce("topic", b"%d " % number * 250, b"%d" % number)
            producer.poll(0)
        assert producer.flush(30) == 0
        data_dir = kafka.data_dir
    log_config = LogConfig(segment_bytes=1 << 20)
    originals = {path.name: path.read_bytes() for path in (data_dir / "topic-0").iterdir()}
    for clean in (True, False):
        copy = tmp_path / f"copy-{int(clean)}"
        shutil.copytree(data_dir / "topic-0", copy)
        if not clean:
            for path in copy.iterdir():
                if path.suffix in (".index", ".timeindex", ".snapshot"):
                    path.unlink()
        log = PartitionLog.open(copy, log_config, now_ms=0, clean=clean)
        assert (log.log_start_offset, log.log_end_offset) == (0, 3000)
        assert len(log.segments) > 2
        stored = iter_batches(memoryview(read_all(log)))
        values = [record.value for batch in stored for record in iter_records(batch)]
        assert values == [b"%d " % number * 250 for number in range(3000)]
        (entry,) = log.producers()
        assert entry.last_sequence == 2999
        assert log.close()
        for segment in log.segments[:-1]:
            for suffix in (".index", ".timeindex"):
                name = segment.path(suffix).name
                assert (copy / name).read_bytes() == originals[name]

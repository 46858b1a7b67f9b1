"""What is taken over from Kafka's metadata log, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from ottla.broker.hosting.adoption import adoption
from ottla.broker.hosting.data import WrongDirectory
from ottla.coordination.codec import Writer
from ottla.log.checkpoints import MetaProperties, TopicPartition, encode_meta
from ottla.log.directory import KRAFT_LOG
from ottla.metadata.changes.nodes import AllocateProducerIds
from ottla.metadata.changes.topics import CreateTopic
from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.records import Record
from tests.support.build import build_batch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

A, B = UUID(int=0xA << 64), UUID(int=0xB << 64)
TOPIC, BROKER = 2, 4
NODE = 7


def record(kind: int, *, frame: int = 1) -> Writer:
    return Writer(flexible=True).uvarint(frame).uvarint(kind).uvarint(0)


def topic(name: str, topic_id: UUID) -> bytes:
    return record(2).string(name).uuid(topic_id).tags().done()


def partition(topic_id: UUID, index: int, leader_epoch: int = 0) -> bytes:
    writer = record(3).int32(index).uuid(topic_id)
    for replicas in ([NODE], [NODE], [], []):
        writer.array(replicas, writer.int32)
    return writer.int32(NODE).int32(leader_epoch).int32(0).tags().done()


def partition_change(topic_id: UUID, index: int) -> bytes:
    return record(5).int32(index).uuid(topic_id).tags().done()


def config(kind: int, name: str, key: str, value: str | None) -> bytes:
    return record(4).int8(kind).string(name).string(key).string(value).tags().done()


def removed(topic_id: UUID) -> bytes:
    return record(9).uuid(topic_id).tags().done()


def producer_ids(following: int) -> bytes:
    return record(15).int32(NODE).int64(1).int64(following).tags().done()


def batch(values: Iterable[bytes], base: int = 0) -> bytes:
    records = [Record(base + n, 0, None, value) for n, value in enumerate(values)]
    return bytes(build_batch(records, partition_leader_epoch=1))


def write_log(directory: Path, data: bytes, name: str = f"{0:020d}.log") -> None:
    (directory / KRAFT_LOG).mkdir(exist_ok=True)
    (directory / KRAFT_LOG / name).write_bytes(data)


def found(*names: tuple[str, int]) -> list[TopicPartition]:
    return [TopicPartition(*name) for name in names]


def test_topics_come_with_ids_settings_and_epochs_above_the_old_ones(tmp_path: Path) -> None:
    values = [
        *(topic("a", A), partition(A, 0), partition(A, 1, 4), partition_change(A, 1)),
        config(TOPIC, "a", "retention.ms", "-1"),
        config(TOPIC, "a", "cleanup.policy", "compact"),
        config(TOPIC, "a", "retention.ms", None),
        config(TOPIC, "a", "unheard.of", "1"),
        config(BROKER, "", "min.insync.replicas", "1"),
        *(topic("b", B), partition(B, 0), config(TOPIC, "b", "retention.ms", "1"), removed(B)),
        producer_ids(3000),
        record(20).tags().done(),
    ]
    write_log(tmp_path, batch(values))
    assert adoption(tmp_path, found(("a", 0), ("a", 1)), NODE) == [
        CreateTopic("a", A, ((NODE,), (NODE,)), {"cleanup.policy": "compact"}, leader_epoch=6),
        AllocateProducerIds(NODE, 3000),
    ]


def test_a_snapshot_stands_for_the_records_before_it(tmp_path: Path) -> None:
    log = batch([topic("b", B), partition(B, 0)]) + batch([removed(B), producer_ids(5)], 2)
    write_log(tmp_path, log)
    # Of the log, the record at offset 3 alone is behind the snapshot.
    write_log(tmp_path, batch([topic("a", A), partition(A, 0)]), f"{3:020d}-{1:010d}.checkpoint")
    write_log(tmp_path, b"older, and not looked at", f"{1:020d}-{1:010d}.checkpoint")
    assert adoption(tmp_path, found(("a", 0)), NODE) == [
        CreateTopic("a", A, ((NODE,),), {}, leader_epoch=1),
        AllocateProducerIds(NODE, 5),
    ]


def test_a_torn_tail_is_no_obstacle_but_damage_before_it_is(tmp_path: Path) -> None:
    sound = batch([topic("a", A), partition(A, 0)])
    torn = batch([removed(A)], 2)[:-1]
    write_log(tmp_path, sound + torn)
    assert adoption(tmp_path, found(("a", 0)), NODE)
    write_log(tmp_path, batch([producer_ids(9)], 3), f"{3:020d}.log")
    with pytest.raises(WrongDirectory, match="cannot be read: truncated"):
        adoption(tmp_path, found(("a", 0)), NODE)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([topic("a", A), partition(A, 0), partition(A, 1)], "only a part.*: a-1 is missing"),
        ([record(2, frame=2).done()], "frame version 2"),
        ([record(2).string("a").done()], "cannot be read: malformed"),
    ],
)
def test_what_cannot_be_served_whole_is_refused(
    tmp_path: Path, values: list[bytes], message: str
) -> None:
    write_log(tmp_path, batch(values))
    with pytest.raises(WrongDirectory, match=message):
        adoption(tmp_path, found(("a", 0)), NODE)


def test_logs_without_metadata_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    meta = encode_meta(MetaProperties("AAAAAAAAAAAAAAAAAAAAAA", 1, A))
    (tmp_path / "meta.properties").write_bytes(meta)
    for _ in range(2):
        with pytest.raises(WrongDirectory, match="neither Ottla's metadata nor Kafka's"):
            EmbeddedBroker(tmp_path).start()
    assert (tmp_path / "a-0").is_dir()
    write_log(tmp_path, batch([topic("a", A), partition(A, 0)]))
    with EmbeddedBroker(tmp_path):
        pass
    assert (tmp_path / "a-0").is_dir()

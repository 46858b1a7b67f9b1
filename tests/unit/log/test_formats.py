"""Golden bytes: what other tools find in the files."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from ottla.log import checkpoints
from ottla.log.checkpoints import Checkpoint, CorruptCheckpoint, MetaProperties, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.epochs import LeaderEpochs
from ottla.log.index import (
    AbortedTransaction,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
    decode_aborted,
    encode_aborted,
)
from ottla.log.partition import PartitionLog
from tests.support.log_batches import batch_of
from tests.support.log_faults import MemoryStorage

HOME = Path("/data")
SOME_ID = UUID("c6dcd658-de1b-4e38-ada4-bde47ddf6ce6")


def test_offset_index() -> None:
    index = OffsetIndex()
    index.append(5, 4100)
    index.append(260, 70000)
    golden = bytes.fromhex("00000005 00001004 00000104 00011170")
    assert index.encode() == golden
    again = OffsetIndex.decode(golden, 70001)
    assert (list(again.offsets), list(again.positions)) == ([5, 260], [4100, 70000])
    with pytest.raises(CorruptIndex):
        OffsetIndex.decode(golden, 70000)


def test_time_index() -> None:
    index = TimeIndex()
    index.maybe_append(-1, 0)
    index.maybe_append(1_700_000_000_000, 3)
    index.maybe_append(1_700_000_000_000, 4)
    index.maybe_append(1_700_000_000_001, 9)
    golden = bytes.fromhex("0000018bcfe56800 00000003 0000018bcfe56801 00000009")
    assert index.encode() == golden
    assert TimeIndex.decode(golden).floor_offset(1_700_000_000_000) == 3


def test_transaction_index() -> None:
    entry = AbortedTransaction(7, 100, 120, 90)
    golden = bytes.fromhex(
        "0000 0000000000000007 0000000000000064 0000000000000078 000000000000005a"
    )
    assert encode_aborted([entry]) == golden
    assert decode_aborted(golden) == [entry]
    for damaged in (golden[:-1], b"\0\1" + golden[2:]):
        with pytest.raises(CorruptIndex):
            decode_aborted(damaged)


def test_leader_epochs() -> None:
    epochs = LeaderEpochs()
    epochs.assign(0, 0)
    epochs.assign(3, 1500)
    assert epochs.encode() == b"0\n2\n0 0\n3 1500\n"
    assert LeaderEpochs.decode(epochs.encode()).entries == [(0, 0), (3, 1500)]
    assert [epochs.epoch_at(offset) for offset in (0, 1499, 1500)] == [0, 0, 3]
    assert LeaderEpochs().epoch_at(0) == -1


def test_an_epoch_without_records_is_replaced() -> None:
    epochs = LeaderEpochs([(0, 0)])
    epochs.assign(1, 5)
    epochs.assign(2, 5)
    epochs.assign(1, 9)
    assert epochs.entries == [(0, 0), (2, 5)]


@pytest.mark.parametrize("scanned", [0, 1 << 16])
def test_log_file(monkeypatch: pytest.MonkeyPatch, scanned: int) -> None:
    """A small last segment is scanned when it is opened, so nothing is written about it."""
    monkeypatch.setattr("ottla.log.partition.SCANNED_BYTES", scanned)
    storage = MemoryStorage()
    log = PartitionLog.open(HOME / "t-0", LogConfig(), now_ms=0, storage=storage)
    for _ in range(2):
        log.append(batch_of(b"v", timestamps=[1000]), leader_epoch=4, now_ms=0)
    log.close()
    record = "10 00 00 00 02 6b 02 76 00".replace(" ", "")
    header = "{:016x} 0000003a 00000004 02 {} 0000 00000000" + " 00000000000003e8" * 2
    batch = header + " ffffffffffffffff ffff ffffffff 00000001" + record
    crc = batch_of(b"v", timestamps=[1000]).data[17:21].hex()
    golden = "".join(batch.format(offset, crc) for offset in (0, 1)).replace(" ", "")
    assert storage.read_file(HOME / "t-0" / f"{0:020d}.log").hex() == golden
    about = [
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000002.snapshot",
        "leader-epoch-checkpoint",
    ]
    found = storage.listdir(HOME / "t-0")
    assert found == sorted(["00000000000000000000.log", *([] if scanned else about)])


def test_offset_checkpoints() -> None:
    storage = MemoryStorage()
    offsets = {TopicPartition("orders", 0): 17, TopicPartition("a-b.c_d", 11): 0}
    for name in Checkpoint:
        assert checkpoints.read_offsets(storage, HOME, name) == {}
        checkpoints.write_offsets(storage, HOME, name, offsets)
        assert checkpoints.read_offsets(storage, HOME, name) == offsets
    golden = b"0\n2\norders 0 17\na-b.c_d 11 0\n"
    assert storage.read_file(HOME / "recovery-point-offset-checkpoint") == golden
    assert storage.listdir(HOME) == sorted(name.value for name in Checkpoint)


@pytest.mark.parametrize(
    "data", [b"", b"0\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"\xff"]
)
def test_damaged_offset_checkpoints(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        checkpoints.decode_offsets(data)


def test_meta_properties() -> None:
    meta = MetaProperties("qYoMEZXcS_SKP2PzAl8-WA", 3, SOME_ID)
    golden = (
        b"version=1\ncluster.id=qYoMEZXcS_SKP2PzAl8-WA\nnode.id=3\n"
        b"directory.id=xtzWWN4bTjitpL3kfd9s5g\n"
    )
    assert checkpoints.encode_meta(meta) == golden
    assert checkpoints.decode_meta(b"#\n#Sun Nov 15 2026\n" + golden) == meta
    for damaged in (b"", golden.replace(b"version=1", b"version=3"), golden[:-10]):
        with pytest.raises(CorruptCheckpoint):
            checkpoints.decode_meta(damaged)


def test_partition_metadata() -> None:
    golden = b"version: 0\ntopic_id: xtzWWN4bTjitpL3kfd9s5g"
    assert checkpoints.encode_partition_metadata(SOME_ID) == golden
    assert checkpoints.decode_partition_metadata(golden + b"\n") == SOME_ID
    for damaged in (b"", golden[:20], golden[:-3], golden.replace(b"0", b"1")):
        with pytest.raises(CorruptCheckpoint):
            checkpoints.decode_partition_metadata(damaged)


def test_clean_shutdown_mark_is_taken_once() -> None:
    storage = MemoryStorage()
    assert not checkpoints.take_clean_shutdown(storage, HOME)
    checkpoints.mark_clean_shutdown(storage, HOME)
    assert storage.listdir(HOME) == [".kafka_cleanshutdown"]
    assert checkpoints.take_clean_shutdown(storage, HOME)
    assert not checkpoints.take_clean_shutdown(storage, HOME)


def test_settings_have_kafkas_names_and_defaults() -> None:
    assert LogConfig.from_topic_configs({}) == LogConfig()
    config = LogConfig.from_topic_configs(
        {
            "segment.bytes": "1048576",
            "cleanup.policy": "compact, delete",
            "message.timestamp.type": "LogAppendTime",
            "min.cleanable.dirty.ratio": "0.1",
            "min.insync.replicas": "2",
        }
    )
    assert config.segment_bytes == 1 << 20
    assert config.compacts
    assert config.deletes
    assert config.log_append_time
    assert config.min_cleanable_dirty_ratio == 0.1

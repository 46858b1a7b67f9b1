"""Before a segment leaves the local disk, the log has saved what only that segment would tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla import EmbeddedBroker
from tests.support.cluster_clients import PATIENCE, Writer

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.partition import PartitionLog

CONFIG = {
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "remote.log.manager.task.interval.ms": "50",
    "log.retention.check.interval.ms": "50",
}
TOPIC = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
}
PADDING = b"x" * 5000


def log_of(broker: EmbeddedBroker) -> PartitionLog | None:
    assert broker._nodes is not None
    for hosted in broker._nodes.any.partitions:
        if hosted.topic == "orders":
            return hosted.log
    return None


def test_leader_epochs_of_remote_segments_are_saved(tmp_path: Path) -> None:
    """Of a log that is never synced, too: after a kill the local segments do not tell them."""
    config = {**CONFIG, "rsm.config.url": tmp_path.as_uri()}
    with EmbeddedBroker(config=config) as broker:
        broker.create_topic("orders", configs=TOPIC)
        writer = Writer(broker.bootstrap, "orders")
        for _ in range(450):
            writer.producer.produce("orders", PADDING, partition=0)
        assert writer.producer.flush(PATIENCE) == 0
        deadline = time.monotonic() + PATIENCE
        while (log := log_of(broker)) is None or not log.local_start_offset:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert b"0 0" in (log.directory / "leader-epoch-checkpoint").read_bytes().splitlines()

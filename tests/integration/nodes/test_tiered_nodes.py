"""A tiered topic of several nodes: copies, catalogue and reads go on, whoever dies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer

from ottla import EmbeddedBroker
from tests.support.cluster_clients import PATIENCE, QUICK, read_all
from tests.support.nodes_process import wait_for

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS: Final = range(3)
CONFIG: Final = {
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "remote.log.manager.task.interval.ms": "50",
    "log.retention.check.interval.ms": "50",
}
TOPIC: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
}
PADDING: Final = b"x" * 20_000
RECORDS: Final = 120  # two segments and a half for each partition


class Written:
    """Records of an idempotent producer, all acknowledged, by partition."""

    def __init__(self, bootstrap: str) -> None:
        self.values: dict[int, list[bytes]] = {one: [] for one in PARTITIONS}
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUICK}
        )

    def more(self) -> None:
        for partition, values in self.values.items():
            for _ in range(RECORDS):
                values.append(b"%d " % len(values) + PADDING)
                self._producer.produce("orders", values[-1], partition=partition)
        assert self._producer.flush(PATIENCE) == 0


def local_start(broker: EmbeddedBroker, partition: int) -> int:
    """The first offset that its leader has on the local disk; 0 while the log is closed."""
    assert broker._nodes is not None
    for node in broker._nodes.running.values():
        for hosted in node.partitions:
            if hosted.name == ("orders", partition):
                return hosted.log.local_start_offset
    return 0


@pytest.mark.long
def test_a_tiered_topic_goes_on_whoever_dies(tmp_path: Path) -> None:
    """Each node is killed and given up in turn: the others read what it had copied."""
    config = {**CONFIG, "rsm.config.url": (tmp_path / "store").as_uri()}
    with EmbeddedBroker(tmp_path / "data", nodes=3, config=config) as broker:
        broker.create_topic("orders", partitions=len(PARTITIONS), configs=TOPIC)
        written = Written(broker.bootstrap)

        def check() -> None:
            for partition, values in written.values.items():
                assert read_all(broker.bootstrap, "orders", partition) == values

        for node in (1, 2, 3):
            written.more()
            wait_for(
                lambda: all(
                    local_start(broker, partition) > len(values) - RECORDS
                    for partition, values in written.values.items()
                ),
                "only the store has some of the new segments",
            )
            broker.kill_node(node)
            broker.stop_node(node)
            check()
            broker.start_node(node)
        for partition in PARTITIONS:
            broker.move("orders", partition, (partition + 1) % 3 + 1)
        check()

"""Moves and deaths while clients write and read: nothing is lost, nothing comes twice."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from ottla import EmbeddedBroker
from tests.support.cluster_clients import Reading, Writer, directories, read_all

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS = range(4)
MOVES = 60
BUSY = 500  # records that are not acknowledged yet, at most


class Load:
    """An idempotent producer and a consumer at work."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        broker.create_topic("orders", partitions=len(PARTITIONS))
        self.broker = broker
        self.writer = Writer(broker.bootstrap, "orders")
        self.reading = Reading(broker.bootstrap, "orders", PARTITIONS)
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        while not self._stops.is_set():
            if len(self.writer.producer) < BUSY:
                self.writer.send(1, PARTITIONS)
            self.writer.producer.poll(0.002)

    def finish(self) -> None:
        """Every acknowledged record is there once, in its order, and was read so."""
        self._stops.set()
        self._thread.join()
        self.writer.write(1, PARTITIONS)
        acked = self.writer.acked
        read = self.reading.until({one: len(acked[one]) for one in PARTITIONS})
        assert read == acked
        for partition in PARTITIONS:
            assert read_all(self.broker.bootstrap, "orders", partition) == acked[partition]


def test_moves_under_load() -> None:
    chance = random.Random(7)
    with EmbeddedBroker(nodes=3) as broker:
        load = Load(broker)
        try:
            for _ in range(MOVES):
                broker.move("orders", chance.choice(PARTITIONS), chance.randint(1, 3))
        finally:
            load.finish()


@pytest.mark.parametrize("seed", range(3))
def test_case_12_moves_and_deaths_under_load(tmp_path: Path, seed: int) -> None:
    """With a journal: what a dead node had acknowledged by it is there when others take over."""
    chance = random.Random(seed)
    with EmbeddedBroker(tmp_path, nodes=3) as broker:
        load = Load(broker)
        try:
            for _ in range(6):
                node = chance.randint(1, 3)
                broker.kill_node(node)
                if chance.random() < 0.5:
                    broker.stop_node(node)
                broker.start_node(node)
                for _ in range(3):
                    broker.move("orders", chance.choice(PARTITIONS), chance.randint(1, 3))
        finally:
            load.finish()
        for partition in PARTITIONS:
            assert len(directories(tmp_path, "orders", partition)) == 1

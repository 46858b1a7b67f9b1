"""The state topic: keys, snapshots, updates, and what a restart finds

The records of `__share_group_state` are Kafka's, so that its tools can read them.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from ottla import Admin, EmbeddedBroker
from tests.clauses.persister.state import (
    ACKNOWLEDGED,
    AVAILABLE,
    INVALID_REQUEST,
    SNAPSHOT,
    STATE_TOPIC,
    UPDATE,
    Batch,
    ShareState,
    kinds,
)
from tests.support.raw_client import EARLIEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BROKER_CONFIG: Final = {"share.coordinator.snapshot.update.records.per.snapshot": "3"}
PATIENCE: Final = 30.0


async def test_the_topic_is_made_when_it_is_first_needed() -> None:
    """`__share_group_state` is made lazily, by whatever needs it first; making it is idempotent."""
    async with EmbeddedBroker() as broker, Admin(broker.bootstrap) as admin:
        assert await admin.list_topics(internal=True) == []
        broker.create_topic("orders")
        first, second = (ShareState(broker.bootstrap, "workers", "orders") for _ in range(2))
        codes = await asyncio.gather(
            asyncio.to_thread(first.initialize), asyncio.to_thread(second.initialize)
        )
        # Until it is there the answer is "not available", as from any coordinator that starts.
        assert set(codes) <= {0, 15, 16}
        assert first.coordinator().error_code == second.coordinator().error_code == 0
        assert [one.name for one in await admin.list_topics(internal=True)] == [
            STATE_TOPIC,
            "orders",
        ]
        first.close()
        second.close()


async def test_the_topic_has_kafkas_settings(broker: EmbeddedBroker, state: ShareState) -> None:
    """The state topic has 50 partitions and is internal; its records do not expire."""
    async with Admin(broker.bootstrap) as admin:
        [found] = await admin.describe_topics([STATE_TOPIC], configs=True)
    assert len(found.partitions) == 50
    assert found.is_internal
    configs = {one.name: one.value for one in found.configs or ()}
    assert configs["cleanup.policy"] == "delete"
    assert configs["retention.ms"] == "-1"
    assert state.coordinator().error_code == 0


def test_the_key_chooses_the_state_partition(state: ShareState) -> None:
    """Group, topic id and partition together map to one partition of the state topic."""
    state.initialize()
    assert kinds(state.records()) == [(SNAPSHOT, 0)]


def test_a_group_name_may_have_colons(broker: EmbeddedBroker, topic: str, group: str) -> None:
    """The parts of a key are separated by colons, which a group's name may have as well."""
    state = ShareState(broker.bootstrap, f"{group}:a:b", topic)
    assert state.coordinator().error_code == 0
    assert state.initialize(start=7) == 0
    assert state.read().start_offset == 7
    state.close()


def test_initialize_is_a_snapshot(state: ShareState) -> None:
    """`initialize` writes a snapshot, with snapshot epoch 0 at first and one more each time."""
    state.initialize(state_epoch=1)
    state.initialize(state_epoch=2)
    assert kinds(state.records()) == [(SNAPSHOT, 0), (SNAPSHOT, 1)]


def test_writes_are_updates_and_every_so_often_a_snapshot(state: ShareState) -> None:
    """Updates since the snapshot are counted; at the limit the next write is a snapshot."""
    state.initialize()
    for offset in range(5):
        state.write(Batch(offset, offset, ACKNOWLEDGED, 1))
    assert kinds(state.records()) == [
        (SNAPSHOT, 0),
        (UPDATE, 0),
        (UPDATE, 0),
        (UPDATE, 0),
        (SNAPSHOT, 1),
        (UPDATE, 1),
    ]
    assert state.batches() == [Batch(0, 4, ACKNOWLEDGED, 1)]


def test_reading_with_a_new_leader_epoch_is_an_update(state: ShareState) -> None:
    """The leader epoch of a reader is stored, once."""
    state.initialize()
    for _ in range(2):
        assert state.read(leader_epoch=1).error_code == 0
    assert kinds(state.records()) == [(SNAPSHOT, 0), (UPDATE, 0)]


def test_delete_is_a_tombstone(state: ShareState) -> None:
    """A deleted state leaves a record without a value."""
    state.initialize()
    state.delete()
    assert kinds(state.records()) == [(SNAPSHOT, 0), (SNAPSHOT, None)]


def test_a_refused_request_writes_nothing(state: ShareState) -> None:
    """What is fenced or refused leaves no record."""
    assert state.write(Batch(0, 0, ACKNOWLEDGED, 1)) == INVALID_REQUEST
    assert state.records() == []


def test_every_500_writes_a_snapshot_by_default() -> None:
    """The limit of updates is 500, as in Kafka; 0 makes every write a snapshot."""
    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        state = ShareState(broker.bootstrap, "workers", "orders")
        state.coordinator()
        state.initialize()
        for _ in range(501):
            state.write(Batch(0, 0, AVAILABLE, 1))
        found = kinds(state.records())
        assert found.count((UPDATE, 0)) == 500
        assert found[-1] == (SNAPSHOT, 1)
        state.close()


def test_a_restart_finds_the_same_state(tmp_path: Path) -> None:
    """The coordinator's state is rebuilt from the records of its partition."""
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("orders")
        state = ShareState(broker.bootstrap, "workers", "orders")
        state.coordinator()
        state.initialize(state_epoch=2)
        state.read(leader_epoch=1)
        state.write(Batch(5, 6, AVAILABLE, 3), state_epoch=2, leader_epoch=1, start=2, complete=4)
        before = state.summary()
        state.close()
    with EmbeddedBroker(tmp_path) as broker:
        state = ShareState(broker.bootstrap, "workers", "orders")
        _wait_for(lambda: state.summary().error_code == 0)
        assert state.summary() == before
        found = state.read(leader_epoch=1)
        assert [tuple(one) for one in found.state_batches] == [(5, 6, AVAILABLE, 3)]
        assert state.read(leader_epoch=0).error_code != 0
        state.close()


def test_what_no_state_needs_any_more_is_pruned() -> None:
    """The topic is not compacted: a snapshot makes older records superfluous, and they go."""
    config = {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.snapshot.update.records.per.snapshot": "0",
        "share.coordinator.state.topic.prune.interval.ms": "20",
    }
    with EmbeddedBroker(config=config) as broker:
        broker.create_topic("orders")
        state = ShareState(broker.bootstrap, "workers", "orders")
        state.coordinator()
        state.initialize()
        for offset in range(5):
            state.write(Batch(offset, offset, ACKNOWLEDGED, 1))
        _wait_for(lambda: state.client.offset(STATE_TOPIC, EARLIEST).offset == 5)
        assert state.batches() == [Batch(0, 4, ACKNOWLEDGED, 1)]
        state.close()


def test_a_state_that_rests_does_not_hold_up_pruning() -> None:
    """A snapshot that has grown old is written again, so that the log before it can go."""
    config = {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.prune.interval.ms": "20",
        "share.coordinator.cold.partition.snapshot.interval.ms": "50",
    }
    with EmbeddedBroker(config=config) as broker:
        broker.create_topic("orders")
        state = ShareState(broker.bootstrap, "workers", "orders")
        state.coordinator()
        state.initialize()
        state.write(Batch(0, 0, ACKNOWLEDGED, 1))
        _wait_for(lambda: state.client.offset(STATE_TOPIC, EARLIEST).offset >= 2)
        assert state.batches() == [Batch(0, 0, ACKNOWLEDGED, 1)]
        state.close()


def _wait_for(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)

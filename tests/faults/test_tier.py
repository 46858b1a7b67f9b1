"""Tiered storage when things break: killed copies, a damaged or lost catalogue.

What was acknowledged stays readable, byte for byte, and what is broken mends itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.metadata.names import REMOTE_LOG_METADATA_TOPIC
from ottla.tier.reading.answers import EARLIEST_LOCAL, LATEST_TIERED
from ottla.tier.upkeep.copier import CopyStep
from ottla.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.support.faults_broker import BrokerProcess, soak
from tests.support.raw_client import RawClient, batch
from tests.support.tier_kill_broker import KILL_BEFORE
from tests.support.tiered_broker import (
    MIB,
    TIERED,
    alter,
    consume,
    consume_each,
    eventually,
    fill,
    produce,
    settings,
    share_each,
    stored,
    tier_place,
    tiered_broker,
    value_at,
)

if TYPE_CHECKING:
    from pathlib import Path


TOPIC = "clicks"


@pytest.mark.parametrize("step", [step for step in CopyStep if step is not CopyStep.DONE])
def test_case_31_killed_before_each_step_of_a_copy(
    tmp_path: Path, step: CopyStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    config = settings(store) | {"remote.orphan.age.ms": "1"}
    broker = BrokerProcess(tmp_path, config=config, module="tests.support.tier_kill_broker")
    monkeypatch.setenv(KILL_BEFORE, step.name)
    with broker, RawClient(broker.bootstrap) as client:
        waiting = TIERED | {"remote.log.copy.disable": "true", "local.retention.bytes": "-2"}
        configs = [CreatableTopicConfig(key, value) for key, value in waiting.items()]
        request = CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1, [], configs)], 10_000)
        assert client.ask("create_topics", 5, request).topics[0].error_code == 0
        sent = fill(client, TOPIC, 60)
        alter(client, TOPIC, {"remote.log.copy.disable": "false", "local.retention.bytes": "1"})
        eventually(lambda: not broker.alive, "it kills itself")
        monkeypatch.delenv(KILL_BEFORE)
        broker.kill()
        broker.start()
        with RawClient(broker.bootstrap) as again:
            eventually(
                lambda: again.offset(TOPIC, EARLIEST_LOCAL).offset == 2000, "copied after all"
            )
        assert consume(broker.bootstrap, TOPIC, len(sent)) == sent
        eventually(lambda: len(stored(store, ".log")) == 2, "what the first attempt left goes")
        assert len(stored(store, ".meta")) == 2


def test_a_record_that_is_no_event_costs_nothing(tmp_path: Path) -> None:
    with tier_place(tmp_path) as place:
        topic = place.topic()
        sent = place.cold(topic)
        for partition in range(3):
            answer = place.client.produce(
                REMOTE_LOG_METADATA_TOPIC, batch(b"\\x07nonsense", None), partition=partition
            )
            assert answer.error_code == 0
        manager = place.tiering.manager
        assert manager is not None
        eventually(lambda: manager.metrics.decode_errors >= 2, "they are met, and counted")
        place.cold(topic)
        assert consume(place.broker.bootstrap, topic, len(sent)) == sent


@pytest.mark.parametrize("damage", [b"", b"RLMS and then nothing that was ever written"])
def test_a_damaged_snapshot_is_replayed(tmp_path: Path, damage: bytes) -> None:
    with tier_place(tmp_path) as place:
        topic = place.topic()
        sent = place.cold(topic)
    (snapshot,) = (tmp_path / "data").rglob("snapshot")
    snapshot.write_bytes(damage)
    with tier_place(tmp_path) as place:
        assert consume(place.broker.bootstrap, topic, len(sent)) == sent


@pytest.mark.parametrize("while_running", [True, False])
def test_a_lost_catalogue_is_made_again_from_the_store(tmp_path: Path, while_running: bool) -> None:
    """Even its topic: nothing that the store has becomes unreadable."""
    with tier_place(tmp_path) as place:
        topic = place.topic()
        sent = place.cold(topic)
        # A copy that is cut off leaves an object that is not counted.
        eventually(lambda: place.offset(topic, LATEST_TIERED) == 1999, "both segments are copied")
        if while_running:
            place.broker.delete_topic(REMOTE_LOG_METADATA_TOPIC)
            eventually(lambda: place.tiering.manager is None, "the loss is noticed")
            assert consume(place.broker.bootstrap, topic, len(sent)) == sent
            return
        place.tiering._tasks[0].cancel()  # so that it cannot notice
        place.broker.delete_topic(REMOTE_LOG_METADATA_TOPIC)
    with tier_place(tmp_path) as place:
        assert consume(place.broker.bootstrap, topic, len(sent)) == sent
        assert len(place.keys(topic, ".log")) == 2


def test_without_the_store_the_broker_serves_what_it_has(tmp_path: Path) -> None:
    with tier_place(tmp_path) as place:
        place.faults.down = True
        topic = place.topic()
        sent = place.fill(topic, 100)
        assert consume(place.broker.bootstrap, topic, len(sent)) == sent
        assert place.offset(topic, EARLIEST_LOCAL) == 0
        assert place.offset(topic, LATEST_TIERED) == -1


def test_a_topic_far_larger_than_its_local_part(tmp_path: Path) -> None:
    """2 GiB in segments of 64 MiB of which 128 MiB stay; a thirty-second of it in short runs."""
    scale = 1 if soak() else 32
    configs = {
        "remote.storage.enable": "true",
        "segment.bytes": str(64 * MIB // scale),
        "local.retention.bytes": str(128 * MIB // scale),
        "file.delete.delay.ms": "0",
    }
    size = 10_240
    count = 2048 * MIB // scale // size
    with tiered_broker(tmp_path / "store", tmp_path / "data") as broker:
        broker.create_topic(TOPIC, configs=configs)
        produce(broker.bootstrap, TOPIC, (value_at(number, size) for number in range(count)))
        local = tmp_path / "data" / f"{TOPIC}-0"
        eventually(lambda: len(list(local.glob("*.log"))) <= 4, "local segments go")
        assert len(stored(tmp_path / "store", ".log")) >= 29
        for read in (consume_each, share_each):
            offsets = 0
            for offset, value in read(broker.bootstrap, TOPIC, count):
                assert value == value_at(offset, size)
                offsets += 1
            assert offsets == count

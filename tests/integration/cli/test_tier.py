"""`ottla tier` from the outside, against a broker with a store."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from ottla.cli.whole import app
from ottla.clock import SYSTEM
from ottla.log.checkpoints import encode_id
from ottla.testing.embedded import EmbeddedBroker
from ottla.tier.catalogue.codec import encode_event
from ottla.tier.catalogue.kafka_event_log import KafkaMetadataEventLog, KafkaMetadataEventLogConfig
from ottla.tier.catalogue.placement import metadata_partition_for
from ottla.tier.catalogue.segments import event_tip
from ottla.tier.reading.answers import LATEST_TIERED
from tests.support.tiered_broker import TierPlace, consume, eventually, tier_place
from tests.support.tiering import DELETED, DELETING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result

    from ottla.tier.catalogue.segments import MetadataEvent


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TierPlace]:
    with tier_place(tmp_path_factory.mktemp("tier")) as place:
        yield place


@pytest.fixture(scope="module")
def topic(place: TierPlace) -> str:
    """Three segments, the first one remote alone, the second one remote too."""
    name = place.topic(partitions=2)
    place.cold(name)
    eventually(lambda: place.offset(name, LATEST_TIERED) == 1999, "the second one is copied")
    return name


def run(place: TierPlace, *args: str) -> Result:
    return CliRunner().invoke(app, ["tier", *args, "--bootstrap", place.broker.bootstrap])


def value(place: TierPlace, *args: str) -> Any:
    result = run(place, *args, "--json")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def test_status_says_what_is_where(place: TierPlace, topic: str) -> None:
    found = value(place, "status", topic)
    first, second = found["partitions"]
    assert (first["log_start"], first["local_start"], first["log_end"]) == (0, 1000, 3000)
    assert (first["highest_remote"], first["lag"], first["segments"]) == (1999, 1000, 2)
    assert first["remote_bytes"] == sum(
        path.stat().st_size for path in place.store.glob(f"{topic}-*/0/*.log")
    )
    assert (second["highest_remote"], second["lag"], second["segments"]) == (-1, 0, 0)
    assert found["errors"] is None
    assert topic in run(place, "status").stdout


def test_status_says_what_is_wrong(place: TierPlace) -> None:
    url = metrics_url(place)
    broken = place.topic()
    place.faults.down = True
    place.fill(broken)
    eventually(lambda: f"{broken}-0" in place.tiering.errors(), "copies fail")
    result = run(place, "status", broken, "--metrics", url)
    place.faults.heal()
    assert result.exit_code == 1
    assert f"{broken}-0: copy: the store is down" in result.stdout
    eventually(lambda: not place.tiering.errors(), "all is well again")
    assert run(place, "status", broken, "--metrics", url).exit_code == 0
    text = run(place, "status", "--metrics", url.replace("metrics", "nothing"))
    assert (text.exit_code, "does not answer" in text.stderr) == (1, True)


def metrics_url(place: TierPlace) -> str:
    node = place.broker._node
    assert node is not None
    assert node.monitoring is not None
    host, port = node.monitoring.address
    return f"http://{host}:{port}/metrics"


def test_list_names_the_segments(place: TierPlace, topic: str) -> None:
    rows = value(place, "list", topic)
    ranges = [(row["partition"], row["start_offset"], row["end_offset"]) for row in rows]
    assert ranges == [(0, 0, 999), (0, 1000, 1999)]
    assert {row["state"] for row in rows} == {"COPY_SEGMENT_FINISHED"}
    assert value(place, "list", topic, "--partition", "1") == []
    assert run(place, "list", topic, "--partition", "7").exit_code == 2


def test_verify_finds_what_is_damaged_or_gone(place: TierPlace, topic: str) -> None:
    assert [row["problem"] for row in value(place, "verify", topic, "--read-all")] == [None, None]
    first, second = sorted(place.store.glob(f"{topic}-*/0/*.log"))
    whole = first.read_bytes(), second.read_bytes()
    first.write_bytes(whole[0][:-1] + bytes([whole[0][-1] ^ 1]))
    second.unlink()
    shallow = run(place, "verify", topic)
    assert (shallow.exit_code, "2 segments, 1 with problems" in shallow.stdout) == (1, True)
    deep = run(place, "verify", topic, "--read-all")
    assert (deep.exit_code, "2 segments, 2 with problems" in deep.stdout) == (1, True)
    first.write_bytes(whole[0])
    second.write_bytes(whole[1])
    assert run(place, "verify", topic, "--read-all").exit_code == 0


def test_repair_has_nothing_to_do(place: TierPlace, topic: str) -> None:
    assert value(place, "repair", topic, "--dry-run") == []


@pytest.fixture
def broken(place: TierPlace) -> tuple[str, list[bytes]]:
    """A topic with three segments, two of them remote, to take apart; and its records."""
    name = place.topic()
    sent = place.cold(name)
    eventually(lambda: place.offset(name, LATEST_TIERED) == 1999, "both are copied")
    return name, sent


def cures(place: TierPlace, topic: str, *args: str) -> list[tuple[int, str]]:
    return [(row["start_offset"], row["cure"]) for row in value(place, "repair", topic, *args)]


def objects(place: TierPlace, topic: str, suffix: str) -> list[Path]:
    return sorted(place.store.glob(f"{topic}-*/0/*{suffix}"))


def verified(place: TierPlace, topic: str) -> list[str | None]:
    return [row["problem"] for row in value(place, "verify", topic, "--read-all")]


def test_repair_makes_indexes_again(place: TierPlace, broken: tuple[str, list[bytes]]) -> None:
    topic, sent = broken
    first, second = objects(place, topic, ".meta")
    first.unlink()
    second.write_bytes(second.read_bytes()[:-3])
    again = [(0, "make .meta again"), (1000, "make .meta again")]
    assert cures(place, topic, "--dry-run") == again
    assert run(place, "verify", topic).exit_code == 1
    assert cures(place, topic) == again
    assert cures(place, topic) == []
    assert verified(place, topic) == [None, None]
    assert consume(place.broker.bootstrap, topic, len(sent)) == sent


def test_repair_puts_back_what_the_catalogue_lost(
    place: TierPlace, broken: tuple[str, list[bytes]]
) -> None:
    topic, sent = broken
    tip = next(one.tip for one in place.tiering.partitions.values() if one.tip.topic == topic)
    segments = place.tiering.catalogue.list_remote_log_segments(tip)
    lost = min(segments, key=lambda one: one.start_offset)
    # At this time, so that the broker gives the objects their grace.
    for state in (DELETING, DELETED):
        publish(place, lost.update(state, broker_id=5, now_ms=SYSTEM.wall_ms()))
    eventually(
        lambda: len(place.tiering.catalogue.list_remote_log_segments(tip)) == 1, "it is forgotten"
    )
    # A copy that nobody finished is none to put back.
    orphan = objects(place, topic, ".log")[0]
    name = orphan.name.replace(encode_id(lost.id.id), encode_id(uuid4()))
    orphan.with_name(name).write_bytes(b"the begin")
    assert cures(place, topic) == [(0, "put back into the catalogue")]
    assert cures(place, topic) == []
    assert verified(place, topic) == [None, None]
    assert consume(place.broker.bootstrap, topic, len(sent)) == sent


def publish(place: TierPlace, event: MetadataEvent) -> None:
    """Tell all readers of the metadata topic something, as no broker would."""

    async def tell() -> None:
        log = await KafkaMetadataEventLog.open(
            KafkaMetadataEventLogConfig(
                place.broker.bootstrap, partition_count=3, replication_factor=1
            )
        )
        tip = event_tip(event)
        await log.publish(metadata_partition_for(*tip.identity, 3), encode_event(event))
        await log.close()

    asyncio.run(tell())


def test_repair_says_what_is_lost(place: TierPlace, broken: tuple[str, list[bytes]]) -> None:
    topic, sent = broken
    first, second = objects(place, topic, ".log")
    whole = first.read_bytes(), second.read_bytes()
    first.unlink()
    second.write_bytes(whole[1][:-1])
    result = run(place, "repair", topic, "--json")
    assert [row["cure"] for row in json.loads(result.stdout)] == ["lost", "lost"]
    assert (result.exit_code, "2 segments are lost" in result.stderr) == (1, True)
    first.write_bytes(whole[0])
    second.write_bytes(whole[1])
    assert cures(place, topic) == []
    assert consume(place.broker.bootstrap, topic, len(sent)) == sent


def test_plan_needs_no_broker(place: TierPlace, topic: str) -> None:
    rows = value(place, "plan", topic, "--start", "500", "--end", "1500")
    assert [(row["first_offset"], row["last_offset"]) for row in rows] == [(500, 999), (1000, 1499)]
    alone = CliRunner().invoke(
        app,
        ["tier", "plan", topic, "--store", place.store.as_uri(), "--json", "--bootstrap", "x:1"],
    )
    assert [row["last_offset"] for row in json.loads(alone.stdout)] == [999, 1999]


def test_a_cluster_without_tiered_storage() -> None:
    with EmbeddedBroker() as broker:
        result = CliRunner().invoke(app, ["tier", "status", "--bootstrap", broker.bootstrap])
    assert (result.exit_code, "remote.log.storage.system.enable" in result.stderr) == (1, True)


def test_a_broker_without_a_store_does_not_start(tmp_path: Path) -> None:
    enable = "remote.log.storage.system.enable=true"
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli", "broker", "--listen", "127.0.0.1:0", "--set", enable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "rsm.config.url" in done.stderr
    assert "Traceback" not in done.stderr

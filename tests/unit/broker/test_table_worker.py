"""Where the table worker runs, what it is told, when it is started again, and what it may do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.access.authorizer import Authorizer
from ottla.broker.hosting.table_hold import Position, TableHold, parse_pointer
from ottla.broker.running.table_worker import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    STEADY_SECONDS,
    Pauses,
    runs_here,
    settings_of,
)
from ottla.broker.running.watched import Watch
from ottla.log.checkpoints import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.retention import Hold
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.image import random_topic_id, topic_id_text
from ottla.metadata.names import POINTER_TOPIC
from ottla.metadata.security.acls import Operation, Resource
from ottla.objects.location import URL_KEY, parse_location

WORKER = "User:__table"


def test_case_71_pauses_grow_from_one_second_to_sixty() -> None:
    pauses, found, now = Pauses(), [], 100.0
    for _ in range(8):
        assert pauses.wait(now) == 0
        pauses.ended(0.1, now)
        found.append(pauses.wait(now))
        now += found[-1]
    assert found == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE, LONGEST_PAUSE]
    pauses.ended(STEADY_SECONDS, now)
    assert pauses.wait(now) == FIRST_PAUSE


def test_who_wakes_the_watch_of_a_stopped_node_writes_to_nobody() -> None:
    """Fault: an image that changed while the node stopped was told by a closed descriptor, whose
    number another file may have."""
    watch = Watch()
    watch.close()
    out, into = os.pipe()  # most likely these are the numbers of the watch's own pipe
    os.set_blocking(out, False)
    try:
        watch.wake()
        with pytest.raises(BlockingIOError):
            os.read(out, 1)
    finally:
        os.close(out)
        os.close(into)


def image(leader: int | None, *fenced: bool) -> Any:
    topics = {}
    if leader is not None:
        topics[POINTER_TOPIC] = SimpleNamespace(partitions=[SimpleNamespace(leader=leader)])
    brokers = {number: SimpleNamespace(fenced=one) for number, one in enumerate(fenced, 1)}
    return SimpleNamespace(topics_by_name=topics, brokers=brokers)


@pytest.mark.parametrize(
    ("found", "runs"),
    [
        (image(2, False, False, False), [False, True, False]),
        (image(None, False, False), [True, False]),
        (image(None, True, False), [False, True]),
        (image(-1, False, False), [False, False]),
    ],
)
def test_one_node_runs_the_worker(found: Any, runs: list[bool]) -> None:
    assert [runs_here(found, number) for number in range(1, len(runs) + 1)] == runs


@pytest.mark.parametrize(
    ("sets", "warehouse", "catalog"),
    [
        ([], "file:///data/tables", "sqlite:////data/tables.db"),
        (["rsm.config.url=s3://b/p/"], "s3://b/p/tables", "sqlite:////data/tables.db"),
        (["ottla.table.warehouse=file:///w", "ottla.table.catalog=postgresql://db/x"],
         "file:///w", "postgresql://db/x"),
    ],
)  # fmt: skip
def test_the_worker_is_told_where_its_tables_are(
    sets: list[str], warehouse: str, catalog: str
) -> None:
    told = settings_of(load_broker_config(sets=[*sets, "rsm.config.region=x"]), Path("/data"))
    assert (told["warehouse"], told["catalog"]) == (warehouse, catalog)
    assert (told["namespace"], told["nice"]) == ("ottla", 10)
    assert told["options"] == {"rsm.config.region": "x"}
    assert told["tier"] is None
    json.dumps(told)


def test_case_45_the_worker_is_told_where_tiered_segments_are() -> None:
    sets = ["remote.log.storage.system.enable=true", "rsm.config.url=s3://b/p"]
    assert settings_of(load_broker_config(sets=sets), Path("/data"))["tier"] == "s3://b/p"


def test_the_worker_is_told_absolute_places_of_a_relative_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "50% #1"
    here.mkdir()
    monkeypatch.chdir(here)
    told = settings_of(load_broker_config(), Path("data2"))
    warehouse = parse_location({URL_KEY: str(told["warehouse"])})
    assert (warehouse.kind, warehouse.bucket) == ("file", str(here / "data2" / "tables"))
    assert told["catalog"] == f"sqlite:///{here}/data2/tables.db"


TABLES = {"orders": {"ottla.table.enable": "true"}, "plain": {"ottla.table.enable": "false"}}
POINTER_RIGHTS = {
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
}  # fmt: skip
TABLE_RIGHTS = {Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}
GROUP_RIGHTS = {Operation.READ, Operation.DESCRIBE}


@pytest.mark.parametrize(
    ("resource", "name", "rights"),
    [
        (Resource.TOPIC, "orders", TABLE_RIGHTS),
        (Resource.TOPIC, "plain", set()),
        (Resource.TOPIC, "unknown", set()),
        (Resource.TOPIC, POINTER_TOPIC, POINTER_RIGHTS),
        (Resource.TOPIC, "__consumer_offsets", set()),
        (Resource.GROUP, "ottla.table.orders", GROUP_RIGHTS),
        (Resource.GROUP, "orders", set()),
        (Resource.CLUSTER, "kafka-cluster", set()),
    ],
)
def test_the_worker_may_read_tables_and_write_pointers(
    resource: Resource, name: str, rights: set[Operation]
) -> None:
    authorizer = Authorizer((), topic_configs=TABLES)
    access = authorizer.access(WORKER, "127.0.0.1", from_node=True)
    assert {one for one in Operation if access.may(one, resource, name)} == rights
    stranger = authorizer.access(WORKER, "127.0.0.1")
    assert not any(stranger.may(one, resource, name) for one in Operation)


def test_the_workers_rights_follow_the_settings_of_topics() -> None:
    authorizer = Authorizer((), topic_configs={})
    access = authorizer.access(WORKER, "127.0.0.1", from_node=True)
    assert access.may_on_any(Operation.WRITE, Resource.TOPIC)
    assert not access.may(Operation.READ, Resource.TOPIC, "orders")
    before: Any = SimpleNamespace(acls=frozenset(), topic_configs={})
    after: Any = SimpleNamespace(acls=frozenset(), topic_configs=TABLES)
    authorizer.image_changed(before, after)
    assert access.may(Operation.READ, Resource.TOPIC, "orders")


# -- what retention keeps for tables ---------------------------------------------------------------

ID = random_topic_id()


def hold_with(positions: dict[str, Position], *, looked: bool = True) -> TableHold:
    topics = {"orders": SimpleNamespace(topic_id=ID)}
    cluster: Any = SimpleNamespace(image=SimpleNamespace(topics_by_name=topics))
    workers: Any = None
    hold = TableHold(cluster, workers, {}, lambda: None)
    hold._positions = positions
    hold._has_looked = looked
    return hold


async def test_all_is_held_until_pointers_of_a_topic_made_anew_are_read() -> None:
    """Fault: tables that begin at the end were not held if that first read failed."""
    hold = hold_with({"orders": HERE})
    hold._topic_id = random_topic_id()  # of a pointers' topic that was deleted since
    topics: Any = hold._cluster.image.topics_by_name
    topics[POINTER_TOPIC] = SimpleNamespace(topic_id=random_topic_id())
    await hold.look()  # there are no workers that could read
    assert hold.of(TopicPartition("orders", 0), LATE) == Hold(0, 100)


KEPT = LogConfig(ottla_table_enable=True, ottla_table_hold_bytes=100)
LATE = LogConfig(ottla_table_enable=True, ottla_table_hold_bytes=100, ottla_table_start="latest")
HERE = Position(topic_id_text(ID), {0: 7})


@pytest.mark.parametrize(
    ("positions", "looked", "config", "partition", "expected"),
    [
        ({"orders": HERE}, True, KEPT, 0, Hold(7, 100)),
        ({"orders": HERE}, True, KEPT, 1, Hold(0, 100)),
        ({}, True, KEPT, 0, Hold(0, 100)),
        ({"orders": Position("another", {0: 7})}, True, KEPT, 0, Hold(0, 100)),
        ({}, True, LATE, 0, None),
        ({}, False, LATE, 0, Hold(0, 100)),
        ({"orders": HERE}, True, LATE, 0, Hold(7, 100)),
        ({"orders": HERE}, True, LogConfig(ottla_table_enable=False), 0, None),
        ({}, True, LogConfig(ottla_table_enable=True, ottla_table_hold_bytes=0), 0, None),
    ],
)
def test_case_66_records_from_the_position_on_are_held(
    positions: dict[str, Position],
    looked: bool,
    config: LogConfig,
    partition: int,
    expected: Hold | None,
) -> None:
    hold = hold_with(positions, looked=looked)
    assert hold.of(TopicPartition("orders", partition), config) == expected
    assert hold.of(TopicPartition("gone", partition), config) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"topic_id":"x","position":{"0":5,"1":0}}', Position("x", {0: 5, 1: 0})),
        (b"", None),
        (b"[]", None),
        (b'{"topic_id":"x"}', None),
        (b'{"topic_id":"x","position":{"a":5}}', None),
        (b'{"topic_id":"x","position":[]}', None),
        (b'"' + b"x" * (1 << 20) + b'"', None),
    ],
)
def test_what_is_no_pointer_holds_nothing(value: bytes, expected: Position | None) -> None:
    assert parse_pointer(value) == expected

"""Old offsets from the files of a table, in the source's backend without Spark around it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from ottla.spark.errors import BadOption
from ottla.spark.log.planning import Range
from ottla.spark.options import parse_source
from ottla.spark.tables.planning import FilePart, covered
from ottla.tables.errors import FileGone
from ottla.tables.format import Snapshot
from ottla.tables.names import topic_id_text
from ottla.testing.embedded import EmbeddedBroker
from tests.support.spark_source import backend, delete_below, rows, task_rows
from tests.support.table_worker import fill, new_topic, take

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.spark.log.backend import LogBackend

ID = bytes(range(16))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker, tmp_path: Path) -> str:
    """Two partitions: 200 records in the table, 30 after it."""
    name = new_topic(broker, 2)
    fill(broker, name, range(200), partitions=2)
    take(broker, tmp_path, name)
    fill(broker, name, range(200, 230), partitions=2)
    return name


def source(broker: EmbeddedBroker, topic: str, **options: str) -> LogBackend:
    return backend(
        broker,
        subscribe=topic,
        startingOffsets="earliest",
        kafka__isolation__level="read_committed",
        **options,
    )


def written(first: int, end: int) -> list[tuple[int, int, bytes]]:
    return sorted((n % 2, n // 2, b"%d" % n) for n in range(first, end))


def test_case_84_the_same_rows_with_and_without_the_table(
    broker: EmbeddedBroker, topic: str
) -> None:
    plain, archived = source(broker, topic), source(broker, topic, table="auto", tableMinRows="50")
    bounds = archived.bounds()
    assert bounds == plain.bounds()
    tasks = archived.plan(*bounds)
    parts = [one for one in tasks if isinstance(one, FilePart)]
    assert [(one.partition, one.first, one.end) for part in parts for one in part.ranges] == [
        (0, 0, 100),
        (1, 0, 100),
    ]
    assert rows(archived, *bounds) == rows(plain, *bounds) == written(0, 230)
    middle = {topic: {"0": 7, "1": 101}}, {topic: {"0": 103, "1": 110}}
    assert rows(archived, *middle) == rows(plain, *middle)
    columns = (
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    )
    every = [batch for task in tasks for batch in archived.read(task, columns)]
    of_log = [batch for task in plain.plan(*bounds) for batch in plain.read(task, columns)]

    def sorted_table(batches: list[pa.RecordBatch]) -> pa.Table:
        order = [("partition", "ascending"), ("offset", "ascending")]
        return pa.Table.from_batches(batches).sort_by(order).combine_chunks()

    assert sorted_table(every).equals(sorted_table(of_log))
    for one in (plain, archived):
        one.close()


@pytest.mark.long
def test_small_ranges_are_left_to_the_log(broker: EmbeddedBroker, topic: str) -> None:
    archived = source(broker, topic, table="auto")
    assert not [one for one in archived.plan(*archived.bounds()) if isinstance(one, FilePart)]
    archived.close()


@pytest.mark.long
def test_case_86_a_file_that_is_gone_is_read_from_the_log(
    broker: EmbeddedBroker, topic: str
) -> None:
    archived = source(broker, topic, table="auto", tableMinRows="50")
    bounds = archived.bounds()
    tasks = pickle.loads(pickle.dumps(archived.plan(*bounds)))
    for task in tasks:
        if isinstance(task, FilePart):
            for file in task.files:
                Path(urlsplit(file.url).path).unlink(missing_ok=True)
    found = sorted(row for task in tasks for row in task_rows(archived, task))
    assert found == written(0, 230)
    delete_below(broker, topic, 1, 50)
    with pytest.raises(FileGone, match="the log cannot replace it"):
        sum(len(task_rows(archived, task)) for task in tasks)
    archived.close()


@pytest.mark.long
def test_case_85_files_replaced_between_plan_and_replay_give_the_same_rows(
    broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    archived = source(broker, topic, table="auto", tableMinRows="50")
    bounds = archived.bounds()
    before = rows(archived, *bounds)
    take(broker, tmp_path, topic)
    again = source(broker, topic, table="auto", tableMinRows="50")
    parts = [one for one in again.plan(*bounds) if isinstance(one, FilePart)]
    assert sum(one.size for part in parts for one in part.ranges) == 230
    assert rows(again, *bounds) == before == written(0, 230)
    for one in (archived, again):
        one.close()


def snapshot(**properties: str) -> Snapshot:
    given = {"ottla.topic-id": topic_id_text(ID), "ottla.first": '{"0":10}', "ottla.holes": "[]"}
    columns = pa.schema([("value", pa.binary())])
    more = {name.replace("_", "."): value for name, value in properties.items()}
    return Snapshot("m", 1, (), columns, {**given, **more}, {0: 100})


def test_what_a_table_does_not_have_is_left_to_the_log() -> None:
    one = Range("orders", ID, 0, 0, 150)
    found = covered([one], {"orders": snapshot()}, 50)
    assert found.archived == [one._replace(first=10, end=100)]
    assert found.rest == [one._replace(end=10), one._replace(first=100)]
    assert covered([one], {}, 50).rest == [one]
    assert covered([one], {"orders": snapshot()}, 91).rest == [one]
    assert covered([one._replace(topic_id=bytes(16))], {"orders": snapshot()}, 50).archived == []
    assert covered([one._replace(partition=1)], {"orders": snapshot()}, 50).archived == []
    shortened = covered([one], {"orders": snapshot(ottla_dropped='{"0":40}')}, 50)
    assert shortened.archived == [one._replace(first=40, end=100)]
    assert one._replace(end=40) in shortened.rest
    holed = snapshot(ottla_holes='[[0,20,21,"deleted"]]')
    assert covered([one], {"orders": holed}, 50).archived == []
    after_it = one._replace(first=21)
    assert covered([after_it], {"orders": holed}, 50).archived == [after_it._replace(end=100)]


@pytest.mark.parametrize(
    ("conversion", "is_read"),
    [
        ('{"value.format":"json","value.schema":"value binary"}', False),
        ('{"value.format":"registry"}', False),
        ('{"value.format":"registry","keep.value":"true"}', True),
        ('{"headers":"false"}', False),
        ('{"key.format":"utf8"}', True),
        ('{"key.format":"registry"}', False),
    ],
)
def test_a_table_that_does_not_keep_bytes_and_headers_is_left_alone(
    conversion: str, is_read: bool
) -> None:
    one = Range("orders", ID, 0, 10, 100)
    found = covered([one], {"orders": snapshot(ottla_conversion=conversion)}, 50)
    assert found.archived == ([one] if is_read else [])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "always"}, "table is off or auto"),
        ({"table": "auto"}, "needs kafka.isolation.level=read_committed"),
        ({"tableMinRows": "few"}, "tableMinRows is a whole number"),
        (
            {"table": "auto", "kafka.isolation.level": "read_committed", "pushdown": "true"},
            "together with pushdown",
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], said: str) -> None:
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", **options}
    with pytest.raises(BadOption, match=said):
        parse_source(given, "stream")

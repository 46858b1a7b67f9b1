"""Old offsets from the files of a table, in the source's backend without Spark around it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.client.cluster.view import TopicPartition
from ottla.client.producer.types import ProducerRecord
from ottla.spark.errors import BadOption, InvalidValue
from ottla.spark.log.planning import Range
from ottla.spark.options import parse_source
from ottla.spark.readers import read_task
from ottla.spark.tables.frames import pinned_topic
from ottla.spark.tables.planning import FilePart, covered, has_values
from ottla.spark.tables.reading import read_rows
from ottla.spark.typed_options import table_option
from ottla.tables.errors import FileGone
from ottla.tables.format import DataFile, Snapshot
from ottla.tables.names import topic_id_text
from ottla.tables.reading import Pinned
from ottla.tables.views import TableView
from ottla.testing.embedded import EmbeddedBroker
from tests.support.spark_source import backend, delete_below, rows, task_rows
from tests.support.table_worker import NOON, fill, new_topic, send, take

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    found = covered([one], {"orders": snapshot()}, 50, {})
    assert found.archived == [one._replace(first=10, end=100)]
    assert found.rest == [one._replace(end=10), one._replace(first=100)]
    assert covered([one], {}, 50, {}).rest == [one]
    assert covered([one], {"orders": snapshot()}, 91, {}).rest == [one]
    assert (
        covered([one._replace(topic_id=bytes(16))], {"orders": snapshot()}, 50, {}).archived == []
    )
    assert covered([one._replace(partition=1)], {"orders": snapshot()}, 50, {}).archived == []
    shortened = covered([one], {"orders": snapshot(ottla_dropped='{"0":40}')}, 50, {})
    assert shortened.archived == [one._replace(first=40, end=100)]
    assert one._replace(end=40) in shortened.rest
    holed = snapshot(ottla_holes='[[0,20,21,"deleted"]]')
    assert covered([one], {"orders": holed}, 50, {}).archived == []
    after_it = one._replace(first=21)
    assert covered([after_it], {"orders": holed}, 50, {}).archived == [after_it._replace(end=100)]


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
    assert has_values("orders", snapshot(ottla_conversion=conversion)) == is_read


def test_offsets_that_the_log_no_longer_has_come_from_the_table() -> None:
    one = Range("orders", ID, 0, 0, 150)
    place = TopicPartition("orders", 0)
    found = covered([one], {"orders": snapshot()}, 1000, {place: 40})
    assert found.archived == [one._replace(first=10, end=40)]
    assert found.rest == [one._replace(end=10), one._replace(first=40)]
    # Both have the rest, and it is large enough: one range.
    found = covered([one], {"orders": snapshot()}, 50, {place: 40})
    assert found.archived == [one._replace(first=10, end=100)]
    # What the table has dropped is in the log; what was dropped before that is nowhere.
    dropped = snapshot(ottla_dropped='{"0":60}')
    found = covered([one], {"orders": dropped}, 10, {place: 40})
    assert found.archived == [one._replace(first=10, end=40), one._replace(first=60, end=100)]
    assert one._replace(first=40, end=60) in found.rest
    # A hole is left to the log, which tells that it is lost.
    holed = snapshot(ottla_holes='[[0,20,25,"deleted"]]')
    found = covered([one], {"orders": holed}, 10, {place: 40})
    assert found.archived == [one._replace(first=10, end=20), one._replace(first=25, end=100)]
    assert one._replace(first=20, end=25) in found.rest
    assert covered([one], {"orders": holed}, 10, {place: 150}).archived == [
        one._replace(first=10, end=20),
        one._replace(first=25, end=100),
    ]


DDL = "shop string, amount bigint"


def orders(numbers: range) -> list[ProducerRecord]:
    """Every seventh is no order."""
    return [
        ProducerRecord(
            b"poison" if n % 7 == 6 else b'{"shop": "s%d", "amount": %d}' % (n % 3, n),
            timestamp_ms=NOON + n * 1000,
        )
        for n in numbers
    ]


def typed_stream(broker: EmbeddedBroker, topic: str, **options: str) -> LogBackend:
    """The backend of `tables.stream`."""
    pinned = pinned_topic({"kafka.bootstrap.servers": broker.bootstrap}, topic)
    return source(broker, topic, valueFormat="table", valueTable=table_option(pinned), **options)


def typed_rows(backend: LogBackend, tasks: Sequence[object]) -> list[tuple[int, int, str]]:
    """What tasks read in Spark's workers."""
    columns = ("_offset", "amount", "shop")
    return sorted(
        row
        for task in pickle.loads(pickle.dumps(tasks))
        for batch in read_task(backend._options, task, columns)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )


def expected(first: int, end: int) -> list[tuple[int, int, str]]:
    return [(n, n, f"s{n % 3}") for n in range(first, end) if n % 7 != 6]


@pytest.mark.long
def test_case_84_a_typed_stream_begins_where_the_table_does(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    name = new_topic(broker, value_format="json", value_schema=DDL)
    send(broker, name, orders(range(100)))
    take(broker, tmp_path, name)
    send(broker, name, orders(range(100, 120)))
    plain = typed_stream(broker, name)
    archived = typed_stream(broker, name, table="auto", tableMinRows="30")
    bounds = archived.bounds()
    assert bounds == plain.bounds() == ({name: {"0": 0}}, {name: {"0": 120}})
    tasks = archived.plan(*bounds)
    assert sum(isinstance(one, FilePart) for one in tasks) == 1
    assert typed_rows(archived, tasks) == expected(0, 120)
    assert typed_rows(plain, plain.plan(*bounds)) == expected(0, 120)
    # The log loses what the table has: the stream still begins at the table's first offset.
    delete_below(broker, name, 0, 90)
    again = typed_stream(broker, name, table="auto")
    assert again.bounds() == bounds
    assert typed_rows(again, again.plan(*bounds)) == expected(0, 120)
    # Without the table it begins where the log does.
    late = typed_stream(broker, name)
    assert late.bounds().first == {name: {"0": 90}}
    for one in (plain, archived, again, late):
        one.close()


@pytest.mark.long
def test_case_86_a_typed_file_that_is_gone_is_read_from_the_log(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    name = new_topic(broker, value_format="json", value_schema=DDL)
    send(broker, name, orders(range(50)))
    take(broker, tmp_path, name)
    archived = typed_stream(broker, name, table="auto", tableMinRows="10")
    tasks = archived.plan(*archived.bounds())
    for task in tasks:
        assert isinstance(task, FilePart)
        for file in task.files:
            Path(urlsplit(file.url).path).unlink()
    assert typed_rows(archived, tasks) == expected(0, 50)
    delete_below(broker, name, 0, 5)
    with pytest.raises(FileGone, match="the log cannot replace it"):
        typed_rows(archived, tasks)
    archived.close()


@pytest.mark.long
def test_case_79_generations_of_columns_are_read_by_python_workers(tmp_path: Path) -> None:
    meta = {"_partition": pa.array([0, 0], pa.int32())}
    generations = [
        {"a": pa.array([1, 2], pa.int32()), "b": pa.array(["x", "y"])},
        {"b": pa.array(["z", None]), "a": pa.array([2**40, 3], pa.int64())},
        {"c": pa.array([0.5, 1.5]), "a": pa.array([4, 5], pa.int64()), "b": pa.array(["v", "w"])},
    ]
    files = []
    for at, columns in enumerate(generations):
        path = tmp_path / f"{at}.parquet"
        offsets = {"_offset": pa.array([2 * at, 2 * at + 1], pa.int64())}
        pq.write_table(pa.table({**columns, **meta, **offsets}), path)
        files.append(DataFile(f"file://{path}", 2, path.stat().st_size, None, (0, 0), None))
    names = {"a": pa.int64(), "b": pa.string(), "c": pa.float64()}
    columns = pa.schema([*names.items(), ("_partition", pa.int32()), ("_offset", pa.int64())])
    view = TableView("orders", 1, {0: 6}, {0: 6}, files, ())
    given = {
        "kafka.bootstrap.servers": "x:1",
        "kafka.isolation.level": "read_committed",
        "subscribe": "orders",
        "valueFormat": "table",
        "valueTable": table_option(Pinned(view, columns)),
        "table": "auto",
    }
    options = parse_source(given, "stream")
    part = FilePart((Range("orders", None, 0, 1, 6),), tuple(files), columns)
    batches = list(read_rows(part, options, ("_offset", "c", "a", "b")))
    found = pa.Table.from_batches(batches).sort_by("_offset").to_pydict()
    assert found == {
        "_offset": [1, 2, 3, 4, 5],
        "c": [None, None, None, 0.5, 1.5],
        "a": [2, 2**40, 3, 4, 5],
        "b": ["y", "z", None, "v", "w"],
    }
    # A query that started when `a` was narrower is told to start again.
    narrow = pa.schema([("a", pa.int32()), ("_partition", pa.int32()), ("_offset", pa.int64())])
    given["valueTable"] = table_option(Pinned(view, narrow))
    with pytest.raises(InvalidValue, match="column a of the table has become wider"):
        list(read_rows(part, parse_source(given, "stream"), ("a",)))


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

"""Topics as tables inside Spark: files by Spark's own reader, united with the log's tail."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException

import ottla
import ottla.spark
from ottla.client.admin.admin import Admin
from ottla.client.producer.types import ProducerRecord
from ottla.schemas.registry_client import SchemaRegistry
from ottla.spark import tables
from ottla.spark.errors import BadOption
from ottla.spark.tables.frames import rows_of
from ottla.tables.errors import TableHasHoles
from ottla.tables.format import DataFile
from ottla.tables.reading import Pinned
from ottla.tables.views import TableView
from ottla.testing.embedded import EmbeddedBroker
from tests.support.s3 import moto_server, rsm_config
from tests.support.sizes import SOAK
from tests.support.spark import run
from tests.support.spark_source import delete_below
from tests.support.table_worker import DAY_MS, NOON, fill, new_topic, send, take

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

Row = tuple[int, int, bytes]

OPENINGS = 100 if SOAK else 3


def opened(spark: SparkSession, broker: EmbeddedBroker, topic: str, **arguments: Any) -> DataFrame:
    return ottla.spark.table(spark, topic, bootstrap=broker.bootstrap, **arguments)


def rows(frame: DataFrame) -> list[Row]:
    found = frame.select("_partition", "_offset", "value").collect()
    return sorted((one[0], one[1], bytes(one[2])) for one in found)


def written(first: int, end: int, partitions: int = 1) -> list[Row]:
    return sorted((n % partitions, n // partitions, b"%d" % n) for n in range(first, end))


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.fixture
def topic(broker: EmbeddedBroker, tmp_path: Path) -> str:
    """Two partitions: 40 records in the table, 10 after it."""
    name = new_topic(broker, 2)
    fill(broker, name, range(40), partitions=2)
    take(broker, tmp_path, name)
    fill(broker, name, range(40, 50), partitions=2)
    return name


def test_case_74_every_offset_once_while_a_producer_writes_and_a_worker_commits(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    name = new_topic(broker, 2)
    fill(broker, name, range(20), partitions=2)
    take(broker, tmp_path, name)
    done = threading.Event()
    rounds = threading.Semaphore(0)
    acknowledged = [20]
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not done.is_set():
                at = acknowledged[0]
                fill(broker, name, range(at, at + 30), partitions=2)
                acknowledged[0] = at + 30
                take(broker, tmp_path, name)
                rounds.release()
        except BaseException as error:  # noqa: BLE001  # raised below
            failures.append(error)
            rounds.release(OPENINGS)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(OPENINGS):
            rounds.acquire()  # each opening meets a table that has moved on
            before = acknowledged[0]
            frame = opened(spark, broker, name)
            found = rows(frame)
            ends = {one: 1 + max(offset for at, offset, _ in found if at == one) for one in (0, 1)}
            assert len(found) == len({row[:2] for row in found}) == sum(ends.values())
            assert sum(ends.values()) >= before  # the newest records are there, too
            assert found == sorted(
                (one, offset, b"%d" % (2 * offset + one))
                for one, end in ends.items()
                for offset in range(end)
            )
            assert rows(frame) == found  # case 76
    finally:
        done.set()
        worker.join()
    assert not failures


def test_case_75_the_archive_is_read_by_sparks_own_vectorised_reader(
    spark: SparkSession, broker: EmbeddedBroker, topic: str
) -> None:
    frame = opened(spark, broker, topic, tail=False)
    chosen = frame.where("_offset >= 15 and _day >= date'2025-11-14'")
    plan = plan_of(chosen.select("value"))
    assert "FileScan parquet" in plan
    assert "Batched: true" in plan
    assert "GreaterThanOrEqual(_offset,15)" in plan
    assert "PartitionFilters: [" in plan
    assert "_day" in plan.partition("PartitionFilters: [")[2].partition("]")[0]
    assert chosen.count() == 10


def test_case_76_an_action_repeated_on_a_frame_gives_the_same_rows(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    frame = opened(spark, broker, topic)
    assert rows(frame) == written(0, 50, 2)
    fill(broker, topic, range(50, 90), partitions=2)
    take(broker, tmp_path, topic)
    assert rows(frame) == written(0, 50, 2)
    assert rows(opened(spark, broker, topic)) == written(0, 90, 2)


def test_case_77_without_a_pointer_the_log_is_read(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    name = new_topic(broker)
    fill(broker, name, range(5))
    frame = opened(spark, broker, name)
    assert "FileScan" not in plan_of(frame)
    assert rows(frame) == written(0, 5)


def test_case_78_at_offsets_and_at_a_time(
    spark: SparkSession, broker: EmbeddedBroker, topic: str
) -> None:
    assert rows(opened(spark, broker, topic, at={"0": 22, "1": 7})) == sorted(
        row for row in written(0, 50, 2) if row[1] < (22, 7)[row[0]]
    )
    for n in (0, 13, 44):
        time = datetime.fromtimestamp(NOON / 1000 + n, UTC)
        assert rows(opened(spark, broker, topic, at=time)) == written(0, n, 2)
    with pytest.raises(BadOption, match="offset 26 of partition 0 is not between 0 and its end"):
        opened(spark, broker, topic, at={"0": 26})


def test_case_79_columns_added_reordered_and_widened_over_three_generations(
    spark: SparkSession, tmp_path: Path
) -> None:
    meta = {"_partition": pa.array([0, 0], pa.int32())}
    generations = [
        {"a": pa.array([1, 2], pa.int32()), "b": pa.array(["x", "y"])},
        {"b": pa.array(["z", None]), "a": pa.array([2**40, 3], pa.int64())},
        {"c": pa.array([0.5, 1.5]), "a": pa.array([4, 5], pa.int64()), "b": pa.array(["v", "w"])},
    ]
    files = []
    for at, columns in enumerate(generations):
        path = tmp_path / "_day=2026-11-14" / f"{at}.parquet"
        path.parent.mkdir(exist_ok=True)
        offsets = {"_offset": pa.array([2 * at, 2 * at + 1], pa.int64())}
        pq.write_table(pa.table({**columns, **meta, **offsets}), path)
        files.append(DataFile(f"file://{path}", 2, path.stat().st_size, None, (0, 0), None))
    columns = pa.schema(
        [
            *(("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())),
            *(("_partition", pa.int32()), ("_offset", pa.int64())),
        ]
    )
    view = TableView("orders", 1, {0: 6}, {0: 6}, files, ())
    frame = rows_of(spark, Pinned(view, columns), {}, fail_on_data_loss=True)
    found = frame.orderBy("_offset").select("a", "b", "c", "_day").collect()
    day = date(2026, 11, 14)
    assert [tuple(one) for one in found] == [
        (1, "x", None, day),
        (2, "y", None, day),
        (2**40, "z", None, day),
        (3, None, None, day),
        (4, "v", 0.5, day),
        (5, "w", 1.5, day),
    ]
    assert "Batched: true" in plan_of(frame.select("a"))


def test_case_80_a_hole_is_an_error(
    spark: SparkSession, broker: EmbeddedBroker, topic: str
) -> None:
    async def delete() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_records({(topic, 1): 23})

    asyncio.run(delete())
    with pytest.raises(TableHasHoles, match=rf"{topic}-1 offsets 20\.\.22"):
        opened(spark, broker, topic)
    assert opened(spark, broker, topic, fail_on_data_loss=False).count() == 47


def test_case_81_an_empty_tail_is_not_in_the_plan(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    name = new_topic(broker)
    fill(broker, name, range(5))
    take(broker, tmp_path, name)
    frame = opened(spark, broker, name)
    assert "Union" not in plan_of(frame)
    assert "BatchScan" not in plan_of(frame)
    assert rows(frame) == written(0, 5)


def test_case_81_an_empty_archive_is_not_in_the_plan(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    name = new_topic(broker)
    take(broker, tmp_path, name)
    assert opened(spark, broker, name).count() == 0
    fill(broker, name, range(5))
    frame = opened(spark, broker, name)
    assert "FileScan" not in plan_of(frame)
    assert rows(frame) == written(0, 5)


def test_case_82_files_in_s3_without_a_jar_are_read_by_python_workers(
    spark: SparkSession,
    broker: EmbeddedBroker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = new_topic(broker, 2)
    fill(broker, name, range(40), partitions=2)
    with moto_server() as endpoint:
        store = rsm_config(endpoint, "lake")
        take(broker, tmp_path, name, store=store)
        fill(broker, name, range(40, 50), partitions=2)
        options = {
            key.replace("rsm.config.", "tier."): value
            for key, value in store.items()
            if key != "rsm.config.url"
        }
        frame = opened(spark, broker, name, options=options)
        assert [one.name for one in caplog.records].count("ottla.spark") == 1
        assert "hadoop-aws" in caplog.text
        assert rows(frame) == written(0, 50, 2)
        assert frame.where("_day = date'2025-11-14'").count() == 50
        at = opened(spark, broker, name, options=options, at={"0": 3, "1": 2}, columns=["value"])
        assert sorted(int(one.value) for one in at.collect()) == [0, 1, 2, 3, 4]
        # The same files without Spark.
        settings = {key.removeprefix("tier."): value for key, value in options.items()}
        table = ottla.table(name, bootstrap=broker.bootstrap, store=settings)
        assert table.to_arrow(columns=["_offset"]).num_rows == 50


def test_both_sides_have_the_same_columns_and_days(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    name = new_topic(broker)
    midnight = NOON + DAY_MS // 2
    times = [midnight - 1, midnight, 0, NOON]
    records = [
        ProducerRecord(b"v", b"k", (("h", b"1"), ("h", None)), timestamp_ms=time) for time in times
    ]
    send(broker, name, records)
    take(broker, tmp_path, name)
    archive = opened(spark, broker, name, tail=False)
    send(broker, name, [*records, ProducerRecord(None, b"k", timestamp_ms=NOON)])
    both = opened(spark, broker, name)
    assert both.schema == archive.schema
    shown = [name for name in both.columns if name not in ("_offset", "_timestamp_type")]
    found = [str(one) for one in both.orderBy("_offset").select(*shown).collect()]
    assert found[:4] == found[4:8]
    last = both.where("_tombstone").select("value", "_key", "_day").collect()
    assert [tuple(one) for one in last] == [(None, bytearray(b"k"), date(2025, 11, 14))]


def test_since_until_where_and_columns(
    spark: SparkSession, broker: EmbeddedBroker, topic: str
) -> None:
    some = opened(
        spark, broker, topic, since="2025-11-14T12:00:10Z", until="2025-11-14T12:00:45Z",
        where="_partition = 1", columns=["value"],
    )  # fmt: skip
    assert some.columns == ["value"]
    assert sorted(int(one.value) for one in some.collect()) == list(range(11, 45, 2))
    with pytest.raises(BadOption, match="columns: price are not of value, _partition"):
        opened(spark, broker, topic, columns=["price"])
    with pytest.raises(AnalysisException, match="price"):
        opened(spark, broker, topic, where="price > 3")


def test_case_88_the_latest_row_of_each_key(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    name = new_topic(broker, 2)
    changes = [(n % 7, None if n % 5 == 0 else b"%d" % n) for n in range(60)]
    records = [
        ProducerRecord(value, b"%d" % key, partition=key % 2, timestamp_ms=NOON)
        for key, value in changes
    ]
    send(broker, name, records[:40])
    take(broker, tmp_path, name)
    send(broker, name, records[40:])
    folded: dict[bytes, bytes | None] = {b"%d" % key: value for key, value in changes}
    found = opened(spark, broker, name, mode="latest").select("_key", "value").collect()
    assert len(found) == len({bytes(one[0]) for one in found})
    assert {bytes(one[0]): bytes(one[1]) for one in found} == {
        key: value for key, value in folded.items() if value is not None
    }


def test_views_are_for_sql(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    tables.views(spark, [topic], bootstrap=broker.bootstrap)
    [found] = spark.sql(f"select count(*) as n, max(_offset) as m from {topic}").collect()
    assert tuple(found) == (50, 24)


def test_a_typed_table_and_its_tail_have_the_same_columns(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    name = new_topic(
        broker, value_format="json", value_schema="shop string, amount bigint", keep_value="true"
    )
    values = [b'{"shop": "a", "amount": 1}', b"poison", None, b'{"amount": 4}']
    records = [ProducerRecord(one, timestamp_ms=NOON) for one in values]
    send(broker, name, records)
    take(broker, tmp_path, name)
    send(broker, name, records)
    frame = opened(spark, broker, name)
    assert frame.columns[:4] == ["shop", "amount", "value", "_partition"]
    found = frame.orderBy("_offset").select("_offset", "shop", "amount", "_tombstone").collect()
    assert [tuple(one) for one in found] == [
        (0, "a", 1, False),
        (2, None, None, True),
        (3, None, 4, False),
        (4, "a", 1, False),
        (6, None, None, True),
        (7, None, 4, False),
    ]
    kept = frame.orderBy("_offset").select("value").collect()
    assert [one.value and bytes(one.value) for one in kept] == [values[0], *values[2:]] * 2


# -- typed columns of format("ottla") --------------------------------------------------------------

DDL = "shop string, amount bigint, at timestamp"
VALUES = [
    b'{"shop": "a", "amount": 1, "at": "2026-11-14T08:00:00Z", "more": [1]}',
    b'{"amount": 2}',
    None,
    b'{"shop": "c", "amount": "much"}',
    b"no JSON",
    b'{"shop": "d", "amount": 4}',
]


def typed(spark: SparkSession, broker: EmbeddedBroker, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
    reader = spark.read.format("ottla").option("valueFormat", "json").option("valueSchema", DDL)
    return reader.options(**given).load()


@pytest.fixture
def values(broker: EmbeddedBroker) -> str:
    name = new_topic(broker)
    send(broker, name, [ProducerRecord(one, b"k", timestamp_ms=NOON) for one in VALUES])
    return name


def test_case_87_columns_of_json_values(
    spark: SparkSession, broker: EmbeddedBroker, values: str
) -> None:
    frame = typed(spark, broker, values, invalid="drop")
    assert frame.columns == [
        *("shop", "amount", "at", "_partition", "_offset", "_timestamp", "_timestamp_type"),
        *("_key", "_headers", "_schema_id", "_tombstone"),
    ]
    found = frame.orderBy("_offset").select("shop", "amount", "_offset", "_tombstone").collect()
    assert [tuple(one) for one in found] == [
        ("a", 1, 0, False),
        (None, 2, 1, False),
        (None, None, 2, True),
        ("d", 4, 5, False),
    ]
    [first] = frame.where("_offset = 0").select("at").collect()
    assert first.at.replace(tzinfo=UTC) == datetime(2026, 11, 14, 8, tzinfo=UTC)


def test_case_87_pruned_columns_do_not_change_which_rows_there_are(
    spark: SparkSession, broker: EmbeddedBroker, values: str
) -> None:
    pruned = typed(spark, broker, values, invalid="drop", columns="_offset,shop")
    assert pruned.columns == ["_offset", "shop"]
    assert sorted(one._offset for one in pruned.collect()) == [0, 1, 2, 5]


def test_case_87_invalid_values_as_null(
    spark: SparkSession, broker: EmbeddedBroker, values: str
) -> None:
    frame = typed(spark, broker, values, invalid="null")
    found = frame.where("_error is not null").orderBy("_offset")
    assert [
        tuple(one) for one in found.select("_offset", "shop", "amount", "_error").collect()
    ] == [
        (3, None, None, "malformed"),
        (4, None, None, "malformed"),
    ]
    assert frame.count() == 6


def test_case_87_invalid_values_fail_the_query(
    spark: SparkSession, broker: EmbeddedBroker, values: str
) -> None:
    with pytest.raises(PySparkException, match=rf"{values}-0 at offset 3 does not fit"):
        typed(spark, broker, values).collect()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"valueSchema": "shop string, amount"}, "valueSchema"),
        ({"valueFormat": "xml"}, "valueFormat is json or avro"),
        ({"invalid": "maybe"}, "invalid is fail, null, drop"),
        ({"columns": "price"}, "columns: price are not of shop"),
    ],
)
def test_case_87_wrong_options_are_told_before_a_task_starts(
    spark: SparkSession, broker: EmbeddedBroker, options: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException, match=said):
        typed(spark, broker, "no-matter", **options)


def test_case_87_a_schema_of_other_columns_is_refused_before_a_task_starts(
    spark: SparkSession, broker: EmbeddedBroker, values: str
) -> None:
    reader = spark.read.format("ottla").options(valueFormat="json", valueSchema=DDL)
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": values}
    with pytest.raises(AnalysisException, match="column amount string cannot be read"):
        reader.schema("amount string").options(**given).load().collect()
    pruned = reader.schema("amount bigint").options(**given, invalid="drop").load()
    assert sorted(one.amount or 0 for one in pruned.collect()) == [0, 1, 2, 4]


# -- schemas of a registry ------------------------------------------------------------------------


ONE = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "long"}]}
TWO = {
    **ONE,
    "fields": [*ONE["fields"], {"name": "shop", "type": "string", "default": "none"}],
}


@pytest.fixture(scope="module")
def with_registry() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(registry=True) as running:
        yield running


def registered(broker: EmbeddedBroker, topic: str, *schemas: dict[str, Any]) -> list[int]:
    async def run() -> list[int]:
        async with SchemaRegistry(broker.registry_url) as registry:
            return [
                (await registry.register(f"{topic}-value", json.dumps(one))).id for one in schemas
            ]

    return asyncio.run(run())


def of_schema(number: int, data: bytes) -> ProducerRecord:
    return ProducerRecord(b"\0" + number.to_bytes(4, "big") + data, timestamp_ms=NOON)


@pytest.mark.parametrize(("kind", "missing"), [("registry", None), ("registry-latest", "none")])
def test_case_87_values_of_a_registry(
    spark: SparkSession, with_registry: EmbeddedBroker, kind: str, missing: str | None
) -> None:
    broker = with_registry
    name = new_topic(broker)
    one, two = registered(broker, name, ONE, TWO)
    junk = ProducerRecord(b"junk", timestamp_ms=NOON)
    send(broker, name, [of_schema(one, b"\x02"), junk, of_schema(two, b"\x04\x02a")])
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": name}
    reader = spark.read.format("ottla").options(valueFormat=kind, invalid="drop", **given)
    chosen = reader.load().select("amount", "shop", "_schema_id", "_offset")
    assert sorted(tuple(row) for row in chosen.collect()) == [
        (1, missing, one, 0), (2, "a", two, 2),
    ]  # fmt: skip


def test_a_table_of_a_registry_and_its_tail(
    spark: SparkSession, with_registry: EmbeddedBroker, tmp_path: Path
) -> None:
    broker = with_registry
    name = new_topic(broker, value_format="registry")
    one, two = registered(broker, name, ONE, TWO)
    send(broker, name, [of_schema(one, b"\x02"), of_schema(two, b"\x04\x02a")])
    take(broker, tmp_path, name)
    junk = ProducerRecord(b"junk", timestamp_ms=NOON)
    send(broker, name, [of_schema(two, b"\x06\x02b"), junk, of_schema(one, b"\x08")])
    frame = opened(spark, broker, name).select("_offset", "amount", "shop", "_schema_id")
    assert sorted(tuple(row) for row in frame.collect()) == [
        (0, 1, None, one), (1, 2, "a", two), (2, 3, "b", two), (4, 4, None, one),
    ]  # fmt: skip


# -- streams that begin in the table ---------------------------------------------------------------


def test_case_84_a_stream_reads_files_then_the_log_with_the_same_checkpoint(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    def stream(name: str, **options: str) -> list[Row]:
        given = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "kafka.isolation.level": "read_committed",
            "subscribe": topic,
            "startingOffsets": "earliest",
            **options,
        }
        frame = spark.readStream.format("ottla").options(**given).load()
        query = run(
            frame, tmp_path / name, sink="parquet",
            options={"path": str(tmp_path / f"{name}.rows")}, availableNow=True,
        )  # fmt: skip
        assert query.exception() is None
        found = spark.read.parquet(str(tmp_path / f"{name}.rows"))
        chosen = found.select("partition", "offset", "value").collect()
        return sorted((one[0], one[1], bytes(one[2])) for one in chosen)

    table = {"table": "auto", "tableMinRows": "5"}
    assert stream("plain") == stream("files", **table) == written(0, 50, 2)
    fill(broker, topic, range(50, 80), partitions=2)
    take(broker, tmp_path, topic)
    # Switched: on where it was off, off where it was on.
    assert stream("plain", **table) == stream("files") == written(0, 80, 2)

    def offsets(name: str, batch: int) -> str:
        # The second line has the time and the settings of the session.
        return (tmp_path / name / "offsets" / str(batch)).read_text().splitlines()[2]

    for batch in (0, 1):
        assert offsets("plain", batch) == offsets("files", batch)


def test_a_typed_stream_begins_in_the_table_and_goes_on_in_the_log(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    name = new_topic(broker, value_format="json", value_schema="amount bigint")

    def more(numbers: range) -> None:
        values = [b'{"amount": %d}' % n for n in numbers]
        send(broker, name, [ProducerRecord(one, timestamp_ms=NOON) for one in values])

    def streamed() -> list[tuple[int, int]]:
        frame = tables.stream(spark, name, bootstrap=broker.bootstrap, where="amount % 2 = 0")
        assert frame.isStreaming
        assert frame.columns[:2] == ["amount", "_partition"]
        assert frame.columns[-1] == "_day"
        place = str(tmp_path / "rows")
        options = {"path": place}
        query = run(frame, tmp_path / "c", sink="parquet", options=options, availableNow=True)
        assert query.exception() is None
        found = spark.read.parquet(place).where("_day = date'2025-11-14'")
        return sorted(tuple(row) for row in found.select("_offset", "amount").collect())

    more(range(20))
    take(broker, tmp_path, name)
    more(range(20, 30))
    delete_below(broker, name, 0, 15)
    assert streamed() == [(n, n) for n in range(0, 30, 2)]
    more(range(30, 34))
    take(broker, tmp_path, name)
    assert streamed() == [(n, n) for n in range(0, 34, 2)]
    with pytest.raises(BadOption, match="partition 3 does not exist"):
        tables.stream(spark, name, bootstrap=broker.bootstrap, starting={"3": 1})

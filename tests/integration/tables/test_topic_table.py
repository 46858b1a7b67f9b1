"""`ottla.table` over a real broker and tables that a real worker wrote."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

import ottla
from ottla.cli.whole import app
from ottla.client.admin.admin import Admin
from ottla.client.errors import BadArgument
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.tables.errors import (
    FileGone,
    NoSuchTopic,
    NoTable,
    TableHasHoles,
    TailTooLarge,
    TopicReplaced,
    WrongPointer,
)
from ottla.tables.pointer import read_pointers
from ottla.tables.topic_table import open_table
from ottla.testing.embedded import EmbeddedBroker
from tests.support.table_worker import DAY_MS, NOON, fill, new_topic, send, take

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.tables.topic_table import TopicTable

Row = tuple[int, int, bytes | None]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def opened(broker: EmbeddedBroker, topic: str, **arguments: Any) -> TopicTable:
    return ottla.table(topic, bootstrap=broker.bootstrap, **arguments)


def rows(found: pa.Table) -> list[Row]:
    columns = [found.column(name).to_pylist() for name in ("_partition", "_offset", "value")]
    return sorted(zip(*columns, strict=True))


def written(first: int, end: int, partitions: int = 1) -> list[Row]:
    return sorted((n % partitions, n // partitions, b"%d" % n) for n in range(first, end))


def test_case_94_arrow_polars_and_duckdb_agree(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_topic(broker, 2)
    fill(broker, topic, range(100), partitions=2)
    take(broker, tmp_path, topic)
    fill(broker, topic, range(100, 130), partitions=2)
    table = opened(broker, topic)
    assert (table.cut, table.end) == ({0: 50, 1: 50}, {0: 65, 1: 65})
    assert rows(table.to_arrow()) == written(0, 130, 2)
    assert table.to_arrow().schema.names == table.schema.names

    lazy = table.to_polars()
    frame = lazy.select("_partition", "_offset", "value").sort("_partition", "_offset").collect()
    assert frame.rows() == written(0, 130, 2)
    assert lazy.filter(pl.col("_offset") >= 60).collect().height == 10

    connection = duckdb.connect()
    assert table.to_duckdb(connection, "o").to_arrow_table().num_rows == 130
    found = connection.execute("select _partition, _offset, value from o order by 1, 2").fetchall()
    assert found == written(0, 130, 2)
    late = connection.execute("select count(*) from o where _offset >= 60 and _partition = 1")
    assert late.fetchall() == [(5,)]


@pytest.mark.long
def test_columns_and_filters_choose(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_topic(broker)
    fill(broker, topic, range(10))
    take(broker, tmp_path, topic)
    fill(broker, topic, range(10, 12))
    table = opened(broker, topic)
    found = table.to_arrow(["_offset", "_key"], pc.field("_offset") >= 9)
    assert found.to_pydict() == {"_offset": [9, 10, 11], "_key": [b"key 9", b"key 10", b"key 11"]}
    assert sum(batch.num_rows for batch in table.scanner(["value"]).to_batches()) == 12
    with pytest.raises(BadArgument, match="columns: price are not of value, _partition"):
        table.to_arrow(["price"])


def test_a_table_stays_as_it_was_opened(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_topic(broker)
    fill(broker, topic, range(5))
    take(broker, tmp_path, topic)
    fill(broker, topic, range(5, 8))
    table = opened(broker, topic)
    fill(broker, topic, range(8, 20))
    take(broker, tmp_path, topic)
    assert rows(table.to_arrow()) == rows(table.to_arrow()) == written(0, 8)
    newer = opened(broker, topic)
    assert newer.snapshot != table.snapshot
    assert rows(newer.to_arrow()) == written(0, 20)
    assert rows(opened(broker, topic, at=table.end).to_arrow()) == written(0, 8)


@pytest.mark.parametrize("at_once", [1, 1_000_000])
def test_case_88_the_latest_row_of_each_key(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("ottla.tables.archive.AT_ONCE", at_once)
    name = new_topic(broker, 2)
    changes = [(n % 7, None if n % 5 == 0 else b"%d" % n) for n in range(60)]
    records = [
        ProducerRecord(value, None if key == 6 else b"%d" % key, partition=key % 2)
        for key, value in changes
    ]
    send(broker, name, records[:40])
    take(broker, tmp_path, name)
    send(broker, name, records[40:])
    folded = {b"%d" % key if key != 6 else None: value for key, value in changes}
    latest = opened(broker, name, mode="latest")
    found = latest.to_arrow(columns=["_key", "value"]).to_pylist()
    assert len(found) == len({one["_key"] for one in found})
    wanted = {key: value for key, value in folded.items() if value is not None}
    assert {one["_key"]: one["value"] for one in found} == wanted
    with duckdb.connect() as connection:
        latest.to_duckdb(connection, "latest")
        assert connection.sql("select count(*) from latest").fetchall() == [(len(wanted),)]
    assert latest.to_polars().select("value").collect().height == len(wanted)
    empty = new_topic(broker)
    assert opened(broker, empty, mode="latest").to_arrow().num_rows == 0
    with pytest.raises(BadArgument, match="mode: expected all or latest"):
        opened(broker, name, mode="newest")


def test_case_94_a_tail_that_is_too_large(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_topic(broker)
    fill(broker, topic, range(5))
    take(broker, tmp_path, topic)
    fill(broker, topic, range(5, 100))
    with pytest.raises(TailTooLarge, match="max_tail_bytes"):
        opened(broker, topic, max_tail_bytes=100).to_arrow()
    assert rows(opened(broker, topic, tail=False).to_arrow()) == written(0, 5)


def test_case_94_a_filter_on_day_opens_only_that_days_files(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    send(
        broker, topic, [ProducerRecord(b"%d" % n, timestamp_ms=NOON + n * DAY_MS) for n in range(3)]
    )
    take(broker, tmp_path, topic)
    send(broker, topic, [ProducerRecord(b"3", timestamp_ms=NOON + DAY_MS)])
    table = opened(broker, topic)
    second = date(2025, 11, 15)
    gone = [one for one in table.view.files if "_day=2025-11-15" not in one.url]
    assert len(gone) == 2
    for one in gone:
        Path(urlsplit(one.url).path).unlink()
    found = table.to_arrow(filter=pc.field("_day") == second)
    assert rows(found) == [(0, 1, b"1"), (0, 3, b"3")]
    assert found.column("_day").to_pylist() == [second, second]
    with pytest.raises(FileGone, match="open the table again"):
        table.to_arrow()


@pytest.mark.long
def test_since_and_until_choose_by_time(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_topic(broker)
    send(
        broker, topic, [ProducerRecord(b"%d" % n, timestamp_ms=NOON + n * DAY_MS) for n in range(3)]
    )
    take(broker, tmp_path, topic)
    send(broker, topic, [ProducerRecord(b"3", timestamp_ms=NOON)])
    table = opened(
        broker, topic, since="2025-11-15T12:00Z", until=datetime(2025, 11, 16, 12, tzinfo=UTC)
    )
    assert len(table.view.files) == 2
    assert rows(table.to_arrow()) == [(0, 1, b"1")]


def test_case_77_without_a_pointer_all_is_tail_with_a_warning(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(broker)
    fill(broker, topic, range(5))
    with caplog.at_level(logging.WARNING, "ottla.tables"):
        table = opened(broker, topic)
    assert "has no table yet" in caplog.text
    assert table.snapshot is None
    assert rows(table.to_arrow()) == written(0, 5)
    with pytest.raises(NoTable, match="ottla table run"):
        opened(broker, topic, tail=False)


def test_case_77_a_pointer_to_a_deleted_metadata_file(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    fill(broker, topic, range(5))
    take(broker, tmp_path, topic)
    pointer = asyncio.run(read_pointers(broker.bootstrap))[topic]
    Path(urlsplit(pointer.metadata_location).path).unlink()
    with pytest.raises(WrongPointer, match=f"ottla table run --topics {topic} --once"):
        opened(broker, topic)


@pytest.mark.long
def test_case_78_at_a_time_is_the_log_read_to_its_offsets(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker, 2)
    fill(broker, topic, range(40), partitions=2)
    take(broker, tmp_path, topic)
    fill(broker, topic, range(40, 60), partitions=2)

    def at(n: int) -> list[Row]:
        time = datetime.fromtimestamp(NOON / 1000 + n, UTC)
        return rows(opened(broker, topic, at=time).to_arrow())

    for n in (-1, 0, 17, 40, 51, 60, 1000):
        assert at(n) == written(0, max(0, min(n, 60)), 2), n

    async def forget() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_records({(topic, 0): 15, (topic, 1): 20})

    asyncio.run(forget())
    for n in (-1, 0, 17, 35, 51):
        assert at(n) == written(0, max(0, n), 2), n
    # Without a tail the table alone answers.
    time = datetime.fromtimestamp(NOON / 1000 + 17, UTC)
    assert rows(opened(broker, topic, at=time, tail=False).to_arrow()) == written(0, 17, 2)


def test_case_80_records_that_are_gone_from_the_log_are_told(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    fill(broker, topic, range(5))
    take(broker, tmp_path, topic)
    fill(broker, topic, range(5, 12))

    async def delete() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_records({(topic, 0): 8})

    asyncio.run(delete())
    with pytest.raises(TableHasHoles, match=rf"{topic}-0 offsets 5\.\.7"):
        opened(broker, topic)
    rest = opened(broker, topic, accept_loss=True)
    assert rows(rest.to_arrow()) == written(0, 5) + written(8, 12)
    query = ["sql", f"select count(*) as n from {topic}", "--bootstrap", broker.bootstrap]
    refused = CliRunner().invoke(app, query)
    assert (refused.exit_code, "ottla sql: --accept-loss" in refused.output) == (1, True)
    told = CliRunner().invoke(app, [*query, "--accept-loss", "--json"])
    assert (told.exit_code, told.stdout) == (0, '{"n": 9}\n')


def test_the_tail_of_a_typed_table_is_converted_as_its_worker_would(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker, value_format="json", value_schema="shop string, n bigint")
    values = [b'{"shop": "a", "n": 1}', b"poison", None, b'{"n": 4}']
    send(broker, topic, [ProducerRecord(one, timestamp_ms=NOON) for one in values])
    wanted = {"_offset": [0, 2, 3], "shop": ["a", None, None], "n": [1, None, 4]}
    before = opened(broker, topic).to_arrow(["_offset", "shop", "n"])
    assert before.to_pydict() == wanted
    take(broker, tmp_path, topic)
    archive = opened(broker, topic).to_arrow(["_offset", "shop", "n"])
    assert archive.to_pydict() == wanted
    send(broker, topic, [ProducerRecord(one, timestamp_ms=NOON) for one in values])
    both = opened(broker, topic).to_arrow(["_offset", "shop", "n"]).sort_by("_offset")
    assert both.column("n").to_pylist() == [1, None, 4, 1, None, 4]

    async def disable() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.alter_configs("topic", topic, {"ottla.table.enable": "false"})

    asyncio.run(disable())
    # The table itself says how its rows are made.
    again = opened(broker, topic).to_arrow(["_offset", "shop", "n"]).sort_by("_offset")
    assert again.equals(both)


def test_records_of_aborted_transactions_are_not_in_the_tail(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    fill(broker, topic, range(3))
    take(broker, tmp_path, topic)

    async def write() -> None:
        async with Producer(broker.bootstrap, transactional_id=f"{topic}-writer") as producer:
            with suppress(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send(topic, b"aborted")
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send(topic, b"committed")

    asyncio.run(write())
    table = opened(broker, topic)
    values = table.to_arrow(["value"]).column("value").to_pylist()
    assert sorted(values) == [b"0", b"1", b"2", b"committed"]


def test_a_recreated_topic_and_an_unknown_one(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_topic(broker)
    fill(broker, topic, range(3))
    take(broker, tmp_path, topic)
    broker.delete_topic(topic)
    assert rows(opened(broker, topic, tail=False).to_arrow()) == written(0, 3)
    with pytest.raises(NoSuchTopic, match=f"no topic '{topic}'"):
        opened(broker, topic)
    broker.create_topic(topic)
    with pytest.raises(TopicReplaced, match="deleted and created again"):
        opened(broker, topic)
    with pytest.raises(NoSuchTopic, match=f"did you mean .*{topic}"):
        opened(broker, f"{topic}x")


async def test_it_opens_inside_of_an_event_loop(tmp_path: Path) -> None:
    async with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        async with Producer(broker.bootstrap) as producer:
            await producer.send("orders", b"one")
        found = await open_table("orders", bootstrap=broker.bootstrap)
        assert found.to_arrow(["value"]).to_pydict() == {"value": [b"one"]}

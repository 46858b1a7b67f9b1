"""Read the results after the run, from topics, databases and files."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

import ottla
from ottla.demo import table
from ottla.demo.checks import Evidence
from ottla.demo.ledger import KEYS
from ottla.demo.stage import DEAD_LETTERS, ORDERS, PARTITIONS, SALES
from ottla.offsets import SqliteOffsetStore

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from ottla.demo.checks import Held, Place, Sales
    from ottla.demo.stage import Stage

COLUMNS: Final = ("key", "value", "partition", "offset")
REASONS: Final = {
    b"Offset rejected by client.": "rejected",
    b"Offset delivery count exceeded the threshold.": "out of tries",
}


async def gather(stage: Stage) -> Evidence:
    """Everything that was stored; not what processes, nodes and the console say of themselves."""
    found = Evidence()
    # Segments go on leaving the disk: what is gone now is in the tier when that is read.
    found.local_starts = local_starts(stage)
    await _read_tier(stage, found)
    await _read_orders(stage, found)
    await _read_dead_letters(stage, found)
    _read_warehouse(stage, found)
    _read_ledger(stage, found)
    found.table = read_table(stage)
    found.topic = await _read_sales_topic(stage)
    await table.read_rows(stage, found)
    return found


def local_starts(stage: Stage) -> dict[int, int]:
    """The first local offset of each partition, from file names."""
    starts = {}
    for number in range(PARTITIONS):
        segments = log_directory(stage, number).glob("*.log")
        starts[number] = min((int(one.stem) for one in segments), default=0)
    return starts


def log_directory(stage: Stage, partition: int) -> Path:
    """Where the log of a partition is now: with the node that leads it."""
    name = f"{ORDERS}-{partition}"
    return next(stage.broker_data.glob(f"node.*/{name}"), stage.broker_data / name)


async def _read_tier(stage: Stage, found: Evidence) -> None:
    """The objects themselves: no broker takes part."""
    from ottla.objects.location import open_store, parse_location
    from ottla.tier.reader import ListingSource, RemoteReader
    from ottla.tier.store.storage_manager import RemoteStorageManager

    found.tier_objects = sum(1 for _ in stage.tier.rglob("*.log"))
    if not found.tier_objects:
        return
    location = parse_location({"rsm.config.url": stage.tier.as_uri()})
    storage = RemoteStorageManager(open_store(location), location.prefix, "")
    reader = RemoteReader(storage, ListingSource(storage))
    for number in range(PARTITIONS):
        plan = await reader.plan(ORDERS, number)
        async for rows in reader.read(plan, columns=COLUMNS):
            _take(rows, found.tiered)


async def _read_orders(stage: Stage, found: Evidence) -> None:
    async with ottla.Reader(stage.bootstrap, ORDERS, stop="latest", columns=COLUMNS) as reader:
        async for rows in reader:
            _take(rows, found.orders)
    for partition, offset in found.orders:
        found.ends[partition] = max(found.ends.get(partition, 0), offset + 1)


def _take(rows: pa.RecordBatch, into: dict[Place, Held]) -> None:
    columns = (rows[name].to_pylist() for name in COLUMNS)
    for key, value, partition, offset in zip(*columns, strict=True):
        into[partition, offset] = (key.decode(), value)


async def _read_dead_letters(stage: Stage, found: Evidence) -> None:
    async with ottla.Reader(stage.bootstrap, DEAD_LETTERS, stop="latest") as reader:
        async for letter in reader.records():
            found.dead_letters.append((letter.key or b"").decode())
            reason = dict(letter.headers).get("__dlq.errors.message")
            found.dead_letter_reasons[REASONS.get(reason or b"", "without a reason")] += 1


def _read_warehouse(stage: Stage, found: Evidence) -> None:
    with closing(sqlite3.connect(stage.warehouse_db)) as connection:
        found.shipped = [row[0] for row in connection.execute("SELECT order_id FROM shipments")]
        (found.repeated_deliveries,) = connection.execute(
            "SELECT count(*) FROM deliveries WHERE attempt > 1"
        ).fetchone()


def _read_ledger(stage: Stage, found: Evidence) -> None:
    with closing(sqlite3.connect(stage.ledger_db)) as connection:
        found.booked = [row[0] for row in connection.execute("SELECT order_id FROM ledger")]
        (cents,) = connection.execute("SELECT sum(cents) FROM ledger").fetchone()
        found.booked_cents = cents or 0
        positions = SqliteOffsetStore().bind(connection)
        found.positions = {number: positions.load(key) or 0 for number, key in KEYS.items()}


def read_table(stage: Stage) -> Sales:
    """The files that Spark wrote, without Spark."""
    import pyarrow.parquet as pq

    if not (stage.sales_table / "_SUCCESS").exists():
        return {}
    return dict(map(_sale, pq.read_table(stage.sales_table).to_pylist()))


async def _read_sales_topic(stage: Stage) -> Sales:
    """The last value of each key."""
    sales: Sales = {}
    async with ottla.Reader(stage.bootstrap, SALES, stop="latest", columns=["value"]) as reader:
        async for rows in reader:
            take_sales(rows, sales)
    return sales


def take_sales(rows: pa.RecordBatch, into: Sales) -> None:
    """Let values of the result topic replace those before them."""
    into.update(_sale(json.loads(value)) for value in rows["value"].to_pylist())


def _sale(row: dict[str, object]) -> tuple[tuple[str, int], tuple[int, int]]:
    shop, window, orders, cents = (row[name] for name in ("shop", "window_ms", "orders", "cents"))
    return (str(shop), int(str(window))), (int(str(orders)), int(str(cents)))

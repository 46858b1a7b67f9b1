"""A warehouse worker: ships orders that its share group hands it, many workers from one queue.

Orders of one poll are shipped in one transaction, then acknowledged. A crash in between brings them
back, to this or another worker; the order's id is the primary key of what is shipped, so nothing is
shipped twice. What cannot be read is rejected at once, what is not in the warehouse is released for
another try, and given up by the broker after `DELIVERY_LIMIT` of them.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

import ottla
from ottla.demo.child import crash
from ottla.demo.orders import UnknownItem, Unreadable, check_shippable
from ottla.demo.stage import ORDERS, WAREHOUSE_GROUP

if TYPE_CHECKING:
    from ottla.client.share.types import AckKind, ShareRecord
    from ottla.demo.stage import Stage

AT_ONCE: Final = 50
POLL_SECONDS: Final = 0.5
BUSY_SECONDS: Final = 30.0
# To pick and pack an order takes a while; the broker has others to hand out meanwhile.
WORK_SECONDS: Final = 0.001

TABLES: Final = """
PRAGMA journal_mode=WAL;
CREATE TABLE shipments (order_id TEXT PRIMARY KEY, worker TEXT);
CREATE TABLE deliveries (order_id TEXT, worker TEXT, attempt INTEGER, decision TEXT);
"""


def create_warehouse(stage: Stage) -> None:
    """The database of the workers: shipped orders, and deliveries."""
    with closing(sqlite3.connect(stage.warehouse_db)) as connection:
        connection.executescript(TABLES)


async def work(stage: Stage, name: str, dies_after: int, ending: asyncio.Event) -> None:
    """Work until told to end, or until the crash that is due: shipped, and not acknowledged."""
    handled = 0
    with closing(_open(stage)) as connection:
        async with ottla.ShareConsumer(
            stage.bootstrap,
            group=WAREHOUSE_GROUP,
            topics=[ORDERS],
            ack_mode="explicit",
            acquire_mode="record_limit",
            max_poll_records=AT_ONCE,
        ) as consumer:
            while not ending.is_set():
                records = await consumer.poll(timeout=POLL_SECONDS)
                decisions = _ship(connection, name, records)
                handled += len(records)
                if 0 < dies_after <= handled:
                    crash()
                for record, decision in zip(records, decisions, strict=True):
                    consumer.acknowledge(record, decision)
                await asyncio.sleep(len(records) * WORK_SECONDS)


def _open(stage: Stage) -> sqlite3.Connection:
    connection = sqlite3.connect(stage.warehouse_db, timeout=BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def _ship(connection: sqlite3.Connection, name: str, records: list[ShareRecord]) -> list[AckKind]:
    """Ship orders in one transaction; returns the verdict for each record."""
    if not records:
        return []
    ids = [(record.key or b"").decode() for record in records]
    decisions = [_decide(record) for record in records]
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT INTO deliveries VALUES (?, ?, ?, ?)",
        [
            (order_id, name, record.delivery_count, decision)
            for order_id, record, decision in zip(ids, records, decisions, strict=True)
        ],
    )
    connection.executemany(
        "INSERT OR IGNORE INTO shipments VALUES (?, ?)",
        [
            (order_id, name)
            for order_id, decision in zip(ids, decisions, strict=True)
            if decision == "accept"
        ],
    )
    connection.execute("COMMIT")
    return decisions


def _decide(record: ShareRecord) -> AckKind:
    try:
        check_shippable(record.value or b"")
    except Unreadable:
        return "reject"
    except UnknownItem:
        return "release"
    return "accept"

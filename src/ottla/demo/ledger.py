"""The ledger: every order is booked exactly once in SQLite, however often its keeper dies.

The rows of a batch and the position after it are one transaction. The table has no key that would
hide a row written twice: only the position keeps it from happening. The crash that is due comes in
the middle of a transaction.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

import ottla
from ottla.demo.child import crash
from ottla.demo.orders import Unreadable, cents_of
from ottla.demo.stage import LEDGER_CONSUMER, ORDERS, PARTITIONS
from ottla.offsets import OffsetKey, SqliteOffsetStore

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.demo.stage import Stage

BATCH_ROWS: Final = 500
KEYS: Final = {number: OffsetKey(LEDGER_CONSUMER, ORDERS, number) for number in range(PARTITIONS)}


def create_ledger(stage: Stage) -> None:
    """The books, and the positions beside them."""
    with closing(sqlite3.connect(stage.ledger_db)) as connection:
        connection.executescript(
            "PRAGMA journal_mode=WAL; CREATE TABLE ledger (order_id TEXT, cents INTEGER);"
        )
        SqliteOffsetStore().create_table(connection)


async def keep_books(stage: Stage, dies_after: int, ending: asyncio.Event) -> None:
    """Book from the stored positions on until told to end, or until the crash that is due."""
    with closing(sqlite3.connect(stage.ledger_db)) as connection:
        book = asyncio.create_task(_book(stage, connection, dies_after))
        end = asyncio.create_task(ending.wait())
        await asyncio.wait([book, end], return_when=asyncio.FIRST_COMPLETED)
        if book.done():
            book.result()
        # Between batches there is no transaction, so it ends between two of them.
        book.cancel()
        await asyncio.wait([book])


async def _book(stage: Stage, connection: sqlite3.Connection, dies_after: int) -> None:
    store = SqliteOffsetStore()
    stored = {number: store.bind(connection).load(key) for number, key in KEYS.items()}
    start = {number: position or 0 for number, position in stored.items()}
    booked = 0
    async with ottla.Reader(
        stage.bootstrap,
        ORDERS,
        start=start,
        columns=["key", "value", "partition", "offset"],
        max_batch_rows=BATCH_ROWS,
    ) as reader:
        async for batch in reader:
            with store.transaction(connection) as transaction:
                connection.executemany("INSERT INTO ledger VALUES (?, ?)", _entries(batch))
                booked += batch.num_rows
                if 0 < dies_after <= booked:
                    crash()
                partition = batch["partition"][0].as_py()
                following = batch["offset"][-1].as_py() + 1
                transaction.save(KEYS[partition], following, expected=stored[partition])
            stored[partition] = following


def _entries(batch: pa.RecordBatch) -> list[tuple[str, int | None]]:
    """The rows of a batch; a torn order is booked without an amount."""
    return [
        (key.decode(), _cents(value))
        for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    ]


def _cents(value: bytes) -> int | None:
    try:
        return cents_of(value)
    except Unreadable:
        return None

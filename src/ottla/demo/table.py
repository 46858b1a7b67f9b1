"""The topic of orders as an Iceberg table, which a worker of the broker writes.

Every order that is JSON is a row with its own columns, every torn one is a row of the table's dead
letters. What is read here are the files alone: of records that are only in the log there is none.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.demo.stage import ORDERS

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.demo.checks import Evidence
    from ottla.demo.stage import Stage

LETTERS: Final = f"{ORDERS}__dlq"
TABLE_SETTINGS: Final = {
    "ottla.table.enable": "true",
    "ottla.table.value.format": "json",
    "ottla.table.value.schema": "order string, shop string, at timestamp, cents bigint",
    "ottla.table.commit.interval.ms": "2000",
}


async def taken(stage: Stage) -> int:
    """How many records the table has taken, by its newest pointer; 0 before there is one."""
    from ottla.tables.pointer import read_pointers

    pointers = await read_pointers(stage.bootstrap)
    return sum(pointers[ORDERS].position.values()) if ORDERS in pointers else 0


async def read_rows(stage: Stage, found: Evidence) -> None:
    """The rows, and the dead letters; none of what the worker has not made yet."""
    from ottla.tables.errors import NoTable

    with suppress(NoTable):
        rows = await _files(stage, ORDERS, "order", "cents")
        found.rows = rows["order"].to_pylist()
        found.row_cents = sum(rows["cents"].to_pylist())
        letters = await _files(stage, LETTERS, "_key")
        found.letters = [key.decode() for key in letters["_key"].to_pylist()]


async def _files(stage: Stage, name: str, *columns: str) -> pa.Table:
    from ottla.tables.topic_table import open_table

    opened = await open_table(name, bootstrap=stage.bootstrap, tail=False)
    return await asyncio.to_thread(opened.to_arrow, columns)

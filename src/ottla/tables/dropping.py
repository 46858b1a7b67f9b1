"""Delete a topic's table and its dead letters, with all their files.

Data files go first, then the entry of the catalogue, then files of metadata: a run that was
interrupted before the entry was gone is finished by the next one. After it only manifests and
metadata can be left in the store. Files of other names than ours go only if the table names them.

The caller takes the pointer away before, so that no reader begins with a table that goes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.tables.compacting import is_ours
from ottla.tables.errors import TableError
from ottla.tables.names import dead_letter_table

if TYPE_CHECKING:
    from ottla.tables.format import TableFormat, TableState
    from ottla.tables.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class Doomed:
    """A table to drop, and what is in it."""

    state: TableState
    rows: int
    files: int


def found(tables: TableFormat, topic: str, table: str) -> list[Doomed]:
    """The dead letters and the table of a topic, as far as they are there.

    `TableError` if one of them is another topic's.
    """
    states = []
    for name in (dead_letter_table(table), table):
        state = tables.load(name)
        if state is None:
            continue
        if state.topic != topic:
            owner = f"of topic {state.topic!r}" if state.topic else "no topic's"
            raise TableError(f"table {state.table} is {owner}; it is left as it is")
        files = tables.files(state)
        states.append(Doomed(state, sum(one.rows for one in files), len(files)))
    return states


async def drop(tables: TableFormat, warehouse: Warehouse, doomed: Doomed) -> int:
    """Delete the table; how many files went."""
    state = doomed.state
    named = await asyncio.to_thread(tables.named_files, state)
    present = [url async for url, _ in warehouse.list(state.location)]
    gone = [url for url in present if url in named or is_ours(url)]
    for url in gone:
        if url.endswith(".parquet"):
            await warehouse.delete(url)
    await asyncio.to_thread(tables.drop, state)
    for url in gone:
        if not url.endswith(".parquet"):
            await warehouse.delete(url)
    return len(gone)

"""Upkeep of a table: merge small files, forget old snapshots, delete files that nobody names.

One step at a time, between rounds. A merge requires that its inputs are still there; if the table
has moved on, the result is dropped and planned again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ottla.tables.compacting import (
    RETENTION,
    SMALL_FILE_BYTES,
    is_rubbish,
    plan_compaction,
    plan_expiry,
    plan_retention,
)
from ottla.tables.errors import CommitRefused
from ottla.tables.format import META_COLUMNS, PLACE_COLUMNS
from ottla.tables.merging import merge
from ottla.tables.names import dead_letter_table
from ottla.tables.position import trouble

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.tables.format import TableFormat, TableState
    from ottla.tables.settings import TopicSettings
    from ottla.tables.warehouse import Warehouse

SWEEP_MS: Final = 3_600_000
"""Between two sweeps of a table: each lists all its files."""

logger = logging.getLogger(__name__)


class Upkeep:
    """Of one table: a topic's own, or with `letters` that of its dead letters."""

    def __init__(
        self,
        tables: TableFormat,
        warehouse: Warehouse,
        settings: TopicSettings,
        *,
        letters: bool = False,
    ) -> None:
        self._tables = tables
        self._warehouse = warehouse
        self._settings = settings
        self._table = dead_letter_table(settings.table) if letters else settings.table
        self._needed = PLACE_COLUMNS if letters else META_COLUMNS
        self._swept_ms: int | None = None
        self.small_files = 0
        """Of the table, when it was last looked at."""

    async def step(self, spool: Path, now_ms: int) -> None:
        """What is due: old rows, at most one merge, an expiry, and a sweep once an hour."""
        await self.retain(now_ms)
        await self.compact(spool, now_ms, most=1)
        await self.expire(now_ms)
        if self._swept_ms is None or now_ms - self._swept_ms >= SWEEP_MS:
            self._swept_ms = now_ms
            await self.sweep(now_ms)

    async def compact(self, spool: Path, now_ms: int, most: int | None = None) -> int:
        """Merge groups of small files; how many were merged."""
        done = 0
        while most is None or done < most:
            state = await self._sound()
            if state is None:
                return done
            files = await asyncio.to_thread(self._tables.files, state)
            self.small_files = sum(one.size < SMALL_FILE_BYTES for one in files)
            target = self._settings.target_file_bytes
            groups = plan_compaction(files, state.partition, now_ms, target)
            if not groups:
                return done
            name = uuid4().hex
            made = await asyncio.to_thread(
                merge, self._tables, state, groups[0], spool / name, name
            )
            if made is None:
                return done
            await self._warehouse.upload(made.spool, made.url)
            await asyncio.to_thread(made.spool.unlink)
            try:
                await asyncio.to_thread(self._tables.replace, state, groups[0], [made], "compact")
            except CommitRefused:
                await self._warehouse.delete(made.url)
                return done
            done += 1
        return done

    async def _sound(self) -> TableState | None:
        """The table, None if somebody has to decide first what becomes of it."""
        state = await asyncio.to_thread(self._tables.load, self._table)
        if state is None or trouble(state, state.topic_id, self._needed) is not None:
            return None
        return state

    async def retain(self, now_ms: int) -> int:
        """Drop what is older than the table's retention; how many files."""
        if self._settings.retention_ms < 0 or (state := await self._sound()) is None:
            return 0
        files = await asyncio.to_thread(self._tables.files, state)
        old = plan_retention(files, state.partition, now_ms, self._settings.retention_ms)
        if old:
            try:
                await asyncio.to_thread(self._tables.replace, state, old, (), RETENTION)
            except CommitRefused:
                return 0
        return len(old)

    async def expire(self, now_ms: int) -> int:
        """Forget old snapshots; how many."""
        state = await self._sound()
        if state is None:
            return 0
        snapshots, named = self._tables.snapshots(state)
        old = plan_expiry(snapshots, named, now_ms, self._settings.snapshot_retention_ms)
        if old:
            try:
                await asyncio.to_thread(self._tables.expire, state, old)
            except CommitRefused:
                return 0
        return len(old)

    async def sweep(self, now_ms: int) -> int:
        """Delete files that no kept snapshot names; how many."""
        state = await asyncio.to_thread(self._tables.load, self._table)
        if state is None:
            return 0
        found = [one async for one in self._warehouse.list(state.location)]
        named = await asyncio.to_thread(self._tables.named_files, state)
        gone = 0
        for url, modified_ms in found:
            if is_rubbish(url, modified_ms, named, now_ms, self._settings.delete_grace_ms):
                await self._warehouse.delete(url)
                gone += 1
        return gone

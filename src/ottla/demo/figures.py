"""Figures for the screen while the demo runs, and when all of them have got where they must."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import ottla
from ottla.demo import table
from ottla.demo.evidence import local_starts, log_directory, take_sales
from ottla.demo.stage import DEAD_LETTERS, ORDERS, SALES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ottla.client.admin.types import ListedOffset
    from ottla.client.cluster.view import TopicPartition
    from ottla.demo.checks import Expected, Sales
    from ottla.demo.stage import Stage

TABLE_SECONDS: Final = 1.0


@dataclass(slots=True)
class Figures:
    """How far everything is."""

    produced: int = 0
    shipped: int = 0
    repeated: int = 0
    dead: int = 0
    booked: int = 0
    tier_objects: int = 0
    tier_bytes: int = 0
    local_bytes: int = 0
    only_in_tier: int = 0
    has_all_tiered: bool = False
    """Whether each partition has begun to live in the tier."""
    tabled: int = 0
    """Records that the table has taken."""
    kills: int = 0
    """Nodes that were killed."""
    spark: str = ""
    """What Spark is at, before it has a result."""
    sales: Sales = field(default_factory=dict)
    crashes: Counter[str] = field(default_factory=Counter)

    @property
    def reported(self) -> int:
        """Orders in the result of Spark."""
        return sum(orders for orders, _ in self.sales.values())

    @property
    def revenue_cents(self) -> int:
        return sum(cents for _, cents in self.sales.values())

    def is_complete(self, expected: Expected) -> bool:
        """Whether there is nothing to wait for."""
        return (
            self.produced >= len(expected.values)
            and self.shipped >= len(expected.sound)
            and self.dead >= len(expected.poison)
            and self.booked >= len(expected.values)
            and self.has_all_tiered
            and self.tabled >= len(expected.values)
            and self.kills > 0
            and self.reported >= sum(orders for orders, _ in expected.sales.values())
        )


async def look(stage: Stage, admin: ottla.Admin, figures: Figures) -> None:
    """Bring the figures up to date."""
    ends = await admin.list_offsets([ORDERS, DEAD_LETTERS])
    figures.produced = _total(ends, ORDERS)
    figures.dead = _total(ends, DEAD_LETTERS)
    await asyncio.to_thread(_look_at_files, stage, figures)


def _total(ends: Mapping[TopicPartition, ListedOffset], topic: str) -> int:
    return sum(found.offset for partition, found in ends.items() if partition.topic == topic)


def _look_at_files(stage: Stage, figures: Figures) -> None:
    figures.shipped = _count(stage.warehouse_db, "SELECT count(*) FROM shipments")
    figures.repeated = _count(
        stage.warehouse_db, "SELECT count(*) FROM deliveries WHERE attempt > 1"
    )
    figures.booked = _count(stage.ledger_db, "SELECT count(*) FROM ledger")
    figures.tier_objects, figures.tier_bytes = _files(stage.tier)
    figures.local_bytes = sum(
        _files(log_directory(stage, number))[1] for number in local_starts(stage)
    )
    starts = local_starts(stage).values()
    figures.spark = _spark_is_at(stage)
    figures.only_in_tier = sum(starts)
    figures.has_all_tiered = all(starts)


def _spark_is_at(stage: Stage) -> str:
    """By what there is of its checkpoint."""
    if (stage.checkpoint / "offsets" / "0").exists():
        return "its first batch is under way"
    if stage.checkpoint.exists():
        return "a session is there, the query starts"
    return "a JVM and a session are starting"


def _count(database: Path, question: str) -> int:
    with closing(sqlite3.connect(database)) as connection:
        (count,) = connection.execute(question).fetchone()
    return int(count)


def _files(directory: Path) -> tuple[int, int]:
    """How many logs there are below a directory, and their bytes; some may go meanwhile."""
    count = size = 0
    for path in directory.rglob("*.log"):
        try:
            size += path.stat().st_size
        except FileNotFoundError:
            continue
        count += 1
    return count, size


async def follow_table(stage: Stage, figures: Figures) -> None:
    """Look at the table's position without end."""
    while True:
        figures.tabled = await table.taken(stage)
        await asyncio.sleep(TABLE_SECONDS)


async def follow_sales(stage: Stage, figures: Figures) -> None:
    """Read the result topic without end."""
    async with ottla.Reader(stage.bootstrap, SALES, columns=["value"]) as reader:
        async for rows in reader:
            take_sales(rows, figures.sales)

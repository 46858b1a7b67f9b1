"""`ottla table compact`, `expire` and `sweep`: upkeep at once, which a worker does by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ottla.cli.table_place import Place, Topic, placed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.client.admin.admin import Admin
    from ottla.tables.format import TableFormat
    from ottla.tables.settings import TopicSettings
    from ottla.tables.upkeep import Upkeep


@placed
def compact(place: Place, topic: Topic) -> None:
    """Merge small files of a table now. A running worker does so by itself.

    \b
    Examples:
        ottla table compact orders
    """
    from pathlib import Path
    from tempfile import TemporaryDirectory

    async def step(upkeep: Upkeep, now_ms: int) -> str:
        with TemporaryDirectory(prefix="ottla-table-") as spool:
            return f"{await upkeep.compact(Path(spool), now_ms)} groups of files merged"

    _maintain(place, topic, step)


@placed
def expire(place: Place, topic: Topic) -> None:
    """Forget old snapshots of a table now. A running worker does so by itself.

    \b
    Examples:
        ottla table expire orders
    """

    async def step(upkeep: Upkeep, now_ms: int) -> str:
        return f"{await upkeep.expire(now_ms)} snapshots forgotten"

    _maintain(place, topic, step)


@placed
def sweep(place: Place, topic: Topic) -> None:
    """Delete files that no kept snapshot names now. A running worker does so every hour.

    \b
    Examples:
        ottla table sweep orders
    """

    async def step(upkeep: Upkeep, now_ms: int) -> str:
        return f"{await upkeep.sweep(now_ms)} files deleted"

    _maintain(place, topic, step)


def _maintain(place: Place, topic: str, step: Callable[[Upkeep, int], Awaitable[str]]) -> None:
    from ottla.clock import SYSTEM

    async def command(admin: Admin, tables: TableFormat, found: TopicSettings) -> str:
        from ottla.tables.topics import check_own
        from ottla.tables.upkeep import Upkeep
        from ottla.tables.warehouse import Warehouse

        await check_own(admin, tables, found)
        upkeep = Upkeep(tables, Warehouse(place.settings.warehouse), found)
        return await step(upkeep, SYSTEM.wall_ms())

    typer.echo(f"{topic}: {place.with_topic(topic, command)}")

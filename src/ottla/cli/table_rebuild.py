"""`ottla table rebuild`: rows made again from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import Json, complain, security
from ottla.cli.output import print_json
from ottla.cli.table_place import Place, Registry, Topic, placed

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.tables.format import TableFormat
    from ottla.tables.rebuilding import Rebuilt
    from ottla.tables.settings import TopicSettings


@placed
def rebuild(
    place: Place,
    topic: Topic,
    files: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Only these data files, such as damaged ones. [default: all]"
        ),
    ] = None,
    registry: Registry = None,
    as_json: Json = False,
) -> None:
    """Make rows of a table again from the log, with the schema of today.

    Files whose records the log does not have any more are left as they are; with --files the
    status is 1 then. Rows that were erased, and dead letters, do not come back.

    \b
    Examples:
        ottla table rebuild orders
        ottla table rebuild orders --files 0f3c...-0.parquet
    """
    from pathlib import Path
    from tempfile import TemporaryDirectory

    names = None if files is None else [one.strip() for one in files.split(",")]
    if names is not None and not all(names):
        raise typer.BadParameter(f"expected names such as a,b, got {files!r}", param_hint="--files")
    place = place.at_registry(registry)

    async def command(admin: Admin, tables: TableFormat, found: TopicSettings) -> Rebuilt:
        from ottla.tables.pointer import publish_current
        from ottla.tables.rebuilding import Rebuilding
        from ottla.tables.topics import check_own, look
        from ottla.tables.warehouse import Warehouse

        await check_own(admin, tables, found)
        log = await look(admin, found, is_new=False)
        with TemporaryDirectory(prefix="ottla-table-") as spool:
            async with place.converter(admin, found) as converter:
                work = Rebuilding(
                    tables,
                    Warehouse(place.settings.warehouse),
                    found,
                    converter,
                    Path(spool),
                    place.bootstrap,
                    security(),
                )
                done = await work.run(log.starts, names)
        if done.files:
            await publish_current(place.bootstrap, tables, found, security=security())
        return done

    done = place.with_topic(topic, command)
    if as_json:
        print_json(
            {
                "files": done.files,
                "rows": done.rows,
                "kept": done.kept,
                "left": [{"file": url, "why": why} for url, why in done.left],
            }
        )
    else:
        typer.echo(f"{topic}: {done.rows} rows of {done.files} files are made again")
        if done.kept:
            typer.echo(f"{done.kept} of them do not fit the schema, and are as they were")
        for url, why in done.left:
            complain(f"{url} is left: {why}")
    if names is not None and done.left:
        raise typer.Exit(1)

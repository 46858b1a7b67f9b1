"""`ottla table resume`, `retire`, `drop` and `reprocess`: decisions of people, not of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import fail, security
from ottla.cli.table_place import Place, Registry, Topic, placed

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.tables.format import TableFormat
    from ottla.tables.settings import TopicSettings


@placed
def resume(
    place: Place,
    topic: Topic,
    replay: Annotated[
        bool, typer.Option("--replay", help="Take the rows that are gone again from the log.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Do without them; they are recorded as a hole.")
    ] = False,
) -> None:
    """Let a table go on that was rolled back to an older snapshot.

    \b
    Examples:
        ottla table resume orders --replay
    """
    from ottla.tables.position import dump_offsets, is_rolled_back, resumption

    if replay == accept:
        raise typer.BadParameter("give --replay or --accept", param_hint="--replay")

    async def command(_: Admin, tables: TableFormat, found: TopicSettings) -> str:
        import asyncio
        from uuid import uuid4

        from ottla.tables.pointer import publish_current

        state = await asyncio.to_thread(tables.load, found.table)
        if state is None or not is_rolled_back(state):
            return f"{topic}: the table was not rolled back; nothing to do"
        commit = resumption(state, uuid4().hex, replay=replay)
        made = await asyncio.to_thread(tables.commit, state, commit)
        await publish_current(place.bootstrap, tables, found, security=security())
        return f"{topic}: goes on at {dump_offsets(made.next)}"

    typer.echo(place.with_topic(topic, command))


@placed
def retire(place: Place, topic: Topic) -> None:
    """Rename the table and dead letters of a topic that was deleted and recreated.

    The next round makes new ones.

    \b
    Examples:
        ottla table retire orders
    """

    async def command(admin: Admin, tables: TableFormat, found: TopicSettings) -> str:
        import asyncio

        from ottla.tables.pointer import publish_current, withdraw
        from ottla.tables.retiring import retire as rename
        from ottla.tables.topics import look

        log = await look(admin, found, is_new=False)
        await withdraw(place.bootstrap, topic, log.topic_id, security=security())
        names = await asyncio.to_thread(rename, tables, found.table, log.topic_id)
        if not names:
            return f"{topic}: the table is the topic's own; nothing to do"
        await publish_current(place.bootstrap, tables, found, security=security())
        return f"{topic}: the old rows are in {' and '.join(sorted(names))} now"

    typer.echo(place.with_topic(topic, command))


@placed
def drop(
    place: Place,
    topic: Topic,
    yes: Annotated[bool, typer.Option("--yes", help="Delete them; there is no way back.")] = False,
) -> None:
    """Delete the table of a topic, its dead letters and all their files from the store.

    First switch the table off. The topic and its records stay.

    \b
    Examples:
        ottla topic alter orders --config ottla.table.enable=false
        ottla table drop orders --yes
    """

    async def command(admin: Admin, tables: TableFormat) -> str:
        import asyncio

        from ottla.tables.dropping import drop as delete
        from ottla.tables.dropping import found
        from ottla.tables.names import group_of
        from ottla.tables.pointer import read_pointers, withdraw
        from ottla.tables.topics import former_table
        from ottla.tables.warehouse import Warehouse

        table = await former_table(admin, topic, place.file.topics)
        doomed = await asyncio.to_thread(found, tables, topic, table)
        if not doomed:
            pointer = (await read_pointers(place.bootstrap, security=security())).get(topic)
            if pointer is None:
                return f"{topic}: there is no table {table}; nothing to do"
            where = pointer.metadata_location
            if not yes:
                fail(
                    f"{topic}: there is no table {table} in this catalogue; readers use {where}; "
                    "--yes has them forget it, and its files stay"
                )
            await withdraw(place.bootstrap, topic, None, security=security())
            return f"{topic}: readers have forgotten {where}; its files are left as they are"
        names = " and ".join(sorted(one.state.table for one in doomed))
        rows, files = sum(one.rows for one in doomed), sum(one.files for one in doomed)
        if not yes:
            fail(f"{topic}: {names} with {rows} rows in {files} files; --yes deletes them")
        await withdraw(place.bootstrap, topic, None, security=security())
        await admin.delete_groups([group_of(table)], return_errors=True)
        warehouse = Warehouse(place.settings.warehouse)
        gone = sum([await delete(tables, warehouse, one) for one in doomed])
        return f"{topic}: {names} with {rows} rows are gone, and {gone} files"

    typer.echo(place.with_catalogue(command))


@placed
def reprocess(
    place: Place,
    topic: Topic,
    reason: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Only letters with this reason, such as malformed."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only records from this time on: 2026-11-14T08:00Z."),
    ] = None,
    registry: Registry = None,
) -> None:
    """Try dead letters again, after the schema was mended; those that fit become rows.

    \b
    Examples:
        ottla table reprocess orders
        ottla table reprocess orders --reason out_of_range --since 2026-11-14
    """
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from ottla.schemas.reasons import Reason
    from ottla.tables.reprocessing import Reprocessing, Wanted
    from ottla.tables.warehouse import Warehouse

    reasons = [one.label for one in Reason if one is not Reason.OK]
    if reason is not None and reason not in reasons:
        raise typer.BadParameter(f"expected one of {', '.join(reasons)}", param_hint="--reason")
    wanted = Wanted(reason, _microseconds(since))
    place = place.at_registry(registry)

    async def command(admin: Admin, tables: TableFormat, found: TopicSettings) -> str:
        from ottla.tables.pointer import publish_current
        from ottla.tables.topics import check_own

        await check_own(admin, tables, found)
        if not found.has_letters:
            return f"{topic}: values are kept as they are; there are no dead letters"
        [kind] = await admin.describe_configs("topic", topic, ["message.timestamp.type"])
        with TemporaryDirectory(prefix="ottla-table-") as spool:
            async with place.converter(admin, found) as converter:
                work = Reprocessing(
                    tables,
                    Warehouse(place.settings.warehouse),
                    found,
                    converter,
                    Path(spool),
                    kind.value or "CreateTime",
                )
                done = await work.run(wanted)
        if done.moved or done.left:
            await publish_current(place.bootstrap, tables, found, security=security())
        return f"{topic}: {done.moved} dead letters are rows now, {done.left} still do not fit"

    typer.echo(place.with_topic(topic, command))


def _microseconds(since: str | None) -> int | None:
    from datetime import UTC, datetime

    if since is None:
        return None
    try:
        time = datetime.fromisoformat(since)
    except ValueError:
        raise typer.BadParameter(f"{since!r} is not a time", param_hint="--since") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return int(time.timestamp() * 1_000_000)

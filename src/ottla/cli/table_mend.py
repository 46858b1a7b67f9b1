"""`ottla table resume`, `retire` and `reprocess`: decisions that a worker leaves to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import security
from ottla.cli.table_place import Place, Topic, placed

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.tables.converting import Converter
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

        state = await asyncio.to_thread(tables.load, found.table)
        if state is None or not is_rolled_back(state):
            return f"{topic}: the table was not rolled back; nothing to do"
        commit = resumption(state, uuid4().hex, replay=replay)
        made = await asyncio.to_thread(tables.commit, state, commit)
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

    async def command(admin: Admin, tables: TableFormat, found: TopicSettings) -> str:
        from ottla.tables.pointer import publish_current
        from ottla.tables.topics import check_own

        await check_own(admin, tables, found)
        if not found.has_letters:
            return f"{topic}: values are kept as they are; there are no dead letters"
        converter = await _converter(place, admin, found)
        [kind] = await admin.describe_configs("topic", topic, ["message.timestamp.type"])
        with TemporaryDirectory(prefix="ottla-table-") as spool:
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


async def _converter(place: Place, admin: Admin, settings: TopicSettings) -> Converter:
    import asyncio

    from ottla.tables.converting import Converter
    from ottla.tables.registries import needs_registry, registry_url, schemas_at

    schemas = None
    if needs_registry(settings):
        url = await registry_url(place.settings.registry_url, admin.registry_url)
        schemas = schemas_at(url, security())
    return await asyncio.to_thread(Converter, settings, schemas)


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

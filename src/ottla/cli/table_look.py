"""`ottla table status`, `show` and `verify`: look at tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import Json, complain, fail, security
from ottla.cli.output import print_json, print_table
from ottla.cli.table_place import Place, Topic, placed, shown_offsets

if TYPE_CHECKING:
    from ottla.cli.output import Value
    from ottla.client.admin.admin import Admin
    from ottla.tables.format import TableFormat, TableState
    from ottla.tables.inspecting import Finding, TableStatus
    from ottla.tables.settings import TopicSettings


@placed
def status(
    place: Place,
    topic: Annotated[
        str | None, typer.Argument(help="The topic. [default: all with a table]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show positions, lag and troubles of tables; status 1 if something is wrong.

    \b
    Examples:
        ottla table status
        ottla table status orders --json
    """
    from ottla.clock import SYSTEM
    from ottla.tables.inspecting import status as look

    async def command(
        admin: Admin, tables: TableFormat, found: list[TopicSettings]
    ) -> list[TableStatus]:
        return [await look(admin, tables, one, SYSTEM.wall_ms()) for one in found]

    rows = place.with_tables(topic, command)
    if as_json:
        print_json([_status(one) for one in rows])
    elif rows:
        lines = [_line(one) for one in rows]
        print_table(lines, tuple(lines[0]))
    else:
        typer.echo("no topic has a table")
    for one in rows:
        if one.problem is not None:
            complain(f"{one.topic}: {one.problem}")
    if any(one.problem is not None for one in rows):
        raise typer.Exit(1)


def _line(one: TableStatus) -> dict[str, str | int]:
    return {
        "topic": one.topic,
        "table": one.table,
        "position": shown_offsets(one.position),
        "lag": one.lag,
        "seconds": round(one.seconds),
        "rows": one.rows,
        "files": one.files,
        "small": one.small_files,
        "invalid": one.invalid,
        "holes": one.holes,
    }


def _status(one: TableStatus) -> Value:
    return {
        "topic": one.topic,
        "table": one.table,
        "position": {str(number): at for number, at in sorted(one.position.items())},
        "ends": {str(number): at for number, at in sorted(one.ends.items())},
        "lag": one.lag,
        "seconds": one.seconds,
        "rows": one.rows,
        "files": one.files,
        "small_files": one.small_files,
        "invalid": one.invalid,
        "holes": one.holes,
        "hold_bytes": one.hold_bytes,
        "problem": one.problem,
    }


@placed
def show(place: Place, topic: Topic, as_json: Json = False) -> None:
    """Show columns with their ids, partition, location and position of a table.

    \b
    Examples:
        ottla table show orders
    """

    async def command(_: Admin, tables: TableFormat, found: TopicSettings) -> TableState | None:
        import asyncio

        return await asyncio.to_thread(tables.load, found.table)

    state = place.with_topic(topic, command)
    if state is None:
        fail(f"{topic} has no table yet; is ottla table run running?")
    if as_json:
        print_json(_shown(state))
    else:
        _show(state)


def _shown(state: TableState) -> Value:
    from ottla.tables.iceberg_types import FIELD_ID

    return {
        "table": state.table,
        "topic": state.topic,
        "topic_id": state.topic_id,
        "location": state.location,
        "metadata_location": state.metadata_location,
        "snapshot": state.snapshot,
        "partition": state.partition,
        "first": {str(one): at for one, at in sorted(state.first.items())},
        "position": {str(one): at for one, at in sorted(state.next.items())},
        "columns": [
            {
                "id": int((one.metadata or {})[FIELD_ID]),
                "name": one.name,
                "type": str(one.type),
            }
            for one in state.columns
        ],
    }


def _show(state: TableState) -> None:
    shown = _shown(state)
    assert isinstance(shown, dict)
    columns = shown.pop("columns")
    assert isinstance(columns, list)
    for name, value in shown.items():
        typer.echo(f"{name}: {value}")
    typer.echo()
    print_table(columns, ("id", "name", "type"))
    typer.echo(f"\npolars: pl.scan_iceberg({state.metadata_location!r})")
    typer.echo(f"pyiceberg: StaticTable.from_metadata({state.metadata_location!r}).scan()")


@placed
def verify(
    place: Place,
    topic: Topic,
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Compare N windows of 100,000 offsets. [default: all]"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare a table with its log: no gap, no duplicate, same bytes. Status 1 if they differ.

    \b
    Examples:
        ottla table verify orders
        ottla table verify orders --sample 10
    """
    from ottla.tables.inspecting import verify as compare

    async def command(admin: Admin, tables: TableFormat, found: TopicSettings) -> list[Finding]:
        return await compare(place.bootstrap, security(), admin, tables, found, sample=sample)

    findings = place.with_topic(topic, command)
    wrong = [one for one in findings if one.is_wrong]
    if as_json:
        print_json([_finding(one) for one in findings])
    else:
        for one in wrong:
            complain(
                f"{topic}-{one.partition} offsets {one.start} to {one.end}: {one.missing} missing, "
                f"{one.doubled} twice, {one.foreign} not in the log, {one.different} different"
            )
        offsets = sum(one.end - one.start for one in findings)
        typer.echo(f"{offsets} offsets compared, {len(wrong)} of {len(findings)} windows differ")
    if wrong:
        raise typer.Exit(1)


def _finding(one: Finding) -> Value:
    return {
        "partition": one.partition,
        "start": one.start,
        "end": one.end,
        "missing": one.missing,
        "doubled": one.doubled,
        "foreign": one.foreign,
        "different": one.different,
    }

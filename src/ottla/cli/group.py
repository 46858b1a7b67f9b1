"""`ottla group ...`: list, describe, reset and delete consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    report_deleted,
    with_admin,
)
from ottla.cli.output import print_json, print_table
from ottla.cli.resets import (
    Execute,
    ShiftBy,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
    Topics,
    print_moves,
    reset_target,
)

if TYPE_CHECKING:
    from ottla.cli.output import Cell, Value
    from ottla.client.admin import Admin
    from ottla.client.admin_resets import OffsetMove
    from ottla.client.admin_types import GroupDescription, GroupOffset

app = typer.Typer(help="List, describe, reset and delete groups.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The group.")]
Names = Annotated[list[str], typer.Argument(help="The groups.")]


@app.command("list")
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only groups in this state, such as Stable or Empty."
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="TYPE", help="Only groups of this type: classic, consumer or share."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """List the groups.

    \b
    Examples:
        ottla group list
        ottla group list --state Empty --type consumer --json
    """
    found = with_admin(
        bootstrap,
        timeout,
        lambda admin: admin.list_groups(states=state or (), types=kind or ()),
    )
    rows: list[dict[str, Cell]] = [
        {"name": one.id, "type": one.type, "state": one.state, "protocol": one.protocol_type}
        for one in found
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows, ("name", "type", "state", "protocol"))
    else:
        typer.echo("no groups")


@app.command()
def describe(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Show members, committed offsets and how far behind they are.

    \b
    Examples:
        ottla group describe billing
        ottla group describe billing --json
    """

    async def command(admin: Admin) -> list[tuple[GroupDescription, list[GroupOffset]]]:
        return [
            (one, await admin.list_group_offsets(one.id))
            for one in await admin.describe_groups(names)
        ]

    found = with_admin(bootstrap, timeout, command)
    if as_json:
        print_json([_as_value(group, offsets) for group, offsets in found])
        return
    for number, (group, offsets) in enumerate(found):
        typer.echo("" if number == 0 else "\n", nl=False)
        typer.echo(
            f"{group.id}  {group.type}  {group.state}  {len(group.members)} member(s)  "
            f"coordinator {group.coordinator_id}"
        )
        rows = _offset_rows(group, offsets)
        if rows:
            print_table(rows, ("topic", "partition", "offset", "end", "lag", "member", "host"))


@app.command()
def reset(
    name: Name,
    topic: Topics = None,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_offset: ToOffset = None,
    to_datetime: ToDatetime = None,
    shift_by: ShiftBy = None,
    execute: Execute = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Set where a group goes on. Shows the plan; --execute carries it out.

    The group must have no members. Offsets outside a log are moved to its nearest end, and a time
    after the last record means the end. A time without a zone is local time.

    \b
    Examples:
        ottla group reset billing --topic orders --to-earliest
        ottla group reset billing --to-datetime 2026-01-31T09:00Z --execute
        ottla group reset billing --topic orders --shift-by -100 --execute
    """
    target = reset_target(
        earliest=to_earliest, latest=to_latest, offset=to_offset, time=to_datetime, shift=shift_by
    )

    async def command(admin: Admin) -> list[OffsetMove]:
        moves = await admin.plan_offset_reset(name, target, topic or ())
        if execute:
            offsets = {(one.topic, one.partition): one.after for one in moves}
            await admin.alter_group_offsets(name, offsets)
        return moves

    moves = with_admin(bootstrap, timeout, command)
    print_moves(name, moves, executed=execute, as_json=as_json)


@app.command()
def delete(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Delete groups without members, and their offsets. Does not ask again.

    \b
    Examples:
        ottla group delete billing
        ottla group delete billing reports
    """
    outcome = with_admin(bootstrap, timeout, lambda admin: admin.delete_groups(names))
    report_deleted("group", outcome, as_json=as_json)


def _offset_rows(group: GroupDescription, offsets: list[GroupOffset]) -> list[dict[str, Cell]]:
    """A row for each partition that has an offset or a member."""
    members = {(key.topic, key.partition): one for one in group.members for key in one.assignment}
    committed = {(one.topic, one.partition): one for one in offsets}
    rows: list[dict[str, Cell]] = []
    for key in sorted({*members, *committed}):
        offset = committed.get(key)
        member = members.get(key)
        rows.append(
            {
                "topic": key[0],
                "partition": key[1],
                "offset": offset.offset if offset else None,
                "end": offset.end if offset else None,
                "lag": offset.lag if offset else None,
                "member": member.id if member else None,
                "host": member.client_host if member else None,
            }
        )
    return rows


def _as_value(group: GroupDescription, offsets: list[GroupOffset]) -> Value:
    return {
        "name": group.id,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator_id,
        "members": [
            {
                "id": one.id,
                "instance_id": one.instance_id,
                "client_id": one.client_id,
                "host": one.client_host,
                "partitions": [
                    {"topic": key.topic, "partition": key.partition} for key in one.assignment
                ],
            }
            for one in group.members
        ],
        "offsets": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "offset": one.offset,
                "end": one.end,
                "lag": one.lag,
                "metadata": one.metadata,
            }
            for one in offsets
        ],
    }

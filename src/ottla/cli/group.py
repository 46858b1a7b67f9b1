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
    complain,
    with_admin,
)
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ottla.cli.output import Cell, Value
    from ottla.client.admin import Admin
    from ottla.client.admin_resets import OffsetMove, ResetTarget
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
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="NAME",
            help="Reset all partitions of this topic. May be repeated. "
            "[default: the partitions the group has offsets for]",
        ),
    ] = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Read everything there is again.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Skip to the end.")] = False,
    to_offset: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=2**63 - 1, help="Go on at this offset.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Go on at the first record of this time, such as 2026-01-31T09:00Z.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(metavar="N", help="Skip N records, or go back with a negative N."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it. Without this the plan is only shown.")
    ] = False,
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
    target = _target(
        earliest=to_earliest, latest=to_latest, offset=to_offset, time=to_datetime, shift=shift_by
    )

    async def command(admin: Admin) -> list[OffsetMove]:
        moves = await admin.plan_offset_reset(name, target, topic or ())
        if execute:
            offsets = {(one.topic, one.partition): one.after for one in moves}
            await admin.alter_group_offsets(name, offsets)
        return moves

    moves = with_admin(bootstrap, timeout, command)
    rows: list[dict[str, Cell]] = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "before": one.before,
            "after": one.after,
        }
        for one in moves
    ]
    if as_json:
        print_json({"name": name, "executed": execute, "offsets": rows})
        return
    print_table(rows, ("topic", "partition", "before", "after"))
    typer.echo("done" if execute else "nothing was changed; add --execute to do this")


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
    if as_json:
        print_json([{"name": name, "deleted": error is None} for name, error in outcome.items()])
    for name, error in outcome.items():
        if error is not None:
            complain(error)
        elif not as_json:
            typer.echo(f"deleted group {name}")
    if any(outcome.values()):
        raise typer.Exit(1)


def _target(
    *, earliest: bool, latest: bool, offset: int | None, time: str | None, shift: int | None
) -> ResetTarget:
    """The one target that was given."""
    from ottla.client.admin_resets import ShiftBy, ToOffset

    given: list[ResetTarget] = []
    if earliest:
        given.append("earliest")
    if latest:
        given.append("latest")
    if offset is not None:
        given.append(ToOffset(offset))
    if time is not None:
        given.append(_time(time))
    if shift is not None:
        given.append(ShiftBy(shift))
    if len(given) != 1:
        raise typer.BadParameter(
            "give exactly one of --to-earliest, --to-latest, --to-offset, --to-datetime, --shift-by"
        )
    return given[0]


def _time(text: str) -> ResetTarget:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is no time such as 2026-01-31T09:00Z", param_hint="--to-datetime"
        ) from None


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

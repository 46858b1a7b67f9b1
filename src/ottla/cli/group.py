"""`ottla group ...`: list, describe, reset and delete consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    delete_named,
    with_admin,
)
from ottla.cli.output import print_each, print_list, print_table
from ottla.cli.resets import (
    Execute,
    OfTopics,
    ShiftBy,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
    Topics,
    forget_offsets,
    reset_offsets,
    reset_target,
)

if TYPE_CHECKING:
    from ottla.cli.output import Cell, Value
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.types import GroupDescription, GroupOffset

    Described: TypeAlias = tuple[GroupDescription, list[GroupOffset]]

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
    print_list("groups", rows, ("name", "type", "state", "protocol"), as_json=as_json)


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

    async def command(admin: Admin) -> list[Described]:
        return [
            (one, await admin.list_group_offsets(one.id))
            for one in await admin.describe_groups(names)
        ]

    print_each(with_admin(bootstrap, timeout, command), _as_value, _show, as_json=as_json)


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
    """Change the committed offsets of a group. Shows the plan; --execute carries it out.

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

    reset_offsets(
        name,
        bootstrap,
        timeout,
        lambda admin: admin.plan_offset_reset(name, target, topic or ()),
        lambda admin, offsets: admin.alter_group_offsets(name, offsets),
        execute=execute,
        as_json=as_json,
    )


@app.command()
def forget(
    name: Name,
    topic: OfTopics = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Delete the committed offsets of a group in some topics. Does not ask again.

    No member may be subscribed to these topics.

    \b
    Examples:
        ottla group forget billing --topic orders
    """
    topics = topic or []

    async def work(admin: Admin) -> None:
        known = await admin.list_group_offsets(name)
        places = [(one.topic, one.partition) for one in known if one.topic in topics]
        await admin.delete_group_offsets(name, places)

    forget_offsets(name, topics, bootstrap, timeout, work, as_json=as_json)


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
    delete_named(
        "group",
        bootstrap,
        timeout,
        lambda admin: admin.delete_groups(names, return_errors=True),
        as_json=as_json,
    )


def _show(described: Described) -> None:
    group, offsets = described
    typer.echo(
        f"{group.id}  {group.type}  {group.state}  {len(group.members)} member(s)  "
        f"coordinator {group.coordinator_id}"
    )
    if rows := _offset_rows(group, offsets):
        print_table(rows, ("topic", "partition", "offset", "end", "lag", "member", "host"))


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


def _as_value(described: Described) -> Value:
    group, offsets = described
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

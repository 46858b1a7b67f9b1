"""`ottla share-group ...`: list, describe, alter, reset, delete share groups, redrive letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    Unset,
    delete_named,
    setting_changes,
    with_admin,
)
from ottla.cli.output import print_each, print_json, print_list, print_table
from ottla.cli.redrive import redrive
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
    from ottla.client.admin.types import ShareGroupDescription, ShareGroupOffset

    Described: TypeAlias = tuple[ShareGroupDescription, list[ShareGroupOffset]]

app = typer.Typer(
    help="List, describe, alter, reset, delete and redrive share groups.", no_args_is_help=True
)

_PARTITION_COLUMNS = (
    "topic", "partition", "start", "in_flight", "delivered", "lag", "members",
)  # fmt: skip

Name = Annotated[str, typer.Argument(help="The share group.")]
Names = Annotated[list[str], typer.Argument(help="The share groups.")]


@app.command("list")
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only groups in this state: Stable or Empty."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """List the share groups.

    \b
    Examples:
        ottla share-group list
        ottla share-group list --state Empty --json
    """
    found = with_admin(
        bootstrap, timeout, lambda admin: admin.list_groups(states=state or (), types=["share"])
    )
    rows: list[dict[str, Cell]] = [{"name": one.id, "state": one.state} for one in found]
    print_list("share groups", rows, ("name", "state"), as_json=as_json)


@app.command()
def describe(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Show members, start offsets and how far behind they are.

    Below the start offset, as it was last stored, every record is settled; beyond it as many as
    "delivered" says. Members hold "in_flight" records at the moment. The lag counts the records
    that still have to be delivered for good, those that members hold included.

    \b
    Examples:
        ottla share-group describe orders-workers
        ottla share-group describe orders-workers --json
    """

    async def command(admin: Admin) -> list[Described]:
        return [
            (one, await admin.list_share_group_offsets(one.id))
            for one in await admin.describe_share_groups(names)
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
    """Change the start offsets of a share group. Shows the plan; --execute carries it out.

    The group must have no members. What it has settled from the new start offset on is delivered
    again. Offsets outside a log are moved to its nearest end, and a time after the last record
    means the end. A time without a zone is local time.

    \b
    Examples:
        ottla share-group reset orders-workers --topic orders --to-earliest
        ottla share-group reset orders-workers --to-datetime 2026-01-31T09:00Z --execute
        ottla share-group reset orders-workers --topic orders --shift-by -100 --execute
    """
    target = reset_target(
        earliest=to_earliest, latest=to_latest, offset=to_offset, time=to_datetime, shift=shift_by
    )

    reset_offsets(
        name,
        bootstrap,
        timeout,
        lambda admin: admin.plan_share_offset_reset(name, target, topic or ()),
        lambda admin, offsets: admin.alter_share_group_offsets(name, offsets),
        execute=execute,
        as_json=as_json,
    )


@app.command()
def alter(
    name: Name,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", metavar="KEY=VALUE", help="A setting of the group. May be repeated."
        ),
    ] = None,
    unset: Unset = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Change settings of a share group; other settings stay.

    \b
    Examples:
        ottla share-group alter orders-workers --config share.record.lock.duration.ms=60000
        ottla share-group alter orders-workers --config errors.deadletterqueue.topic.name=dlq.orders
        ottla share-group alter orders-workers --unset share.delivery.count.limit
    """
    changes = setting_changes(config or (), unset or ())
    if not changes:
        raise typer.BadParameter("give --config or --unset")
    with_admin(bootstrap, timeout, lambda admin: admin.alter_configs("group", name, changes))
    if as_json:
        print_json({"name": name, "altered": True})
    else:
        typer.echo(f"altered share group {name}")


@app.command()
def forget(
    name: Name,
    topic: OfTopics = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Delete what a share group has settled in some topics. Does not ask again.

    The group must have no members. It then starts there by its setting share.auto.offset.reset.

    \b
    Examples:
        ottla share-group forget orders-workers --topic orders
    """
    topics = topic or []

    async def work(admin: Admin) -> None:
        await admin.delete_share_group_offsets(name, topics)

    forget_offsets(name, topics, bootstrap, timeout, work, as_json=as_json)


@app.command()
def delete(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Delete share groups without members, and their state. Does not ask again.

    \b
    Examples:
        ottla share-group delete orders-workers
        ottla share-group delete orders-workers audit-workers
    """
    delete_named(
        "share group",
        bootstrap,
        timeout,
        lambda admin: admin.delete_share_groups(names, return_errors=True),
        as_json=as_json,
    )


app.command()(redrive)


def _show(described: Described) -> None:
    group, offsets = described
    typer.echo(
        f"{group.id}  share  {group.state}  {len(group.members)} member(s)  "
        f"coordinator {group.coordinator_id}"
    )
    if partitions := _partition_rows(group, offsets):
        print_table(partitions, _PARTITION_COLUMNS)
    if members := _member_rows(group):
        print_table(members, ("member", "client", "host", "epoch", "partitions"))


def _partition_rows(
    group: ShareGroupDescription, offsets: list[ShareGroupOffset]
) -> list[dict[str, Cell]]:
    """A row for each partition that has state or a member."""
    sharing: dict[tuple[str, int], int] = {}
    for member in group.members:
        for key in member.assignment:
            sharing[key] = sharing.get(key, 0) + 1
    known = {(one.topic, one.partition): one for one in offsets}
    rows: list[dict[str, Cell]] = []
    for place in sorted({*sharing, *known}):
        offset = known.get(place)
        rows.append(
            {
                "topic": place[0],
                "partition": place[1],
                "start": offset.start_offset if offset else None,
                "in_flight": offset.in_flight if offset else None,
                "delivered": offset.delivered if offset else None,
                "lag": offset.lag if offset else None,
                "members": sharing.get(place, 0),
            }
        )
    return rows


def _member_rows(group: ShareGroupDescription) -> list[dict[str, Cell]]:
    return [
        {
            "member": one.id,
            "client": one.client_id,
            "host": one.client_host,
            "epoch": one.epoch,
            "partitions": ", ".join(f"{topic}-{number}" for topic, number in one.assignment),
        }
        for one in group.members
    ]


def _as_value(described: Described) -> Value:
    group, offsets = described
    return {
        "name": group.id,
        "state": group.state,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "coordinator": group.coordinator_id,
        "members": [
            {
                "id": one.id,
                "rack_id": one.rack_id,
                "epoch": one.epoch,
                "client_id": one.client_id,
                "host": one.client_host,
                "topics": one.topics,
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
                "start_offset": one.start_offset,
                "in_flight": one.in_flight,
                "delivered": one.delivered,
                "lag": one.lag,
            }
            for one in offsets
        ],
    }

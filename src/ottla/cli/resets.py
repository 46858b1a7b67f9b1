"""Shared by `group` and `share-group`: the target of a reset, its plan, and printing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ottla.cli.common import with_admin
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ottla.cli.output import Cell
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.resets import OffsetMove, ResetTarget

Topics: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="NAME",
        help="Reset all partitions of this topic. May be repeated. "
        "[default: the partitions the group has offsets for]",
    ),
]
OfTopics: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="NAME", help="The topic whose offsets are deleted. May be repeated."
    ),
]
ToEarliest: TypeAlias = Annotated[
    bool, typer.Option("--to-earliest", help="Start at the first record.")
]
ToLatest: TypeAlias = Annotated[bool, typer.Option("--to-latest", help="Start at the end.")]
ToOffset: TypeAlias = Annotated[
    int | None,
    typer.Option("--to-offset", metavar="N", min=0, max=2**63 - 1, help="Start at this offset."),
]
ToDatetime: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--to-datetime",
        metavar="TIME",
        help="Start at the first record of this time, such as 2026-01-31T09:00Z.",
    ),
]
ShiftBy: TypeAlias = Annotated[
    int | None,
    typer.Option("--shift-by", metavar="N", help="Skip N records, or go back with a negative N."),
]
Execute: TypeAlias = Annotated[
    bool, typer.Option("--execute", help="Carry out the plan instead of only showing it.")
]


def reset_target(
    *, earliest: bool, latest: bool, offset: int | None, time: str | None, shift: int | None
) -> ResetTarget:
    """The one target that was given."""
    from ottla.client.admin.resets import ShiftBy, ToOffset

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
            f"{text!r} is not a time such as 2026-01-31T09:00Z", param_hint="--to-datetime"
        ) from None


def reset_offsets(
    name: str,
    bootstrap: str,
    within: float,
    plan: Callable[[Admin], Awaitable[Sequence[OffsetMove]]],
    alter: Callable[[Admin, dict[tuple[str, int], int]], Awaitable[None]],
    *,
    execute: bool,
    as_json: bool,
) -> None:
    """Make the plan, carry it out with --execute, and print it."""

    async def command(admin: Admin) -> Sequence[OffsetMove]:
        moves = await plan(admin)
        if execute:
            await alter(admin, {(one.topic, one.partition): one.after for one in moves})
        return moves

    _print_moves(name, with_admin(bootstrap, within, command), executed=execute, as_json=as_json)


def forget_offsets(
    name: str,
    topics: Sequence[str],
    bootstrap: str,
    within: float,
    forget: Callable[[Admin], Awaitable[None]],
    *,
    as_json: bool,
) -> None:
    """Delete a group's offsets in some topics, and say so."""
    if not topics:
        raise typer.BadParameter("name the topic whose offsets go", param_hint="--topic")
    with_admin(bootstrap, within, forget)
    if as_json:
        print_json({"name": name, "forgotten": list(topics)})
    else:
        typer.echo(f"{name} has no offsets in {', '.join(topics)} any more")


def _print_moves(name: str, moves: Sequence[OffsetMove], *, executed: bool, as_json: bool) -> None:
    """The plan, and whether it was carried out."""
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
        print_json({"name": name, "executed": executed, "offsets": rows})
        return
    print_table(rows, ("topic", "partition", "before", "after"))
    typer.echo("done" if executed else "nothing was changed; add --execute to do this")

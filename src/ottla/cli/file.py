"""`ottla file inspect|verify|repair`: show, check and repair `.ss` files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ottla.cli.common import Json, fail
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cli.output import Value
    from ottla.streams.ss.check import Inspection

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Inspect, check and repair .ss files.",
)

File = Annotated[str, typer.Argument(metavar="FILE.ss")]

EXAMPLES = """\b
Examples:
    ottla file inspect orders.ss
    ottla file verify orders.ss --json
    ottla file repair orders.ss
"""


@app.command(epilog=EXAMPLES)
def inspect(file: File, as_json: Json = False) -> None:
    """Print the header, and the messages of each stream and shard."""
    from ottla.streams.ss.check import inspect_file

    found = _guarded(lambda: inspect_file(file))
    if as_json:
        print_json(_as_json(found))
        return
    typer.echo(f"{found.header.name}, created {found.created}, {found.size} bytes")
    typer.echo(f"beacon interval {found.header.interval}, {found.beacons} beacons")
    typer.echo(f"{'ended' if found.ended else 'not ended'}; {found.problem or 'whole'}")
    columns = ["stream", "shard", "messages", "bytes", "first", "last", "until"]
    print_table([shard._asdict() for shard in found.shards], columns)


@app.command(epilog=EXAMPLES)
def verify(file: File, as_json: Json = False) -> None:
    """Check every frame and beacon; status 1 if something is damaged."""
    from ottla.streams.ss.check import inspect_file

    found = _guarded(lambda: inspect_file(file))
    if as_json:
        print_json(_as_json(found))
    elif found.problem is None:
        for note in found.notes:
            typer.echo(f"note: {note}")
        typer.echo(f"{file}: sound, {found.messages} messages")
    if found.problem is not None:
        fail(f"{file}: {found.problem}; ottla file repair cuts a torn tail off")


@app.command(epilog=EXAMPLES)
def repair(file: File, as_json: Json = False) -> None:
    """Cut off a torn or damaged end of the file."""
    from ottla.streams.ss.check import repair_file

    cut = _guarded(lambda: repair_file(file))
    if as_json:
        print_json({"file": file, "cut_bytes": cut})
    else:
        typer.echo(f"{file}: cut off {cut} bytes" if cut else f"{file}: nothing to repair")


def _as_json(found: Inspection) -> dict[str, Value]:
    return {
        "name": found.header.name,
        "created": found.created,
        "beacon_interval": found.header.interval,
        "size": found.size,
        "beacons": found.beacons,
        "messages": found.messages,
        "ended": found.ended,
        "shards": [shard._asdict() for shard in found.shards],
        "problem": found.problem,
        "notes": list(found.notes),
    }


def _guarded(work: Callable[[], T]) -> T:
    from ottla.streams.errors import StreamError

    try:
        return work()
    except (StreamError, OSError) as error:
        fail(error)

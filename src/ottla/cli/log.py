"""`ottla log journal`: show the journal of a data directory."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path  # noqa: TC003  # typer looks at it
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import Json, fail
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ottla.cli.output import Value
    from ottla.log.journal.inspect import Inspection

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Look at the files of a data directory."
)

COVERED = ("topic", "partition", "first", "end", "bytes", "synced")
SLOTS = ("seq", "file", "position", "bytes", "created", "state", "partitions")

EXAMPLES = """\b
Examples:
    ottla log journal /var/lib/ottla
    ottla log journal /var/lib/ottla --slots
    ottla log journal /var/lib/ottla --json
"""


@app.command(epilog=EXAMPLES)
def journal(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The data directory.")],
    slots: Annotated[bool, typer.Option("--slots", help="List each slot, too.")] = False,
    as_json: Json = False,
) -> None:
    """Print the batches that the journal keeps for a crash, by partition.

    Nothing is changed, so the broker may be running. Status 1 if the journal is damaged.
    """
    from ottla.log.journal.inspect import inspect
    from ottla.log.journal.replay import CorruptJournal, JournalMissing

    if not directory.is_dir():
        fail(f"{directory} is not a directory")
    try:
        found = inspect(directory)
    except (CorruptJournal, JournalMissing, OSError) as error:
        fail(error)
    if as_json:
        print_json(None if found is None else _as_json(found))
    elif found is None:
        typer.echo(f"{directory} has no journal: every log is synced")
    else:
        _show(found, slots=slots)
    if found is not None and found.problem is not None:
        fail(found.problem)


def _show(found: Inspection, *, slots: bool) -> None:
    needed = sum(slot.state == "needed" for slot in found.slots)
    typer.echo(f"{found.files} files, {len(found.slots)} slots, {needed} of them needed")
    if found.covered:
        print_table([covered._asdict() for covered in found.covered], COVERED)
    if slots and found.slots:
        rows = [slot._asdict() | {"created": _time(slot.created_ms)} for slot in found.slots]
        print_table(rows, SLOTS)


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def _as_json(found: Inspection) -> dict[str, Value]:
    return {
        "stream": found.stream,
        "files": found.files,
        "covered": [covered._asdict() for covered in found.covered],
        "slots": [slot._asdict() for slot in found.slots],
        "problem": found.problem,
    }

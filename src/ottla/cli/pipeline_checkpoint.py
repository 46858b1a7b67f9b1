"""`ottla pipeline checkpoint ...`: look into Spark's checkpoints, and move them between formats."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ottla.cli.common import Json  # noqa: TC001  # typer reads it
from ottla.cli.output import print_json, print_table
from ottla.cli.run import Debug, sentences

if TYPE_CHECKING:
    from ottla.cli.output import Cell

app = typer.Typer(
    help="Show Spark checkpoints, and convert them between formats.", no_args_is_help=True
)
Directory: TypeAlias = Annotated[
    Path, typer.Argument(metavar="DIR", help="A checkpoint, such as STATE/checkpoints/FLOW.")
]


@app.command()
def show(directory: Directory, as_json: Json = False, debug: Debug = False) -> None:
    """Print the planned and the finished batches of a checkpoint.

    \b
    Examples:
        ottla pipeline checkpoint show ottla-state/orders/checkpoints/totals
        ottla pipeline checkpoint show checkpoints/totals --json
    """
    with sentences(debug=debug):
        from ottla.spark.pipelines.converting import batches

        found = batches(directory)
    if as_json:
        print_json([{**one._asdict(), "offsets": list(one.offsets)} for one in found])
        return
    rows: list[dict[str, Cell]] = [
        {
            "batch": one.number,
            "state": "done" if one.is_committed else "planned",
            "planned": datetime.fromtimestamp(one.planned_at, UTC).isoformat(" ", "seconds"),
            "offsets": " ".join(map(str, one.offsets)),
        }
        for one in found
    ]
    print_table(rows, ("batch", "state", "planned", "offsets"))


@app.command()
def convert(
    directory: Directory,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="kafka or ottla.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Convert a checkpoint for Spark's kafka format or for ottla. Stop its query first.

    Only a checkpoint with a single batch needs this; others work in both formats.

    \b
    Examples:
        ottla pipeline checkpoint convert checkpoints/totals --to kafka
        ottla pipeline checkpoint convert checkpoints/totals --to ottla
    """
    with sentences(debug=debug):
        from ottla.spark.pipelines import converting

        changed = converting.convert(directory, to)
    if as_json:
        print_json({"to": to, "changed": [str(one) for one in changed]})
        return
    for one in changed:
        typer.echo(f"changed: {one}")
    if not changed:
        typer.echo(f"{directory} works with {to} already; nothing was changed")

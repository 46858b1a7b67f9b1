"""The tree of commands."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from ottla.cli import group, topic

app = typer.Typer(
    help="Ottla: Kafka's little sister.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")


def _print_version(wanted: bool) -> None:
    if wanted:
        # Not an import statement: the package's front page names every room.
        typer.echo(f"ottla {import_module('ottla').__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Ottla: Kafka's little sister."""

"""The command line: `ottla ...`. Thin: it parses, calls the rooms, prints."""

from __future__ import annotations

import typer

from ottla.cli.broker import EXAMPLES as BROKER_EXAMPLES
from ottla.cli.broker import broker

app = typer.Typer(
    name="ottla",
    help="Kafka's little sister: a Kafka-compatible broker and its tools.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command(epilog=BROKER_EXAMPLES)(broker)


@app.callback()
def ottla() -> None:
    """Kafka's little sister: a Kafka-compatible broker and its tools."""


def main() -> None:
    app()

"""The command line: `ottla ...`. It parses, calls the rooms and prints; nothing is decided here.

Status 0 is success, 1 a failure that is told in one sentence on stderr, 2 a wrong use of the
command. Modules of commands import typer and the standard library only; what a command needs
beyond that (a client, a broker, rich) is imported when it runs, so that none pays for another.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer

from ottla.cli import file, group, offsets, pipeline, share_group, tier, topic, transaction
from ottla.cli.bench import EXAMPLES as BENCH_EXAMPLES
from ottla.cli.bench import bench
from ottla.cli.broker import EXAMPLES as BROKER_EXAMPLES
from ottla.cli.broker import broker
from ottla.cli.common import EXTRAS, complain
from ottla.cli.consume import EXAMPLES as CONSUME_EXAMPLES
from ottla.cli.consume import consume
from ottla.cli.demo import EXAMPLES as DEMO_EXAMPLES
from ottla.cli.demo import demo
from ottla.cli.doctor import EXAMPLES as DOCTOR_EXAMPLES
from ottla.cli.doctor import doctor
from ottla.cli.produce import EXAMPLES as PRODUCE_EXAMPLES
from ottla.cli.produce import produce
from ottla.cli.relay import CLOCK_EXAMPLES, RELAY_EXAMPLES, clock, relay
from ottla.cli.run import EXAMPLES as RUN_EXAMPLES
from ottla.cli.run import run
from ottla.cli.share_consume import EXAMPLES as SHARE_CONSUME_EXAMPLES
from ottla.cli.share_consume import share_consume

app = typer.Typer(
    name="ottla",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=BROKER_EXAMPLES)(broker)
app.command(epilog=PRODUCE_EXAMPLES)(produce)
app.command(epilog=CONSUME_EXAMPLES)(consume)
app.command(epilog=SHARE_CONSUME_EXAMPLES)(share_consume)
app.command(epilog=RUN_EXAMPLES)(run)
app.command(epilog=RELAY_EXAMPLES)(relay)
app.command(epilog=CLOCK_EXAMPLES)(clock)
app.command(epilog=DEMO_EXAMPLES)(demo)
app.command(epilog=BENCH_EXAMPLES)(bench)
app.command(epilog=DOCTOR_EXAMPLES)(doctor)
app.add_typer(file.app, name="file")
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(share_group.app, name="share-group")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(offsets.app, name="offsets")
app.add_typer(tier.app, name="tier")
app.add_typer(transaction.app, name="transaction")


def _print_version(wanted: bool) -> None:
    if wanted:
        # Looked up, not imported: the package's front page names every room.
        typer.echo(f"ottla {import_module('ottla').__version__}")
        raise typer.Exit


@app.callback()
def ottla(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Kafka's little sister: a Kafka-compatible broker and its tools."""


def main() -> None:
    """Run the command line and exit."""
    try:
        app(prog_name="ottla")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        complain(f"this needs {package}: pip install 'ottla[{EXTRAS[package]}]'")
        sys.exit(1)

"""The command line: `ottla ...`. It parses arguments, calls the other packages and prints.

Status 0 is success, 1 a failure with one sentence on stderr, 2 wrong use. Modules of commands
import only typer and the standard library; everything else (a client, a broker, rich) is imported
when the command runs, so that other commands start quickly.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.common import EXTRAS, BrokerCommand, complain

if TYPE_CHECKING:
    from collections.abc import Iterable

# Where each is: a module with a group of commands, or a module, its function and its examples.
COMMAND_EXTRAS: Final = {
    "pipeline": "spark",
    "registry": "registry",
    "run": "spark",
    "sql": "sql",
    "table": "tables",
}
"""Commands whose extra has all that they need, whichever package is missed first."""
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "broker": ("broker", "broker", "EXAMPLES"),
    "produce": ("produce", "produce", "EXAMPLES"),
    "consume": ("consume", "consume", "EXAMPLES"),
    "share-consume": ("share_consume", "share_consume", "EXAMPLES"),
    "sql": ("sql", "sql", "EXAMPLES"),
    "run": ("run", "run", "EXAMPLES"),
    "relay": ("relay", "relay", "RELAY_EXAMPLES"),
    "clock": ("relay", "clock", "CLOCK_EXAMPLES"),
    "demo": ("demo", "demo", "EXAMPLES"),
    "bench": ("bench", "bench", "EXAMPLES"),
    "doctor": ("doctor", "doctor", "EXAMPLES"),
    "top": ("top", "top", "EXAMPLES"),
    "console": ("console",),
    "cert": ("cert",),
    "cluster": ("cluster",),
    "file": ("file",),
    "log": ("log",),
    "topic": ("topic",),
    "group": ("group",),
    "share-group": ("share_group",),
    "pipeline": ("pipeline",),
    "offsets": ("offsets",),
    "table": ("table",),
    "tier": ("tier",),
    "transaction": ("transaction",),
    "user": ("user",),
    "acl": ("acl",),
    "quota": ("quota",),
    "registry": ("registry",),
}

UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
"""What a write says to a file or a pipe that takes no more."""
COMPLETING: Final = "_OTTLA_COMPLETE"
"""Set by a shell that asks for completions."""


def command_line(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands; with all of them it can complete them in a shell."""
    app = typer.Typer(
        name="ottla",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=names is COMMANDS,
        context_settings={"help_option_names": ["-h", "--help"]},
        callback=ottla,
    )
    for name in names:
        module_name, *inside = COMMANDS[name]
        module = import_module(f"ottla.cli.{module_name}")
        if inside:
            function, examples = inside
            epilog = getattr(module, examples)
            app.command(name, epilog=epilog, cls=BrokerCommand)(getattr(module, function))
        else:
            for command in module.app.registered_commands:
                command.cls = BrokerCommand
            app.add_typer(module.app, name=name)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        # Looked up, not imported: the package's front page names every room.
        typer.echo(f"ottla {import_module('ottla').__version__}")
        raise typer.Exit


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
    """Run the command line and exit; only the module of the named command is imported."""
    _fill_closed_streams()
    named = sys.argv[1:2]
    is_one = bool(named) and named[0] in COMMANDS and COMPLETING not in os.environ
    try:
        try:
            command_line(named if is_one else COMMANDS)(prog_name="ottla")
        finally:
            sys.stdout.flush()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        extra = COMMAND_EXTRAS.get(named[0] if is_one else "", EXTRAS[package])
        complain(f"this needs {package}: pip install 'ottla[{extra}]'")
        sys.exit(2)
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        if error.errno != errno.EPIPE:  # its reader has seen enough
            complain(f"cannot write the output: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left is written at exit
        sys.exit(1)


def _fill_closed_streams() -> None:
    """What is printed to a closed stream goes nowhere, and no file or socket takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  stays open

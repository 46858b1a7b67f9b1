"""The command line: `ottla ...`. It parses, calls the rooms and prints; nothing is decided here.

Status 0 is success, 1 a failure that is told in one sentence on stderr, 2 a wrong use of the
command. Modules of commands import typer and the standard library only; what a command needs
beyond that (a client, a broker, rich) is imported when it runs, so that none pays for another.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit."""
    from ottla.cli.app import app

    app(prog_name="ottla")

"""`ottla demo`: every part of Ottla at work for a minute, with checked results."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # typer looks at it
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import Json, complain, fail, sentences
from ottla.cli.output import print_json

if TYPE_CHECKING:
    from ottla.demo.run import Summary

NEEDED = ("cryptography", "numba", "pyarrow", "pyiceberg", "pyspark", "starlette")
KEPT = """\
the broker serves {0} until Ctrl-C; in another terminal:
  ottla cluster status --bootstrap {0}
  ottla share-group describe warehouse --bootstrap {0}
  ottla sql "select shop, count(*) from orders group by shop" --bootstrap {0}
its files, which stay when it ends: {1}
the console, until then: {2}"""
STOPPED = 130  # what shells say of a program that Ctrl-C has ended

EXAMPLES = """
Examples:

  ottla demo                  a minute: nodes, TLS, queue, ledger, table, Spark; all of it checked

  ottla demo --keep           the broker stays, to be looked at with ottla topic, consume, ...

  ottla demo --keep --console the address of the web console is told at the start, too

  ottla demo --json           the summary for programs, progress on stderr
"""


def demo(
    orders: Annotated[int, typer.Option(min=500, help="Number of orders.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the generated orders.")] = 1,
    limit: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Fail after this time.")
    ] = 100,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the broker until Ctrl-C, and all files.")
    ] = False,
    console: Annotated[
        bool, typer.Option("--console", help="Tell the address of the web console at the start.")
    ] = False,
    as_json: Json = False,
    picture: Annotated[
        Path | None, typer.Option(hidden=True, help="Save the last screen as SVG.")
    ] = None,
) -> None:
    """Run every part of Ottla together for a minute, and check the results."""
    from asyncio import CancelledError
    from importlib.util import find_spec

    missing = [package for package in NEEDED if find_spec(package) is None]
    if missing:
        fail(f"the demo shows everything and needs {missing[0]}: pip install 'ottla[all]'")
    from ottla.demo.crew import ChildFailed
    from ottla.demo.run import Options, run_demo

    def report(summary: Summary) -> None:
        _print(summary, as_json=as_json)
        if keep:
            typer.echo(kept(summary), err=as_json)

    try:
        with sentences():
            options = Options(orders, seed, limit, as_json, keep, picture, console)
            summary = run_demo(options, report)
    except ChildFailed as error:
        fail(error)
    except (KeyboardInterrupt, CancelledError):
        complain("stopped; nothing is left running")
        raise typer.Exit(STOPPED) from None
    for sentence in summary.failures:
        complain(sentence)
    if summary.failures:
        fail(f"the files are left in {summary.directory}")


def kept(summary: Summary) -> str:
    """What to do with the broker that stays."""
    return KEPT.format(summary.bootstrap, summary.directory, summary.console)


def _print(summary: Summary, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "ok": not summary.failures,
                "orders": summary.orders,
                "seconds": summary.seconds,
                "checks": [one._asdict() for one in summary.checks],
            }
        )
        return
    from ottla.demo.screen import print_summary

    print_summary(summary.checks, summary.seconds)

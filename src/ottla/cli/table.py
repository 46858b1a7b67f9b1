"""`ottla table ...`: keep topics as Iceberg tables, and look at these tables."""

from __future__ import annotations

import typer

from ottla.cli.table_erase import erase
from ottla.cli.table_infer import infer
from ottla.cli.table_look import show, status, verify
from ottla.cli.table_mend import drop, reprocess, resume, retire
from ottla.cli.table_rebuild import rebuild
from ottla.cli.table_run import run
from ottla.cli.table_upkeep import compact, expire, sweep

app = typer.Typer(help="Keep topics as Iceberg tables.", no_args_is_help=True)

for command in (
    run,
    status,
    show,
    verify,
    infer,
    resume,
    retire,
    drop,
    reprocess,
    rebuild,
    erase,
    compact,
    expire,
    sweep,
):
    app.command()(command)

"""`ottla sql STATEMENT`: a select over topics."""

from __future__ import annotations

import csv
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Timeout,
    complain,
    security,
    sentences,
)
from ottla.cli.output import print_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.cli.output import Cell
    from ottla.tables.sql import Query
    from ottla.tables.topic_table import TopicTable

EXAMPLES = """\b
Examples:
    ottla sql "select shop, sum(amount) from orders group by shop"
    ottla sql "select count(*) from orders" --at 2026-11-14T08:00Z
    ottla sql 'select * from "orders-eu" limit 10' --json
    ottla sql "select * from orders" --no-tail --csv > orders.csv
"""


def sql(
    statement: Annotated[
        str, typer.Argument(metavar="STATEMENT", help="A select; its tables are topics.")
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME|OFFSETS",
            help='Read as of a time (2026-11-14T08:00Z), or up to offsets ({"0": 12, "1": 7}).',
        ),
    ] = None,
    no_tail: Annotated[
        bool, typer.Option("--no-tail", help="Read the tables alone, without newer records.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Read what is left of tables that have holes."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each row.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Query topics with SQL, as tables: archive and newest records alike. Nothing is written."""
    if as_json and as_csv:
        raise typer.BadParameter("give --json or --csv, not both", param_hint="--csv")
    from ottla.client.errors import BadArgument, MissingExtra
    from ottla.tables.errors import BadStatement, NoSuchTopic, TableError
    from ottla.tables.sql import Query
    from ottla.tables.topic_table import table

    moment = None if at is None else _moment(at)

    def open_topic(name: str) -> TopicTable:
        return table(
            name,
            bootstrap=bootstrap,
            at=moment,
            tail=not no_tail,
            accept_loss=accept_loss,
            security=security(),
            api_timeout=timeout,
        )

    with sentences():
        try:
            query = Query(statement, open_topic)
            try:
                _print(query, as_json=as_json, as_csv=as_csv)
            finally:
                query.close()
        except (BadArgument, BadStatement, MissingExtra, NoSuchTopic) as error:
            complain(error)
            raise typer.Exit(2) from None
        except TableError as error:
            complain(error)
            raise typer.Exit(1) from None


def _moment(text: str) -> str | dict[str, int]:
    if not text.lstrip().startswith("{"):
        return text
    try:
        found: dict[str, int] = json.loads(text)
    except ValueError:
        raise typer.BadParameter(
            'expected a time or offsets like {"0": 12}', param_hint="--at"
        ) from None
    return found


def _print(query: Query, *, as_json: bool, as_csv: bool) -> None:
    rows = query.rows()
    if as_json:
        for row in rows:
            shown = dict(zip(query.columns, map(_plain, row), strict=True))
            sys.stdout.write(json.dumps(shown, ensure_ascii=False) + "\n")
    elif as_csv:
        _print_csv(query, rows)
    else:
        found = [[_cell(one) for one in row] for row in rows]
        names = _distinct(query.columns)
        print_table([dict(zip(names, row, strict=True)) for row in found], names, query.columns)


def _print_csv(query: Query, rows: Iterable[tuple[Any, ...]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    is_first = True
    for row in rows:
        if is_first:
            writer.writerow(query.columns)
        is_first = False
        writer.writerow(["" if one is None else _text(one) for one in row])
    if is_first:
        writer.writerow(query.columns)


def _distinct(names: list[str]) -> list[str]:
    """Names that may be keys: a statement may have two columns of one name."""
    found: list[str] = []
    for name in names:
        found.append(name if name not in found else f"{name}_{len(found) + 1}")
    return found


def _plain(value: Any) -> Any:
    """The value as JSON has it: bytes as text where they are UTF-8, else in hexadecimal."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return _of_bytes(bytes(value))
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()


def _text(value: Any) -> str:
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _cell(value: Any) -> Cell:
    plain = _plain(value)
    if plain is None or isinstance(plain, str | int | float):
        return plain
    return json.dumps(plain, ensure_ascii=False)

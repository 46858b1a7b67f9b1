"""Printing: rows as a table for people, values as JSON for programs.

A table is as wide as it needs to be when the output is not a terminal: nothing is cut or wrapped
on its way into a file or another program. What names and values of strangers hold is made visible:
no escape sequence of theirs reaches a terminal, and none of them breaks a row.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

Cell: TypeAlias = str | float | bool | None
Value: TypeAlias = "Cell | Sequence[Value] | Mapping[str, Value]"

# Wider than any row; rich needs some number.
UNBOUNDED = 100_000


def print_json(value: Value) -> None:
    """The value, readable, on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_table(
    rows: Sequence[Mapping[str, Cell]],
    columns: Sequence[str],
    titles: Sequence[str] | None = None,
) -> None:
    """One line per row; numbers are right-aligned, missing values are a dash.

    Without titles the columns' names are the titles, with blanks for underscores.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ottla.console.text import visible

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    if titles is None:
        titles = [column.replace("_", " ") for column in columns]
    for column, title in zip(columns, titles, strict=True):
        numbers = any(type(row[column]) in (int, float) for row in rows)
        table.add_column(
            Text(visible(title)), justify="right" if numbers else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(visible(_cell(row[column]))) for column in columns))
    console = Console(width=None if sys.stdout.isatty() else UNBOUNDED)
    console.print(table)


def print_list(
    kind: str, rows: Sequence[Mapping[str, Cell]], columns: Sequence[str], *, as_json: bool
) -> None:
    """A list: all fields for programs, these columns for people."""
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows, columns)
    else:
        print(f"no {kind}")


def print_each(
    found: Sequence[T], value: Callable[[T], Value], show: Callable[[T], None], *, as_json: bool
) -> None:
    """Several things: their values for programs, one shown after the other for people."""
    if as_json:
        print_json([value(one) for one in found])
        return
    for number, one in enumerate(found):
        if number:
            print()
        show(one)


def _cell(value: Cell) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka prints it."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()

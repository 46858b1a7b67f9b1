"""Shared by all pages."""

from __future__ import annotations

import csv
import io
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode

from starlette.responses import Response

from ottla.console.app import console_of
from ottla.console.plain import plain
from ottla.console.text import csv_cell
from ottla.console.views.table import Query, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from ottla.console.watching import Watched

MAX_PAGE: Final = 1_000_000
MOST_CSV_ROWS: Final = 100_000
"""Rows of a table as a file; a cluster has not so many topics or groups."""


def table_query(request: Request, rows: int | None = None) -> Query:
    """What the URL says of the page's table; what makes no sense counts as not said."""
    said = request.query_params
    if _wants_csv(request):
        rows = MOST_CSV_ROWS
    page = said.get("page", "1")
    number = int(page) if page.isdecimal() and len(page) < 8 else 1
    query = Query(
        contains=said.get("contains", "")[:200],
        sort=said.get("sort", "")[:40],
        descending=said.get("desc") == "1",
        page=min(max(number, 1), MAX_PAGE),
        internal=said.get("internal") == "1",
    )
    return (
        query
        if rows is None
        else Query(query.contains, query.sort, query.descending, query.page, rows, query.internal)
    )


def with_query(request: Request) -> Callable[..., str]:
    """Makes the URL of this page with other parameters; an empty one is left out."""

    def changed(**changes: object) -> str:
        said = dict(parse_qsl(request.url.query))
        said |= {key: str(value) for key, value in changes.items()}
        said = {key: value for key, value in said.items() if value}
        return f"{request.url.path}?{urlencode(said)}" if said else request.url.path

    return changed


def answer(
    request: Request, watched: Watched, template: str, title: str, **context: object
) -> Response:
    """The page as HTML."""
    console = console_of(request)
    page = context.get("page")
    table = _table_of(page)
    if table is not None and _wants_csv(request):
        return _as_csv(table, request.url.path.rstrip("/").rpartition("/")[2])
    frame = getattr(page, "frame", None)
    return console.html(
        request,
        template,
        {
            "title": title,
            "frame": frame,
            "with_query": with_query(request),
            "as_json": _twin(request),
            **context,
        },
        cluster=watched.name,
    )


def _twin(request: Request) -> str:
    """The same page as JSON."""
    base = console_of(request).settings.base_path
    said = {key: value for key, value in parse_qsl(request.url.query) if key != "tab"}
    path = f"{base}api/v1/{request.url.path.removeprefix(base)}"
    return f"{path}?{urlencode(said)}" if said else path


def _wants_csv(request: Request) -> bool:
    return request.query_params.get("format") == "csv"


def _table_of(page: object) -> Table[object] | None:
    """The one table of a page."""
    if not is_dataclass(page):
        return None
    found = [getattr(page, one.name) for one in fields(page)]
    return next((one for one in found if isinstance(one, Table)), None)


def _as_csv(table: Table[object], name: str) -> Response:
    """The rows as a file: a column for each figure, none for what is a picture or has parts."""
    out = io.StringIO()
    writer = csv.writer(out)
    rows = [plain(one) for one in table.rows]
    names = [
        key
        for key in (rows[0] if rows and isinstance(rows[0], dict) else {})
        if not any(isinstance(one, dict) and _has_parts(one.get(key)) for one in rows)
    ]
    writer.writerow(names)
    for one in rows:
        if isinstance(one, dict):
            writer.writerow([_cell(one.get(key)) for key in names])
    kept = "".join(one for one in name if one.isalnum() or one in "-_.")[:60].strip(".") or "table"
    return Response(
        out.getvalue().encode("utf-8", "backslashreplace"),
        media_type="text/csv",
        headers={"content-disposition": f'attachment; filename="{kept}.csv"'},
    )


def _has_parts(value: object) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and "missing" not in value)


def _cell(value: object) -> object:
    """Text is no formula; a figure stays one."""
    if isinstance(value, dict):
        return csv_cell(str(value["missing"]))
    return csv_cell(value) if isinstance(value, str) else value

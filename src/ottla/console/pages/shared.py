"""Shared by all pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode

from ottla.console.app import console_of
from ottla.console.views.table import Query

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.watching import Watched

MAX_PAGE: Final = 1_000_000


def table_query(request: Request, rows: int | None = None) -> Query:
    """What the URL says of the page's table; what makes no sense counts as not said."""
    said = request.query_params
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
    frame = getattr(page, "frame", None)
    return console.html(
        request,
        template,
        {"title": title, "frame": frame, "with_query": with_query(request), **context},
        cluster=watched.name,
    )

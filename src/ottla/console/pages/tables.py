"""Tables of topics, by the pointers that their workers publish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client.cluster.view import TopicPartition
from ottla.console.app import console_of
from ottla.console.missing import Missing
from ottla.console.pages.shared import answer, table_query
from ottla.console.slugs import unslug
from ottla.console.snapshot import Kind
from ottla.console.text import name as shown
from ottla.console.views import tables

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.views.tables import TablePage, TablesPage
    from ottla.console.watching import Watched

MOST_PARTITIONS: Final = 500
"""Partitions whose lag is asked for with one look at the page."""


async def _watch(watched: Watched, topic: str | None = None) -> None:
    """Have the ends of logs that have a table, or of the one."""
    await watched.fresh(Kind.CLUSTER, Kind.TABLES)
    pointers = watched.snapshot.data.tables.value
    if isinstance(pointers, Missing):
        return
    keys = [
        TopicPartition(name, number)
        for name in pointers
        if topic in (None, name)
        for number in range(len(watched.snapshot.data.partitions(name)))
    ][:MOST_PARTITIONS]
    watched.cluster.sampler.watch(keys)
    await watched.ends(keys)


async def tables_view(request: Request) -> TablesPage:
    watched = console_of(request).cluster(request)
    await _watch(watched)
    return tables.page(watched.look(), watched.attention(), table_query(request))


async def table_view(request: Request) -> TablePage:
    watched = console_of(request).cluster(request)
    topic = unslug(request.path_params["topic"])
    await _watch(watched, topic)
    return tables.table_page(watched.look(), watched.attention(), topic)


async def tables_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page, query = await tables_view(request), table_query(request)
    return answer(request, watched, "tables.html", "Tables", page=page, query=query)


async def table_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page = await table_view(request)
    return answer(request, watched, "table.html", shown(page.topic), page=page)

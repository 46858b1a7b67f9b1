"""Overview, topics, groups and queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.console.app import NAMES, console_of
from ottla.console.pages.shared import answer, table_query
from ottla.console.snapshot import WATCHED_KINDS, Kind
from ottla.console.views import groups, overview, queues, topics

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.findings import Finding


async def overview_page(request: Request) -> Response:
    console = console_of(request)
    watched = console.cluster(request)
    await watched.fresh(*WATCHED_KINDS)
    link = console.links(watched.name)

    def finding(one: Finding) -> str | None:
        """Where more is told, if that is a page."""
        return link.at(one.page) if one.page and one.page[0] in NAMES else None

    page = overview.page(watched.look(), watched.attention())
    return answer(request, watched, "overview.html", "Overview", page=page, finding=finding)


async def topics_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    query = table_query(request)
    await watched.fresh(Kind.CLUSTER, then=(Kind.GROUPS, Kind.LOG_DIRS, Kind.SETTINGS))
    page = topics.page(watched.look(), watched.attention(), query)
    return answer(request, watched, "topics.html", "Topics", page=page, query=query)


async def groups_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    query = table_query(request)
    await watched.fresh(Kind.CLUSTER, Kind.GROUPS)
    page = groups.page(watched.look(), watched.attention(), query)
    return answer(request, watched, "groups.html", "Groups", page=page, query=query)


async def queues_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    query = table_query(request)
    await watched.fresh(Kind.CLUSTER, Kind.GROUPS)
    page = queues.page(watched.look(), watched.attention(), query)
    return answer(request, watched, "queues.html", "Queues", page=page, query=query)

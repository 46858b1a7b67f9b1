"""Tiered storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from ottla.console.app import console_of
from ottla.console.pages.shared import answer, table_query
from ottla.console.slugs import unslug
from ottla.console.snapshot import Kind
from ottla.console.text import name as shown
from ottla.console.views import tier

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.views.tier import TierPage

PATIENCE: Final = 0.5
"""Seconds that a page waits for the catalogue; it comes with the next look."""


async def tier_view(request: Request, topic: str | None = None) -> TierPage:
    """All tiered topics, or one."""
    console = console_of(request)
    watched, own = console.cluster(request), console.settings
    await watched.fresh(Kind.CLUSTER, Kind.LOG_DIRS)
    await watched.tier.look(PATIENCE)
    return tier.page(
        watched.look(),
        watched.attention(),
        watched.tier.answer,
        watched.tier.age_s,
        tier.Prices(own.price_remote_gb_month, own.price_local_gb_month, own.currency),
        table_query(request),
        topic,
    )


async def tier_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page, query = await tier_view(request), table_query(request)
    return answer(request, watched, "tier.html", "Tier", page=page, query=query)


async def topic_tier_page(request: Request) -> Response:
    """The tab of a topic."""
    console = console_of(request)
    watched = console.cluster(request)
    name = unslug(request.path_params["topic"])
    page, base = await tier_view(request, name), console.settings.base_path
    tier_path = console.links(watched.name).page("tier").removeprefix(base)
    return answer(
        request,
        watched,
        "topic_tier.html",
        shown(name),
        page=page,
        query=table_query(request),
        topic=name,
        as_json=f"{base}api/v1/{tier_path}?{urlencode({'contains': name})}",
    )

"""Tiered storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.console.app import console_of
from ottla.console.pages.shared import answer, table_query
from ottla.console.snapshot import Kind
from ottla.console.views import tier

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.views.tier import TierPage

PATIENCE: Final = 0.5
"""Seconds that a page waits for the catalogue; it comes with the next look."""


async def tier_view(request: Request) -> TierPage:
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
    )


async def tier_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page, query = await tier_view(request), table_query(request)
    return answer(request, watched, "tier.html", "Tier", page=page, query=query)

"""What other programs ask: `/healthz`, `/readyz`, `/metrics`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ottla.console import families
from ottla.console.exporter import MEDIA_TYPE, Scraped, lines
from ottla.console.snapshot import WATCHED_KINDS, Kind

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.console.app import Console

LINES_AT_ONCE: Final = 500
"""Lines that are made before the event loop gets its turn: a few milliseconds."""
READY_SECONDS: Final = 30.0
"""A cluster that answered longer ago counts as away."""


async def healthz(_: Request) -> Response:
    return JSONResponse({"alive": True})


async def readyz(request: Request) -> Response:
    """Whether a cluster has answered in the last 30 seconds."""
    console: Console = request.app.state.console
    await asyncio.gather(*(one.fresh(Kind.CLUSTER) for one in console.clusters.values()))
    away = {name: one.away(READY_SECONDS) for name, one in console.clusters.items()}
    # With `auth = "sasl"` nothing is asked before somebody logs in.
    is_ready = console.owners is not None or any(reason is None for reason in away.values())
    reasons = {name: reason for name, reason in away.items() if reason is not None}
    return JSONResponse({"ready": is_ready, "away": reasons}, 200 if is_ready else 503)


async def metrics(request: Request) -> Response:
    console: Console = request.app.state.console
    # All of them: rules about what needs attention ask for each.
    await asyncio.gather(*(one.fresh(*WATCHED_KINDS) for one in console.clusters.values()))
    scraped = [
        Scraped(name, one.look(), one.attention(), one.away() is None, one.cluster.sampler.spent_s)
        for name, one in console.clusters.items()
    ]
    made = []
    scheme = console.settings.metrics_names
    own = {
        families.REQUESTS: console.requests,
        families.LOGINS: len(console.door.logins),
        families.STREAMS: sum(console.streams.values()),
    }
    for number, line in enumerate(lines(scraped, own, scheme), 1):
        made.append(line)
        if number % LINES_AT_ONCE == 0:
            await asyncio.sleep(0)
    return Response("".join(made), media_type=MEDIA_TYPE)


def routes() -> list[Route]:
    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]

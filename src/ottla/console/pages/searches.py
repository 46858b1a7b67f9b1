"""A search as server-sent events: how far it is, then the page."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

from ottla.console import figures
from ottla.console.app import console_of
from ottla.console.decode.mask import rules_of
from ottla.console.pages.messages import Asked, found_records
from ottla.console.pages.tails import check_streams, counted, event
from ottla.console.problem import Refused
from ottla.console.query import Stopped
from ottla.console.slugs import unslug

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.views.messages import Scan
    from ottla.console.watching import Watched


async def search_stream(request: Request) -> Response:
    console = console_of(request)
    watched = console.cluster(request)
    topic = unslug(request.path_params["topic"])
    rules = rules_of(console.cluster_settings(watched.name), topic)
    if rules.hidden:
        raise Refused(403, "The contents of this topic are not shown: the settings hide them.")
    visitor = check_streams(console, request)
    return StreamingResponse(
        _events(request, watched, topic, visitor), media_type="text/event-stream"
    )


async def _events(
    request: Request, watched: Watched, topic: str, visitor: str
) -> AsyncIterator[str]:
    console = console_of(request)
    asked = Asked.of(request)
    told: asyncio.Queue[Scan | None] = asyncio.Queue()
    work = asyncio.create_task(found_records(request, watched, topic, asked, told.put_nowait))
    work.add_done_callback(lambda _: told.put_nowait(None))
    with counted(console, visitor):
        try:
            yield event("progress", "waits for its turn")
            while (scan := await told.get()) is not None:
                yield event("progress", words(scan))
            try:
                context = await work
            except Refused as error:
                yield event("problem", error.sentence)
                return
            except Stopped:
                return  # nobody reads this
            rules = rules_of(console.cluster_settings(watched.name), topic)
            page = console.renderer.page(
                "parts/found.html",
                {
                    "topic": topic,
                    "link": console.links(watched.name),
                    "masked": rules.masked,
                    "problem": "",
                    **context,
                },
            )
            yield event("found", json.dumps(page))
        finally:
            work.cancel()


def words(scan: Scan) -> str:
    """How far a search is, for people."""
    found = f"{scan.found:,} found" if scan.found else "nothing found yet"
    return (
        f"scanned {scan.scanned:,} of {scan.records:,} records, {figures.size(scan.bytes)}, "
        f"{figures.duration(scan.seconds)}; {found}"
    )

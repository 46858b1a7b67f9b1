"""The stream of a live tail, as server-sent events."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.responses import StreamingResponse

from ottla.client.errors import ClientError
from ottla.console.app import console_of
from ottla.console.decode.mask import rules_of
from ottla.console.decode.reading import Decoder
from ottla.console.filter import BadWhere
from ottla.console.pages.messages import Asked, check_topic, query_of
from ottla.console.problem import Refused
from ottla.console.query import BadPlace
from ottla.console.slugs import unslug
from ottla.console.tail import tail

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.app import Console
    from ottla.console.tail import Turn

MAX_STREAMS: Final = 4
"""Of one visitor: a browser has six connections to a host, and pages need some, too."""
MAX_ALL: Final = 32


async def tail_stream(request: Request) -> Response:
    console = console_of(request)
    watched = console.cluster(request)
    topic = unslug(request.path_params["topic"])
    rules = rules_of(console.cluster_settings(watched.name), topic)
    if rules.hidden:
        raise Refused(403, "The contents of this topic are not shown: the settings hide them.")
    await check_topic(watched, topic)
    asked = replace(Asked.of(request), from_="newest", before="", after="")
    try:
        query = query_of(asked, topic, 1, console.now())
    except (BadPlace, BadWhere) as error:
        raise Refused(400, str(error)) from error
    visitor = check_streams(console, request)
    trees = query.where is not None
    decoder = Decoder(
        rules,
        console.settings.value_preview_bytes,
        asked.form,
        trees=trees,
        schemas=await watched.registry.schemas(),
    )
    rows = console.settings.tail_max_per_s
    turns = tail(watched.cluster.settings, query, decoder, console.clock, rows)
    return StreamingResponse(
        tail_events(request, visitor, watched.name, topic, turns), media_type="text/event-stream"
    )


def check_streams(console: Console, request: Request) -> str:
    """The visitor; raises if it has too many streams already."""
    visitor = console.visitors.id_of(request) or (request.client.host if request.client else "")
    if console.streams.get(visitor, 0) >= MAX_STREAMS or sum(console.streams.values()) >= MAX_ALL:
        raise Refused(
            429,
            f"At most {MAX_STREAMS} live tails and searches at a time; close another one.",
            retry_after=5,
        )
    return visitor


@contextmanager
def counted(console: Console, visitor: str) -> Iterator[None]:
    """A stream of the visitor's, while it lasts."""
    console.streams[visitor] = console.streams.get(visitor, 0) + 1
    try:
        yield
    finally:
        console.streams[visitor] -= 1
        if not console.streams[visitor]:
            del console.streams[visitor]


async def tail_events(
    request: Request, visitor: str, cluster: str, topic: str, turns: AsyncIterator[Turn]
) -> AsyncIterator[str]:
    """Rows as they come, until the visitor leaves or the login is over."""
    console = console_of(request)
    link = console.links(cluster)
    try:
        with counted(console, visitor):
            async for turn in turns:
                # Somebody looks, so the console is not idle.
                console.last_asked = console.clock.monotonic()
                if console.find_person(request) is None:
                    yield event("problem", "The login is over; log in again.")
                    return
                rows = "".join(
                    console.renderer.page(
                        "parts/message_row.html", {"one": one, "topic": topic, "link": link}
                    )
                    for one in reversed(turn.messages)
                )
                passed = event("passed", str(turn.passed)) if turn.passed else ""
                yield event("rows", rows) + passed
    except ClientError as error:
        yield event("problem", " ".join(str(error).split()))


def event(name: str, data: str) -> str:
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"event: {name}\n{lines}\n"

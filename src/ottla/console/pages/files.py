"""Downloads of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

from ottla.console.app import console_of
from ottla.console.decode.mask import rules_of
from ottla.console.decode.reading import Decoder
from ottla.console.download import FORMATS, stream
from ottla.console.filter import BadWhere
from ottla.console.pages.messages import Asked, check_topic, query_of
from ottla.console.problem import Refused
from ottla.console.query import BadPlace
from ottla.console.slugs import unslug
from ottla.console.text import name as shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.app import Console


async def download(request: Request) -> Response:
    console = console_of(request)
    watched = console.cluster(request)
    topic = unslug(request.path_params["topic"])
    form = request.query_params.get("format", "jsonl")
    if form not in FORMATS:
        raise Refused(400, f"A download is one of {', '.join(FORMATS)}, not {shown(form)}.")
    rules = rules_of(console.cluster_settings(watched.name), topic)
    if rules.hidden:
        raise Refused(403, "The contents of this topic are not given out: the settings hide them.")
    await check_topic(watched, topic)
    asked = Asked.of(request)
    try:
        query = query_of(asked, topic, 1, console.now())
        whole = console.settings.download_max_mib << 20
        schemas = await watched.registry.schemas()
        decoder = Decoder(rules, whole, asked.form, trees=True, schemas=schemas)
        # The first piece is made before the answer begins: a wrong name is an error, not a file.
        pieces = stream(watched.browser, query, decoder, form, whole)
        first = await anext(pieces, b"")
    except (BadPlace, BadWhere) as error:
        raise Refused(400, str(error)) from error
    name = f"records-{console.now():%Y%m%d-%H%M%S}.{form}"
    return StreamingResponse(
        _all(console, first, pieces),
        media_type=FORMATS[form],
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


async def _all(
    console: Console, first: bytes, pieces: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """A download is work like a search, and waits for its turn like one."""
    async with console.searches:
        yield first
        async for piece in pieces:
            # A long download is no idle console.
            console.last_asked = console.clock.monotonic()
            yield piece

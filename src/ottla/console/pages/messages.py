"""Records of a topic: a page of them, one of them, and its value as a file."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from ottla.client.errors import ClientError
from ottla.console.app import console_of
from ottla.console.decode.mask import rules_of
from ottla.console.decode.reading import Decoder
from ottla.console.filter import BadWhere, compile_where
from ottla.console.pages.details import number
from ottla.console.pages.shared import answer
from ottla.console.problem import Refused
from ottla.console.query import (
    BadPlace,
    Budget,
    Query,
    Start,
    Stopped,
    parse_cut,
    parse_start,
    write_cut,
)
from ottla.console.settings import FORMATS
from ottla.console.slugs import unslug
from ottla.console.snapshot import Kind
from ottla.console.text import name as shown
from ottla.console.views.frame import frame
from ottla.console.views.messages import trace_link

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from starlette.requests import Request

    from ottla.client.reader.types import Record
    from ottla.console.decode.mask import Rules
    from ottla.console.views.messages import MessagesPage, Scan
    from ottla.console.watching import Watched

MAX_WAITING: Final = 8
"""Searches that wait for their turn; more are told to come back."""
MAX_CONTAINS: Final = 1_000
"""Characters of "contains"."""
MAX_PARTITIONS: Final = 1_000
ISOLATIONS: Final = ("committed", "uncommitted")


@dataclass(frozen=True, slots=True)
class Asked:
    """The form of the page, as it was filled in."""

    from_: str = "newest"
    p: str = ""
    form: str = "auto"
    isolation: str = "committed"
    contains: str = ""
    where: str = ""
    before: str = ""
    after: str = ""

    @classmethod
    def of(cls, request: Request) -> Asked:
        said = request.query_params
        form = said.get("as") or "auto"
        if form not in FORMATS:
            raise Refused(400, f"as is one of {', '.join(FORMATS)}, not {form!r:.60}.")
        isolation = said.get("isolation") or "committed"
        if isolation not in ISOLATIONS:
            raise Refused(400, f"isolation is committed or uncommitted, not {isolation!r:.60}.")
        return cls(
            said.get("from", "newest").strip()[:100] or "newest",
            said.get("p", "").strip()[:4000],
            form,
            isolation,
            said.get("contains", ""),
            said.get("where", "").strip(),
            said.get("before", ""),
            said.get("after", ""),
        )

    def again(self, **changes: str) -> dict[str, str]:
        """The parameters of the same page with some changed."""
        changed = replace(self, **{"before": "", "after": "", **changes})
        said = {
            "from": changed.from_,
            "p": changed.p,
            "as": changed.form,
            "isolation": changed.isolation,
            "contains": changed.contains,
            "where": changed.where,
            "before": changed.before,
            "after": changed.after,
        }
        usual = {"from": "newest", "as": "auto", "isolation": "committed"}
        return {key: value for key, value in said.items() if value and usual.get(key) != value}


def query_of(asked: Asked, topic: str, rows: int, now: datetime) -> Query:
    """What the form means; raises `BadPlace` or `BadWhere` with a sentence."""
    start = parse_start(asked.from_, now)
    if asked.before:
        start = replace(start, before=parse_cut(asked.before))
    elif asked.after:
        start = replace(start, after=parse_cut(asked.after))
    partitions = None
    if asked.p:
        parts = [part.strip() for part in asked.p.split(",")]
        if len(parts) > MAX_PARTITIONS or not all(p.isdecimal() and len(p) < 10 for p in parts):
            raise BadPlace(f"partitions are numbers such as 0,3, not {asked.p!r:.60}")
        partitions = sorted({int(part) for part in parts})
    if len(asked.contains) > MAX_CONTAINS:
        raise BadPlace(f"contains takes at most {MAX_CONTAINS} characters")
    return Query(
        topic,
        start,
        partitions,
        rows,
        "read_uncommitted" if asked.isolation == "uncommitted" else "read_committed",
        asked.contains.encode("utf-8", "surrogatepass"),
        compile_where(asked.where) if asked.where else None,
    )


async def read_page(
    request: Request,
    watched: Watched,
    query: Query,
    decoder: Decoder,
    told: Callable[[Scan], None] | None = None,
) -> MessagesPage:
    """The records; a search waits for its turn, and tells how far it is."""
    console = console_of(request)
    budget = Budget(console.settings.search_max_s, console.settings.search_max_mib << 20)
    if not query.is_filtered:
        return await watched.browser.page(query, decoder, budget)
    if console.waiting >= MAX_WAITING:
        raise Refused(429, "Too many searches are waiting; try again in a moment.", 5)
    console.waiting += 1
    try:
        await console.searches.acquire()
    finally:
        console.waiting -= 1

    async def on_turn(scan: Scan) -> None:
        # Somebody waits, so the console is not idle.
        console.last_asked = console.clock.monotonic()
        if await request.is_disconnected():
            raise Stopped("nobody waits for this page any more")
        if told is not None:
            told(scan)

    try:
        return await watched.browser.page(query, decoder, budget, on_turn)
    finally:
        console.searches.release()


async def messages_page(request: Request) -> Response:
    console = console_of(request)
    watched = console.cluster(request)
    topic = unslug(request.path_params["topic"])
    asked = Asked.of(request)
    rules = rules_of(console.cluster_settings(watched.name), topic)
    await watched.fresh(Kind.CLUSTER)
    context: dict[str, object] = {
        "topic": topic,
        "tab": "messages",
        "asked": {
            "from": asked.from_,
            "p": asked.p,
            "form": asked.form,
            "isolation": asked.isolation,
            "contains": asked.contains,
            "where": asked.where,
        },
        "forms": _forms(rules),
        "hidden": rules.hidden,
        "masked": rules.masked,
        "today": f"{console.now():%Y-%m-%d}",
        "problem": "",
        "page": None,
    }
    if not rules.hidden:
        context |= await found_records(request, watched, topic, asked)
    around = frame(watched.look(), watched.attention())
    title = f"{shown(topic)} messages"
    return answer(request, watched, "messages.html", title, **{**context, "frame": around})


async def found_records(
    request: Request,
    watched: Watched,
    topic: str,
    asked: Asked,
    told: Callable[[Scan], None] | None = None,
) -> dict[str, object]:
    """The records of a page, or why there are none; what `parts/found.html` shows."""
    console = console_of(request)
    rules = rules_of(console.cluster_settings(watched.name), topic)
    if not await watched.has_topic(topic):
        return {"problem": "The cluster has no topic of this name; it may have been deleted."}
    try:
        query = query_of(asked, topic, 50, console.now())
        decoder = Decoder(
            rules,
            console.settings.value_preview_bytes,
            asked.form,
            trees=query.where is not None,
            schemas=await watched.registry.schemas(),
        )
        page = await read_page(request, watched, query, decoder, told)
    except (BadPlace, BadWhere) as error:
        return {"problem": str(error)}
    except ClientError as error:
        return {"problem": " ".join(str(error).split())}
    link = console.links(watched.name)
    older = None if page.older is None else asked.again(before=write_cut(page.older))
    newer = None if page.newer is None else asked.again(after=write_cut(page.newer))
    return {
        "page": page,
        "filtered": query.is_filtered,
        "same": asked.again(),
        "older": older and link.messages(topic, **older),
        "newer": newer and link.messages(topic, **newer),
    }


async def check_topic(watched: Watched, topic: str) -> None:
    """Raise if the cluster has no such topic: asking for its records would try for seconds."""
    if not await watched.has_topic(topic):
        raise Refused(404, "The cluster has no topic of this name; it may have been deleted.")


def _forms(rules: Rules) -> list[str]:
    """What is masked cannot be shown byte by byte."""
    return [one for one in FORMATS if one != "hex" or not rules.masked]


async def raw_record(watched: Watched, topic: str, partition: int, offset: int) -> Record | str:
    """One record, or why it is not there."""
    await check_topic(watched, topic)
    browser = watched.browser
    bounds = (await browser.bounds(_one(topic, partition, offset)))[partition]
    if offset >= bounds.end:
        return f"Offset {offset:,} is beyond the end; the last is {bounds.end - 1:,}."
    if offset < bounds.start:
        return f"Offset {offset:,} has expired; the log begins at {bounds.start:,}."
    stop = {partition: offset + 1}
    async with browser.reader(topic, "read_uncommitted", {partition: offset}, stop) as reader:
        records = await reader.read_many(1)
    if not records:
        return (
            f"Offset {offset:,} holds no record: it was compacted away or marks the end of a "
            "transaction."
        )
    return records[0]


def _one(topic: str, partition: int, offset: int) -> Query:
    return Query(topic, Start("offset", offset=offset), [partition], 1, "read_uncommitted")


async def record_page(request: Request) -> Response:
    console = console_of(request)
    watched = console.cluster(request)
    topic = unslug(request.path_params["topic"])
    partition = number(request.path_params["partition"], "partition")
    offset = number(request.path_params["offset"], "offset")
    rules = rules_of(console.cluster_settings(watched.name), topic)
    if rules.hidden:
        raise Refused(403, "The contents of this topic are not shown: the settings hide them.")
    asked = Asked.of(request).form
    limit = console.settings.value_view_bytes
    await watched.fresh(Kind.CLUSTER)
    schemas = await watched.registry.schemas()
    decoder = Decoder(rules, limit, asked, whole=True, schemas=schemas)
    one, batch = None, None
    try:
        found = await raw_record(watched, topic, partition, offset)
    except BadPlace as error:
        raise Refused(404, str(error)) from error
    if not isinstance(found, str):
        browser = watched.browser
        one = await asyncio.to_thread(decoder.read, found)
        if len(found.value or b"") <= limit:  # a large one is fetched once
            [one] = await browser.with_states(_one(topic, partition, offset), (one,))
            batch = await browser.batch(topic, partition, offset)
    return answer(
        request,
        watched,
        "record.html",
        f"{shown(topic)} {partition} {offset}",
        topic=topic,
        partition=partition,
        offset=offset,
        one=one,
        batch=batch,
        traces={
            header.name: link
            for header in (one.headers if one else ())
            if (link := trace_link(console.settings.trace_url, header))
        },
        gone=found if isinstance(found, str) else "",
        forms=_forms(rules),
        asked=asked,
        masked=rules.masked,
        limit=limit,
        frame=frame(watched.look(), watched.attention()),
    )


async def raw_value(request: Request) -> Response:
    """The value's bytes as a file with a name that we made."""
    console = console_of(request)
    watched = console.cluster(request)
    topic = unslug(request.path_params["topic"])
    partition = number(request.path_params["partition"], "partition")
    offset = number(request.path_params["offset"], "offset")
    rules = rules_of(console.cluster_settings(watched.name), topic)
    if rules.hidden or rules.masked:
        raise Refused(403, "Raw values of this topic are not given out: the settings mask them.")
    try:
        found = await raw_record(watched, topic, partition, offset)
    except BadPlace as error:
        raise Refused(404, str(error)) from error
    if isinstance(found, str):
        raise Refused(404, found)
    if found.value is None:
        raise Refused(404, "The record has no value.")
    name = f"record-{partition}-{offset}.bin"
    return Response(
        found.value,
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )

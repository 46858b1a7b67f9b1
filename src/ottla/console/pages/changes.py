"""Forms that change something. Every handler of a POST wears the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from ottla.console import actions
from ottla.console.app import console_of
from ottla.console.decode.mask import rules_of
from ottla.console.guard import changes, operates
from ottla.console.pages.changing import admin_of, done, field
from ottla.console.pages.details import number
from ottla.console.pages.messages import check_topic, raw_record
from ottla.console.pages.shared import answer
from ottla.console.problem import Refused
from ottla.console.query import BadPlace
from ottla.console.redrive import BadPlan, parse_place
from ottla.console.slugs import unslug
from ottla.console.snapshot import Kind
from ottla.console.text import name as shown
from ottla.console.views.frame import frame

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.watching import Watched


async def produce_form(request: Request) -> Response:
    """Fill in a record; `from=0@17` fills it from one that is there."""
    watched = console_of(request).cluster(request)
    topic = unslug(request.path_params["topic"])
    place = request.query_params.get("from", "")
    filled = await _filled(request, watched, topic, place) if place else actions.NO_RECORD
    return answer(
        request,
        watched,
        "produce.html",
        f"{shown(topic)} produce",
        topic=topic,
        tab="produce",
        encodings=actions.ENCODINGS,
        filled=filled,
        frame=frame(watched.look(), watched.attention()),
    )


async def _filled(request: Request, watched: Watched, topic: str, place: str) -> actions.FilledIn:
    """The form with what a record holds; never with what the settings hide."""
    rules = rules_of(console_of(request).cluster_settings(watched.name), topic)
    if rules.hidden or rules.masked:
        raise Refused(403, "Records of this topic are masked or hidden, so none can be copied.")
    try:
        partition, offset = parse_place(place)
        record = await raw_record(watched, topic, partition, offset)
    except (BadPlan, BadPlace) as error:
        raise Refused(404, str(error)) from error
    if isinstance(record, str):
        raise Refused(404, record)
    return actions.filled_in(record.key, record.value, record.headers, partition)


@operates
async def produce(request: Request, form: FormData) -> Response:
    console = console_of(request)
    watched = console.cluster(request)
    topic = unslug(request.path_params["topic"])
    await check_topic(watched, topic)
    key = actions.contents(field(form, "key"), field(form, "key_as") or "text")
    value = actions.contents(field(form, "value"), field(form, "value_as") or "text")
    partition = field(form, "partition").strip()
    sent = []

    async def work() -> None:
        sent.append(
            await actions.produce(
                watched.cluster.settings,
                topic,
                key,
                value,
                actions.headers(field(form, "headers")),
                number(partition, "partition") if partition else None,
            )
        )

    await done(request, watched, "Write", f"topic {topic}", work())
    [where] = sent
    link = console.links(watched.name)
    return RedirectResponse(link.record(topic, where.partition, where.offset), 303)


@changes
async def create_topic(request: Request, form: FormData) -> Response:
    """A new topic; what is left empty is as the brokers have it."""
    console = console_of(request)
    watched = console.cluster(request)
    topic = field(form, "name").strip()
    if not topic:
        raise Refused(400, "Name the topic.")
    partitions = field(form, "partitions").strip()
    total = number(partitions, "number of partitions") if partitions else -1
    settings = actions.settings(field(form, "configs"))
    async with admin_of(watched) as admin:
        work = admin.create_topic(topic, total, configs=settings)
        await done(request, watched, "Create", f"topic {topic}", work)
    watched.snapshot.forget(Kind.CLUSTER)
    watched.snapshot.forget(Kind.SETTINGS)
    return RedirectResponse(console.links(watched.name).topic(topic), 303)


@changes
async def delete_topic(request: Request, form: FormData) -> Response:
    console = console_of(request)
    watched = console.cluster(request)
    topic = unslug(request.path_params["topic"])
    if field(form, "name") != topic:
        raise Refused(400, "Type the topic's name to delete it; the name that came is another.")
    async with admin_of(watched) as admin:
        await done(request, watched, "Delete", f"topic {topic}", admin.delete_topic(topic))
    watched.snapshot.forget(Kind.CLUSTER)
    return RedirectResponse(console.links(watched.name).topics(), 303)


@changes
async def add_partitions(request: Request, form: FormData) -> Response:
    """More partitions; their number never falls."""
    console = console_of(request)
    watched = console.cluster(request)
    topic = unslug(request.path_params["topic"])
    total = number(field(form, "total").strip(), "number of partitions")
    async with admin_of(watched) as admin:
        work = admin.create_partitions(topic, total)
        await done(request, watched, "Alter", f"topic {topic} partitions {total}", work)
    watched.snapshot.forget(Kind.CLUSTER)
    return RedirectResponse(console.links(watched.name).topic(topic), 303)

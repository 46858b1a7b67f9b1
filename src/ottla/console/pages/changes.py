"""Forms that change something. Every handler of a POST wears the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from ottla.client.errors import AuthorizationFailed, ClientError, KafkaError
from ottla.console import actions
from ottla.console.app import console_of
from ottla.console.guard import changes, operates
from ottla.console.pages.changing import admin_of, done, field, refusal
from ottla.console.pages.details import number
from ottla.console.pages.messages import check_topic
from ottla.console.pages.shared import answer
from ottla.console.problem import Refused
from ottla.console.query import BadPlace
from ottla.console.slugs import unslug
from ottla.console.text import name as shown
from ottla.console.views.frame import frame

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.client.admin.admin import Admin


async def produce_form(request: Request) -> Response:
    """Fill in a record; "produce again" fills it from one that is there."""
    watched = console_of(request).cluster(request)
    topic = unslug(request.path_params["topic"])
    return answer(
        request,
        watched,
        "produce.html",
        f"{shown(topic)} produce",
        topic=topic,
        tab="produce",
        encodings=actions.ENCODINGS,
        frame=frame(watched.look(), watched.attention()),
    )


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
async def delete_topic(request: Request, form: FormData) -> Response:
    console = console_of(request)
    watched = console.cluster(request)
    topic = unslug(request.path_params["topic"])
    if field(form, "name") != topic:
        raise Refused(400, "Type the topic's name to delete it; the name that came is another.")
    async with admin_of(watched) as admin:
        await done(request, watched, "Delete", f"topic {topic}", admin.delete_topic(topic))
    return RedirectResponse(console.links(watched.name).topics(), 303)


@changes
async def set_config(request: Request, form: FormData) -> Response:
    """One key; the broker checks the value before anything is changed."""
    console = console_of(request)
    watched = console.cluster(request)
    topic = unslug(request.path_params["topic"])
    key = field(form, "key").strip()
    value = None if form.get("default") else field(form, "value")
    if not key:
        raise Refused(400, "Name the key to change.")
    async with admin_of(watched) as admin:
        try:
            await admin.alter_configs("topic", topic, {key: value}, validate_only=True)
        except ClientError as error:
            if isinstance(error, KafkaError) and not isinstance(error, AuthorizationFailed):
                raise Refused(400, " ".join(str(error).split())) from error
            raise refusal(error) from error
        work = admin.alter_configs("topic", topic, {key: value})
        await done(request, watched, "AlterConfigs", f"topic {topic} {key}", work)
    return RedirectResponse(console.links(watched.name).topic(topic, tab="configs"), 303)


async def _stopped(admin: Admin, group: str) -> None:
    [found] = await admin.describe_groups([group])
    if found.members:
        raise Refused(
            409, f"The group has {len(found.members)} member(s); stop them, then reset its offsets."
        )


@operates
async def reset_preview(request: Request, form: FormData) -> Response:
    """Says what would be read again and skipped; nothing is changed."""
    console = console_of(request)
    watched = console.cluster(request)
    group = unslug(request.path_params["group"])
    topics = [one.strip() for one in field(form, "topics").split(",") if one.strip()]
    try:
        target = actions.reset_target(field(form, "to"), field(form, "at").strip(), console.now())
        async with admin_of(watched) as admin:
            await _stopped(admin, group)
            moves = await admin.plan_offset_reset(group, target, topics)
    except ClientError as error:
        raise refusal(error) from error
    except BadPlace as error:
        raise Refused(400, str(error)) from error
    return answer(
        request,
        watched,
        "reset.html",
        f"{shown(group)} reset",
        group=group,
        preview=actions.preview(moves),
        moves=actions.signed(console.visitors.secret, group, moves),
        frame=frame(watched.look(), watched.attention()),
    )


@operates
async def reset(request: Request, form: FormData) -> Response:
    """The moves as they were previewed; a group that has got members since refuses them."""
    console = console_of(request)
    watched = console.cluster(request)
    group = unslug(request.path_params["group"])
    offsets = actions.verified(console.visitors.secret, group, field(form, "moves"))
    async with admin_of(watched) as admin:
        await _stopped(admin, group)
        work = admin.alter_group_offsets(group, offsets)
        await done(request, watched, "Read", f"group {group}", work)
    return RedirectResponse(console.links(watched.name).group(group), 303)


@changes
async def delete_group(request: Request, form: FormData) -> Response:
    console = console_of(request)
    watched = console.cluster(request)
    group = unslug(request.path_params["group"])
    if field(form, "name") != group:
        raise Refused(400, "Type the group's name to delete it; the name that came is another.")
    async with admin_of(watched) as admin:
        await done(request, watched, "Delete", f"group {group}", admin.delete_group(group))
    return RedirectResponse(console.links(watched.name).groups(), 303)

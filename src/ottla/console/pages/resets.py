"""Offsets of groups and queues: reset as previewed, forgotten, deleted with their group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from starlette.responses import RedirectResponse

from ottla.client.errors import ClientError
from ottla.console import actions
from ottla.console.app import console_of
from ottla.console.guard import changes, operates
from ottla.console.pages.changing import admin_of, done, field, refusal
from ottla.console.pages.shared import answer
from ottla.console.problem import Refused
from ottla.console.query import BadPlace
from ottla.console.slugs import unslug
from ottla.console.snapshot import Kind
from ottla.console.text import name as shown
from ottla.console.views.frame import frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.client.admin.admin import Admin
    from ottla.console.links import Links
    from ottla.console.watching import Watched

Sort: TypeAlias = Literal["group", "queue"]


def _sort(request: Request) -> tuple[Sort, str]:
    """What the path names: a consumer group, or a queue."""
    named = request.path_params
    return (
        ("queue", unslug(named["queue"])) if "queue" in named else ("group", unslug(named["group"]))
    )


def _home(link: Links, sort: Sort, name: str) -> str:
    return link.queue(name) if sort == "queue" else link.group(name)


async def check_stopped(admin: Admin, sort: Sort, name: str) -> None:
    """Raise if the group has members: they would go on where they are."""
    if sort == "queue":
        count = len((await admin.describe_share_groups([name]))[0].members)
    else:
        count = len((await admin.describe_groups([name]))[0].members)
    if count:
        raise Refused(409, f"The group has {count} member(s); stop them, then reset its offsets.")


@operates
async def preview(request: Request, form: FormData) -> Response:
    """Says what would be read again and skipped; nothing is changed."""
    console = console_of(request)
    watched = console.cluster(request)
    sort, name = _sort(request)
    topics = [one.strip() for one in field(form, "topics").split(",") if one.strip()]
    try:
        target = actions.reset_target(field(form, "to"), field(form, "at").strip(), console.now())
        async with admin_of(watched) as admin:
            await check_stopped(admin, sort, name)
            plan = admin.plan_share_offset_reset if sort == "queue" else admin.plan_offset_reset
            moves = await plan(name, target, topics)
    except ClientError as error:
        raise refusal(error) from error
    except BadPlace as error:
        raise Refused(400, str(error)) from error
    link = console.links(watched.name)
    return answer(
        request,
        watched,
        "reset.html",
        f"{shown(name)} reset",
        group=name,
        sort=sort,
        up=_home(link, sort, name),
        apply=link.offsets(sort, name, "reset"),
        preview=actions.preview(moves),
        moves=actions.signed(console.visitors.secret, sort, name, moves),
        frame=frame(watched.look(), watched.attention()),
    )


@operates
async def reset(request: Request, form: FormData) -> Response:
    """The moves as they were previewed.

    They are refused if the group has got members since, or other offsets. The start of a queue may
    trail, so that one is not compared.
    """
    secret = console_of(request).visitors.secret
    sort, name = _sort(request)
    moves = actions.verified(secret, sort, name, field(form, "moves"))
    offsets = {(one.topic, one.partition): one.after for one in moves}

    async def work(admin: Admin) -> None:
        await check_stopped(admin, sort, name)
        if sort == "queue":
            await admin.alter_share_group_offsets(name, offsets)
            return
        known = {
            (one.topic, one.partition): one.offset for one in await admin.list_group_offsets(name)
        }
        if any(known.get((one.topic, one.partition)) != one.before for one in moves):
            raise Refused(409, "Offsets of the group have changed since the preview; look again.")
        await admin.alter_group_offsets(name, offsets)

    return await _changed(request, "Read", work)


@changes
async def forget(request: Request, form: FormData) -> Response:
    """Delete the offsets in one topic."""
    topic = field(form, "name").strip()
    sort, name = _sort(request)
    if not topic:
        raise Refused(400, "Type the name of the topic whose offsets are to be deleted.")

    async def work(admin: Admin) -> None:
        if sort == "queue":
            await admin.delete_share_group_offsets(name, [topic])
            return
        known = await admin.list_group_offsets(name)
        places = [(topic, one.partition) for one in known if one.topic == topic]
        if not places:
            raise Refused(404, f"The group has no offsets in a topic {shown(topic)}.")
        await admin.delete_group_offsets(name, places)

    return await _changed(request, "Delete", work, f" in {topic}")


@changes
async def delete(request: Request, form: FormData) -> Response:
    sort, name = _sort(request)
    if field(form, "name") != name:
        raise Refused(400, f"Type the {sort}'s name to delete it; the name that came is another.")

    async def work(admin: Admin) -> None:
        await (admin.delete_share_group if sort == "queue" else admin.delete_group)(name)

    link = console_of(request).links(console_of(request).cluster(request).name)
    up = link.queues() if sort == "queue" else link.groups()
    return await _changed(request, "Delete", work, up=up)


async def _changed(
    request: Request,
    operation: str,
    work: Callable[[Admin], Awaitable[None]],
    where: str = "",
    up: str = "",
) -> Response:
    """Do it, and lead to the page, which has heard of the change."""
    console = console_of(request)
    watched = console.cluster(request)
    sort, name = _sort(request)
    async with admin_of(watched) as admin:
        await done(request, watched, operation, f"group {name}{where}", work(admin))
    _forget(watched, name)
    return RedirectResponse(up or _home(console.links(watched.name), sort, name), 303)


def _forget(watched: Watched, name: str) -> None:
    watched.snapshot.forget(Kind.GROUPS)
    watched.snapshot.forget_group(name)

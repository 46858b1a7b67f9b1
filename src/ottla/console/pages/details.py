"""One topic, one group, one queue, one window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.console.app import console_of
from ottla.console.missing import Missing
from ottla.console.pages.configs import configs
from ottla.console.pages.shared import answer, table_query
from ottla.console.pages.tier import topic_tier_page
from ottla.console.problem import Refused
from ottla.console.slugs import unslug
from ottla.console.snapshot import Kind
from ottla.console.text import name as shown
from ottla.console.views import group, queue, topic

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.views.queue import WindowPage
    from ottla.console.watching import Watched

MOST_AGO: Final = 300
AGES: Final = (5, 10, 30, 60, 120, 300)
"""Seconds ago at which a window can be looked at."""
TABS = ("partitions", "configs", "readers")


async def topic_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["topic"])
    query = table_query(request)
    tab = request.query_params.get("tab", "partitions")
    if tab == "tier":
        return await topic_tier_page(request)
    tab = tab if tab in TABS else "partitions"
    await watch_topic(watched, name)
    found = await configs(watched, "topic", name) if tab == "configs" else ()
    page = topic.page(watched.look(), watched.attention(), name, query)
    return answer(
        request,
        watched,
        "topic.html",
        shown(name),
        page=page,
        query=query,
        tab=tab,
        configs=found,
    )


async def watch_topic(watched: Watched, name: str) -> None:
    """Have what the page of a topic shows."""
    if name not in watched.snapshot.data.topics:
        watched.snapshot.doubt(Kind.CLUSTER)
    await watched.fresh(Kind.CLUSTER, Kind.GROUPS, Kind.LOG_DIRS, Kind.SETTINGS)
    partitions = watched.snapshot.data.partitions(name)
    watched.cluster.sampler.watch(partitions)
    await watched.ends(partitions)


async def group_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["group"])
    query = table_query(request, rows=200)
    await watch_group(watched, name)
    page = group.page(watched.look(), watched.attention(), name, query)
    return answer(request, watched, "group.html", shown(name), page=page, query=query)


async def watch_group(watched: Watched, name: str) -> None:
    """Have what the page of a group shows."""
    _doubt(watched, name)
    await watched.fresh(Kind.CLUSTER, Kind.GROUPS, watch=[name])
    snapshot = watched.snapshot
    await watched.wait(snapshot.refresh_group(name), is_known=name in snapshot.data.members)
    committed = snapshot.data.committed.get(name)
    if committed is not None and not isinstance(committed.value, Missing):
        watched.cluster.sampler.watch(committed.value)
        await watched.ends(committed.value)
        await watched.wait(snapshot.refresh_stamps(name), is_known=False)


async def queue_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["queue"])
    await watch_queue(watched, name)
    page = queue.page(watched.look(), watched.attention(), name)
    tab = "settings" if request.query_params.get("tab") == "settings" else "windows"
    found = await configs(watched, "group", name) if page.found and tab == "settings" else ()
    return answer(request, watched, "queue.html", shown(name), page=page, tab=tab, configs=found)


async def window_view(request: Request) -> WindowPage:
    """`zoom` in the URL is an offset, or `start`; `ago` shows the window some seconds ago."""
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["queue"])
    topic_name = unslug(request.path_params["topic"])
    partition = number(request.path_params["partition"], "partition")
    key = (name, topic_name, partition)
    watched.snapshot.replay.watch(key)
    await watch_queue(watched, name)
    zoom = request.query_params.get("zoom", "")
    ago = request.query_params.get("ago", "0")
    return queue.window_page(
        watched.look(),
        watched.attention(),
        *key,
        zoom=None if not zoom else 0 if zoom == "start" else number(zoom, "offset"),
        frames=watched.snapshot.replay.frames(key),
        ago_s=min(number(ago, "number of seconds"), MOST_AGO),
    )


async def window_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page = await window_view(request)
    title = f"{shown(page.topic)}-{page.partition}"
    zoom = request.query_params.get("zoom", "")
    return answer(request, watched, "window.html", title, page=page, zoom=zoom, ages=AGES)


async def watch_queue(watched: Watched, name: str) -> None:
    """Have what the pages of a queue show."""
    _doubt(watched, name)
    await watched.fresh(Kind.CLUSTER, Kind.GROUPS, watch=[name])
    snapshot = watched.snapshot
    await watched.wait(snapshot.refresh_queue(name), is_known=name in snapshot.data.shares)
    await watched.wait(snapshot.refresh_windows(name), is_known=name in snapshot.data.windows)


def _doubt(watched: Watched, name: str) -> None:
    listed = watched.snapshot.data.groups.value
    if not isinstance(listed, Missing) and all(one.id != name for one in listed):
        watched.snapshot.doubt(Kind.GROUPS)


def number(text: str, what: str) -> int:
    """A whole number of a path."""
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise Refused(404, f"A {what} is a number, not {shown(text)}.")
    return int(text)

"""One topic, one group, one queue, one window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.admin.configs import ConfigCalls
from ottla.client.errors import ClientError
from ottla.console.app import console_of
from ottla.console.missing import Missing, missing
from ottla.console.pages.shared import answer, table_query
from ottla.console.problem import Refused
from ottla.console.slugs import unslug
from ottla.console.snapshot import Kind
from ottla.console.text import name as shown
from ottla.console.views import group, queue, topic

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.client.admin.types import ConfigEntry
    from ottla.console.watching import Watched

TABS = ("partitions", "configs", "readers")


async def topic_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["topic"])
    query = table_query(request)
    tab = request.query_params.get("tab", "partitions")
    tab = tab if tab in TABS else "partitions"
    await watch_topic(watched, name)
    configs = await _configs(watched, name) if tab == "configs" else ()
    page = topic.page(watched.look(), watched.attention(), name, query)
    return answer(
        request,
        watched,
        "topic.html",
        shown(name),
        page=page,
        query=query,
        tab=tab,
        configs=configs,
    )


async def watch_topic(watched: Watched, name: str) -> None:
    """Have what the page of a topic shows."""
    await watched.fresh(Kind.CLUSTER, Kind.GROUPS, Kind.LOG_DIRS)
    partitions = watched.snapshot.data.partitions(name)
    watched.cluster.sampler.watch(partitions)
    await watched.ends(partitions)


async def _configs(watched: Watched, name: str) -> list[ConfigEntry] | Missing:
    """Those that were changed first."""
    try:
        found = await ConfigCalls(watched.client).describe_configs("topic", name)
    except ClientError as error:
        return missing(error, f"DescribeConfigs on topic {name!r}")
    return sorted(found, key=lambda one: (one.is_default, one.name))


async def group_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["group"])
    query = table_query(request, rows=200)
    await watch_group(watched, name)
    page = group.page(watched.look(), watched.attention(), name, query)
    return answer(request, watched, "group.html", shown(name), page=page, query=query)


async def watch_group(watched: Watched, name: str) -> None:
    """Have what the page of a group shows."""
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
    return answer(request, watched, "queue.html", shown(name), page=page)


async def window_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["queue"])
    topic_name = unslug(request.path_params["topic"])
    partition = number(request.path_params["partition"], "partition")
    await watch_queue(watched, name)
    page = queue.window_page(watched.look(), watched.attention(), name, topic_name, partition)
    return answer(request, watched, "window.html", f"{shown(topic_name)}-{partition}", page=page)


async def watch_queue(watched: Watched, name: str) -> None:
    """Have what the pages of a queue show."""
    await watched.fresh(Kind.CLUSTER, Kind.GROUPS, watch=[name])
    snapshot = watched.snapshot
    await watched.wait(snapshot.refresh_queue(name), is_known=name in snapshot.data.shares)
    await watched.wait(snapshot.refresh_windows(name), is_known=name in snapshot.data.windows)


def number(text: str, what: str) -> int:
    """A whole number of a path."""
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise Refused(404, f"A {what} is a number, not {shown(text)}.")
    return int(text)

"""Nodes: who leads what; emptying a node and letting it lead again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse

from ottla.client.admin.configs import ConfigCalls
from ottla.client.admin.nodes import NodeCalls, led_by
from ottla.client.admin.types import NodeState
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import ClientError
from ottla.console.app import console_of
from ottla.console.guard import changes
from ottla.console.missing import missing
from ottla.console.pages.changing import done, field
from ottla.console.pages.details import number
from ottla.console.pages.shared import answer
from ottla.console.problem import Refused
from ottla.console.snapshot import Kind
from ottla.console.text import name as shown
from ottla.console.views import nodes

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.views.nodes import NodesPage
    from ottla.console.watching import Watched

NEEDS: Final = "Describe on the cluster"
DRAIN_KEY: Final = "ottla.node.drain"


async def nodes_view(request: Request) -> NodesPage:
    watched = console_of(request).cluster(request)
    await watched.fresh(Kind.CLUSTER, Kind.NODES, Kind.LOG_DIRS)
    try:
        moves = await NodeCalls(watched.client).list_reassignments()
    except ClientError as error:
        return nodes.page(watched.look(), watched.attention(), missing(error, NEEDS))
    return nodes.page(watched.look(), watched.attention(), moves)


async def nodes_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page = await nodes_view(request)
    return answer(request, watched, "nodes.html", "Nodes", page=page)


@changes
async def drain(request: Request, form: FormData) -> Response:
    """Move all partitions away from a node, or let it lead some again."""
    watched = console_of(request).cluster(request)
    node = number(field(form, "node"), "node")
    back = field(form, "do") == "back"
    await _check(watched, node, back=back)
    work = ConfigCalls(watched.client).alter_configs(
        "broker", str(node), {DRAIN_KEY: None if back else "true"}
    )
    what = f"{'back' if back else 'drain'} node {node}"
    await done(request, watched, "AlterConfigs", what, work)
    return _back(request, watched)


@changes
async def move(request: Request, form: FormData) -> Response:
    """Let another node lead a partition; it becomes the preferred one."""
    watched = console_of(request).cluster(request)
    topic = field(form, "topic").strip()
    partition = number(field(form, "partition").strip(), "partition")
    node = number(field(form, "node"), "node")
    await _check(watched, node, back=True)
    key = TopicPartition(topic, partition)
    calls = NodeCalls(watched.client)
    found = (await watched.client.refresh([topic])).topics.get(topic)
    if found is None or partition >= len(found.partitions):
        raise Refused(404, f"The cluster has no partition {shown(str(key))}.")
    replicas = led_by(found.partitions[partition], node)

    async def work() -> None:
        await calls.reassign_partitions({key: replicas})
        # A leader that is still among the replicas has stayed.
        await calls.elect_leaders([key])

    await done(request, watched, "Alter", f"partition {key} to node {node}", work())
    return _back(request, watched)


@changes
async def elect(request: Request, _: FormData) -> Response:
    """Let all partitions be led by their preferred nodes; those of one that is down stay."""
    watched = console_of(request).cluster(request)

    calls = NodeCalls(watched.client)

    async def work() -> None:
        states = {one.broker.id: one.state for one in await calls.describe_nodes()}
        topics = (await watched.client.refresh(None)).topics
        await calls.elect_leaders(
            TopicPartition(name, one.index)
            for name, topic in topics.items()
            for one in topic.partitions
            if states.get(one.replicas[0]) is NodeState.ACTIVE
        )

    await done(request, watched, "Alter", "leaders of all partitions", work())
    return _back(request, watched)


def _back(request: Request, watched: Watched) -> Response:
    watched.snapshot.forget(Kind.NODES)
    watched.snapshot.forget(Kind.CLUSTER)
    return RedirectResponse(console_of(request).links(watched.name).page("nodes"), 303)


async def _check(watched: Watched, node: int, *, back: bool) -> None:
    states = {one.broker.id: one.state for one in await NodeCalls(watched.client).describe_nodes()}
    if node not in states:
        raise Refused(404, f"There is no node {node}; nodes are {', '.join(map(str, states))}.")
    if states[node] is NodeState.FENCED:
        raise Refused(409, f"Node {node} is down; what it led is led by others, or waits for it.")
    others = [one for one, state in states.items() if one != node and state is NodeState.ACTIVE]
    if not back and not others:
        raise Refused(409, f"No other node could take over what node {node} leads.")

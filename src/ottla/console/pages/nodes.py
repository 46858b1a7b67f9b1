"""Nodes: who leads what; emptying a node and letting it lead again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse

from ottla.client.admin.configs import ConfigCalls
from ottla.client.admin.nodes import NodeCalls
from ottla.client.admin.types import NodeState
from ottla.console.app import console_of
from ottla.console.guard import changes
from ottla.console.pages.changing import done, field
from ottla.console.pages.details import number
from ottla.console.pages.shared import answer
from ottla.console.problem import Refused
from ottla.console.snapshot import Kind
from ottla.console.views import nodes

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.watching import Watched

DRAIN_KEY: Final = "ottla.node.drain"


async def nodes_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    await watched.fresh(Kind.CLUSTER, Kind.NODES, Kind.LOG_DIRS)
    page = nodes.page(watched.look(), watched.attention())
    return answer(request, watched, "nodes.html", "Nodes", page=page)


@changes
async def drain(request: Request, form: FormData) -> Response:
    """Move all partitions away from a node, or let it lead some again."""
    console = console_of(request)
    watched = console.cluster(request)
    node = number(field(form, "node"), "node")
    back = field(form, "do") == "back"
    await _check(watched, node, back=back)
    work = ConfigCalls(watched.client).alter_configs(
        "broker", str(node), {DRAIN_KEY: None if back else "true"}
    )
    what = f"{'back' if back else 'drain'} node {node}"
    await done(request, watched, "AlterConfigs", what, work)
    watched.snapshot.forget(Kind.NODES)
    return RedirectResponse(console.links(watched.name).page("nodes"), 303)


async def _check(watched: Watched, node: int, *, back: bool) -> None:
    states = {one.broker.id: one.state for one in await NodeCalls(watched.client).describe_nodes()}
    if node not in states:
        raise Refused(404, f"There is no node {node}; nodes are {', '.join(map(str, states))}.")
    if states[node] is NodeState.FENCED:
        raise Refused(409, f"Node {node} is down; what it led is led by others, or waits for it.")
    others = [one for one, state in states.items() if one != node and state is NodeState.ACTIVE]
    if not back and not others:
        raise Refused(409, f"No other node could take over what node {node} leads.")

"""`ottla cluster ...`: the nodes of a cluster, and which of them lead partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    complain,
    fail,
    with_admin,
)
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.cli.output import Cell
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.types import NodeDescription, TopicDescription
    from ottla.client.cluster.view import Partition, TopicPartition

app = typer.Typer(
    help="Show nodes, move partitions between them, drain and forget them.", no_args_is_help=True
)

DRAIN_KEY: Final = "ottla.node.drain"
NOT_FINISHED: Final = 3
LOOK_SECONDS: Final = 0.2
DEFAULT_WAIT: Final = 60.0


class Found(NamedTuple):
    """What `status` shows."""

    nodes: Sequence[NodeDescription]
    topics: Sequence[TopicDescription]

    def partitions(self) -> list[tuple[str, Partition]]:
        return [(topic.name, one) for topic in self.topics for one in topic.partitions]


class Moves(NamedTuple):
    """What `move` has done."""

    moved: Sequence[TopicPartition]
    skipped: int = 0
    """Partitions that stay where they are, as their preferred nodes are down or draining."""


@app.command()
def status(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Show the nodes, their load in the last seconds, and partitions that need attention.

    Status 1 if a partition has no leader.

    \b
    Examples:
        ottla cluster status
        ottla cluster status --json
    """
    found = with_admin(bootstrap, timeout, _look)
    leaderless = [f"{name}:{one.index}" for name, one in found.partitions() if one.leader < 0]
    fewer = [
        f"{name}:{one.index}"
        for name, one in found.partitions()
        if any(node not in one.isr for node in one.replicas)
    ]
    if as_json:
        print_json(
            {
                "nodes": [_node_row(one) for one in found.nodes],
                "partitions": len(found.partitions()),
                "without_leader": leaderless,
                "with_nodes_down": fewer,
            }
        )
    else:
        print_table([_node_row(one) for one in found.nodes], NODE_COLUMNS)
        typer.echo(
            f"{len(found.partitions())} partitions, {len(leaderless)} without a leader, "
            f"{len(fewer)} with replicas on nodes that are down"
        )
    if leaderless:
        raise typer.Exit(1)


NODE_COLUMNS: Final = (
    *("node", "address", "state", "leaders", "cpu", "requests_per_second", "connections", "rack"),
)


def _node_row(one: NodeDescription) -> dict[str, Cell]:
    load = one.load or {}
    return {
        "node": one.broker.id,
        "address": str(one.broker.address),
        "state": one.state.value,
        "leaders": one.leaders,
        "cpu": load.get("cpu"),
        "requests_per_second": load.get("requests"),
        "connections": load.get("connections"),
        "rack": one.broker.rack,
    }


async def _look(admin: Admin) -> Found:
    return Found(await admin.describe_nodes(), await _topics(admin))


async def _topics(admin: Admin) -> list[TopicDescription]:
    names = [topic.name for topic in await admin.list_topics(internal=True)]
    return await admin.describe_topics(names)


@app.command()
def move(
    partition: Annotated[
        str | None, typer.Argument(metavar="[TOPIC:PARTITION]", help="The partition to move.")
    ] = None,
    node: Annotated[
        int | None, typer.Argument(metavar="[NODE]", min=0, help="The node that shall lead it.")
    ] = None,
    source: Annotated[
        int | None,
        typer.Option("--from", metavar="NODE", min=0, help="Move all partitions that it leads."),
    ] = None,
    target: Annotated[
        int | None, typer.Option("--to", metavar="NODE", min=0, help="Where they shall go.")
    ] = None,
    balance: Annotated[
        bool,
        typer.Option(
            "--balance",
            help="Move partitions to their preferred nodes, then spread them over active nodes."
            " Those of a node that is not active are counted and stay where they are.",
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Move one partition, or all of a node, to another node.

    The new node becomes the preferred one, so the partition stays there.

    \b
    Examples:
        ottla cluster move orders:0 2
        ottla cluster move --from 1 --to 3
        ottla cluster move --balance
    """
    ways = [partition is not None or node is not None, source is not None or target is not None]
    if sum([*ways, balance]) != 1:
        raise typer.BadParameter("give TOPIC:PARTITION NODE, or --from and --to, or --balance")
    if ways[0] and (partition is None or node is None):
        raise typer.BadParameter("give TOPIC:PARTITION and NODE")
    if ways[1] and (source is None or target is None):
        raise typer.BadParameter("give --from and --to")

    async def run(admin: Admin) -> Moves:
        if balance:
            return await _balance(admin)
        if partition is not None and node is not None:
            return Moves(await _move_one(admin, *_named(partition), node))
        assert source is not None
        assert target is not None
        return Moves(await _move_all(admin, source, target))

    moved, skipped = with_admin(bootstrap, timeout, run)
    if as_json:
        print_json([{"topic": one.topic, "partition": one.partition} for one in moved])
    elif not moved:
        typer.echo("nothing to move")
    for one in [] if as_json else moved:
        typer.echo(f"moved {one.topic}:{one.partition}")
    if skipped:
        complain(f"skipped {skipped} partitions whose preferred nodes are not active")


def _named(text: str) -> tuple[str, int]:
    topic, _, number = text.rpartition(":")
    if not topic or not (number.isascii() and number.isdigit()):
        raise typer.BadParameter(
            f"{text!r} is not TOPIC:PARTITION, such as orders:0", param_hint="TOPIC:PARTITION"
        )
    return topic, int(number)


async def _move_one(admin: Admin, topic: str, index: int, node: int) -> list[TopicPartition]:
    from ottla.client.cluster.view import TopicPartition

    (described,) = await admin.describe_topics([topic])
    if index >= len(described.partitions):
        fail(f"topic {topic} has {len(described.partitions)} partitions, from 0 on; no {index}")
    return await _to_node(admin, {TopicPartition(topic, index): described.partitions[index]}, node)


async def _move_all(admin: Admin, source: int, target: int) -> list[TopicPartition]:
    from ottla.client.cluster.view import TopicPartition

    await _check_node(admin, source)
    led = {
        TopicPartition(topic.name, one.index): one
        for topic in await _topics(admin)
        for one in topic.partitions
        if one.leader == source
    }
    return await _to_node(admin, led, target)


async def _to_node(
    admin: Admin, partitions: dict[TopicPartition, Partition], node: int
) -> list[TopicPartition]:
    from ottla.client.admin.nodes import led_by

    await _check_node(admin, node)
    left = {place: led_by(one, node) for place, one in partitions.items() if one.leader != node}
    await _replace(admin, left)
    return list(left)


async def _balance(admin: Admin) -> Moves:
    """What the nodes do by themselves in the course of time, at once."""
    from ottla.client.admin.nodes import led_by
    from ottla.client.cluster.view import TopicPartition
    from ottla.cluster.balance import even_out

    active = [one.broker.id for one in await admin.describe_nodes() if one.state.value == "active"]
    places = {
        TopicPartition(topic.name, one.index): one
        for topic in await _topics(admin)
        for one in topic.partitions
    }
    skipped = {place for place, one in places.items() if one.replicas[0] not in active}
    # Those that are led by their preferred nodes too: the node that was asked may not know better.
    elected = await admin.elect_leaders(places.keys() - skipped)
    led: dict[int, list[TopicPartition]] = {node: [] for node in active}
    for place, one in places.items():
        leader = one.leader if place in skipped else one.replicas[0]
        if leader in led:
            led[leader].append(place)
    wanted = even_out(led, skipped, 0, len(places)) if led else {}
    await _replace(admin, {place: led_by(places[place], node) for place, node in wanted.items()})
    return Moves(list(dict.fromkeys([*elected, *wanted])), len(skipped))


async def _replace(admin: Admin, replicas: dict[TopicPartition, list[int]]) -> None:
    """The first of the replicas leads."""
    if replicas:
        await admin.reassign_partitions(replicas)
        # A leader that is still among the replicas has stayed.
        await admin.elect_leaders(replicas)


async def _check_node(admin: Admin, node: int) -> NodeDescription:
    nodes = {one.broker.id: one for one in await admin.describe_nodes()}
    if node not in nodes:
        fail(f"there is no node {node}; nodes are {', '.join(map(str, nodes))}")
    return nodes[node]


@app.command()
def drain(
    node: Annotated[int, typer.Argument(metavar="NODE", min=0, help="The node to empty.")],
    back: Annotated[bool, typer.Option("--back", help="Let it lead partitions again.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", min=0.0, metavar="SECONDS", help="How long to wait until it leads none."
        ),
    ] = DEFAULT_WAIT,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Move all partitions away from a node, and keep new ones away until `--back`.

    Status 3 if it still leads some after the wait; they go on moving.

    \b
    Examples:
        ottla cluster drain 3
        ottla cluster drain 3 --wait 0
        ottla cluster drain 3 --back
    """

    async def run(admin: Admin) -> int:
        found = await _check_node(admin, node)
        if found.state.value == "fenced":
            fail(f"node {node} is down; what it led is led by others, or waits for it")
        if not back and not await _has_others(admin, node):
            fail(f"no other node could take over what node {node} leads")
        value = None if back else "true"
        await admin.alter_configs("broker", str(node), {DRAIN_KEY: value})
        return 0 if back else await _until_empty(admin, node, wait)

    left = with_admin(bootstrap, timeout, run)
    if as_json:
        print_json({"node": node, "draining": not back, "leaders": None if back else left})
    elif back:
        typer.echo(f"node {node} may lead partitions again")
    elif not left:
        typer.echo(f"node {node} leads no partitions")
    if left:
        complain(f"node {node} still leads {left} partitions; see ottla cluster status")
        raise typer.Exit(NOT_FINISHED)


@app.command()
def forget(
    node: Annotated[int, typer.Argument(metavar="NODE", min=0, help="A node that is down.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Take a node out of the cluster that does not come back; others lead its partitions.

    A node that is started again is part of the cluster again.

    \b
    Examples:
        ottla cluster forget 4
    """

    async def run(admin: Admin) -> None:
        if (await _check_node(admin, node)).state.value != "fenced":
            fail(f"node {node} is up; stop it before it can be forgotten")
        await admin.forget_node(node)

    with_admin(bootstrap, timeout, run)
    if as_json:
        print_json({"node": node, "forgotten": True})
    else:
        typer.echo(f"node {node} is forgotten")


async def _has_others(admin: Admin, node: int) -> bool:
    return any(
        one.broker.id != node and one.state.value == "active"
        for one in await admin.describe_nodes()
    )


async def _until_empty(admin: Admin, node: int, wait: float) -> int:
    """How many partitions it leads, at the end of the wait at the latest."""
    import asyncio

    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    while True:
        left = (await _check_node(admin, node)).leaders or 0
        if not left or loop.time() >= deadline:
            return left
        await asyncio.sleep(LOOK_SECONDS)

"""Who goes when there are too many connections."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from ottla.broker.running.settings import Settings
from ottla.broker.serving.connections import CLOSED_AT_ONCE, Connections
from ottla.broker.serving.context import Peer
from ottla.metadata.config.broker import load_broker_config

if TYPE_CHECKING:
    from ottla.broker.serving.connection import Connection


@dataclass(eq=False)
class One:
    last_active: float
    listener: str = "CLIENTS"
    busy: bool = False
    leaves: bool = False
    is_closed: bool = False
    peer: Peer = field(init=False)

    def __post_init__(self) -> None:
        self.peer = Peer("10.0.0.1", self.listener)

    def leave(self) -> None:
        self.leaves = True

    def close(self) -> None:
        self.is_closed = True


def opened(connections: Connections, *some: One) -> None:
    for one in some:
        connections.opened(cast("Connection", one))


def limited_to(count: int) -> Connections:
    sets = [
        "listeners=CLIENTS://127.0.0.1:1,NODES://127.0.0.1:2",
        "listener.security.protocol.map=CLIENTS:PLAINTEXT,NODES:PLAINTEXT",
        "inter.broker.listener.name=NODES",
        f"max.connections={count}",
    ]
    return Connections(Settings(load_broker_config(sets=sets)))


def test_a_client_too_many_is_refused() -> None:
    connections = limited_to(2)
    some = [One(1), One(2), One(3)]
    opened(connections, *some)
    assert [one.is_closed for one in some] == [False, False, True]
    assert not any(one.leaves for one in some)


def test_another_node_is_let_in_and_the_least_recent_client_goes() -> None:
    connections = limited_to(3)
    waiting, recent, old, node = One(1, busy=True), One(9), One(5), One(0, "NODES")
    opened(connections, waiting, recent, old, node)
    assert [one.leaves for one in (waiting, recent, old, node)] == [False, False, True, False]
    assert not node.is_closed
    opened(connections, One(0, "NODES"))
    assert [one.leaves for one in (waiting, recent, node)] == [False, True, False]


async def test_when_thousands_of_clients_close_others_have_their_turns() -> None:
    """Fault: all of them were closed in one turn of the loop."""
    connections = limited_to(10_000)
    some = [One(1) for _ in range(5 * CLOSED_AT_ONCE)]
    opened(connections, *some)
    for one in some:
        connections.ended(cast("Connection", one))
    closed = []
    while not all(one.is_closed for one in some):
        await asyncio.sleep(0)
        closed.append(sum(one.is_closed for one in some))
    assert closed == [CLOSED_AT_ONCE * turn for turn in range(1, 6)]


async def test_a_stop_closes_connections_in_turns() -> None:
    connections = limited_to(10_000)
    some = [One(1) for _ in range(3 * CLOSED_AT_ONCE)]
    opened(connections, *some)
    closing = asyncio.ensure_future(connections.close())
    closed = []
    while not closing.done():
        await asyncio.sleep(0)
        closed.append(sum(one.is_closed for one in some))
    assert closed[:3] == [CLOSED_AT_ONCE * turn for turn in range(1, 4)]

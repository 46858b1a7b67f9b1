"""Who goes when there are too many connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from ottla.broker.running.settings import Settings
from ottla.broker.serving.connections import Connections
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

"""Brokers with listeners that ask who comes in, and users for them."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import ottla
from ottla.broker.running.node import Node
from ottla.metadata.changes.security import RemoveScramCredential, SetScramCredential
from ottla.metadata.security.users import ScramCredential
from ottla.security.scram import MECHANISMS, make_credential

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

USERS: Final = {"alice": "wonder-4711", "a,b=c": "odd,=name"}
ALL_SCRAM: Final = tuple(MECHANISMS)


@cache
def stored(name: str, password: str, mechanism: str) -> ScramCredential:
    """What a broker keeps of a password."""
    salt = f"salt of {name:<24}".encode()[:24]
    made = make_credential(MECHANISMS[mechanism], password, salt, 4096)
    return ScramCredential(made.salt, made.iterations, made.stored_key, made.server_key)


def node_of(broker: ottla.EmbeddedBroker) -> Node:
    node = broker._node
    assert isinstance(node, Node)
    return node


def set_user(
    broker: ottla.EmbeddedBroker, name: str, password: str, mechanisms: tuple[str, ...] = ALL_SCRAM
) -> None:
    changes = [SetScramCredential(name, one, stored(name, password, one)) for one in mechanisms]
    broker._call(lambda node: node.cluster.change(*changes))


def delete_user(broker: ottla.EmbeddedBroker, name: str) -> None:
    changes = [RemoveScramCredential(name, one) for one in ALL_SCRAM]
    broker._call(lambda node: node.cluster.change(*changes))


def bootstrap(broker: ottla.EmbeddedBroker, listener: str) -> str:
    """The address of a listener."""
    host, port = node_of(broker).addresses[listener]
    return f"{host}:{port}"


def run_in(broker: ottla.EmbeddedBroker, function: Any) -> Any:
    """The result of a function of the node, called in the broker's thread."""
    found: list[Any] = []

    async def call(node: Node) -> None:
        found.append(function(node))

    broker._call(partial(call))
    return found[0]


@contextmanager
def guarded_broker(
    config: Mapping[str, str],
    *,
    users: Mapping[str, str] = USERS,
    data_dir: Path | None = None,
) -> Iterator[ottla.EmbeddedBroker]:
    with ottla.EmbeddedBroker(data_dir, config=config) as broker:
        for name, password in users.items():
            set_user(broker, name, password)
        yield broker

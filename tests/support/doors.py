"""Brokers with listeners that ask who comes in, and users for them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import ottla
from ottla.broker.running.node import Node
from ottla.metadata.changes.security import RemoveScramCredential, SetScramCredential
from ottla.metadata.security.users import ScramCredential
from ottla.security.certificates import Authority
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


@dataclass(frozen=True)
class TlsFiles:
    """A CA, a server's key store, and certificates of clients."""

    directory: Path
    authority: Authority

    @property
    def ca(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def keystore(self) -> Path:
        return self.directory / "server.store.pem"

    def config(self, **more: str) -> dict[str, str]:
        """Settings of a TLS listener."""
        found = {"ssl.keystore.location": str(self.keystore)}
        return found | {key.replace("_", "."): value for key, value in more.items()}

    def server(self, name: str, *hosts: str) -> Path:
        """Another key store."""
        path = self.directory / f"{name}.store.pem"
        path.write_bytes(self.authority.server(list(hosts)).store)
        path.chmod(0o600)
        return path

    def client(self, name: str) -> tuple[Path, Path]:
        """Certificate and key."""
        issued = self.authority.client(name)
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        certificate.write_bytes(issued.chain)
        key.write_bytes(issued.key)
        key.chmod(0o600)
        return certificate, key


def make_tls_files(directory: Path) -> TlsFiles:
    """For a server at 127.0.0.1."""
    authority = Authority.make()
    files = TlsFiles(directory, authority)
    files.ca.write_bytes(authority.issued.chain)
    files.server("server", "localhost", "127.0.0.1")
    return files

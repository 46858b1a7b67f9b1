"""A broker with an authorizer on which each listener is a user, and words for ACLs.

    with rights_broker() as place:
        place.grant("allow alice read topic:orders", "deny * write topic:secret*")
        place.client("alice").ask(...)

Real clients work, too: they are told the addresses of the listener they came in by. How a user
proves who it is has its own tests.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self
from unittest import mock

import ottla
from ottla.broker.serving.dispatch import Dispatcher
from ottla.metadata.security.acls import (
    CLUSTER_NAME,
    Acl,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from ottla.wire.schema.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.schema.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from ottla.broker.serving.context import Peer

USERS: Final = ("root", "alice", "bob")
"""root is a super user."""
KINDS: Final = {
    "topic": Resource.TOPIC,
    "group": Resource.GROUP,
    "txn": Resource.TRANSACTIONAL_ID,
    "cluster": Resource.CLUSTER,
}
EVERYTHING: Final = DeleteAclsFilter(1, None, 1, None, None, 1, 1)


def parsed(text: str) -> Acl:
    """`allow alice read topic:orders`; a name that ends in * is a prefix, * alone is every name."""
    permission, who, operation, what = text.split()
    kind, _, name = what.partition(":")
    pattern = Pattern.LITERAL
    if name.endswith("*") and name != "*":
        pattern, name = Pattern.PREFIXED, name[:-1]
    return Acl(
        KINDS[kind],
        pattern,
        name or CLUSTER_NAME,
        f"User:{who}",
        "*",
        Operation[operation.upper()],
        Permission[permission.upper()],
    )


def creation(acl: Acl) -> AclCreation:
    return AclCreation(
        acl.resource,
        acl.name,
        acl.pattern,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


class RightsPlace:
    """A broker with users; `client(user)` is a connection of one, kept until the end."""

    def __init__(self) -> None:
        self._clients: dict[str, RawClient] = {}

    def bootstrap(self, user: str) -> str:
        raise NotImplementedError

    def client(self, user: str) -> RawClient:
        found = self._clients.get(user)
        if found is None:
            found = self._clients[user] = self.connect(user)
        return found

    def connect(self, user: str, *, client_id: str = "raw") -> RawClient:
        return RawClient(self.bootstrap(user), client_id=client_id)

    def ask(self, user: str, api: str, version: int, request: Any) -> Any:
        return self.client(user).ask(api, version, request)

    def create_topic(self, name: str) -> None:
        request = CreateTopicsRequest([CreatableTopic(name, 1, 1)])
        (made,) = self.ask("root", "create_topics", 7, request).topics
        assert made.error_code == 0, made

    def grant(self, *acls: str) -> None:
        """These ACLs, and no others."""
        self.set([parsed(text) for text in acls])

    def set(self, acls: Sequence[Acl]) -> None:
        self.ask("root", "delete_acls", 3, DeleteAclsRequest([EVERYTHING]))
        if acls:
            made = CreateAclsRequest([creation(acl) for acl in acls])
            answer = self.ask("root", "create_acls", 3, made)
            assert {result.error_code for result in answer.results} == {0}, answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for client in self._clients.values():
            client.close()


class RightsBroker(RightsPlace):
    """Ottla's."""

    def __init__(self, broker: ottla.EmbeddedBroker) -> None:
        super().__init__()
        self.broker = broker

    def bootstrap(self, user: str) -> str:
        assert self.broker._node is not None
        host, port = self.broker._node.addresses[user.upper()]
        return f"{host}:{port}"


def _identify_by_listener(self: Dispatcher, peer: Peer, principal: str) -> None:
    _identify(self, peer, f"User:{peer.listener.lower()}")


_identify = Dispatcher.identify


@contextmanager
def rights_broker(
    config: Mapping[str, str] | None = None, users: Sequence[str] = USERS
) -> Iterator[RightsBroker]:
    names = [user.upper() for user in users]
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        "inter.broker.listener.name": names[0],
        "authorizer.class.name": "standard",
        "super.users": "User:root",
        **(config or {}),
    }
    with (
        mock.patch.object(Dispatcher, "identify", _identify_by_listener),
        ottla.EmbeddedBroker(config=settings) as broker,
        RightsBroker(broker) as place,
    ):
        yield place

"""Who asks an HTTP listener of the broker, and what they may: Basic authentication and ACLs.

A password is checked as PLAIN's is: the same credentials, the same cache, the same delays after
failures. A listener that does not ask takes everybody for User:ANONYMOUS.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.access.everything import EVERYTHING
from ottla.broker.serving.context import Peer
from ottla.http.messages import Refused
from ottla.metadata.security.acls import CLUSTER_NAME, Operation, Resource
from ottla.registry.callers import Action
from ottla.security.mechanisms import MAX_NAME_BYTES, MAX_PASSWORD_BYTES, password_step
from ottla.security.steps import Success, Work, name_fault

if TYPE_CHECKING:
    from ottla.broker.access.audit import Audit
    from ottla.broker.access.authorizer import Access, Authorizer
    from ottla.broker.access.door import Door
    from ottla.http.messages import Request

CHALLENGE: Final = ("WWW-Authenticate", 'Basic realm="ottla", charset="UTF-8"')
FAILURE_SECONDS: Final = 0.1
"""As connection.failed.authentication.delay.ms is by default."""
OPERATIONS: Final = {
    Action.READ: Operation.DESCRIBE,
    Action.WRITE: Operation.WRITE,
    Action.DELETE: Operation.DELETE,
}


class Visitor:
    """A caller of the registry, with the rights of its user."""

    def __init__(self, peer: Peer, audit: Audit | None) -> None:
        self._access: Access = peer.access
        self._peer = peer
        self._audit = audit

    def may(self, action: Action, topic: str) -> bool:
        return self._access.may(OPERATIONS[action], Resource.TOPIC, topic)

    def may_configure(self) -> bool:
        return self._access.may(Operation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)

    def refused(self, api: str, action: Action | None, topic: str) -> None:
        if self._audit is None:
            return
        if action is None:
            what = Operation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME
        else:
            what = OPERATIONS[action], Resource.TOPIC, topic
        self._audit.denied_api(self._peer, api, *what)

    def changed(self, api: str, subject: str, outcome: str) -> None:
        if self._audit is not None:
            self._audit.changed(self._peer, None, api, f"subject:{subject}", outcome)


class HttpCallers:
    """`await identify(request)` is who asks; `Refused` with 401 if that is not told."""

    def __init__(
        self, listener: str, door: Door | None, authorizer: Authorizer | None, audit: Audit | None
    ) -> None:
        """Without a door nobody is asked."""
        self._listener = listener
        self._door = door
        self._authorizer = authorizer
        self._audit = audit

    async def identify(self, request: Request) -> Visitor:
        peer = Peer(request.host, self._listener)
        if self._door is not None:
            peer.principal = f"User:{await self._user(self._door, peer, request)}"
        peer.access = EVERYTHING
        if self._authorizer is not None:
            peer.access = self._authorizer.access(peer.principal, peer.host)
        return Visitor(peer, self._audit)

    async def _user(self, door: Door, peer: Peer, request: Request) -> str:
        given = request.headers.get("authorization")
        if given is None:
            raise Refused(401, "send a user and a password (Basic authentication)", CHALLENGE)
        found = _parsed(given)
        if isinstance(found, str):
            await door.failed(peer, FAILURE_SECONDS, found, "")
            raise _failed()
        name, password = found
        of_user = partial(door.credentials.plain, among_nodes=False, configured={})
        step = password_step(name, password, of_user, door.remembered)
        following = step.then(await door.work(step.call)) if isinstance(step, Work) else step
        if not isinstance(following, Success):
            reason = getattr(following, "reason", "wrong password")
            await door.failed(peer, FAILURE_SECONDS, reason, name)
            raise _failed()
        door.forgive(peer.host)
        return name


def _failed() -> Refused:
    return Refused(401, "authentication failed", CHALLENGE)


def _parsed(header: str) -> tuple[str, str] | str:
    """User and password of a Basic header, or what is wrong with it."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return "not Basic authentication"
    try:
        name, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "malformed message"
    if not colon or not password:
        return "empty password"
    if len(name.encode()) > MAX_NAME_BYTES or len(password.encode()) > MAX_PASSWORD_BYTES:
        return "user name or password too long"
    return name_fault(name) or (name, password)

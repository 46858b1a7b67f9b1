"""Who asks an HTTP listener of the broker, and what they may.

    Authorization: Basic    a user and a password, checked as PLAIN's are: the same credentials, the
                            same verifiers; where the listener has a mechanism with passwords
    Authorization: Bearer   a token, checked as OAUTHBEARER's are; where the listener has it
    neither                 the user of the client's certificate, where it has shown one
    a node's signature      the user that another node vouches for (`registry.forwarding`)
    the table worker's      Basic with the password of `__table`, which only the worker that the
    password                broker has started knows; whatever ways there are for others

- A header says who asks although there is a certificate, as SASL does over TLS.
- Failures are delayed as those of SASL are. A caller who says nothing gets 401, which names the
  ways there are.
- Any other name that begins with `__` is the broker's own, and refused.
- A listener that does not ask takes everybody for User:ANONYMOUS.
- Time that is spent for a caller counts towards its quota `request_percentage`.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from ottla.broker.access.authentication import RESERVED_NAME
from ottla.broker.access.authorizer import WORKER_PRINCIPAL
from ottla.broker.access.credentials import RESERVED_PREFIX
from ottla.broker.access.everything import EVERYTHING
from ottla.broker.serving.context import Peer
from ottla.http.messages import Refused
from ottla.metadata.security.acls import CLUSTER_NAME, Operation, Resource
from ottla.registry.callers import Action
from ottla.registry.forwarding import SIGNATURE, signed, vouched
from ottla.security.mechanisms import (
    MAX_NAME_BYTES,
    MAX_PASSWORD_BYTES,
    OAUTHBEARER,
    password_step,
)
from ottla.security.oauthbearer import BadToken, Unfetched
from ottla.security.principal import UnreadableCertificate, subject_of
from ottla.security.steps import Success, Work, name_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.broker.access.audit import Audit
    from ottla.broker.access.authorizer import Access, Authorizer
    from ottla.broker.access.certificates import Certificates
    from ottla.broker.access.door import Door
    from ottla.broker.access.oauth import TokenJudge
    from ottla.broker.access.refusals import Attempt
    from ottla.broker.access.throttling import Throttling
    from ottla.clock import Clock
    from ottla.http.messages import Answer, Request
    from ottla.http.routes import Handler
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.security.principal import MappingRules
    from ottla.security.steps import Step

BASIC: Final = ("WWW-Authenticate", 'Basic realm="ottla", charset="UTF-8"')
BEARER: Final = ("WWW-Authenticate", 'Bearer realm="ottla"')
RETRY_SECONDS: Final = "5"
"""After which a caller may try again while too many failures are held back: their longest delay."""
OPERATIONS: Final = {
    Action.READ: Operation.DESCRIBE,
    Action.WRITE: Operation.WRITE,
    Action.DELETE: Operation.DELETE,
}


@dataclass(frozen=True, slots=True)
class Proofs:
    """How callers of a listener can say who they are."""

    passwords: bool = True
    tokens: TokenJudge | None = None
    certificates: MappingRules | None = None
    """How the subject of a certificate becomes a user; None where none is asked for."""
    delay: float = 0.1
    """Seconds that the answer to a failure is held back."""

    @classmethod
    def of(
        cls,
        config: BrokerConfig,
        listener: str,
        certificates: Certificates | None,
        clock: Clock,
    ) -> Proofs:
        """As a listener is configured. Blocks: keys of tokens are fetched.

        `certificates` of a listener with TLS.
        """
        own = config.listener(listener)
        mechanisms = own.get_list("sasl.enabled.mechanisms")
        judge = None
        if OAUTHBEARER in mechanisms:
            from ottla.broker.access.oauth import OAuthSettings, TokenJudge

            judge = TokenJudge(OAuthSettings.of(config.listener(listener, OAUTHBEARER)), clock)
            judge.load()
        rules = None
        if certificates is not None and certificates.asks(listener):
            rules = certificates.rules(listener)
        return cls(
            any(one != OAUTHBEARER for one in mechanisms),
            judge,
            rules,
            own.get_int("connection.failed.authentication.delay.ms") / 1000,
        )

    @property
    def challenges(self) -> tuple[tuple[str, str], ...]:
        """What a caller may send, as HTTP says it."""
        basic = (BASIC,) if self.passwords else ()
        return basic if self.tokens is None else (*basic, BEARER)

    @property
    def told(self) -> str:
        ways = []
        if self.passwords:
            ways.append("a user and a password (Basic authentication)")
        if self.tokens is not None:
            ways.append("a token (Bearer authentication)")
        if self.certificates is not None:
            ways.append("a client certificate")
        return f"send {' or '.join(ways)}"


class Visitor:
    """A caller of the registry, with the rights of its user."""

    def __init__(
        self,
        peer: Peer,
        audit: Audit | None,
        throttling: Callable[[], Throttling | None],
        key: bytes | None,
    ) -> None:
        self._access: Access = peer.access
        self._peer = peer
        self._audit = audit
        self._throttling = throttling
        self._key = key

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

    async def answer(self, request: Request, handler: Handler) -> Answer:
        throttling = self._throttling()
        if throttling is None or not throttling.active:
            return await handler(request)
        return await throttling.answer(self._peer.principal.partition(":")[2], request, handler)

    def vouching(self, request: Request, now: float) -> Mapping[str, str]:
        """Headers by which another node knows who asks. Takes milliseconds for a long body."""
        if self._key is None:
            return {}
        return signed(self._key, request, self._peer.principal, self._peer.host, now)


class HttpCallers:
    """`await identify(request)` is who asks; `Refused` with 401 if that is not told."""

    def __init__(
        self,
        listener: str,
        door: Door | None,
        proofs: Proofs,
        authorizer: Authorizer | None,
        audit: Audit | None,
        throttling: Callable[[], Throttling | None] = lambda: None,
    ) -> None:
        """Without a door nobody is asked. `throttling` is None while there are no quotas."""
        self._listener = listener
        self._door = door
        self._proofs = proofs
        self._authorizer = authorizer
        self._audit = audit
        self._throttling = throttling

    async def identify(self, request: Request) -> Visitor:
        peer = Peer(request.host, self._listener)
        door, key, is_worker = self._door, None, False
        if door is not None:
            key = door.forwarding_key
            is_worker = door.is_worker(request.headers.get("authorization", ""))
            if SIGNATURE in request.headers:
                await self._vouched(door, key, peer, request)
            elif is_worker:
                peer.principal = WORKER_PRINCIPAL
            else:
                peer.principal = f"User:{await self._user(door, peer, request)}"
        peer.access = EVERYTHING
        if self._authorizer is not None:
            peer.access = self._authorizer.access(peer.principal, peer.host, from_node=is_worker)
        return Visitor(peer, self._audit, self._throttling, key)

    async def _vouched(self, door: Door, key: bytes, peer: Peer, request: Request) -> None:
        """A node has asked the caller who it is."""
        now = door.clock.wall_ms() / 1000
        found = await door.work(partial(vouched, key, request, now))
        if found is None:
            await self._failed(door, peer, "a signature that no node made", "")
        peer.principal, peer.host = found

    async def _user(self, door: Door, peer: Peer, request: Request) -> str:
        proofs = self._proofs
        given = request.headers.get("authorization")
        if given is None:
            if proofs.certificates is None or request.certificate is None:
                raise Refused(401, proofs.told, *proofs.challenges)
            name = _certified(proofs.certificates, request.certificate)
            if name is None:
                await self._failed(door, peer, "no mapping rule", "")
        else:
            scheme, _, rest = given.partition(" ")
            match scheme.lower():
                case "basic" if proofs.passwords:
                    name = await self._of_password(door, peer, rest)
                case "bearer" if proofs.tokens is not None:
                    name = await self._of_token(door, peer, proofs.tokens, rest)
                case _:
                    await self._failed(door, peer, "a way to log in that is not enabled", "")
        if name.startswith(RESERVED_PREFIX):
            await self._failed(door, peer, RESERVED_NAME, name)
        door.forgive(peer.host)
        return name

    async def _of_password(self, door: Door, peer: Peer, encoded: str) -> str:
        found = _parsed(encoded)
        if isinstance(found, str):
            await self._failed(door, peer, found, "")
        name, password = found
        of_user = partial(door.credentials.plain, among_nodes=False, configured={})
        step: Step = password_step(name, password, of_user, door.verifiers)
        if not isinstance(step, Success):
            with door.attempt(peer.host, self._proofs.delay) as attempt:
                if isinstance(step, Work):
                    step = step.then(await door.work(step.call))
                if not isinstance(step, Success):
                    reason = getattr(step, "reason", "wrong password")
                    await self._refuse(door, peer, attempt, reason, name)
        return name

    async def _of_token(self, door: Door, peer: Peer, judge: TokenJudge, given: str) -> str:
        verdict = judge.judge(given.strip())
        if isinstance(verdict, Unfetched):
            verdict = verdict.then(await door.work(verdict.call))
        if isinstance(verdict, BadToken):
            error = f'Bearer realm="ottla", error="{verdict.status}"'
            if verdict.scope is not None:
                error += f', scope="{verdict.scope}"'
            status = 401 if verdict.scope is None else 403  # RFC 6750
            header = ("WWW-Authenticate", error)
            await self._failed(door, peer, verdict.reason, "", status, header)
        return verdict.name

    async def _failed(
        self,
        door: Door,
        peer: Peer,
        reason: str,
        user: str,
        status: int = 401,
        *challenges: tuple[str, str],
    ) -> NoReturn:
        with door.attempt(peer.host, self._proofs.delay) as attempt:
            await self._refuse(door, peer, attempt, reason, user, status, *challenges)

    async def _refuse(
        self,
        door: Door,
        peer: Peer,
        attempt: Attempt,
        reason: str,
        user: str,
        status: int = 401,
        *challenges: tuple[str, str],
    ) -> NoReturn:
        await door.failed(peer, attempt, reason, user)
        if attempt.is_dropped:
            retry = ("Retry-After", RETRY_SECONDS)
            raise Refused(503, "too many logins fail at the moment", retry)
        raise Refused(status, "authentication failed", *(challenges or self._proofs.challenges))


def _certified(rules: MappingRules, certificate: bytes) -> str | None:
    """The user of a certificate; None if no rule knows its subject."""
    try:
        return rules.apply(subject_of(certificate))
    except UnreadableCertificate:
        return None


def _parsed(encoded: str) -> tuple[str, str] | str:
    """User and password of a Basic header, or what is wrong with it."""
    try:
        name, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "malformed message"
    if not colon or not password:
        return "empty password"
    if len(name.encode()) > MAX_NAME_BYTES or len(password.encode()) > MAX_PASSWORD_BYTES:
        return "user name or password too long"
    return name_fault(name) or (name, password)

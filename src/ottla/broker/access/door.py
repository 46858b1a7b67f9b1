"""The door of a node: what its guarded listeners share.

`Door` is the shell around the lobby: connections arrive, get a slot, and leave it when they are
authenticated or gone. A `Guard` has the settings of one listener. Neither exists on a node whose
listeners are all PLAINTEXT.

- Hashing a password takes milliseconds of a thread of their own, two at a time: a flood of logins
  delays other logins, and nobody else. Where the system has priorities of threads (Linux) these
  have a low one, so that two busy ones do not keep the event loop from the processor.
- A connection whose answer is held back after a failure has left its slot. When it is answered is
  decided when its request comes (`refusals`): how long its check took cannot be seen.
- Connections of a user whose credential was changed or deleted are closed; the one that asked for
  the change gets its answer first.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import sys
import threading
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.access.credentials import (
    NODE_USER,
    TABLE_USER,
    Credentials,
    made_credentials,
)
from ottla.broker.access.guard import Guard
from ottla.broker.access.guarded_connection import GuardedConnection
from ottla.broker.access.listeners import runs_table_worker
from ottla.broker.access.lobby import Lobby
from ottla.broker.access.node_login import node_security, worker_properties
from ottla.broker.access.quotas import Index as QuotaIndex
from ottla.broker.access.refusals import MAX_HELD, Refusals
from ottla.broker.access.session import NotWelcome
from ottla.broker.access.tls_connection import Handshakes
from ottla.metadata.config.types import INT_MAX
from ottla.metadata.errors import InvalidConfig
from ottla.metadata.security.acls import canonical_host
from ottla.security.contexts import fault_between
from ottla.security.kernel_copy import KernelCopy
from ottla.security.mechanisms import PLAIN, Verifiers
from ottla.security.tls_channel import SLICE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ottla.broker.access.audit import Audit
    from ottla.broker.access.certificates import Certificates
    from ottla.broker.access.credentials import Made
    from ottla.broker.access.listeners import Listener
    from ottla.broker.access.refusals import Attempt
    from ottla.broker.running.services import Services
    from ottla.broker.running.settings import Settings
    from ottla.broker.serving.connections import Connections
    from ottla.broker.serving.context import Peer
    from ottla.client.security import Security
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import MetadataImage
    from ottla.metadata.metadata import Metadata
    from ottla.metadata.security.quotas import ClientQuota

PASSWORD_THREADS: Final = 2
PASSWORD_NICENESS: Final = 10  # added to the broker's: a tenth of the weight of its other threads
LOWEST_PRIORITY: Final = 19
SECRET_BYTES: Final = 32
ANONYMOUS: Final = "ANONYMOUS"

logger = logging.getLogger(__name__)


class Door:
    """Of one node."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: Settings,
        connections: Connections,
        services: Services,
        certificates: Certificates,
        *,
        fake_secret: bytes,
        passwords: Mapping[str, str],
        own: Made,
        audit: Audit,
    ) -> None:
        self._settings = settings
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._lobby: Lobby[GuardedConnection] = Lobby(
            slots=config.get_int("ottla.authentications.max"),
            wait_seconds=config.get_int("ottla.lobby.wait.ms") / 1000,
            authentication_seconds=config.get_int("ottla.authentication.timeout.ms") / 1000,
            address_rate=self._address_rate,
            waits_for_us=lambda connection: connection.is_served,
        )
        self._image: Callable[[], MetadataImage] = lambda: services.cluster.image
        self._quotas = QuotaIndex({})
        self._quotas_of: Mapping[str, ClientQuota] = {}  # the image's, from which it was made
        self._refusals = Refusals()
        self._held_back: dict[Attempt, asyncio.Future[None]] = {}
        self._passwords = ThreadPoolExecutor(
            PASSWORD_THREADS, thread_name_prefix="ottla-password", initializer=_give_way
        )
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0  # uvloop does not tell when a timer ends that is due already
        self._step_comes = False
        self.audit = audit
        self._closes_on_change = config.get_bool("ottla.disconnect.on.credential.change")
        self._services = services
        self._config = config
        self._own_passwords = passwords
        self.forwarding_key = hmac.digest(
            passwords[NODE_USER].encode(), b"registry requests", "sha256"
        )
        """With it nodes sign the requests that they pass on to each other over HTTP."""
        self.clock = services.clock
        self.certificates = certificates
        self.handshakes = Handshakes()
        self.credentials = Credentials(self._image, fake_secret, own)
        self.verifiers = Verifiers(secrets.token_bytes(SECRET_BYTES))
        self.expired_sessions = 0
        self.failed_authentications = 0
        settings.watch(self._settings_changed)

    @classmethod
    async def open(
        cls,
        config: BrokerConfig,
        settings: Settings,
        connections: Connections,
        metadata: Metadata,
        services: Services,
        certificates: Certificates,
        audit: Audit,
    ) -> Door:
        """With the secrets of the cluster, which the first node makes."""
        fake = await metadata.secret("fake.credentials", _new_secret)
        passwords = {NODE_USER: (await metadata.secret("user." + NODE_USER, _new_secret)).hex()}
        if runs_table_worker(config):
            secret = await metadata.secret("user." + TABLE_USER, _new_secret)
            passwords[TABLE_USER] = secret.hex()
        own = await services.workers.run(partial(made_credentials, passwords))
        return cls(
            config,
            settings,
            connections,
            services,
            certificates,
            fake_secret=fake,
            passwords=passwords,
            own=own,
            audit=audit,
        )

    async def guard(self, config: BrokerConfig, listener: Listener) -> Guard:
        """What a listener asks for; `ConfigError` if its settings cannot be."""
        among_nodes = listener.name == self._settings.inter_broker_listener
        guard = Guard(self, config, listener, self.certificates, among_nodes=among_nodes)
        await self._services.workers.run(guard.prepare)
        self._settings_changed()
        return guard

    def _address_rate(self, address: str) -> float | None:
        """The quota of new connections from an address, in a second."""
        quotas = self._image().client_quotas
        if quotas is not self._quotas_of:
            self._quotas, self._quotas_of = QuotaIndex(quotas), quotas
        return self._quotas.connection_rate(canonical_host(address))

    @cached_property
    def copy(self) -> KernelCopy | None:
        """Where the kernel copies mapped files to for all connections with TLS."""
        return KernelCopy.make(SLICE_BYTES)

    @property
    def inter_broker(self) -> str:
        """The listener that nodes use."""
        return self._settings.inter_broker_listener

    def worker_properties(self) -> dict[str, str]:
        """How the table worker that this node started logs in."""
        return worker_properties(self._config, self._node_listener, self._own_passwords[TABLE_USER])

    def is_worker(self, authorization: str) -> bool:
        """Whether a header of HTTP has the password of the table worker that a node started."""
        password = self._own_passwords.get(TABLE_USER)
        if password is None:
            return False
        expected = b"Basic " + b64encode(f"{TABLE_USER}:{password}".encode())
        return hmac.compare_digest(authorization.encode(), expected)

    @property
    def _node_listener(self) -> Listener:
        name = self._settings.inter_broker_listener
        return next(one for one in self._settings.listeners if one.name == name)

    async def node_security(self) -> Security:
        """How this node logs in to others, and to itself."""
        listener = self._node_listener
        return await self._services.workers.run(
            partial(node_security, self._config, listener, self._own_passwords[NODE_USER])
        )

    async def check_own_trust(self) -> None:
        """`ConfigError` if nodes would refuse each other's certificate, and the tier its own.

        Names are not looked at here: `check_host` warns of those.
        """
        security, listener = await self.node_security(), self._node_listener
        if security.ssl_context is None:
            return
        security.ssl_context.check_hostname = False
        shown = self.certificates.context(listener.name)
        fault = await self._services.workers.run(
            partial(fault_between, shown, security.ssl_context, None)
        )
        if fault is not None:
            raise InvalidConfig(
                "the CA of the listener's own certificate, for nodes and the tier verify it",
                fault,
                f"listener.name.{listener.name.lower()}.ssl.truststore.location",
            )

    async def node_principal(self) -> str:
        """The name that other nodes, and this one, know this node by; `ConfigError` if none."""
        security = await self.node_security()
        if security.sasl_username is not None:
            return security.sasl_username
        name = self._settings.inter_broker_listener
        if not security.has_tls or not self.certificates.asks(name):
            return ANONYMOUS
        user = await self._services.workers.run(partial(self.certificates.own_user, name))
        if user is None:
            key = f"listener.name.{name.lower()}.ssl.principal.mapping.rules"
            raise InvalidConfig("a rule for this node's own certificate", "none that matches", key)
        return user

    def check_host(self, listener: Listener, host: str) -> None:
        """Warn if clients would refuse the certificate at the address they are told."""
        if not listener.has_tls:
            return
        certificate = self.certificates.context(listener.name).certificate
        if not certificate.covers(host):
            logger.warning(
                "clients of listener %s are told the host %s, which its certificate does not have "
                "(it has %s): they would refuse it; set advertised.listeners",
                listener.name,
                host,
                ", ".join(sorted(name for _, name in certificate.names)) or "no names",
            )

    @property
    def strangers(self) -> tuple[int, int]:
        """How many connections wait for a slot, and how many authenticate."""
        return self._lobby.waiting, self._lobby.authenticating

    # -- the lobby --------------------------------------------------------------------------------

    def arrived(self, connection: GuardedConnection) -> None:
        """It gets its slot when it has said something, or later."""
        peer, now = connection.peer, self._loop.time()
        self._lobby.arrived(connection, peer.host, peer.listener, now, silent=connection.must_speak)
        self._step()

    def spoke(self, connection: GuardedConnection) -> None:
        """The first bytes of a connection in the lobby are there."""
        self._lobby.spoke(connection, self._loop.time())
        self._step()

    def progressed(self, connection: GuardedConnection) -> None:
        """A client has done its part of a step, and waits for this node or is waited for again."""
        self._lobby.progressed(connection, self._loop.time())

    def left(self, connection: GuardedConnection) -> None:
        """It is authenticated, or gone."""
        self._lobby.left(connection)
        if not self._step_comes:
            self._step_comes = True
            self._loop.call_soon(self._next_step)

    def _next_step(self) -> None:
        self._step_comes = False
        self._step()

    def _step(self) -> None:
        now = self._loop.time()
        moves = self._lobby.step(now)
        for closing in moves.close:
            peer = closing.visitor.peer
            self.audit.turned_away(peer.host, peer.listener, closing.reason)
            closing.visitor.abort()
        for connection in moves.enter:
            connection.enter()
        due = self._lobby.next_time(now)
        if due is not None and (self._timer is None or due < self._timer_at):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self._loop.call_at(due, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self._step()

    def _settings_changed(self) -> None:
        rate = self._settings.connection_rate
        broker = None if rate >= INT_MAX else rate
        self._lobby.set_rates(broker, self._settings.listener_rates, self._loop.time())

    # -- failures ---------------------------------------------------------------------------------

    @contextmanager
    def attempt(self, host: str, delay: float) -> Iterator[Attempt]:
        """An authentication that did not succeed at once: the time of its answer is fixed now."""
        attempt, dropped = self._refusals.arrived(host, delay, self._loop.time())
        if dropped in self._held_back:
            _let_go(self._held_back[dropped])
        try:
            yield attempt
        finally:
            self._refusals.left(attempt)

    async def hold_back(
        self, connection: GuardedConnection, attempt: Attempt, reason: str, user: str
    ) -> None:
        """Wait before the answer to a failed authentication may leave."""
        self.left(connection)
        await self.failed(connection.peer, attempt, reason, user)
        if attempt.is_dropped:
            raise NotWelcome(f"at most {MAX_HELD} failures", "more", "authentication")

    async def failed(self, peer: Peer, attempt: Attempt, reason: str, user: str) -> None:
        """Count a failed authentication, and wait as long as its answer is held back."""
        self.failed_authentications += 1
        self.audit.not_authenticated(peer, reason, user)
        if attempt.is_dropped:
            return
        waiter = self._held_back[attempt] = self._loop.create_future()
        timer = self._loop.call_at(attempt.leaves_at(self._loop.time()), _let_go, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            del self._held_back[attempt]

    def succeeded(self, peer: Peer) -> None:
        self.forgive(peer.host)
        self.audit.authenticated(peer, "succeeded")

    def forgive(self, host: str) -> None:
        """Failures of an address count no more: it has the right password."""
        self._refusals.succeeded(host)

    async def work(self, call: Callable[[], Any]) -> Any:
        return await self._loop.run_in_executor(self._passwords, call)

    # -- what else happens ------------------------------------------------------------------------

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        """Forget the passwords of users whose credential is another one, or gone; close theirs."""
        if before.scram is after.scram:
            return
        self.verifiers.forget(lambda name: before.scram.get(name) != after.scram.get(name))
        if not self._closes_on_change:
            return
        for connection in self._connections:
            session = connection.peer.session
            if session is None or not session.is_open:
                continue
            name = connection.peer.principal.partition(":")[2]
            old, new = before.scram.get(name), after.scram.get(name)
            if (
                old is not new
                and old is not None
                and _used(old, session.mechanism) != _used(new or {}, session.mechanism)
            ):
                assert isinstance(connection, GuardedConnection), "it has a session"
                connection.credential_changed()

    def expired(self, peer: Peer) -> None:
        self.expired_sessions += 1
        self.audit.authenticated(peer, "expired")

    def hint(self, host: str, text: str) -> None:
        self._connections.tell(host, text)

    async def sweep(self) -> None:
        """Close silent connections whose session has ended."""
        for connection in self._connections:
            session = connection.peer.session
            if session is not None and session.has_expired():
                self.expired(connection.peer)
                connection.close()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._passwords.shutdown(wait=False, cancel_futures=True)


def _let_go(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _give_way() -> None:
    """Lower the priority of this thread."""
    if sys.platform == "linux":  # elsewhere it would be that of a process
        niceness = os.getpriority(os.PRIO_PROCESS, 0) + PASSWORD_NICENESS
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(niceness, LOWEST_PRIORITY))


def _new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def _used(credentials: Mapping[str, object], mechanism: str) -> object:
    """The credential that a session of this mechanism was checked against."""
    name = max(credentials, default="") if mechanism == PLAIN else mechanism
    return credentials.get(name)

"""What one listener asks for: its mechanisms, users, certificate and limits."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.access.credentials import RESERVED_PREFIX, made_credentials
from ottla.broker.access.guarded_connection import GuardedConnection
from ottla.broker.access.node_login import jaas_of
from ottla.broker.access.tls_connection import TlsConnection
from ottla.metadata.errors import InvalidConfig
from ottla.security.mechanisms import OAUTHBEARER, PLAIN, PlainServer
from ottla.security.oauthbearer import OAuthBearerServer
from ottla.security.scram import MECHANISMS, NONCE_BYTES, ScramServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ottla.broker.access.certificates import Certificates
    from ottla.broker.access.door import Door
    from ottla.broker.access.listeners import Listener
    from ottla.broker.access.oauth import TokenJudge
    from ottla.broker.access.refusals import Attempt
    from ottla.broker.serving.connection import Connection
    from ottla.broker.serving.context import Peer
    from ottla.broker.serving.dispatch import Dispatcher
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.security.contexts import ServerContext
    from ottla.security.principal import MappingRules
    from ottla.security.scram import ScramCredential
    from ottla.security.steps import Mechanism

NOT_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "UNKNOWN_PROTOCOL",
)
"""What OpenSSL says of bytes that are no TLS at all."""


class Guard:
    """What one listener asks for."""

    def __init__(
        self,
        door: Door,
        config: BrokerConfig,
        listener: Listener,
        certificates: Certificates,
        *,
        among_nodes: bool,
    ) -> None:
        own = config.listener(listener.name)
        self._certificates = certificates
        self.door = door
        self.listener = listener
        self._config = config
        self._among_nodes = among_nodes
        self._delay = own.get_int("connection.failed.authentication.delay.ms") / 1000
        self.max_request_bytes = config.get_int("socket.request.max.bytes")
        self.max_frame_bytes = (
            own.get_int("sasl.server.max.receive.size")
            if listener.has_sasl
            else self.max_request_bytes
        )
        self.mechanisms: Sequence[str] = (
            own.get_list("sasl.enabled.mechanisms") if listener.has_sasl else ()
        )
        self._lifetimes = {name: self._lifetime(name) for name in self.mechanisms}
        self._configured: Mapping[str, ScramCredential] = {}
        self._judge: TokenJudge | None = None

    def prepare(self) -> None:
        """What takes time: hash passwords, read certificates. Blocks."""
        if OAUTHBEARER in self.mechanisms:
            self._judge = self._token_judge()
        if PLAIN in self.mechanisms:
            self._configured = self._plain_users()

    def _token_judge(self) -> TokenJudge:
        """Imported here: PyJWT takes a fifth of a second."""
        from ottla.broker.access.oauth import OAuthSettings, TokenJudge

        own = self._config.listener(self.listener.name, OAUTHBEARER)
        judge = TokenJudge(OAuthSettings.of(own), self.door.clock)
        judge.load()
        return judge

    def _plain_users(self) -> dict[str, ScramCredential]:
        own = self._config.listener(self.listener.name, PLAIN)
        if own.parsed("sasl.jaas.config") is None:
            return {}
        jaas = jaas_of(own)
        if jaas.module != "plain":
            return {}
        for name in jaas.users:
            if name.startswith(RESERVED_PREFIX):
                raise InvalidConfig(
                    f"users without {RESERVED_PREFIX} before their names, as the broker's own have",
                    f"user_{name}",
                    own.where("sasl.jaas.config"),
                )
        return {
            name: credentials["SCRAM-SHA-512"]
            for name, credentials in made_credentials(jaas.users).items()
        }

    def _lifetime(self, mechanism: str) -> float | None:
        own = self._config.listener(self.listener.name, mechanism)
        milliseconds = own.get_int("connections.max.reauth.ms")
        return milliseconds / 1000 if milliseconds > 0 else None

    def connection(self, dispatcher: Dispatcher, peer: Peer) -> Connection:
        """A new connection to the listener."""
        if self.listener.has_tls:
            return TlsConnection(dispatcher, peer, self)
        return GuardedConnection(dispatcher, peer, self)

    @property
    def context(self) -> ServerContext:
        """Of TLS, for new connections; it changes when certificates are replaced."""
        return self._certificates.context(self.listener.name)

    @property
    def rules(self) -> MappingRules:
        return self._certificates.rules(self.listener.name)

    def tls_failed(self, connection: GuardedConnection, reason: str) -> None:
        peer = connection.peer
        self.door.audit.tls_failed(peer.host, peer.listener, reason)
        if reason in NOT_TLS:
            self.door.hint(
                peer.host,
                f"a client at {peer.host} does not speak TLS to listener {peer.listener}: "
                f"it has to set security.protocol to {self.listener.protocol}",
            )

    # -- what a session asks ----------------------------------------------------------------------

    def now(self) -> float:
        return self.door.clock.monotonic()

    def wall(self) -> float:
        return self.door.clock.wall_ms() / 1000

    def lifetime_of(self, mechanism: str) -> float | None:
        return self._lifetimes[mechanism]

    def is_own(self, mechanism: str, name: str) -> bool:
        """Whether the mechanism checks this name against the node's own credential here."""
        return self._among_nodes and mechanism != OAUTHBEARER and self.door.credentials.is_own(name)

    def begin(self, name: str) -> Mechanism:
        """One exchange of a mechanism."""
        credentials = self.door.credentials
        if name == PLAIN:
            password_of = partial(
                credentials.plain, among_nodes=self._among_nodes, configured=self._configured
            )
            return PlainServer(password_of, self.door.verifiers)
        if name == OAUTHBEARER:
            assert self._judge is not None, "prepared at start"
            return OAuthBearerServer(self._judge.judge)
        mechanism = MECHANISMS[name]
        of_user = partial(credentials.scram, mechanism, among_nodes=self._among_nodes)
        return ScramServer(mechanism, of_user, secrets.token_urlsafe(NONCE_BYTES))

    async def work(self, call: Callable[[], Any]) -> Any:
        return await self.door.work(call)

    def attempt(self, peer: Peer) -> AbstractContextManager[Attempt]:
        return self.door.attempt(peer.host, self._delay)

    async def hold_back(
        self, connection: GuardedConnection, attempt: Attempt, reason: str, user: str
    ) -> None:
        await self.door.hold_back(connection, attempt, reason, user)

    def expired(self, peer: Peer) -> None:
        self.door.expired(peer)

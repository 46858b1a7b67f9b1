"""All connections of a node: limits, and which to close above them.

- A new connection beyond `max.connections`, or beyond `max.connections.per.ip` of its address, is
  closed at once.
- A listener may have a limit of its own (`listener.name.<name>.max.connections`), and so may an
  address (`max.connections.per.ip.overrides`). Refusals are told once a minute for each address.
- Connections of the listener that nodes use among themselves, where they have one of their own,
  are let in all the same, as in Kafka; the least recently used client makes room.
- When `max.connections` is lowered, the surplus goes: idle connections first, then those that wait
  for an answer, which they still get; the least recently used first. As in Kafka, a lowered
  `max.connections.per.ip` holds for new connections only.
- Connections whose clients have closed are closed a few in each turn of the loop: when a process
  with thousands of them ends, the others are served meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from time import monotonic
from typing import TYPE_CHECKING, Final

from ottla.metadata.config.types import INT_MAX
from ottla.metadata.security.acls import canonical_host
from ottla.wire.errors import FrameTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.broker.running.settings import Settings
    from ottla.broker.serving.connection import Connection
    from ottla.broker.serving.context import Peer
    from ottla.wire.errors import WireError

CLOSED_AT_ONCE: Final = 64  # a few milliseconds
TOLD_SECONDS: Final = 60.0
TLS_HELLO: Final = 0x1603  # the first bytes of a handshake, read as those of a frame's length
MAX_TOLD: Final = 10_000  # addresses that are remembered for this

logger = logging.getLogger(__name__)


class Connections:
    """Those that are open."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: set[Connection] = set()
        self._hosts: Counter[str] = Counter()
        self._listeners: Counter[str] = Counter()
        self._told: dict[str, float] = {}
        self._ended: deque[Connection] = deque()
        self.refused = 0
        self._is_over = False
        self.most = INT_MAX
        """Beside max.connections: a process has a limit of open files, and logs need some."""
        settings.watch(self._close_surplus)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._open))

    def opened(self, connection: Connection) -> None:
        """Count a new connection; one too many, of all or of its address, closes at once."""
        self._open.add(connection)
        settings = self._settings
        host, listener = connection.peer.host, connection.peer.listener
        self._hosts[host] += 1
        self._listeners[listener] += 1
        if self._is_over:
            connection.abort()
            return
        of_address = settings.max_connections_per_ip
        if settings.address_limits:
            of_address = settings.address_limits.get(canonical_host(host), of_address)
        of_listener = settings.listener_connections.get(listener)
        if self._hosts[host] > of_address:
            self._refuse(connection, "max.connections.per.ip")
        elif of_listener is not None and self._listeners[listener] > of_listener:
            self._refuse(connection, f"listener.name.{listener.lower()}.max.connections")
        elif len(self._open) > min(settings.max_connections, self.most):
            if self._is_protected(connection):
                self._close_surplus()
            else:
                self._refuse(connection, "max.connections")

    def _refuse(self, connection: Connection, key: str) -> None:
        self.refused += 1
        self.tell(
            connection.peer.host,
            f"refused a connection of {connection.peer.host}: {key} is reached",
        )
        connection.close()

    def hint(self, peer: Peer, error: WireError | None) -> None:
        """Tell an operator what a client does wrong, if its first bytes say so."""
        if isinstance(error, FrameTooLarge) and int(str(error.got)) >> 16 == TLS_HELLO:
            self.tell(
                peer.host,
                f"a client at {peer.host} speaks TLS to listener {peer.listener}, which does not: "
                "it has to set security.protocol to PLAINTEXT or SASL_PLAINTEXT",
            )

    def tell(self, host: str, text: str) -> None:
        """A warning, once a minute for each address."""
        now = monotonic()
        if now - self._told.get(host, -TOLD_SECONDS) < TOLD_SECONDS:
            return
        if len(self._told) >= MAX_TOLD:
            self._told.clear()
        self._told[host] = now
        logger.warning("%s", text)

    def ended(self, connection: Connection) -> None:
        """The client has closed the connection, and no request of it is left."""
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._close_ended)
        self._ended.append(connection)

    def _close_ended(self) -> None:
        for _ in range(min(CLOSED_AT_ONCE, len(self._ended))):
            self._ended.popleft().close()
        if self._ended:
            asyncio.get_running_loop().call_soon(self._close_ended)

    def end(self) -> None:
        """Take no more: a listening socket that was closed may have accepted some just before."""
        self._is_over = True

    async def close(self) -> None:
        """Close all connections after their pending responses are sent."""
        for number, connection in enumerate(self, 1):
            connection.close()
            if number % CLOSED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def closed(self, connection: Connection) -> None:
        self._open.discard(connection)
        host, listener = connection.peer.host, connection.peer.listener
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        self._listeners[listener] -= 1

    def _is_protected(self, connection: Connection) -> bool:
        return connection.peer.listener == self._settings.protected_listener

    def _close_surplus(self) -> None:
        staying = [connection for connection in self._open if not connection.leaves]
        surplus = len(staying) - self._settings.max_connections
        if surplus <= 0:
            return
        clients = [connection for connection in staying if not self._is_protected(connection)]
        # The loop's clock is coarse: of two that were active at once the older one goes.
        clients.sort(key=lambda one: (one.busy, one.last_active, one.peer.connection_id))
        logger.warning("closing %d connections: max.connections is lower than that", surplus)
        for connection in clients[:surplus]:
            connection.leave()

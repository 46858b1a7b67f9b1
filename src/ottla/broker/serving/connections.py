"""All connections of a node: limits, and which to close above them.

- A new connection beyond `max.connections`, or beyond `max.connections.per.ip` of its address, is
  closed at once.
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
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.broker.running.settings import Settings
    from ottla.broker.serving.connection import Connection

CLOSED_AT_ONCE: Final = 64  # a few milliseconds

logger = logging.getLogger(__name__)


class Connections:
    """Those that are open."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: set[Connection] = set()
        self._hosts: Counter[str] = Counter()
        self._ended: deque[Connection] = deque()
        settings.watch(self._close_surplus)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._open))

    def opened(self, connection: Connection) -> None:
        """Count a new connection; one too many, of all or of its address, closes at once."""
        self._open.add(connection)
        host = connection.peer.host
        self._hosts[host] += 1
        if self._hosts[host] > self._settings.max_connections_per_ip:
            logger.warning("refused a connection of %s: max.connections.per.ip is reached", host)
            connection.close()
        elif len(self._open) > self._settings.max_connections:
            if self._is_protected(connection):
                self._close_surplus()
            else:
                logger.warning("refused a connection of %s: max.connections is reached", host)
                connection.close()

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

    async def close(self) -> None:
        """Close all connections after their pending responses are sent."""
        for number, connection in enumerate(self, 1):
            connection.close()
            if number % CLOSED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def closed(self, connection: Connection) -> None:
        self._open.discard(connection)
        host = connection.peer.host
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]

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

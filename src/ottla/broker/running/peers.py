"""Requests to other nodes of the cluster, over the same connections that clients use.

One connection to each peer, opened when first needed and again after it broke. The address is the
peer's listener named by `inter.broker.listener.name`, or the first one it registered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ottla.client.cluster.connection import Address, Connection
from ottla.client.errors import ClientError
from ottla.client.security import PLAINTEXT

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.access.door import Door
    from ottla.broker.cluster import Cluster
    from ottla.client.cluster.protection import Protection

PEER_TIMEOUT_SECONDS: Final = 5.0


class PeerUnreachable(Exception):
    """The node is not in the image, does not answer, or hung up."""


class Peers:
    """The other nodes, as seen from this one."""

    def __init__(self, cluster: Cluster, door: Callable[[], Door | None]) -> None:
        """`door` is that of a node with guarded listeners: nodes log in to each other there."""
        self._cluster = cluster
        self._door = door
        self._protection: Protection | None = None
        self._connections: dict[int, asyncio.Task[Connection]] = {}

    async def ask(self, node_id: int, request: Any, version: int) -> Any:
        """The peer's answer, or `PeerUnreachable`."""
        try:
            connection = await asyncio.shield(self._connect(node_id))
            return await connection.send(request, version, PEER_TIMEOUT_SECONDS)
        except ClientError as error:
            self._connections.pop(node_id, None)
            raise PeerUnreachable(f"node {node_id}: {error}") from error

    def _connect(self, node_id: int) -> asyncio.Task[Connection]:
        opening = self._connections.get(node_id)
        if opening is None or _is_lost(opening):
            opening = asyncio.ensure_future(self._open(node_id))
            self._connections[node_id] = opening
        return opening

    async def _open(self, node_id: int) -> Connection:
        broker = self._cluster.image.brokers.get(node_id)
        if broker is None or broker.fenced or not broker.listeners:
            raise PeerUnreachable(f"node {node_id} is not up")
        wanted = self._cluster.config.parsed("inter.broker.listener.name")
        named = broker.listeners.get(str(wanted).upper())
        endpoint = named or next(iter(broker.listeners.values()))
        connection = await self._connection(
            Address(endpoint.host, endpoint.port), f"ottla-node-{self._cluster.node_id}"
        )
        await connection.open(connect_timeout=PEER_TIMEOUT_SECONDS)
        return connection

    async def _connection(self, address: Address, client_id: str) -> Connection:
        door = self._door()
        if door is None:
            return Connection(address, client_id)
        from ottla.client.cluster.protection import Protection
        from ottla.client.cluster.secure import SecureConnection

        if self._protection is None:
            self._protection = Protection(await door.node_security())
        if self._protection.security == PLAINTEXT:
            return Connection(address, client_id)
        return SecureConnection(address, client_id, protection=self._protection)

    async def stop(self) -> None:
        connections, self._connections = self._connections, {}
        for opening in connections.values():
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
            else:
                opening.cancel()


def _is_lost(opening: asyncio.Task[Connection]) -> bool:
    """Whether a new connection has to be made; one that is being opened is waited for."""
    if not opening.done():
        return False
    if opening.cancelled() or opening.exception() is not None:
        return True
    return not opening.result().is_open

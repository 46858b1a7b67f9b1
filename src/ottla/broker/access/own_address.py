"""Where a node reaches itself as a client does, and how it logs in there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.security import PLAINTEXT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.broker.access.door import Door
    from ottla.broker.cluster import Cluster
    from ottla.client.security import Security


async def own_address(
    cluster: Cluster, addresses: Mapping[str, tuple[str, int]], door: Door | None
) -> tuple[str, Security]:
    """Host and port, and the login of nodes; `addresses` are those of its listeners."""
    if door is not None:
        security = await door.node_security()
        if security != PLAINTEXT:
            return guarded_address(cluster, door), security
    return open_address(addresses), PLAINTEXT


def guarded_address(cluster: Cluster, door: Door) -> str:
    """The listener of nodes, by the name that its certificate has."""
    endpoint = cluster.image.brokers[cluster.node_id].listeners[door.inter_broker]
    return _address(endpoint.host, endpoint.port)


def open_address(addresses: Mapping[str, tuple[str, int]]) -> str:
    """The first listener."""
    host, port = next(iter(addresses.values()))
    return f"127.0.0.1:{port}" if host in ("", "0.0.0.0") else _address(host, port)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

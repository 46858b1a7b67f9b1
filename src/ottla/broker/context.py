"""What a handler knows about the request it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.node import Node


@dataclass(slots=True)
class Peer:
    """The other end of a connection, as far as handlers care."""

    host: str
    listener: str
    software: str = ""  # name and version as told by ApiVersions


@dataclass(slots=True)
class RequestContext:
    node: Node
    peer: Peer
    api_key: int
    version: int
    client_id: str | None

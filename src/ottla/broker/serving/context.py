"""The context of a request, for handlers."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from ottla.log.scrutiny import Scrutiny

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.access.quotas import Client
    from ottla.broker.access.session import Session
    from ottla.broker.hosting.partitions import HostedPartition
    from ottla.broker.serving.connection import Connection
    from ottla.log.partition import PartitionLog
    from ottla.security.tls_channel import PeerCertificate
    from ottla.wire.messages import Codec
    from ottla.wire.writers import Parts


class Ack:
    """A ready answer that is sent when its logs are durable.

    Requests behind it are served meanwhile; their answers still leave after it. The handler makes
    it, the dispatcher encodes it, the connection waits for it.
    """

    __slots__ = (
        "_amend",
        "_codec",
        "_correlation_id",
        "connection",
        "parts",
        "response",
        "waits",
        "written",
    )

    def __init__(
        self,
        response: tuple[Any, ...],
        written: list[HostedPartition],
        amend: Callable[[Any, list[HostedPartition]], tuple[Any, ...]],
    ) -> None:
        self.response = response
        self._amend = amend  # what to answer when some of the logs are offline
        self.written = written
        self.waits = 0
        self.parts: Parts = []
        self.connection: Connection | None = None

    def seal(self, codec: Codec, correlation_id: int) -> None:
        """Fix the answer, to be replaced only if a log fails."""
        self._codec = codec
        self._correlation_id = correlation_id
        self.parts = codec.response(correlation_id, self.response)

    def settle(self) -> Connection | None:
        for partition in self.written:
            if not partition.log.online:
                self.response = self._amend(self.response, self.written)
                self.parts = self._codec.response(self._correlation_id, self.response)
                break
        return self.connection


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Large(Generic[T]):
    """A response with thousands of rows, which a worker thread encodes, not the event loop."""

    response: T


Parked: TypeAlias = "Parts | Ack | None"
"""What waiting for an answer ends in: the answer, one that waits for a sync, or none at all."""


@dataclass(slots=True)
class Peer:
    """The part of a connection that handlers use."""

    host: str
    listener: str
    principal: str = "User:ANONYMOUS"
    session: Session | None = None  # of a listener with SASL
    tls: PeerCertificate | None = None  # of a listener with TLS, after the handshake
    software: str = ""  # name and version as told by ApiVersions
    connection_id: int = field(default_factory=count(1).__next__)
    scrutiny: Scrutiny = field(default_factory=Scrutiny)  # of the batches it produces
    mute: Callable[[float], None] | None = None  # serve nothing for so many seconds; while open
    takes_views: bool = False  # its answers go to the kernel as they are, seen by nobody else
    lent: set[PartitionLog] = field(default_factory=set)  # logs with views in unsent answers


@dataclass(slots=True)
class RequestContext:
    peer: Peer
    api_key: int
    version: int
    client_id: str | None
    quota: Client | None = None  # what counts for it, while anybody has a quota
    throttled: float = 0.0  # seconds that the client must wait after the answer

    def throttle(self, seconds: float) -> None:
        """The longest wait of a request holds."""
        self.throttled = max(self.throttled, seconds)

    def fetch_room(self, now: float) -> int | None:
        """The bytes that its quota leaves for this answer; with 0 it waits. None: no quota."""
        meter = None if self.quota is None else self.quota.fetch
        if meter is None:
            return None
        room = meter.room(now)
        if not room:
            self.throttle(meter.wait(now))
        return room

"""The context of a request, for handlers."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from ottla.broker.access.everything import EVERYTHING
from ottla.broker.errors import ApiError
from ottla.log.scrutiny import Scrutiny
from ottla.metadata.names import OWN_TOPICS
from ottla.metadata.security.acls import CLUSTER_NAME, Operation, Resource
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ottla.broker.access.authorizer import Access
    from ottla.broker.access.quotas import Client
    from ottla.broker.access.session import Session
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.serving.connection import Connection
    from ottla.log.partition import PartitionLog
    from ottla.security.tls_channel import PeerCertificate
    from ottla.wire.messages import Codec
    from ottla.wire.writers import Parts


NOT_ASKED: Final = -(2**31)
"""Authorized operations that a client did not ask for."""


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


class Large(Generic[T]):
    """A response with thousands of rows, which a worker thread encodes, not the event loop."""

    __slots__ = ("response",)

    def __init__(self, response: T) -> None:
        self.response = response


Parked: TypeAlias = "Parts | Ack | None"
"""What waiting for an answer ends in: the answer, one that waits for a sync, or none at all."""


@dataclass(slots=True, eq=False, repr=False)  # each method takes 0.1 ms of a start
class Peer:
    """The part of a connection that handlers use."""

    host: str
    listener: str
    principal: str = "User:ANONYMOUS"
    session: Session | None = None  # of a listener with SASL
    tls: PeerCertificate | None = None  # of a listener with TLS, after the handshake
    software: str = ""  # name and version as told by ApiVersions
    access: Access = EVERYTHING  # what the principal may do
    connection_id: int = field(default_factory=count(1).__next__)
    scrutiny: Scrutiny = field(default_factory=Scrutiny)  # of the batches it produces
    metered: Client | None = None  # what counted for its last request, while there are quotas
    mute: Callable[[float], None] | None = None  # serve nothing for so many seconds; while open
    takes_views: bool = False  # only the kernel looks at its answers
    lent: set[PartitionLog] = field(default_factory=set)  # logs with views in unsent answers


@dataclass(slots=True, eq=False, repr=False)
class RequestContext:
    """A request's header, its sender and what it may do."""

    peer: Peer
    api_key: int
    version: int
    client_id: str | None
    quota: Client | None = None  # what counts for it, while anybody has a quota
    throttled: float = 0.0  # seconds that the client must wait after the answer

    def throttle(self, seconds: float) -> None:
        """The longest wait of a request holds."""
        self.throttled = max(self.throttled, seconds)

    @contextmanager
    def charged(self, partitions: int, now: float, *, strict: bool) -> Iterator[None]:
        """Count partitions that the block creates or deletes; not if it raises `ApiError`.

        While its quota is in debt the client is refused if `strict`. Older versions of the APIs do
        not know that refusal; there it is carried out, and the client waits.
        """
        tokens = None if self.quota is None else self.quota.mutation
        if tokens is None:
            yield
            return
        wait = tokens.take(partitions, now) if strict else 0.0
        if wait > 0:
            self.throttle(wait)
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The quota of changes is used up.")
        if not strict:
            self.throttle(tokens.force(partitions, now))
        try:
            yield
        except ApiError:
            tokens.give(partitions)
            raise

    def fetch_room(self, now: float) -> int | None:
        """The bytes that its quota leaves for this answer; with 0 it waits. None: no quota."""
        meter = None if self.quota is None else self.quota.fetch
        if meter is None:
            return None
        room = meter.room(now)
        if not room:
            self.throttle(meter.wait(now))
        return room

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether the client has a right that its request needs; a refusal is reported."""
        access = self.peer.access
        if access.may(operation, resource, name):
            return True
        access.refused(self, operation, resource, name)
        return False

    def require(self, operation: Operation, resource: Resource, name: str) -> None:
        """Raise the `ApiError` of the resource unless the client has the right."""
        if not self.may(operation, resource, name):
            raise refusal(operation, resource, name)

    def may_cluster(self, operation: Operation) -> bool:
        return self.may(operation, Resource.CLUSTER, CLUSTER_NAME)

    def require_cluster(self, operation: Operation) -> None:
        self.require(operation, Resource.CLUSTER, CLUSTER_NAME)

    def may_create(self, name: str) -> bool:
        """Whether the client may create a topic: by a right on the cluster, or on its name."""
        access = self.peer.access
        if name not in OWN_TOPICS and access.may(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME):
            return True
        return self.may(Operation.CREATE, Resource.TOPIC, name)

    def sees(self, resource: Resource, name: str) -> bool:
        """Whether something is shown among others; that it is not shown is no refusal."""
        return self.peer.access.may(Operation.DESCRIBE, resource, name)

    def visible(self, resource: Resource, names: Iterable[str]) -> list[str]:
        """Those of the names that the client may describe."""
        if self.peer.access is EVERYTHING:
            return list(names)
        return [name for name in names if self.sees(resource, name)]

    def operations(self, resource: Resource, name: str) -> int:
        """The operations that the client may do, as a bit field."""
        from ottla.broker.access.permissions import OPERATIONS

        may = self.peer.access.may
        return sum(1 << one for one in OPERATIONS[resource] if may(one, resource, name))

    def cluster_operations(self) -> int:
        """Those on the cluster; none are told to a client that may not describe it."""
        if not self.sees(Resource.CLUSTER, CLUSTER_NAME):
            return 0
        return self.operations(Resource.CLUSTER, CLUSTER_NAME)


def refusal(operation: Operation, resource: Resource, name: str) -> ApiError:
    """The answer to a client without a right."""
    from ottla.broker.access.permissions import CODES

    what = resource.name.lower().replace("_", " ")
    right = operation.name.lower().replace("_", " ")
    return ApiError(CODES[resource], f"Not authorized: {right} on {what} {name}.")

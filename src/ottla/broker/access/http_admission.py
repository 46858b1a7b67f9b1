"""Which connections an HTTP listener of the broker lets in.

    max.connections of the listener   256 unless `listener.name.<name>.max.connections` says more
    max.connections.per.ip            and its overrides; connections of this listener alone count
    creation rate of the listener     `listener.name.<name>.max.connection.creation.rate`
    creation rate of the address      the quota `connection_creation_rate` of this address

A connection over one of them is closed at once, and told once a minute for each address. The lobby
of Kafka's listeners makes it wait instead; clients over HTTP try again by themselves.

Pure: time and limits come in. What is kept of an address goes with its last connection, but for its
rate, of which `MAX_ADDRESSES` are kept.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.broker.access.lobby import MAX_ADDRESSES, Bucket
from ottla.metadata.config.types import INT_MAX
from ottla.metadata.security.acls import canonical_host

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONNECTIONS: Final = 256
"""Of a listener that is told nothing else. A request may have 5 MiB, so they are not for free."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """The limits of the moment."""

    connections: int = CONNECTIONS
    rate: float | None = None
    """New connections in a second; None: any number."""
    of_address: int = INT_MAX
    overrides: Mapping[str, int] = field(default_factory=dict)
    """By address, in canonical form."""


class HttpAdmission:
    """Of one listener."""

    def __init__(
        self,
        listener: str,
        limits: Callable[[], AdmissionLimits],
        address_rate: Callable[[str], float | None],
        now: Callable[[], float],
        tell: Callable[[str, str], None],
    ) -> None:
        """`address_rate` has the quota of an address; `tell` warns, by address and text."""
        self._listener = listener
        self._limits = limits
        self._address_rate = address_rate
        self._now = now
        self._tell = tell
        self._hosts: Counter[str] = Counter()
        self._open = 0
        self._bucket: Bucket | None = None
        self._addresses: OrderedDict[str, Bucket] = OrderedDict()
        self.refused = 0

    def opened(self, host: str) -> bool:
        """Whether a connection is let in; then it is counted."""
        host = canonical_host(host)
        reached = self._reached(host)
        if reached is not None:
            self.refused += 1
            self._tell(host, f"refused a connection of {host}: {reached} is reached")
            return False
        self._open += 1
        self._hosts[host] += 1
        return True

    def closed(self, host: str) -> None:
        host = canonical_host(host)
        self._open -= 1
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]

    def _reached(self, host: str) -> str | None:
        """The limit that a further connection would exceed."""
        limits, own = self._limits(), f"listener.name.{self._listener.lower()}."
        if self._open >= limits.connections:
            return f"{own}max.connections"
        if self._hosts[host] >= limits.overrides.get(host, limits.of_address):
            return "max.connections.per.ip"
        buckets = [
            (self._of_listener(limits.rate), f"{own}max.connection.creation.rate"),
            (self._of_address(host), "the quota connection_creation_rate"),
        ]
        now = self._now()
        for bucket, name in buckets:
            if bucket is not None and bucket.wait(now) > 0:
                return name
        for bucket, _ in buckets:  # only of those that are let in
            if bucket is not None:
                bucket.take()
        return None

    def _of_listener(self, rate: float | None) -> Bucket | None:
        if rate is None:
            self._bucket = None
        elif self._bucket is None or self._bucket.rate != rate:
            self._bucket = Bucket(rate, self._now())
        return self._bucket

    def _of_address(self, host: str) -> Bucket | None:
        rate = self._address_rate(host)
        if rate is None:
            self._addresses.pop(host, None)
            return None
        bucket = self._addresses.get(host)
        if bucket is None or bucket.rate != rate:
            bucket = self._addresses[host] = Bucket(rate, self._now())
            if len(self._addresses) > MAX_ADDRESSES:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(host)
        return bucket

"""What a handler knows about the request it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

from ottla.log.scrutiny import Scrutiny

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ottla.wire.writers import Parts


T = TypeVar("T")


class Pipelined(NamedTuple, Generic[T]):
    """An answer whose request has had its effect and only waits until that is durable.

    Requests behind it may be served meanwhile; their answers still leave after it.
    """

    answer: Awaitable[T]


Parked: TypeAlias = "Parts | Pipelined[Parked] | None"
"""What waiting for an answer ends in: the answer, none at all, or a wait that holds nobody."""


@dataclass(slots=True)
class Peer:
    """The other end of a connection, as far as handlers care."""

    host: str
    listener: str
    software: str = ""  # name and version as told by ApiVersions
    connection_id: int = field(default_factory=count(1).__next__)
    scrutiny: Scrutiny = field(default_factory=Scrutiny)  # of the batches it produces


@dataclass(slots=True)
class RequestContext:
    peer: Peer
    api_key: int
    version: int
    client_id: str | None

"""Values of the ShareConsumer's interface: what is delivered, and what became of it."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, NamedTuple, TypeAlias

from ottla.client.errors import BadArgument, ClientError

AckMode: TypeAlias = Literal["implicit", "explicit"]
AcquireMode: TypeAlias = Literal["batch_optimized", "record_limit"]
AckKind: TypeAlias = Literal["accept", "release", "reject", "renew"]


class Kind(IntEnum):
    """What can be said of a delivered offset, by Kafka's numbers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class ShareRecord(NamedTuple):
    """One record as it was delivered; `delivery_count` is 1 at the first attempt.

    `delivery` tells deliveries of the same record to this consumer apart.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    delivery_count: int
    delivery: int


class Acknowledged(NamedTuple):
    """What became of the acknowledgements of neighbouring offsets: `error` is None if they hold.

    Records whose acknowledgement failed are delivered again, to this or to another consumer. "gap"
    stands for offsets without a record.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    kind: str
    error: ClientError | None


class EmptyGroupId(BadArgument):
    """A share consumer without the name of its group."""


class UnacknowledgedRecords(ClientError):
    """A poll in explicit mode while records of the last one are undecided."""


class RecordNotHeld(ClientError):
    """The record is not this consumer's to acknowledge, or not any more."""


class WrongAckMode(ClientError):
    """Records are acknowledged by the next poll, not one by one."""


class ConcurrentPoll(ClientError):
    """Another poll of the same consumer is under way."""


class UndecodableRecords(ClientError):
    """Delivered bytes are not what a producer wrote; the cause says what is wrong with them."""


class UnknownVerdict(ClientError, ValueError):
    """A handler of a worker returned something that is no decision about its record."""

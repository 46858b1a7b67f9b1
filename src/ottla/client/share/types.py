"""Values of the ShareConsumer: records, acknowledgements, errors."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, NamedTuple, TypeAlias

from ottla.client.errors import BadArgument, ClientError

AckMode: TypeAlias = Literal["implicit", "explicit"]
AcquireMode: TypeAlias = Literal["batch_optimized", "record_limit"]
AckKind: TypeAlias = Literal["accept", "release", "reject", "renew"]


class Kind(IntEnum):
    """Kinds of acknowledgement, with Kafka's numbers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class ShareRecord(NamedTuple):
    """One delivered record; `delivery_count` is 1 at the first attempt.

    `delivery` distinguishes several deliveries of the same record to this consumer.
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
    """The outcome of acknowledgements of consecutive offsets; `error` is None on success.

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
    """The group name is empty."""


class UnacknowledgedRecords(ClientError):
    """Explicit mode: records of the last poll are not acknowledged yet."""


class RecordNotHeld(ClientError):
    """This consumer does not hold the record, or no longer."""


class WrongAckMode(ClientError):
    """Not allowed in implicit mode: the next poll acknowledges records."""


class ConcurrentPoll(ClientError):
    """Another poll of this consumer is running."""


class UndecodableRecords(ClientError):
    """Delivered records are damaged; the cause says how."""


class UnknownVerdict(ClientError, ValueError):
    """A handler of a worker returned something that is no decision about its record."""

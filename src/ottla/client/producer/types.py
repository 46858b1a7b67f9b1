"""The values a producer takes and gives, and its settings under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.errors import BadArgument, BadSetting, ClientError
from ottla.wire.batch import HEADER_SIZE
from ottla.wire.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.wire.records import Headers

ALL_REPLICAS: Final = -1
NO_OFFSET: Final = -1
"""Where a record went is not known: it was sent with acks=0, or its first answer was lost."""


class RecordTooLarge(ClientError):
    """A record, or the batch it went out in, is larger than allowed here or by the topic."""


class MissingColumn(BadArgument):
    """A named column that the data does not have."""


class ProducerRecord(NamedTuple):
    """A record to send. Without a timestamp it gets the time of sending."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is; `offset` is -1 where the broker did not say."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class DeliveredRange(NamedTuple):
    """Rows of one `send_arrow` that lie next to each other in a partition."""

    topic: str
    partition: int
    base_offset: int
    records: int


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Kafka's producer settings, times in milliseconds as their names say."""

    acks: int | str
    enable_idempotence: bool
    compression_type: str
    compression_level: int | None
    batch_size: int
    linger_ms: float
    buffer_memory: int
    max_request_size: int
    delivery_timeout_ms: float
    request_timeout_ms: float
    max_block_ms: float
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        if self.required_acks not in (0, 1, ALL_REPLICAS):
            raise BadSetting(f"acks: expected 0, 1 or 'all', got {self.acks!r}")
        if self.enable_idempotence and self.required_acks != ALL_REPLICAS:
            raise BadSetting(
                f"acks={self.acks} cannot be idempotent; use acks='all' or enable_idempotence=False"
            )
        if self.max_request_size <= HEADER_SIZE:
            raise BadSetting(f"max_request_size: expected more than {HEADER_SIZE} bytes")
        if self.buffer_memory < self.max_request_size:
            raise BadSetting(
                f"buffer_memory ({self.buffer_memory}) cannot hold one request; "
                f"give at least max_request_size ({self.max_request_size})"
            )
        _at_least(0, batch_size=self.batch_size, linger_ms=self.linger_ms)
        _at_least(
            1,
            delivery_timeout_ms=self.delivery_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
            max_block_ms=self.max_block_ms,
            transaction_timeout_ms=self.transaction_timeout_ms,
        )
        if self.transactional_id is not None and not self.enable_idempotence:
            raise BadSetting("a producer with a transactional_id is idempotent; do not disable it")
        if self.transactional_id == "":
            raise BadSetting("transactional_id: expected a name, got an empty one")

    @property
    def required_acks(self) -> int | str:
        return ALL_REPLICAS if self.acks == "all" else self.acks

    @property
    def codec(self) -> Codec:
        return Codec.named(self.compression_type)


def _at_least(least: int, **settings: float) -> None:
    for name, value in settings.items():
        if value < least:
            raise BadSetting(f"{name}: expected {least} or more, got {value:g}")


def check_bytes(name: str, given: object) -> None:
    """Keys and values are bytes; text has to be encoded by whoever knows how."""
    if given is not None and not isinstance(given, bytes):
        raise TypeError(
            f"{name}: expected bytes or None, got {type(given).__name__}; encode it first"
        )


def record_bound(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> int:
    """The most bytes the record can take up in a batch."""
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += HEADER_OVERHEAD + len(name.encode()) + len(content or b"")
    return size


RECORD_OVERHEAD: Final = 36
"""Attributes, a timestamp delta of 10 bytes, and lengths, counts and offset delta of 5 each."""
HEADER_OVERHEAD: Final = 10

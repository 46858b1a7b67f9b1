"""The values a producer takes and gives, and its settings under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from ottla.client import arguments
from ottla.client.arguments import INT32, INT64
from ottla.client.errors import BadArgument, ClientError
from ottla.wire.batch import HEADER_SIZE
from ottla.wire.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.wire.records import Headers

ALL_REPLICAS: Final = -1
CODECS: Final = tuple(codec.name.lower() for codec in Codec)
COMPRESSION_LEVELS: Final = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131_072, 22)}
"""As Kafka has them; the other codecs have none."""
NO_OFFSET: Final = -1
"""Where a record went is not known: it was sent with acks=0, or its first answer was lost."""


class RecordTooLarge(ClientError):
    """A record, or the batch it went out in, is larger than allowed here or by the topic."""


class MissingColumn(BadArgument):
    """A named column that the data does not have."""


RecordHeaders: TypeAlias = "Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]"


class ProducerRecord(NamedTuple):
    """A record to send. Without a timestamp it gets the time of sending.

    `headers` are pairs of a name and bytes (names may repeat), or a mapping.
    """

    value: bytes | None
    key: bytes | None = None
    headers: RecordHeaders = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class Outgoing(NamedTuple):
    """A record that was checked: the fields of a `ProducerRecord`, with headers as pairs."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is; `offset` is -1 if the broker did not report it."""

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
        if self.required_acks not in (0, 1, ALL_REPLICAS) or isinstance(self.acks, bool | float):
            raise arguments.bad_value("acks", "0, 1 or 'all'", self.acks)
        arguments.flag("enable_idempotence", self.enable_idempotence)
        if self.enable_idempotence and self.required_acks != ALL_REPLICAS:
            raise BadArgument(
                f"acks={self.acks} cannot be idempotent; use acks='all' or enable_idempotence=False"
            )
        arguments.choice("compression_type", self.compression_type, CODECS)
        low, high = COMPRESSION_LEVELS.get(self.codec, (-INT32, INT32))
        arguments.optional_whole("compression_level", self.compression_level, low, high)
        arguments.whole("max_request_size", self.max_request_size, HEADER_SIZE + 1)
        arguments.whole("buffer_memory", self.buffer_memory, 0, INT64)
        if self.buffer_memory < self.max_request_size:
            raise BadArgument(
                f"buffer_memory ({self.buffer_memory}) cannot hold one request; "
                f"give at least max_request_size ({self.max_request_size})"
            )
        arguments.whole("batch_size", self.batch_size)
        arguments.milliseconds("linger_ms", self.linger_ms, 0)
        arguments.milliseconds("delivery_timeout_ms", self.delivery_timeout_ms)
        # It is sent to the broker as an int32.
        arguments.real(
            "request_timeout_ms", self.request_timeout_ms, 1, INT32, "a number of milliseconds"
        )
        arguments.milliseconds("max_block_ms", self.max_block_ms)
        arguments.optional_text("transactional_id", self.transactional_id)
        arguments.whole("transaction_timeout_ms", self.transaction_timeout_ms, 1)
        if self.transactional_id is not None and not self.enable_idempotence:
            raise BadArgument("a producer with a transactional_id is idempotent; do not disable it")

    @property
    def required_acks(self) -> int | str:
        return ALL_REPLICAS if self.acks == "all" else self.acks

    @property
    def codec(self) -> Codec:
        return Codec.named(self.compression_type)


def checked(record: ProducerRecord, at: int | None = None) -> Outgoing:
    """A record in the form that is sent; `at` is its place among those of the call."""
    value, key, headers, timestamp_ms, partition = record
    if (
        (type(value) is bytes or value is None)
        and (type(key) is bytes or key is None)
        and (timestamp_ms is None or (type(timestamp_ms) is int and 0 <= timestamp_ms <= INT64))
        and (partition is None or (type(partition) is int and 0 <= partition <= INT32))
    ):
        if headers == () or (type(headers) is tuple and arguments.are_plain_headers(headers)):
            return cast("Outgoing", record)
        if arguments.are_plain_headers(headers):
            return Outgoing(value, key, tuple(headers), timestamp_ms, partition)
    # Something is wrong, or unusual.
    where = "" if at is None else f"records[{at}]."
    arguments.payload(f"{where}value", value)
    arguments.payload(f"{where}key", key)
    return Outgoing(
        value,
        key,
        arguments.headers(f"{where}headers", headers),
        None if timestamp_ms is None else arguments.timestamp(f"{where}timestamp_ms", timestamp_ms),
        None if partition is None else arguments.whole(f"{where}partition", partition),
    )


def record_bound(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The most bytes the record can take up in a batch."""
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += HEADER_OVERHEAD + len(name if name.isascii() else name.encode())
        if content is not None:
            size += len(content)
    return size


RECORD_OVERHEAD: Final = 36
"""Attributes, a timestamp delta of 10 bytes, and lengths, counts and offset delta of 5 each."""
HEADER_OVERHEAD: Final = 10

"""The words of the streams room: messages, identities, positions and options. No I/O, no Ottla.

A *position* is the smallest sequence not known to be processed, that is, the next one. Every
stored offset is a position; `None` means never stored and is not `0`. Times are nanoseconds since
the Unix epoch, UTC.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from dataclasses import field as dataclass_field  # RedisOptions has a field of that name
from datetime import UTC, datetime, timedelta
from enum import Enum
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.streams.errors import ConfigError, PayloadDecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import BinaryIO

    from ottla.offsets import OffsetStore

MAX_KEY_LENGTH = 249
INTERNAL = "SEA_STREAMER_INTERNAL"
WILDCARD = "SEA_STREAMER_WILDCARD"
BROADCAST = "broadcast"

MEBIBYTE = 1024 * 1024

_PAYLOAD = itemgetter(4)  # of a Message
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Backend(Enum):
    """Which store stands behind a streamer; the value is the scheme of its URLs."""

    KAFKA = "kafka"
    REDIS = "redis"
    FILE = "file"
    STDIO = "stdio"


class Mode(Enum):
    """Who gets a message, and where a consumer starts.

    - `REAL_TIME` (default): every consumer gets every message; no position is kept.
    - `RESUMABLE`: this program continues where it stopped.
    - `LOAD_BALANCED`: the members of a group divide the shards or messages.
    - `SHARED`: a share group of a Kafka-compatible broker, message by message.
    """

    REAL_TIME = "real_time"
    RESUMABLE = "resumable"
    LOAD_BALANCED = "load_balanced"
    SHARED = "shared"


class AutoCommit(Enum):
    """When a message counts as done, and when that is saved.

    - `NEXT` (default): done when the next message is asked for.
    - `ROLLING`: done by `ack`; saved in the background.
    - `DISABLED`: done by `ack`; saved by `commit` only.
    - `DELAYED`: done `auto_commit_delay` seconds after delivery.
    - `IMMEDIATE`: done, and saved, before it is delivered: at most once.
    """

    IMMEDIATE = "immediate"
    DELAYED = "delayed"
    NEXT = "next"
    ROLLING = "rolling"
    DISABLED = "disabled"


class Reset(Enum):
    """Where to start without a stored position; `NONE` refuses to start."""

    LATEST = "latest"
    EARLIEST = "earliest"
    NONE = "none"


Headers = tuple[tuple[str, bytes | None], ...]
"""Names and values in their order; a name may come twice, and Kafka's values may be null."""


class ShardKey(NamedTuple):
    """One ordered part of a stream."""

    stream: str
    shard: int


class MessageId(NamedTuple):
    """What identifies a message; ordered within a shard."""

    stream: str
    shard: int
    seq: int


class Receipt(NamedTuple):
    """Where the store put a message that was sent."""

    stream: str
    shard: int
    seq: int
    timestamp_ns: int


class Receipts(NamedTuple):
    """The receipts of messages of one shard and one time, with sequences that follow."""

    first: Receipt
    messages: int

    def nth(self, index: int) -> Receipt:
        """Made when it is asked for: most senders never do."""
        return self.first._replace(seq=self.first.seq + index)


class SeqPos(NamedTuple):
    """A place in a stream: `BEGINNING`, `END` or `At(sequence)`."""

    kind: str
    seq: int = 0


BEGINNING = SeqPos("beginning")
END = SeqPos("end")


def At(seq: int) -> SeqPos:  # noqa: N802 - reads as a value beside BEGINNING and END
    """The first message with this sequence or a later one."""
    return SeqPos("at", seq)


def to_ns(when: datetime) -> int:
    """Nanoseconds since the epoch; a datetime without a zone is UTC."""
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - _EPOCH) // timedelta(microseconds=1) * 1000


def from_ns(timestamp_ns: int) -> datetime:
    """An aware UTC datetime, truncated to microseconds."""
    return _EPOCH + timedelta(microseconds=timestamp_ns // 1000)


def timestamp_text(timestamp_ns: int) -> str:
    """The canonical text: `YYYY-MM-DDTHH:MM:SS.fff`, UTC, no suffix, never rounded up."""
    return from_ns(timestamp_ns).replace(tzinfo=None).isoformat(timespec="milliseconds")


class Message(NamedTuple):
    """One message as a consumer gets it. A tuple, because a batch makes thousands of them.

    A null of Kafka (a tombstone) has an empty payload and `is_null`.
    """

    stream: str
    shard: int
    seq: int
    timestamp_ns: int
    payload: bytes
    key: bytes | None = None
    headers: Headers = ()
    native_id: str | None = None
    delivery: int = 1
    is_null: bool = False

    @property
    def timestamp(self) -> datetime:
        """When the message was made: aware, UTC, truncated to microseconds."""
        return from_ns(self.timestamp_ns)

    @property
    def id(self) -> MessageId:
        """(stream, shard, sequence)."""
        return MessageId(self.stream, self.shard, self.seq)

    def text(self, errors: str = "strict") -> str:
        """The payload as UTF-8; `PayloadDecodeError` keeps the bytes."""
        try:
            return self.payload.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise PayloadDecodeError(
                f"payload of {self.id} is not UTF-8 ({error.reason} at byte {error.start}); "
                "read message.payload instead",
                self.payload,
            ) from error

    def json(self) -> Any:
        """The payload parsed as JSON."""
        return json.loads(self.text())


def payload_bytes(messages: Iterable[Message]) -> int:
    """What payloads weigh, for limits on memory."""
    return sum(map(len, map(_PAYLOAD, messages)))


class Outgoing(NamedTuple):
    """One message on its way to a sink; `timestamp_ns` of None lets the sink choose."""

    stream: str
    payload: bytes
    shard: int | None = None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ns: int | None = None
    is_null: bool = False
    """A null rather than an empty payload, for stores that tell them apart."""


class Create(Enum):
    """Whether opening a file for writing creates it; `EXCLUSIVE` refuses an existing file."""

    NEVER = "never"
    IF_MISSING = "if_missing"
    EXCLUSIVE = "exclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """Options of the Kafka backend; `extra` holds librdkafka properties and wins over the rest."""

    security_protocol: str | None = None
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    session_timeout: float | None = None
    compression: str | None = None
    revoke_timeout: float = 10.0
    metadata_refresh: float = 30.0
    transactional_id: str | None = None
    extra: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """Options of the Redis backend; `extra` are arguments of redis-py's client, word for word."""

    field: str = "msg"
    batch: int | None = None
    block: float = 5.0
    auto_claim_interval: float | None = 30.0
    auto_claim_idle: float = 60.0
    mkstream: bool = False
    seq_bits: int = 16
    timestamp_format: str = "ms"
    shard_refresh: float = 30.0
    shards: int | None = None
    sharder: str | Callable[[Outgoing, int], int] = "round_robin"
    on_bad_entry: str = "raise"
    recreate_group: bool = False
    consumer_id: str | None = None
    tls_ca_file: str | None = None
    cluster: bool = False
    hash_tag: bool = False
    extra: Mapping[str, object] | None = dataclass_field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """Options of the File backend."""

    create: Create = Create.NEVER
    follow: bool = True
    beacon_interval: int = 1024 * 1024
    file_size_limit: int = 16 * 1024**3
    end_with_eos: bool = False
    on_stale: str = "raise"
    max_poll: float = 0.256
    watch: bool = True
    """Let the system tell of what other processes write, besides polling."""

    def __post_init__(self) -> None:
        _take_words(self, (("create", Create),))


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioOptions:
    """Options of the Stdio backend; `source` and `target` replace this process's own pipes."""

    on_bad_line: str = "raw"
    newline: str = "raise"
    loopback: bool = False
    source: BinaryIO | None = None
    target: BinaryIO | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """The options of each backend; the others ignore theirs. None: those of the connection."""

    kafka: KafkaOptions | None = None
    redis: RedisOptions | None = None
    file: FileOptions | None = None
    stdio: StdioOptions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions(BackendOptions):
    """Options of a connection."""

    timeout: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(BackendOptions):
    """Options of a consumer, the same words on every backend; `mode="resumable"` does as well."""

    mode: Mode = Mode.REAL_TIME
    group: str | None = None
    app: str | None = None
    reset: Reset = Reset.LATEST
    auto_commit: AutoCommit = AutoCommit.NEXT
    auto_commit_delay: float = 5.0
    auto_commit_interval: float | None = None
    commit_every: int | None = None
    drain_timeout: float = 10.0
    prefetch: int = 1000
    prefetch_bytes: int = 16 * MEBIBYTE
    """Payloads fetched ahead, at most; a single message may be larger."""
    max_deliveries: int | None = None
    dead_letter: str | None = None
    offsets: OffsetStore | None = None
    start_position: SeqPos = BEGINNING
    on_out_of_range: str = "raise"

    def __post_init__(self) -> None:
        _take_words(self, (("mode", Mode), ("reset", Reset), ("auto_commit", AutoCommit)))


def _take_words(options: object, kinds: tuple[tuple[str, type[Enum]], ...]) -> None:
    """Words where members of an enum are wanted: `mode="resumable"`."""
    for name, kind in kinds:
        given = getattr(options, name)
        if not isinstance(given, kind):
            object.__setattr__(options, name, _member(kind, name, given))


def _member(kind: type[Enum], name: str, word: object) -> Enum:
    try:
        return kind(word)
    except ValueError:
        words = ", ".join(repr(member.value) for member in kind)
        raise ConfigError(f"{name} is one of {words}, not {word!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions(BackendOptions):
    """Options of a producer: how much may wait for the store before `send` waits."""

    max_pending: int = 10_000
    max_pending_bytes: int = 64 * MEBIBYTE

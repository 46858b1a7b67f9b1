"""Values of the streams API: messages, identities, positions and options. No I/O.

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

    from ottla.client.security import Security
    from ottla.offsets import OffsetStore

MAX_KEY_LENGTH = 249
INTERNAL = "SEA_STREAMER_INTERNAL"
WILDCARD = "SEA_STREAMER_WILDCARD"
BROADCAST = "broadcast"

MEBIBYTE = 1024 * 1024

_PAYLOAD = itemgetter(4)  # of a Message
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Backend(Enum):
    """The kind of store; the value is the scheme of its URLs."""

    KAFKA = "kafka"
    REDIS = "redis"
    FILE = "file"
    STDIO = "stdio"


class Mode(Enum):
    """Which consumers get a message, and where a consumer starts.

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

    - `NEXT` (default): done when you ask for the next message; saved in the background.
    - `ROLLING`: done by `ack`; saved in the background.
    - `DISABLED`: done by `ack`; saved only by `commit`.
    - `DELAYED`: done `auto_commit_delay` seconds after delivery; saved in the background.
    - `IMMEDIATE`: done and saved before it is delivered: at most once.
    """

    IMMEDIATE = "immediate"
    DELAYED = "delayed"
    NEXT = "next"
    ROLLING = "rolling"
    DISABLED = "disabled"


class Reset(Enum):
    """Where to start without a stored position; `NONE` raises `NoStoredPosition` instead."""

    LATEST = "latest"
    EARLIEST = "earliest"
    NONE = "none"


Headers = tuple[tuple[str, bytes | None], ...]
"""Names and values in order. A name may occur twice; in Kafka a value may be null."""


class ShardKey(NamedTuple):
    """A shard of a stream: messages in it are ordered. In Kafka, a partition."""

    stream: str
    shard: int


class MessageId(NamedTuple):
    """Identifies a message; `seq` grows within a shard."""

    stream: str
    shard: int
    seq: int


class Receipt(NamedTuple):
    """Where the store wrote a sent message."""

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
    """One received message.

    A null value of Kafka (a tombstone) has an empty `payload` and `is_null` set. `delivery` counts
    the deliveries of this message to this consumer, from 1. `native_id` is the id in the store,
    such as the entry id of Redis.
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
        """When the message was sent: a datetime in UTC, truncated to microseconds."""
        return from_ns(self.timestamp_ns)

    @property
    def id(self) -> MessageId:
        """Stream, shard and sequence."""
        return MessageId(self.stream, self.shard, self.seq)

    def text(self, errors: str = "strict") -> str:
        """The payload decoded as UTF-8; raises `PayloadDecodeError`, which has the bytes."""
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
    """The size of all payloads, for limits on memory."""
    return sum(map(len, map(_PAYLOAD, messages)))


class Outgoing(NamedTuple):
    """A message to send; with `timestamp_ns` None the store sets the time."""

    stream: str
    payload: bytes
    shard: int | None = None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ns: int | None = None
    is_null: bool = False
    """A null rather than an empty payload, for stores that tell them apart."""


class Create(Enum):
    """Whether a producer creates the file; `EXCLUSIVE` refuses an existing file."""

    NEVER = "never"
    IF_MISSING = "if_missing"
    EXCLUSIVE = "exclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """Options for Kafka. Times are in seconds.

    - `security`: an `ottla.Security`: TLS and the login.
    - `session_timeout`: after this silence the group gives the partitions to other members.
    - `compression`: of a producer: `gzip`, `snappy`, `lz4` or `zstd`.
    - `revoke_timeout`: how long a revoked partition waits for acknowledgements in flight.
    - `metadata_refresh`: how often a real-time consumer looks for new partitions.
    - `transactional_id`: of a producer; `Producer.transaction` needs it.
    - `extra`: librdkafka properties; they override everything else.
    """

    security: Security | None = None
    session_timeout: float | None = None
    compression: str | None = None
    revoke_timeout: float = 10.0
    metadata_refresh: float = 30.0
    transactional_id: str | None = None
    extra: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """Options for Redis Streams. Times are in seconds.

    - `field`: the field of an entry that holds the payload.
    - `batch`: the most entries in one read; by default it follows the size of the messages.
    - `block`: how long one read waits in the server.
    - `auto_claim_interval`: how often to look for entries of dead members; None: never.
    - `auto_claim_idle`: a member is dead when it has not renewed its entries for this long.
    - `mkstream`: create missing streams.
    - `seq_bits`: bits of the counter in a sequence; 64 holds every entry id.
    - `timestamp_format`: unit of the time in entry ids, `ms` or `ns`.
    - `shard_refresh`: how often to look for new shards.
    - `shards`, `sharder`: number of shards of a producer, and how it chooses one.
    - `on_bad_entry`: for an entry without `field`: `raise`, `skip` or `dead_letter`.
    - `recreate_group`: create the group again if it is deleted.
    - `consumer_id`: name of the member in the group; made up by default.
    - `tls_ca_file`: certificates for `rediss://`.
    - `cluster`, `hash_tag`: use Redis Cluster; keep all shards of a stream in one slot.
    - `extra`: further arguments of redis-py's client.
    """

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
    """Options for `.ss` files. Times are in seconds.

    - `create`: whether a producer creates the file.
    - `follow`: wait for more at the end of the file; if False, the stream ends there.
    - `beacon_interval`: bytes between beacons, a multiple of 1024.
    - `file_size_limit`: a message that does not fit raises `FileLimitExceeded`.
    - `end_with_eos`: write an end mark when the last producer ends.
    - `on_stale`: if the stored position belongs to an older file: `raise`, `earliest` or `latest`.
    - `max_poll`: the longest pause between two looks for new messages.
    - `watch`: use inotify on Linux to notice what other processes write.
    """

    create: Create = Create.NEVER
    follow: bool = True
    beacon_interval: int = 1024 * 1024
    file_size_limit: int = 16 * 1024**3
    end_with_eos: bool = False
    on_stale: str = "raise"
    max_poll: float = 0.256
    watch: bool = True

    def __post_init__(self) -> None:
        _take_words(self, (("create", Create),))


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioOptions:
    """Options for stdin and stdout.

    - `headers`: a line may begin with a header, `[timestamp | stream | sequence | shard]`, of which
      one part is enough: `[info] started` is the message `started` of the stream `info`. Without
      `headers` lines are read and written as they are.
    - `on_bad_line`: a line with a malformed header is taken as text (`raw`), skipped (`skip`) or an
      error (`raise`); with `raise` so is a line of a stream that nobody reads.
    - `newline`: a payload with a line break is an error (`raise`), or is escaped (`escape`).
    - `loopback`: consumers get what producers of this process send, instead of stdin.
    - `source`, `target`: pipes to use instead of stdin and stdout.
    """

    headers: bool = True
    on_bad_line: str = "raw"
    newline: str = "raise"
    loopback: bool = False
    source: BinaryIO | None = None
    target: BinaryIO | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """Options for each kind of store; those of other stores are ignored. None: as for `connect`."""

    kafka: KafkaOptions | None = None
    redis: RedisOptions | None = None
    file: FileOptions | None = None
    stdio: StdioOptions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions(BackendOptions):
    """Options of `connect`; `timeout` is for connecting, in seconds."""

    timeout: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(BackendOptions):
    """Options of a consumer, the same for every store. Times are in seconds.

    Enums can be given as words: `mode="resumable"`.

    - `mode`, `group`: which consumers get a message; see `Mode`.
    - `app`: name of the program, for the group of `RESUMABLE` without `group`.
    - `reset`: where to start without a stored position.
    - `auto_commit`, `auto_commit_delay`: when a message counts as done; see `AutoCommit`.
    - `auto_commit_interval`: how often positions are saved: 1 s, or 5 s with `offsets`.
    - `commit_every`: save also after this many messages.
    - `drain_timeout`: how long `close` waits for acknowledgements of delivered messages.
    - `prefetch`, `prefetch_bytes`: the most that is read ahead; one message may be larger.
    - `max_deliveries`, `dead_letter`: after so many deliveries a message goes to that stream.
    - `offsets`: save positions in this store instead of the stream's own.
    - `start_position`: where a shard starts that `offsets` does not know.
    - `on_out_of_range`: if a stored position is beyond the end: `raise`, `wait`, `earliest` or
      `latest`.
    """

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
    max_deliveries: int | None = None
    dead_letter: str | None = None
    offsets: OffsetStore | None = None
    start_position: SeqPos = BEGINNING
    on_out_of_range: str = "raise"

    def __post_init__(self) -> None:
        _take_words(self, (("mode", Mode), ("reset", Reset), ("auto_commit", AutoCommit)))


def _take_words(options: object, kinds: tuple[tuple[str, type[Enum]], ...]) -> None:
    """Replace words by the members of enums: `mode="resumable"`."""
    for name, kind in kinds:
        given = getattr(options, name)
        if not isinstance(given, kind):
            object.__setattr__(options, name, _member(kind, name, given))


def _member(kind: type[Enum], name: str, word: object) -> Enum:
    try:
        return kind(word)
    except (ValueError, TypeError):  # what cannot be hashed is no word either
        words = ", ".join(repr(member.value) for member in kind)
        raise ConfigError(f"{name} is one of {words}, not {word!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions(BackendOptions):
    """Options of a producer: how many messages and bytes may be unsent before `send` waits."""

    max_pending: int = 10_000
    max_pending_bytes: int = 64 * MEBIBYTE
    stop_at_failure: bool = False
    """A message that is refused fails all that were sent after it: none is written past it."""

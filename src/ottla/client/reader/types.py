"""Values of the Reader's interface: places in a topic, records, and what can be lost on the way."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self, TypeAlias

from ottla.client import arguments
from ottla.client.arguments import INT64
from ottla.client.errors import BadArgument, ClientError, KafkaError
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster.view import TopicPartition
    from ottla.wire.errors import WireError


class Timestamp(NamedTuple):
    """The first record at or after a time in milliseconds since 1970."""

    ms: int


# A point in a partition's log: an end of it, an offset, or the first record at or after a time.
Position: TypeAlias = Literal["earliest", "latest"] | int | datetime | Timestamp
Positions: TypeAlias = Position | Mapping[int, Position]
Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
OnDataLoss: TypeAlias = Literal["error", "earliest", "latest"]


class Place(NamedTuple):
    """An offset, or else the timestamp by which ListOffsets finds one."""

    offset: int | None
    timestamp: int = 0


LATEST: Final = -1
EARLIEST: Final = -2
_ENDS: Final = {"latest": Place(None, LATEST), "earliest": Place(None, EARLIEST)}


class Record(NamedTuple):
    """One record; its time, in milliseconds since 1970, is of type 0 (created) or 1 (appended).

    There may be several headers of one name.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class DataLost(KafkaError):
    """The next records to read were deleted, or the log now ends before them."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"read {partition} at offset {offset}")

    @property
    def hint(self) -> str:
        """How to go on."""
        return (
            "the records were deleted or never written: seek to an offset that is there, or choose "
            'on_data_loss="earliest" or "latest"'
        )


class TopicRecreated(ClientError):
    """The topic was deleted and another made under its name, where its offsets mean nothing."""


class CorruptRecords(ClientError):
    """Fetched records are damaged; the cause says how."""

    @classmethod
    def at(cls, error: WireError) -> Self:
        """What `error` means for the reader."""
        return cls(f"{error}; seek past the broken batch to go on")


def place_of(name: str, position: Position) -> Place:
    """Where the position given as `name` is, or how to find it."""
    if isinstance(position, datetime):
        if position.tzinfo is None:
            raise BadArgument(
                f"{name}: the time {position.isoformat()} needs a zone, such as datetime.UTC"
            )
        position = Timestamp(int(position.timestamp() * 1000))
    if isinstance(position, Timestamp):
        return Place(None, arguments.timestamp(name, position.ms))
    wanted = '"earliest", "latest", an offset, a datetime or a Timestamp'
    if isinstance(position, str):
        if position not in _ENDS:
            raise arguments.bad_value(name, wanted, position)
        return _ENDS[position]
    return Place(arguments.whole(name, position, 0, INT64, wanted))

"""What classic consumers put, opaque to brokers, into the requests of their group.

A subscription has the topics a member wants and the partitions it owns; an assignment has the
partitions the leader gave it. Both begin with an int16 version. Later versions only append fields,
so bytes after the known fields are ignored.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.cluster.view import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 1
NO_GENERATION: Final = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NULL = _INT32.pack(-1)


class Subscription(NamedTuple):
    """The subscription of a member, and its owned partitions."""

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    rack: str | None = None


def write_subscription(subscription: Subscription) -> bytes:
    topics, owned, generation, rack = subscription
    return b"".join(
        (
            _INT16.pack(SUBSCRIPTION_VERSION),
            _INT32.pack(len(topics)),
            *map(_string, topics),
            _NULL,
            _partitions(owned),
            _INT32.pack(generation),
            _INT16.pack(-1) if rack is None else _string(rack),
        )
    )


def read_subscription(data: bytes | memoryview) -> Subscription:
    """A member's subscription; ValueError if the bytes are not one."""
    cursor = _Cursor(data)
    version = cursor.int16()
    topics = [cursor.string() for _ in range(cursor.count())]
    cursor.skip_bytes()
    if version < 1:
        return Subscription(topics)
    owned = cursor.partitions()
    generation = cursor.int32() if version >= 2 else NO_GENERATION  # of the format
    return Subscription(topics, owned, generation)


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    return _INT16.pack(ASSIGNMENT_VERSION) + _partitions(partitions) + _NULL


def read_assignment(data: bytes | memoryview) -> list[TopicPartition]:
    """The partitions of a member; none if the bytes are not a consumer's assignment."""
    if not data:
        return []
    cursor = _Cursor(data)
    try:
        cursor.int16()
        return cursor.partitions()
    except ValueError:
        return []


class _Cursor:
    """Reads forward; a wrong length raises ValueError and allocates no memory."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._view = memoryview(data)
        self._position = 0

    def int16(self) -> int:
        return int(self._unpack(_INT16))

    def int32(self) -> int:
        return int(self._unpack(_INT32))

    def count(self) -> int:
        count = self.int32()
        if not 0 <= count <= len(self._view):
            raise ValueError(f"{count} elements in {len(self._view)} bytes")
        return count

    def string(self) -> str:
        return str(self._take(self.int16()), "utf-8")

    def skip_bytes(self) -> None:
        self._take(max(0, self.int32()))

    def partitions(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.string()
            numbers = struct.unpack(f">{(count := self.count())}i", self._take(4 * count))
            found += [TopicPartition(topic, number) for number in numbers]
        return found

    def _unpack(self, form: struct.Struct) -> int:
        (value,) = form.unpack(self._take(form.size))
        return int(value)

    def _take(self, size: int) -> memoryview:
        end = self._position + size
        if size < 0 or end > len(self._view):
            raise ValueError(f"{size} bytes wanted at {self._position} of {len(self._view)}")
        taken = self._view[self._position : end]
        self._position = end
        return taken


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    parts = [_INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        parts += [_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(parts)

"""Dead letters: the copies of records that a share group has given up (KIP-1191).

Rules:

- A letter keeps key, value and headers of its record, and adds headers that say why it was given
  up, where it came from and how often it was delivered. Names and texts are Kafka's.
- A record that is no longer in the log, or is not to be copied, leaves a letter without key and
  value: where it was and why it is missing is known all the same. So does a record that does not
  fit the dead-letter topic together with the headers it would get.
- Offsets that never held a record (gaps) are not mourned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.sharing.values import ArchiveReason
from ottla.wire.batch import HEADER_SIZE
from ottla.wire.builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ottla.sharing.values import Archived
    from ottla.wire.records import Headers, Record

TOPIC: Final = "__dlq.errors.topic"
PARTITION: Final = "__dlq.errors.partition"
OFFSET: Final = "__dlq.errors.offset"
GROUP: Final = "__dlq.errors.group"
DELIVERY_COUNT: Final = "__dlq.errors.delivery.count"
MESSAGE: Final = "__dlq.errors.message"

MESSAGES: Final = {
    ArchiveReason.REJECTED: "Offset rejected by client.",
    ArchiveReason.DELIVERY_LIMIT: "Offset delivery count exceeded the threshold.",
}
LENGTHS_BYTES: Final = 32  # the most that the lengths, deltas and attributes of a record take
HEADER_LENGTHS_BYTES: Final = 10  # and those of one header


class LetterOrigin(NamedTuple):
    """The group and partition of the letters."""

    group: str
    topic: str
    partition: int


class DeadLetter(NamedTuple):
    key: bytes | None
    value: bytes | None
    copied: Headers
    """The record's own headers."""
    added: Headers

    @property
    def size(self) -> int:
        """No less than it takes in a batch."""
        content = len(self.key or b"") + len(self.value or b"")
        headers = (*self.copied, *self.added)
        return (
            LENGTHS_BYTES
            + content
            + sum(len(n.encode()) + len(v or b"") + HEADER_LENGTHS_BYTES for n, v in headers)
        )


def mourned(archived: Iterable[Archived]) -> list[Archived]:
    """What deserves letters of all that a write gives up."""
    return [one for one in archived if one.reason in MESSAGES]


def dead_letters(
    origin: LetterOrigin, archived: Archived, records: Mapping[int, Record]
) -> Iterator[DeadLetter]:
    """One for each offset, with its record where that is among `records`."""
    for offset in range(archived.first_offset, archived.last_offset + 1):
        record = records.get(offset)
        added = (
            (TOPIC, origin.topic.encode()),
            (PARTITION, b"%d" % origin.partition),
            (OFFSET, b"%d" % offset),
            (GROUP, origin.group.encode()),
            (DELIVERY_COUNT, b"%d" % archived.delivery_count),
            (MESSAGE, MESSAGES[archived.reason].encode()),
        )
        if record is None:
            yield DeadLetter(None, None, (), added)
        else:
            yield DeadLetter(record.key, record.value, record.headers, added)


def letter_batches(
    letters: Iterable[DeadLetter], max_bytes: int, now_ms: int
) -> Iterator[tuple[int, bytearray]]:
    """The letters as record batches of at most `max_bytes`: how many, and the batch.

    They carry the time at which they are written: retention counts from it.
    """
    waiting: list[DeadLetter] = []
    size = HEADER_SIZE
    for one in letters:
        letter = one
        if HEADER_SIZE + letter.size > max_bytes:
            letter = DeadLetter(None, None, (), letter.added)
        if waiting and size + letter.size > max_bytes:
            yield len(waiting), _batch(waiting, now_ms)
            waiting, size = [], HEADER_SIZE
        waiting.append(letter)
        size += letter.size
    if waiting:
        yield len(waiting), _batch(waiting, now_ms)


def _batch(letters: Sequence[DeadLetter], now_ms: int) -> bytearray:
    builder = BatchBuilder()
    for letter in letters:
        headers = (*letter.copied, *letter.added)
        builder.append(letter.value, key=letter.key, headers=headers, timestamp=now_ms)
    return builder.build()

"""The three index files of a segment, held in memory as plain arrays.

`.index`      8 bytes an entry: int32 offset - base, int32 position. The offset is the last one of
              the batch that starts at the position; both ascend strictly.
`.timeindex`  12 bytes: int64 timestamp, int32 offset - base. The largest timestamp so far and the
              last offset of the batch that brought it; timestamps ascend strictly.
`.txnindex`   34 bytes: int16 version 0, int64 producer id, first offset, last offset (the marker),
              last stable offset. Aborted transactions only.

All three are derived from the `.log` file (the third one with the producers' state before it): a
lost or damaged one is rebuilt byte for byte. They are written when a segment is sealed or closed,
never while it grows. An index without entries may be an empty file or none.

`IndexSums` tell whether the files are the ones that were written. They stand at the end of the
producer snapshot that is taken where the segment ends; Kafka reads such a snapshot as its own, and
one that Kafka wrote has none. Without them the files are taken as Kafka takes them, if they make
sense.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import chain
from operator import le, lt
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12
TXN_ENTRY_SIZE: Final = 34

_TXN_ENTRY = struct.Struct(">hqqqq")
_TXN_VERSION: Final = 0
_TXN_FIELDS: Final = 4
_MARKER: Final = 2  # the field that entries are sorted by
_SUMS = struct.Struct(">4sIII")
_SUMS_MAGIC: Final = b"OSUM"


class CorruptIndex(ValueError):
    """A damaged index file; it is rebuilt from the log."""


def _big_endian(values: array[int]) -> array[int]:
    """The same array with its bytes the other way round, where this machine has them so."""
    if sys.byteorder == "little":
        values.byteswap()
    return values


def _ascends(values: array[int]) -> bool:
    return all(map(lt, values, values[1:]))


class OffsetIndex:
    """Sparse map from offset to file position."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def last_at_or_below(self, relative_offset: int) -> int:
        """The number of the entry to scan from, -1 for the start of the file."""
        return bisect_right(self.offsets, relative_offset) - 1

    @property
    def nbytes(self) -> int:
        return len(self) * OFFSET_ENTRY_SIZE

    def encode(self) -> bytes:
        pairs = array("i", bytes(self.nbytes))
        pairs[0::2] = self.offsets
        pairs[1::2] = self.positions
        return _big_endian(pairs).tobytes()

    @classmethod
    def take(cls, data: bytes) -> OffsetIndex:
        """Of bytes that `encode` gave."""
        pairs = _big_endian(array("i", data))
        index = cls()
        index.offsets = pairs[0::2]
        index.positions = pairs[1::2]
        return index

    @classmethod
    def decode(cls, data: bytes, log_size: int) -> OffsetIndex:
        if len(data) % OFFSET_ENTRY_SIZE:
            raise CorruptIndex(f"{len(data)} bytes are no whole number of offset entries")
        index = cls.take(data)
        if not (_ascends(index.offsets) and _ascends(index.positions)):
            raise CorruptIndex("offset entries do not ascend")
        if index.positions and not 0 < index.positions[0] <= index.positions[-1] < log_size:
            raise CorruptIndex("offset entry past the end of the log file")
        return index


class TimeIndex:
    """Sparse map from timestamp to offset."""

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("i")

    def __len__(self) -> int:
        return len(self.timestamps)

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Only a new largest timestamp makes an entry; none (-1) never does."""
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(relative_offset)

    def floor_offset(self, timestamp: int) -> int:
        """Every batch before this relative offset is older than `timestamp`."""
        found = bisect_right(self.timestamps, timestamp) - 1
        return self.offsets[found] if found >= 0 else 0

    @property
    def nbytes(self) -> int:
        return len(self) * TIME_ENTRY_SIZE

    def encode(self) -> bytes:
        # An entry is three words: two of the timestamp, one of the offset.
        times = array("i", _big_endian(self.timestamps[:]).tobytes())
        words = array("i", bytes(self.nbytes))
        words[0::3] = times[0::2]
        words[1::3] = times[1::2]
        words[2::3] = _big_endian(self.offsets[:])
        return words.tobytes()

    @classmethod
    def take(cls, data: bytes) -> TimeIndex:
        """Of bytes that `encode` gave."""
        words = array("i", data)
        times = array("i", bytes(len(data) // TIME_ENTRY_SIZE * 8))
        times[0::2] = words[0::3]
        times[1::2] = words[1::3]
        index = cls()
        index.timestamps = _big_endian(array("q", times.tobytes()))
        index.offsets = _big_endian(words[2::3])
        return index

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex:
        if len(data) % TIME_ENTRY_SIZE:
            raise CorruptIndex(f"{len(data)} bytes are no whole number of time entries")
        index = cls.take(data)
        offsets_ascend = all(map(le, index.offsets, index.offsets[1:]))
        if not (_ascends(index.timestamps) and offsets_ascend):
            raise CorruptIndex("time entries do not ascend")
        return index


class IndexSums(NamedTuple):
    """CRC-32C of the three index files of one segment; that of a file without entries is 0."""

    offsets: int
    times: int
    aborted: int

    def encode(self) -> bytes:
        return _SUMS.pack(_SUMS_MAGIC, *self)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> IndexSums | None:
        """None if these are not what `encode` wrote."""
        if len(data) != _SUMS.size:
            return None
        magic, *sums = _SUMS.unpack(data)
        return cls(*sums) if magic == _SUMS_MAGIC else None


class AbortedTransaction(NamedTuple):
    """An aborted transaction, whose records read_committed readers skip."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedIndex:
    """The aborted transactions of one segment, by their markers: 32 bytes each in memory."""

    __slots__ = ("_values",)

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self._values = array("q", chain.from_iterable(entries))

    def __len__(self) -> int:
        return len(self._values) // _TXN_FIELDS

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return map(self._entry, range(len(self)))

    @property
    def nbytes(self) -> int:
        return len(self._values) * self._values.itemsize

    @property
    def last_marker(self) -> int:
        """Offset of the last marker, -1 if there is none."""
        return self._marker(len(self) - 1) if self._values else -1

    def append(self, entry: AbortedTransaction) -> None:
        self._values.extend(entry)

    def starting_at(self, offset: int) -> Iterator[AbortedTransaction]:
        """Those whose marker is at `offset` or later, in order."""
        first = bisect_left(range(len(self)), offset, key=self._marker)
        return map(self._entry, range(first, len(self)))

    def _entry(self, number: int) -> AbortedTransaction:
        start = number * _TXN_FIELDS
        return AbortedTransaction(*self._values[start : start + _TXN_FIELDS])

    def _marker(self, number: int) -> int:
        return self._values[number * _TXN_FIELDS + _MARKER]


def encode_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_TXN_ENTRY.pack(_TXN_VERSION, *entry) for entry in transactions)


def decode_aborted(data: bytes) -> list[AbortedTransaction]:
    """Markers ascend, and each is behind the start of its transaction."""
    if len(data) % TXN_ENTRY_SIZE:
        raise CorruptIndex(f"{len(data)} bytes are no whole number of transaction entries")
    entries: list[AbortedTransaction] = []
    for version, *values in _TXN_ENTRY.iter_unpack(data):
        if version != _TXN_VERSION:
            raise CorruptIndex(f"transaction entry of version {version}")
        entry = AbortedTransaction(*values)
        before = entries[-1].last_offset if entries else -1
        if not (0 <= entry.first_offset < entry.last_offset and before < entry.last_offset):
            raise CorruptIndex("transaction entries do not ascend")
        entries.append(entry)
    return entries

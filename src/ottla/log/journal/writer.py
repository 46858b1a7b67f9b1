"""Decides what to write to the journal, where, and when a file can be reused. Pure.

Rules:

- One slot is under way at most, and slots are numbered without a gap.
- A partition with much to write, and all of them while no file is free, are synced by themselves:
  *direct*. So are the largest of a round that has more than a slot should hold; many partitions
  with little to write may fill two slots' worth, because syncs of their own would take longer.
- While a direct sync is under way nothing new of the partition is journalled, because it would be
  acknowledged before what lies below it: it is *held*.
- A slot lies in one file. A file that has no room for the next slot is *full*; the logs that it
  covers are synced then, and after that, and after all files before it, it is free.
- A write that failed acknowledges nothing. The journal is off from then on: everything is direct,
  and all that it covers is synced.

The machine does no I/O: `cut` and the events return what the caller must do. `K` is the type of the
caller's key for a partition.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from ottla.log.journal.slots import ENTRY_BYTES, FRAME_BYTES, NewExtent, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.log.storage import Buffer

# A slot begins where a disk's page does: a torn write never reaches into the slot before it.
BLOCK: Final = 4096
# A file is synced to its logs at once: of this size that takes milliseconds, not tens of them.
FILE_BYTES: Final = 8 << 20
# A larger write is as fast in the log's own files.
SLOT_MAX_BYTES: Final = 2 << 20
# Writing so little takes less time than syncing a file: a slot of such extents may be twice as
# large, which is half of a file.
SMALL_EXTENT_BYTES: Final = 64 << 10

K = TypeVar("K")


class Fresh(NamedTuple, Generic[K]):
    """Batches appended to a log since the last call; None if some were not kept."""

    key: K
    extent: NewExtent | None


class SlotWrite(NamedTuple):
    """Bytes that are acknowledged when they are durable at this place."""

    seq: int
    file: int
    position: int
    size: int
    parts: Sequence[Buffer]


class Round(NamedTuple, Generic[K]):
    """Where the new batches of each partition go."""

    slot: SlotWrite | None
    journalled: Mapping[K, int]  # the end of each partition's batches in the slot
    direct: Sequence[K]


class MakeFile(NamedTuple):
    number: int


class Checkpoint(NamedTuple, Generic[K]):
    """These logs are to be synced at least up to these offsets."""

    file: int
    covers: Mapping[K, int]


class Phase(enum.Enum):
    FREE = enum.auto()
    CURRENT = enum.auto()
    FULL = enum.auto()
    CHECKPOINTING = enum.auto()
    SYNCED = enum.auto()  # free when all files before it are


@dataclass(slots=True)
class _File(Generic[K]):
    number: int
    phase: Phase = Phase.FREE
    position: int = 0
    first_seq: int = 0
    covers: dict[K, int] = field(default_factory=dict)


class JournalWriter(Generic[K]):
    """See the module's docstring."""

    def __init__(
        self,
        stream: bytes,
        *,
        node: int,
        files: int,
        extent_max_bytes: int,
        file_bytes: int = FILE_BYTES,
        slot_max_bytes: int = SLOT_MAX_BYTES,
    ) -> None:
        self._stream = stream
        self._node = node
        self._limit = files
        self._extent_max = extent_max_bytes
        self._file_bytes = file_bytes
        self._slot_max = min(slot_max_bytes, file_bytes)
        self._crowded_max = min(2 * slot_max_bytes, file_bytes)
        self._files: list[_File[K]] = []
        self._used: deque[_File[K]] = deque()  # oldest first; the current one is the last
        self._current: _File[K] | None = None
        self._making = False
        self._is_short = False  # a slot has found no file with room for it
        self._next_seq = 1
        self._in_flight: tuple[int, Mapping[K, int]] | None = None
        self._direct: set[K] = set()
        self.paused = False  # all are synced by themselves for a while
        self.off: str | None = None

    # -- what is so -------------------------------------------------------------------------------

    @property
    def in_flight(self) -> bool:
        return self._in_flight is not None

    @property
    def next_seq(self) -> int:
        return self._next_seq

    @property
    def trim(self) -> int:
        """Slots below it hold nothing that is needed."""
        return self._used[0].first_seq if self._used else self._next_seq

    @property
    def is_empty(self) -> bool:
        """Whether everything that was ever journalled is in the logs."""
        return not self._used and self._in_flight is None

    @property
    def free_files(self) -> int:
        return sum(file.phase is Phase.FREE for file in self._files)

    # -- writing ----------------------------------------------------------------------------------

    def cut(self, fresh: Iterable[Fresh[K]], *, now_ms: int) -> Round[K]:
        """Decide where new batches go. Not while a slot is under way, and nothing that is held."""
        assert self._in_flight is None
        direct: list[K] = []
        small: list[tuple[K, NewExtent]] = []
        total = FRAME_BYTES
        is_off = self.paused or self.off is not None
        for key, extent in fresh:
            assert key not in self._direct
            if is_off or extent is None or extent.size > self._extent_max:
                direct.append(key)
            else:
                small.append((key, extent))
                total += extent.size + ENTRY_BYTES
        if total > self._slot_max:
            small.sort(key=_size)
            while total > self._slot_max:
                key, largest = small[-1]
                if largest.size <= SMALL_EXTENT_BYTES and total <= self._crowded_max:
                    break
                small.pop()
                total -= largest.size + ENTRY_BYTES
                direct.append(key)
        slot = None
        journalled: dict[K, int] = {}
        if small:
            file = self._file_with_room(total)
            if file is None:
                direct += [key for key, _ in small]
            else:
                slot = self._slot(file, [extent for _, extent in small], total, now_ms)
                journalled = {key: extent.end for key, extent in small}
                file.covers |= journalled
                self._in_flight = slot.seq, journalled
        self._direct.update(direct)
        return Round(slot, journalled, direct)

    def _slot(
        self, file: _File[K], extents: Sequence[NewExtent], size: int, now_ms: int
    ) -> SlotWrite:
        seq = self._next_seq
        if not file.position:
            file.first_seq = seq
        parts = encode(
            extents, stream=self._stream, seq=seq, trim=self.trim, node=self._node, now_ms=now_ms
        )
        padding = -size % BLOCK
        if padding:
            parts.append(bytes(padding))
        slot = SlotWrite(seq, file.number, file.position, size + padding, parts)
        file.position += slot.size
        self._next_seq += 1
        return slot

    def _file_with_room(self, size: int) -> _File[K] | None:
        file = self._current
        if file is not None and file.position + size <= self._file_bytes:
            return file
        self.rest()
        for free in self._files:
            if free.phase is Phase.FREE:
                free.phase = Phase.CURRENT
                free.position = 0
                free.covers = {}
                self._used.append(free)
                self._current = free
                return free
        self._is_short = True
        return None

    def rest(self) -> None:
        """Close the current file: its logs can be synced."""
        if self._current is not None:
            self._current.phase = Phase.FULL
            self._current = None

    def written(self, seq: int) -> Mapping[K, int]:
        """The slot is durable: up to where its partitions are."""
        return self._ended(seq)

    def failed(self, seq: int, reason: str) -> Sequence[K]:
        """The slot failed; returns the logs that must be synced directly."""
        keys = tuple(self._ended(seq))
        self.switch_off(reason)
        self._direct.update(keys)
        return keys

    def _ended(self, seq: int) -> Mapping[K, int]:
        assert self._in_flight is not None
        number, journalled = self._in_flight
        assert number == seq
        self._in_flight = None
        return journalled

    def switch_off(self, reason: str) -> None:
        self.off = self.off or reason
        self.rest()

    def is_held(self, key: K) -> bool:
        """Whether a sync of this partition is under way, so that its new batches have to wait."""
        return key in self._direct

    def direct_ended(self, keys: Iterable[K]) -> None:
        """These were synced by themselves, or their logs are offline."""
        self._direct.difference_update(keys)

    # -- files ------------------------------------------------------------------------------------

    def commands(self) -> list[MakeFile | Checkpoint[K]]:
        """The commands to carry out now; each is returned once."""
        commands: list[MakeFile | Checkpoint[K]] = []
        for file in self._used:
            if file.phase is Phase.FULL and not self._is_written_to(file):
                file.phase = Phase.CHECKPOINTING
                commands.append(Checkpoint(file.number, dict(file.covers)))
        if self._wants_file():
            self._making = True
            commands.append(MakeFile(len(self._files)))
        return commands

    def _is_written_to(self, file: _File[K]) -> bool:
        """Whether the slot under way may be in it."""
        return self._in_flight is not None and file is self._used[-1]

    def _wants_file(self) -> bool:
        if self._making or self.paused or self.off is not None or len(self._files) >= self._limit:
            return False
        if self.free_files:
            return False
        if self._current is None:
            return self._is_short
        return self._current.position * 2 >= self._file_bytes

    def made(self, number: int) -> None:
        """A file of zeros was created and synced."""
        assert number == len(self._files)
        self._making = self._is_short = False
        self._files.append(_File(number))

    def not_made(self) -> None:
        """It is tried again after the next checkpoint, or with the next round if there is none."""
        self._making = False

    def forget(self, key: K) -> None:
        """Nothing of it is needed any more: its log is closed and synced, or deleted."""
        for file in self._used:
            file.covers.pop(key, None)

    def checkpointed(self, number: int) -> None:
        """All logs of the file are synced or deleted: it can be reused."""
        file = self._files[number]
        assert file.phase is Phase.CHECKPOINTING
        file.phase = Phase.SYNCED
        while self._used and self._used[0].phase is Phase.SYNCED:
            freed = self._used.popleft()
            freed.phase = Phase.FREE
            freed.covers = {}


def _size(one: tuple[object, NewExtent]) -> int:
    return one[1].size

"""The leader epochs of a log: which epoch wrote from which offset on.

Text file `leader-epoch-checkpoint`: `0`, the number of entries, then `epoch start_offset` a line.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import Final

from ottla.log.checkpoints import CorruptCheckpoint

FILE_NAME: Final = "leader-epoch-checkpoint"
_VERSION: Final = "0"


class LeaderEpochs:
    """(epoch, start offset) pairs, both ascending. `dirty` until the owner has saved them."""

    __slots__ = ("dirty", "entries")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries = entries or []
        self.dirty = False

    @property
    def latest(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def began_before(self, offset: int) -> bool:
        """Whether any epoch starts below an offset."""
        return bool(self.entries) and self.entries[0][1] < offset

    def assign(self, epoch: int, start_offset: int) -> None:
        """Records from `start_offset` on are of `epoch`; only a newer epoch adds anything."""
        if epoch > self.latest:
            self.entries = [e for e in self.entries if e[1] < start_offset]
            self.entries.append((epoch, start_offset))
            self.dirty = True

    def truncate_end(self, end_offset: int) -> None:
        """Forget epochs that start at or after the end of the log."""
        kept = [entry for entry in self.entries if entry[1] < end_offset]
        self.dirty |= len(kept) != len(self.entries)
        self.entries = kept

    def truncate_start(self, start_offset: int) -> None:
        """Forget epochs that end before the log start; the one that spans it starts there."""
        index = bisect_right(self.entries, start_offset, key=itemgetter(1)) - 1
        if index >= 0 and self.entries[index][1] < start_offset:
            self.entries = [(self.entries[index][0], start_offset), *self.entries[index + 1 :]]
            self.dirty = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """(epoch, end offset) of the largest known epoch not above `epoch`, None if unknown.

        For an epoch below the first one it is the start of the first: older records were deleted.
        """
        if not self.entries or epoch < 0 or epoch > self.latest:
            return None
        index = bisect_right(self.entries, epoch, key=itemgetter(0)) - 1
        if index < 0:
            return epoch, self.entries[0][1]
        if index + 1 < len(self.entries):
            return self.entries[index][0], self.entries[index + 1][1]
        return self.entries[index][0], log_end_offset

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`, -1 if unknown."""
        index = bisect_right(self.entries, offset, key=itemgetter(1)) - 1
        return self.entries[index][0] if index >= 0 else -1

    def encode(self) -> bytes:
        lines = [_VERSION, str(len(self.entries))]
        lines += [f"{epoch} {start}" for epoch, start in self.entries]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> LeaderEpochs:
        try:
            version, count, *lines = data.decode().splitlines()
            pairs = [line.split(" ") for line in lines]
            entries = [(int(epoch), int(start)) for epoch, start in pairs]
        except ValueError as error:
            raise CorruptCheckpoint(f"leader epochs cannot be read: {error}") from error
        if version != _VERSION or count != str(len(entries)):
            raise CorruptCheckpoint("leader epochs of another version or length")
        return cls(entries)

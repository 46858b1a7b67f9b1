"""A file system in memory that fails on command and can lose power.

Each file keeps what was written and what was synced; the directory keeps a journal of the changes
since its last sync. `crash` gives the file system that the next start finds: synced content, some
part of the rest, and some prefix of the journal. Every call that changes or syncs something has a
number, and a plan names the numbers at which a fault strikes.
"""

from __future__ import annotations

import enum
import errno
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from ottla.log.storage import Buffer, Directory, Entry, Storage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


BLOCK = 4096


class Fault(enum.Enum):
    """What happens at one system call."""

    SHORT_WRITE = enum.auto()  # half of the bytes; not an error, the caller has to go on
    ENOSPC = enum.auto()  # half of the bytes, then the disk is full
    EIO = enum.auto()
    CRASH = enum.auto()  # the machine stops before the call
    TORN_CRASH = enum.auto()  # the machine stops in the middle of the call
    BIT_FLIP = enum.auto()  # the disk stores something else


class Survival(enum.Enum):
    """What a crash leaves of bytes and directory changes that were not synced."""

    NOTHING = enum.auto()
    HALF = enum.auto()
    TORN = enum.auto()  # all names, and of each file the first half
    HOLE = enum.auto()  # all names, and of each file the second half
    EVERYTHING = enum.auto()
    ZEROS = enum.auto()  # sizes and names survive, the data pages do not


class PowerLoss(BaseException):
    """The simulated machine has stopped; no code of the log may catch this."""


@dataclass
class _Inode:
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""

    def after_crash(self, survival: Survival) -> _Inode:
        """What was written over synced bytes, or cut off, may survive as little as the rest."""
        data, synced = bytes(self.data), self.synced
        same = _common(data, synced)
        half = same + (len(data) - same) // 2
        if survival is Survival.NOTHING:
            kept = synced
        elif survival in (Survival.HALF, Survival.TORN):
            kept = data[:half] + synced[half:]
        elif survival is Survival.HOLE:
            kept = data[:same] + bytes(half - same) + data[half:] + synced[len(data) :]
        elif survival is Survival.ZEROS:
            kept = data[:same] + bytes(len(data) - same)
        else:
            kept = data
        return _Inode(bytearray(kept), kept)


def _common(one: bytes, other: bytes) -> int:
    """How many bytes both begin with; most files have not changed at all."""
    same = 0
    while one[same : same + BLOCK] == other[same : same + BLOCK] and same < len(one):
        same += BLOCK
    rest = zip(one[same : same + BLOCK], other[same : same + BLOCK], strict=False)
    return min(same, len(one)) + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], rest))


class MemoryStorage(Storage):
    """One flat name space of paths; directories exist once something is put in them."""

    def __init__(self, plan: Mapping[int, Fault] | None = None) -> None:
        self.plan = dict(plan or {})
        self.calls = 0
        self.clock_ms = 0
        self.fail_reads = False
        self._names: dict[Path, _Inode] = {}
        self._synced_names: dict[Path, _Inode] = {}
        self._journal: list[dict[Path, _Inode]] = []
        self._open: dict[int, _Inode] = {}
        self._directories: set[int] = set()
        self._next_fd = 3

    def crash(self, survival: Survival) -> MemoryStorage:
        """What is left on the disk."""
        if survival is Survival.NOTHING:
            names = self._synced_names
        elif survival is Survival.HALF:
            history = [self._synced_names, *self._journal]
            names = history[len(history) // 2]
        else:
            names = self._names
        left = MemoryStorage()
        left._names = {path: inode.after_crash(survival) for path, inode in names.items()}
        left._synced_names = dict(left._names)
        return left

    @property
    def open_files(self) -> int:
        return len(self._open) + len(self._directories)

    def _strike(self) -> Fault | None:
        fault = self.plan.get(self.calls)
        self.calls += 1
        if fault is Fault.CRASH:
            raise PowerLoss
        if fault is Fault.EIO:
            raise OSError(errno.EIO, "simulated I/O error")
        return fault

    def _strike_metadata(self) -> None:
        fault = self._strike()
        if fault is Fault.ENOSPC:
            raise OSError(errno.ENOSPC, "simulated full disk")
        if fault is Fault.TORN_CRASH:
            raise PowerLoss

    def _changed(self) -> None:
        self._journal.append(dict(self._names))

    def open_directory(self, path: Path) -> int:
        self._next_fd += 1
        self._directories.add(self._next_fd)
        return self._next_fd

    def close_directory(self, fd: int) -> None:
        self._directories.remove(fd)

    def open(self, path: Path | Entry, *, create: bool) -> int:
        path = self._located(path)
        if path not in self._names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            self._strike_metadata()
            self._names[path] = _Inode()
            self._changed()
        self._next_fd += 1
        self._open[self._next_fd] = self._names[path]
        return self._next_fd

    def _located(self, path: Path | Entry) -> Path:
        """Directories are never renamed here, but only an open one may be used."""
        if isinstance(path, Entry):
            with path.parent.opened():
                return path.parent.path / path.name
        return path

    def close(self, fd: int) -> None:
        del self._open[fd]

    def pwritev(self, fd: int, chunks: Sequence[Buffer], position: int) -> int:
        fault = self._strike()
        data = bytearray(b"".join(chunks))
        if fault in (Fault.SHORT_WRITE, Fault.ENOSPC, Fault.TORN_CRASH):
            del data[max(1, len(data) // 2) :]
        if fault is Fault.BIT_FLIP:
            data[len(data) // 2] ^= 0x10
        content = self._open[fd].data
        if len(content) < position:
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data
        if fault is Fault.TORN_CRASH:
            raise PowerLoss
        if fault is Fault.ENOSPC:
            raise OSError(errno.ENOSPC, "simulated full disk")
        return len(data)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        if self.fail_reads:
            raise OSError(errno.EIO, "simulated I/O error")
        return bytes(self._open[fd].data[position : position + size])

    def size(self, fd: int) -> int:
        return len(self._open[fd].data)

    def identity(self, fd: int) -> int:
        return id(self._open[fd])

    def truncate(self, fd: int, size: int) -> None:
        self._strike_metadata()
        del self._open[fd].data[size:]

    def fdatasync(self, fd: int) -> None:
        self._strike_metadata()
        inode = self._open[fd]
        inode.synced = bytes(inode.data)

    def fsync_dir(self, path: Path | Directory) -> None:
        self._strike_metadata()
        self._synced_names = dict(self._names)
        self._journal.clear()

    def rename(self, source: Path | Entry, target: Path | Entry) -> None:
        source, target = self._located(source), self._located(target)
        if source not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(source))
        self._strike_metadata()
        self._names[target] = self._names.pop(source)
        self._changed()

    def unlink(self, path: Path | Entry) -> None:
        path = self._located(path)
        if path in self._names:
            self._strike_metadata()
            del self._names[path]
            self._changed()

    def mkdir(self, path: Path) -> None:
        pass

    def listdir(self, path: Path | Directory) -> list[str]:
        within = path.path if isinstance(path, Directory) else path
        return sorted(name.name for name in self._names if name.parent == within)

    def read_file(self, path: Path | Entry) -> bytes:
        path = self._located(path)
        try:
            return bytes(self._names[path].data)
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path)) from None

    def mtime_ms(self, path: Path | Entry) -> int:
        return self.clock_ms

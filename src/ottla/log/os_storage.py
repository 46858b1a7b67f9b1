"""The operating system's files: the `Storage` of a node.

What systems have beside POSIX is used where it is there, and does without it elsewhere: durable
writes of one call, one sync for a whole file system, a look at the page cache, maps.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import threading
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.log.storage import MAX_IOVECS, Buffer, Directory, Entry, Storage, without

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FILE_MODE: Final = 0o600  # records are for who runs the broker
DIRECTORY_MODE: Final = 0o700
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
# A disk is read ahead in stretches of about this size: one byte of each tells of the others.
CACHE_SAMPLE: Final = 128 * 1024
_ADVISES: Final = hasattr(os, "posix_fadvise")  # macOS does not have it
_DSYNC: Final = getattr(os, "RWF_DSYNC", 0)  # only Linux has it
GROWTH_CHUNK: Final = 1 << 16  # of a file that grows while it is read
# An overlay's upper layer, where files that are written live, is a local file system.
MAPPED_FILE_SYSTEMS: Final = frozenset(
    {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
)
_mappable: dict[int, bool] = {}  # by device
_WITHOUT_FD: Final[dict[str, Any]] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


class _Thread(threading.local):
    """Whether the syncs of this thread are put off to the end of `together`."""

    syncs_later = False


_thread = _Thread()


@cache
def _syncfs() -> Callable[[int], None] | None:
    """Sync a whole file system; None where that does not exist or does not tell of errors."""
    release = os.uname().release.split(".")
    if sys.platform != "linux" or (int(release[0]), int(release[1].partition("-")[0])) < (5, 8):
        return None
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None

    def syncfs(fd: int) -> None:
        if call(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), "syncfs")

    return syncfs


def _may_be_mapped(fd: int) -> bool:
    """Whether the file is on storage that does not lose pages while the system runs."""
    device = os.fstat(fd).st_dev
    found = _mappable.get(device)
    if found is None:
        try:
            found = _file_system(fd) in MAPPED_FILE_SYSTEMS
        except OSError:  # there is no /proc
            found = False
        _mappable[device] = found
    return found


def _file_system(fd: int) -> str:
    """Its name; an empty one if the mount is not known."""
    about = Path(f"/proc/self/fdinfo/{fd}").read_text()
    mount = re.search(r"^mnt_id:\s*(\d+)$", about, re.MULTILINE)
    if mount is None:
        return ""
    mounts = Path("/proc/self/mountinfo").read_text()
    line = re.search(rf"^{mount[1]} .* - (\S+) ", mounts, re.MULTILINE)
    return "" if line is None else line[1]


class OsStorage(Storage):
    """The operating system's files."""

    def open(self, path: Path | Entry, *, create: bool) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
        with _located(path) as (name, within):
            return os.open(name, flags, FILE_MODE, dir_fd=within)

    def open_directory(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close_directory(self, fd: int) -> None:
        os.close(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwritev(self, fd: int, chunks: Sequence[Buffer], position: int) -> int:
        if len(chunks) == 1:
            return os.pwrite(fd, chunks[0], position)
        return os.pwritev(fd, chunks, position)

    def write_durably(self, fd: int, chunks: Sequence[Buffer], position: int) -> None:
        # The flag speaks of the range of its own call: several calls need a sync after them.
        if _DSYNC and len(chunks) <= MAX_IOVECS:
            written = os.pwritev(fd, chunks, position, _DSYNC)
            total = sum(map(len, chunks))
            if written == total:
                return
            chunks, position = without(chunks, written), position + written
        super().write_durably(fd, chunks, position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return os.pread(fd, size, position)

    def free_bytes(self, path: Path) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def is_cached(self, fd: int, start: int, size: int) -> bool | None:
        if not _NOWAIT:
            return None
        byte = bytearray(1)
        last = start + max(size, 1) - 1
        for position in (*range(start, last, CACHE_SAMPLE), last):
            try:
                os.preadv(fd, [byte], position, _NOWAIT)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno == errno.EOPNOTSUPP:
                    return None
                raise
        return True

    def will_need(self, fd: int, start: int, size: int) -> None:
        if _ADVISES:
            os.posix_fadvise(fd, start, size, os.POSIX_FADV_WILLNEED)

    def map(self, fd: int, start: int, size: int) -> memoryview | None:
        if not _may_be_mapped(fd):
            return None
        import mmap

        try:
            return memoryview(
                mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ, offset=start, **_WITHOUT_FD)
            )
        except (OSError, ValueError):  # no descriptor is free, or somebody has cut the file
            return None

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def identity(self, fd: int) -> int:
        return os.fstat(fd).st_ino

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        if not _thread.syncs_later:
            os.fdatasync(fd)

    @contextmanager
    def together(self, fd: int) -> Iterator[None]:
        syncfs = _syncfs()
        if syncfs is None:
            yield
            return
        _thread.syncs_later = True
        try:
            yield
        finally:
            _thread.syncs_later = False
        syncfs(fd)

    def exchange_file(self, path: Path | Entry, data: bytes) -> None:
        """Its order of sync and rename is the point of it: nothing is put off here."""
        later, _thread.syncs_later = _thread.syncs_later, False
        try:
            super().exchange_file(path, data)
        finally:
            _thread.syncs_later = later

    def fsync_dir(self, path: Path | Directory) -> None:
        if _thread.syncs_later:
            return
        if isinstance(path, Directory):
            with path.opened() as fd:
                os.fsync(fd)
            return
        fd = self.open_directory(path)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path | Entry, target: Path | Entry) -> None:
        with _located(source) as (old, old_within), _located(target) as (new, new_within):
            os.rename(old, new, src_dir_fd=old_within, dst_dir_fd=new_within)

    def unlink(self, path: Path | Entry) -> None:
        with _located(path) as (name, within), suppress(FileNotFoundError):
            os.unlink(name, dir_fd=within)

    def mkdir(self, path: Path) -> None:
        path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)

    def listdir(self, path: Path | Directory) -> list[str]:
        if isinstance(path, Directory):
            with path.opened() as fd:
                return sorted(os.listdir(fd))  # noqa: PTH208
        return sorted(os.listdir(path))  # noqa: PTH208

    def read_file(self, path: Path | Entry) -> bytes:
        with _located(path) as (name, within):
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=within)
        try:
            size = os.fstat(fd).st_size
            parts = [os.read(fd, size + 1)]
            while sum(map(len, parts)) > size:  # it has grown since
                size += GROWTH_CHUNK
                parts.append(os.read(fd, GROWTH_CHUNK))
            return b"".join(parts)
        finally:
            os.close(fd)

    def mtime_ms(self, path: Path | Entry) -> int:
        with _located(path) as (name, within):
            return os.stat(name, dir_fd=within).st_mtime_ns // 1_000_000


@contextmanager
def _located(path: Path | Entry) -> Iterator[tuple[str | Path, int | None]]:
    """A name and the descriptor of the directory that it is in."""
    if isinstance(path, Entry):
        with path.parent.opened() as within:
            yield path.name, within
    else:
        yield path, None

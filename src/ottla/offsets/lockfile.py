"""Positions in files, one per key, correct across threads and processes.

A save holds the key's lock, reads what is stored, decides, and either adds a line to the data file
and syncs it (`layouts` says when), or writes a temporary file, syncs it, renames it over the data
file and syncs the directory; a crash at any point leaves the old value or the new one. A load takes
no lock, because a rename is atomic and a line that is not whole does not count, and there is no
cache: what another process has saved is seen by the next load. What cannot be read is reported,
never taken for "no position". I/O errors come as the `OSError` they are, and the old value stays.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from ottla.offsets import files
from ottla.offsets.errors import OffsetCorrupt, OffsetError, OffsetLockTimeout
from ottla.offsets.files import Durability, OpenDirectory
from ottla.offsets.layouts import (
    LOCK_SUFFIX,
    LONG_MARK,
    MAX_FILE_BYTES,
    MAX_GROUP,
    OFFSET_SUFFIX,
    V1,
    Lance,
    Malformed,
    part,
    quote,
)
from ottla.offsets.rules import Stored, current, decide, saved, wish, wishes
from ottla.offsets.threaded import ThreadedOffsetStore
from ottla.offsets.types import UNSET

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

    from ottla.offsets.rules import Wish
    from ottla.offsets.types import CommitInfo, Expected, OffsetKey

DEFAULT_LOCK_TIMEOUT: Final = 10.0
NAME_FILE: Final = "consumer.name"
"""Holds the quoted name of a consumer whose directory could not be named so."""

_logger = logging.getLogger(__name__)


class OnCorrupt(Enum):
    """What to do with a file that holds no position."""

    RAISE = "raise"
    QUARANTINE = "quarantine"
    """Rename it to `*.corrupt-<ns>`, warn, and go on as if there had never been a position."""


class SyncLockFileOffsetStore:
    """One file per key below `base_dir`."""

    def __init__(
        self,
        base_dir: str | os.PathLike[str],
        layout: V1 | Lance | None = None,
        *,
        durability: Durability = Durability.FSYNC,
        lock_timeout: float = DEFAULT_LOCK_TIMEOUT,
        on_corrupt: OnCorrupt = OnCorrupt.RAISE,
        exclusive: bool = False,
    ) -> None:
        """`exclusive`: a key, once used, stays locked until `close`, for a single consumer."""
        self.base_dir = Path(base_dir)
        self.layout = layout or V1()
        self._durability = durability
        self._lock_timeout = lock_timeout
        self._on_corrupt = on_corrupt
        self._exclusive = exclusive
        self._process = os.getpid()
        self._numbers = itertools.count()
        self._guard = threading.Lock()
        self._thread_locks: dict[str, threading.Lock] = {}
        self._held: dict[str, int] = {}

    def load(self, key: OffsetKey, *, epoch: str | None = None) -> int | None:
        self._check_process()
        directory = self._directory(key)
        name = self.layout.stem(key) + OFFSET_SUFFIX
        if self._exclusive and directory.is_dir():
            with self._opened(directory) as opened, self._locked(opened, [name]):
                data = opened.read(name, MAX_FILE_BYTES)
                return current(key, self._stored(key, name, opened, data), epoch)
        data = files.read(f"{directory}/{name}", MAX_FILE_BYTES)
        entry = self._entry(key.consumer, directory, name, data)
        return None if entry is None else current(key, entry[1], epoch)

    def save(
        self,
        key: OffsetKey,
        position: int,
        *,
        expected: Expected = UNSET,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> CommitInfo:
        return self._save({key: wish(position, expected, rewind, epoch)})[0]

    def save_many(
        self,
        items: Mapping[OffsetKey, int],
        *,
        expected: Mapping[OffsetKey, int | None] | None = None,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> list[CommitInfo]:
        """One group commit. A crash may keep some of the keys; each of them is old or new."""
        return self._save(wishes(items, expected, rewind, epoch))

    def delete(self, key: OffsetKey) -> bool:
        self._check_process()
        directory = self._directory(key)
        name = self.layout.stem(key) + OFFSET_SUFFIX
        if not directory.is_dir():
            return False
        with self._opened(directory) as opened, self._locked(opened, [name]):
            found = opened.remove(name)
            opened.sync()
        return found

    def list_all(self, consumer: str | None = None) -> dict[OffsetKey, int]:
        self._check_process()
        found = {}
        for owner, directory in self._consumers(consumer):
            for name in sorted(_names(directory)):
                if not name.endswith(OFFSET_SUFFIX):
                    continue
                if isinstance(self.layout, Lance) and self.layout.key(name) is None:
                    continue
                data = files.read(f"{directory}/{name}", MAX_FILE_BYTES)
                entry = self._entry(owner, directory, name, data)
                if entry is not None and consumer in {None, entry[0].consumer}:
                    found[entry[0]] = entry[1].position
        return found

    def close(self) -> None:
        """Give back the locks an exclusive store holds."""
        with self._guard:
            held, self._held = self._held, {}
        for descriptor in held.values():
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _save(self, wanted: Mapping[OffsetKey, Wish]) -> list[CommitInfo]:
        self._check_process()
        by_directory: dict[Path, dict[OffsetKey, str]] = {}
        for key in wanted:
            name = self.layout.stem(key) + OFFSET_SUFFIX
            by_directory.setdefault(self._directory(key), {})[key] = name
        before: dict[OffsetKey, Stored | None] = {}
        contents: dict[Path, dict[str, bytes | None]] = {}
        with contextlib.ExitStack() as held:
            opened = {}
            # In the order of their names, so that no two savers can deadlock.
            for directory, names in sorted(by_directory.items()):
                self._make_directory(directory, next(iter(names)).consumer)
                opened[directory] = held.enter_context(self._opened(directory))
                held.enter_context(self._locked(opened[directory], sorted(names.values())))
                found = opened[directory].read_many(names.values(), MAX_FILE_BYTES)
                for key, name in names.items():
                    before[key] = self._stored(key, name, opened[directory], found[name])
                contents[directory] = found
            after = {key: decide(key, before[key], each) for key, each in wanted.items()}
            for directory, names in by_directory.items():
                new = {name: (key, to) for key, name in names.items() if (to := after[key])}
                if new:
                    self._clean(opened[directory], new)
                    if not self._add(opened[directory], new, contents[directory]):
                        self._write(opened[directory], new)
        return [saved(key, before[key], to) for key, to in after.items()]

    def _clean(self, directory: OpenDirectory, new: Mapping[str, object]) -> None:
        """Remove what a process has left that was killed in a save of these files."""
        stems = {name.removesuffix(OFFSET_SUFFIX) for name in new}
        for leftover in directory.names():
            if self.layout.stem_of_temporary(leftover) in stems:
                directory.remove(leftover)

    def _add(
        self,
        directory: OpenDirectory,
        new: Mapping[str, tuple[OffsetKey, Stored]],
        contents: Mapping[str, bytes | None],
    ) -> bool:
        """Add a line to the one data file there is to write, if it is of the kind that grows."""
        if len(new) != 1:
            return False
        [(name, entry)] = new.items()
        data = contents[name]
        if data is None:
            return False
        addition = self.layout.addition(name.removesuffix(OFFSET_SUFFIX), data, entry)
        if addition is None or directory.is_shared(name):
            return False
        if addition.is_first:
            # Whoever renamed the file here may have been killed before it was recorded.
            directory.sync()
        directory.add(name, addition.line, len(data))
        return True

    def _write(self, directory: OpenDirectory, new: Mapping[str, tuple[OffsetKey, Stored]]) -> None:
        """Write data files, given by their names, whose locks are held."""
        temporary = self.layout.temporary
        stems = {name.removesuffix(OFFSET_SUFFIX): name for name in new}
        unique = f"{self._process}.{next(self._numbers)}"
        staged = {temporary(stem, unique): name for stem, name in stems.items()}
        size = MAX_GROUP if self.layout.shares_files else 1
        try:
            for start in range(0, len(staged), size):
                group = list(staged)[start : start + size]
                directory.stage(group, self.layout.encode([new[staged[name]] for name in group]))
            for name, final in staged.items():
                directory.replace(name, final)
        except BaseException:
            for name in staged:
                with contextlib.suppress(OSError):
                    directory.remove(name)
            raise
        directory.sync()

    def _stored(
        self, key: OffsetKey, name: str, directory: OpenDirectory, data: bytes | None
    ) -> Stored | None:
        entry = self._locked_entry(key.consumer, name, directory, data)
        return None if entry is None else entry[1]

    def _locked_entry(
        self, consumer: str, name: str, directory: OpenDirectory, data: bytes | None
    ) -> tuple[OffsetKey, Stored] | None:
        """What was read from a file whose lock is held."""
        try:
            return self._decode(consumer, directory.path, name, data)
        except OffsetCorrupt as corrupt:
            if self._on_corrupt is OnCorrupt.RAISE:
                raise
            evidence = f"{name}.corrupt-{time.time_ns()}"
            directory.replace(name, evidence)
            directory.sync()
            _logger.warning("%s; kept as %s, the position is gone", corrupt, evidence)
            return None

    def _entry(
        self, consumer: str, directory: Path, name: str, data: bytes | None
    ) -> tuple[OffsetKey, Stored] | None:
        """What was read without a lock."""
        try:
            return self._decode(consumer, directory, name, data)
        except OffsetCorrupt:
            if self._on_corrupt is OnCorrupt.RAISE:
                raise
        # Another process may save a good value before we have the lock, so it is read again.
        with self._opened(directory) as opened, self._locked(opened, [name]):
            data = opened.read(name, MAX_FILE_BYTES)
            return self._locked_entry(consumer, name, opened, data)

    def _decode(
        self, consumer: str, directory: Path, name: str, data: bytes | None
    ) -> tuple[OffsetKey, Stored] | None:
        if data is None:
            return None
        if len(data) > MAX_FILE_BYTES:
            raise OffsetCorrupt(directory / name, f"it has more than {MAX_FILE_BYTES} bytes")
        try:
            return self.layout.decode(consumer, name.removesuffix(OFFSET_SUFFIX), data)
        except Malformed as error:
            raise OffsetCorrupt(directory / name, str(error)) from None

    def _make_directory(self, path: Path, consumer: str) -> None:
        files.make_directory(path, self._durability)
        if LONG_MARK not in path.name or isinstance(self.layout, Lance):
            return
        if not (path / NAME_FILE).exists():
            temporary = f".{NAME_FILE}.{self._process}.{next(self._numbers)}"
            with self._opened(path) as directory:
                directory.stage([temporary], quote(consumer).encode() + b"\n")
                directory.replace(temporary, NAME_FILE)
                directory.sync()

    def _consumers(self, consumer: str | None) -> Iterator[tuple[str, Path]]:
        """(name, directory) of each consumer that has been saved."""
        if isinstance(self.layout, Lance):
            yield "", self.base_dir / self.layout.name
        elif consumer is not None:
            yield consumer, self.base_dir / part(consumer)
        else:
            for name in sorted(_names(self.base_dir)):
                directory = self.base_dir / name
                if directory.is_dir() and (found := _consumer_of(directory)) is not None:
                    yield found, directory

    def _directory(self, key: OffsetKey) -> Path:
        return self.base_dir / self.layout.directory(key.consumer)

    def _opened(self, directory: Path) -> OpenDirectory:
        return OpenDirectory(directory, self._durability)

    @contextlib.contextmanager
    def _locked(self, directory: OpenDirectory, names: Sequence[str]) -> Iterator[None]:
        """The locks of these data files, taken in this order."""
        taken: list[threading.Lock] = []
        descriptors: list[int] = []
        try:
            for name in names:
                lock = name.removesuffix(OFFSET_SUFFIX) + LOCK_SUFFIX
                path = f"{directory.path}/{lock}"
                with self._guard:
                    thread_lock = self._thread_locks.setdefault(path, threading.Lock())
                # Threads of this process take turns without asking the file again and again.
                if not thread_lock.acquire(timeout=self._lock_timeout):
                    raise OffsetLockTimeout(Path(path), self._lock_timeout)
                taken.append(thread_lock)
                if path in self._held:
                    continue
                descriptor = directory.lock(lock, self._lock_timeout)
                if self._exclusive:
                    self._held[path] = descriptor
                else:
                    descriptors.append(descriptor)
            yield
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            for thread_lock in taken:
                thread_lock.release()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise OffsetError(
                "this store was opened before a fork and shares its locks with the parent; "
                "open a new one in the child"
            )


class LockFileOffsetStore(ThreadedOffsetStore[SyncLockFileOffsetStore]):
    """One file per key below `base_dir`, for asyncio."""

    def __init__(
        self,
        base_dir: str | os.PathLike[str],
        layout: V1 | Lance | None = None,
        *,
        durability: Durability = Durability.FSYNC,
        lock_timeout: float = DEFAULT_LOCK_TIMEOUT,
        on_corrupt: OnCorrupt = OnCorrupt.RAISE,
        exclusive: bool = False,
    ) -> None:
        super().__init__(
            SyncLockFileOffsetStore(
                base_dir,
                layout,
                durability=durability,
                lock_timeout=lock_timeout,
                on_corrupt=on_corrupt,
                exclusive=exclusive,
            )
        )

    @property
    def base_dir(self) -> Path:
        return self.sync.base_dir

    @property
    def layout(self) -> V1 | Lance:
        return self.sync.layout


def _names(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]
    except FileNotFoundError:
        return []


def _consumer_of(directory: Path) -> str | None:
    """The consumer a directory belongs to; None if the directory is not of this store."""
    quoted = directory.name
    if LONG_MARK in quoted:
        path = directory / NAME_FILE
        data = files.read(str(path), MAX_FILE_BYTES)
        if data is None:
            raise OffsetCorrupt(path, "it is missing, so the consumer's name is not known")
        quoted = data.decode("ascii", "replace").strip()
    consumer = unquote(quoted)
    return consumer if part(consumer) == directory.name else None

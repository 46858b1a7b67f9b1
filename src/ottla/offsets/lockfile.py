"""Positions in files, one per key, correct across threads and processes.

A save holds the key's lock, reads what is stored, decides, writes a temporary file, syncs it,
renames it over the data file and syncs the directory; a crash at any point leaves the old value or
the new one. A load takes no lock, because a rename is atomic, and there is no cache: what another
process has saved is seen by the next load. What cannot be read is reported, never taken for "no
position". I/O errors come as the `OSError` they are, and the old value stays.
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
from ottla.offsets.files import Durability, DurableDirectory
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
    from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        self._thread_locks: dict[Path, threading.Lock] = {}
        self._held: dict[Path, int] = {}

    def load(self, key: OffsetKey, *, epoch: str | None = None) -> int | None:
        self._check_process()
        if self._exclusive:
            with self._locked([key]):
                return current(key, self._stored(key, locked=True), epoch)
        return current(key, self._stored(key, locked=False), epoch)

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
        directory = self._directory(key.consumer)
        if not directory.path.is_dir():
            return False
        with self._locked([key]):
            found = directory.remove(self.layout.stem(key) + OFFSET_SUFFIX)
            directory.sync()
        return found

    def list_all(self, consumer: str | None = None) -> dict[OffsetKey, int]:
        self._check_process()
        found = {}
        for name, directory in self._consumers(consumer):
            for file_name in sorted(_names(directory)):
                if not file_name.endswith(OFFSET_SUFFIX):
                    continue
                if isinstance(self.layout, Lance) and self.layout.key(file_name) is None:
                    continue
                entry = self._entry(name, directory / file_name, locked=False)
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
        for consumer in {key.consumer for key in wanted}:
            self._make_directory(consumer)
        with self._locked(wanted):
            before = {key: self._stored(key, locked=True) for key in wanted}
            after = {key: decide(key, before[key], each) for key, each in wanted.items()}
            self._write([(key, new) for key, new in after.items() if new is not None])
        return [saved(key, before[key], new) for key, new in after.items()]

    def _write(self, entries: Sequence[tuple[OffsetKey, Stored]]) -> None:
        by_directory: dict[str, list[tuple[OffsetKey, Stored]]] = {}
        for entry in entries:
            by_directory.setdefault(self.layout.directory(entry[0].consumer), []).append(entry)
        for same in by_directory.values():
            self._write_directory(self._directory(same[0][0].consumer), same)

    def _write_directory(
        self, directory: DurableDirectory, entries: Sequence[tuple[OffsetKey, Stored]]
    ) -> None:
        stems = {self.layout.stem(key): (key, stored) for key, stored in entries}
        self._remove_leftovers(directory, stems)
        unique = f"{self._process}.{next(self._numbers)}"
        temporaries = {stem: self.layout.temporary(stem, unique) for stem in stems}
        size = MAX_GROUP if self.layout.shares_files else 1
        try:
            for start in range(0, len(stems), size):
                group = list(stems)[start : start + size]
                data = self.layout.encode([stems[stem] for stem in group])
                directory.stage([temporaries[stem] for stem in group], data)
            for stem, temporary in temporaries.items():
                directory.replace(temporary, stem + OFFSET_SUFFIX)
        except BaseException:
            for temporary in temporaries.values():
                with contextlib.suppress(OSError):
                    directory.remove(temporary)
            raise
        directory.sync()

    def _remove_leftovers(self, directory: DurableDirectory, stems: Mapping[str, object]) -> None:
        """What a process left that was killed in a save of these keys, whose locks we hold."""
        for name in _names(directory.path):
            if self.layout.stem_of_temporary(name) in stems:
                directory.remove(name)

    def _stored(self, key: OffsetKey, *, locked: bool) -> Stored | None:
        path = self._path(key, OFFSET_SUFFIX)
        entry = self._entry(key.consumer, path, locked=locked)
        return None if entry is None else entry[1]

    def _entry(self, consumer: str, path: Path, *, locked: bool) -> tuple[OffsetKey, Stored] | None:
        try:
            return self._decode(consumer, path)
        except OffsetCorrupt:
            if self._on_corrupt is OnCorrupt.RAISE:
                raise
        with contextlib.nullcontext() if locked else self._path_locked(path):
            # Another process may have saved a good value before we had the lock.
            try:
                return self._decode(consumer, path)
            except OffsetCorrupt as corrupt:
                self._quarantine(path, corrupt)
                return None

    def _decode(self, consumer: str, path: Path) -> tuple[OffsetKey, Stored] | None:
        data = files.read(path, MAX_FILE_BYTES)
        if data is None:
            return None
        if len(data) > MAX_FILE_BYTES:
            raise OffsetCorrupt(path, f"it has more than {MAX_FILE_BYTES} bytes")
        try:
            return self.layout.decode(consumer, path.name.removesuffix(OFFSET_SUFFIX), data)
        except Malformed as error:
            raise OffsetCorrupt(path, str(error)) from None

    def _quarantine(self, path: Path, corrupt: OffsetCorrupt) -> None:
        evidence = f"{path.name}.corrupt-{time.time_ns()}"
        directory = DurableDirectory(path.parent, self._durability)
        directory.replace(path.name, evidence)
        directory.sync()
        _logger.warning("%s; kept as %s, the position is gone", corrupt, evidence)

    def _make_directory(self, consumer: str) -> None:
        directory = self._directory(consumer)
        directory.make()
        if LONG_MARK not in directory.path.name or isinstance(self.layout, Lance):
            return
        if not (directory.path / NAME_FILE).exists():
            temporary = f".{NAME_FILE}.{self._process}.{next(self._numbers)}"
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

    def _directory(self, consumer: str) -> DurableDirectory:
        path = self.base_dir / self.layout.directory(consumer)
        return DurableDirectory(path, self._durability)

    def _path(self, key: OffsetKey, suffix: str) -> Path:
        return self._directory(key.consumer).path / (self.layout.stem(key) + suffix)

    @contextlib.contextmanager
    def _locked(self, keys: Iterable[OffsetKey]) -> Iterator[None]:
        """All the locks, taken in the order of their names so that no two savers can deadlock."""
        with contextlib.ExitStack() as held:
            for path in sorted(self._path(key, OFFSET_SUFFIX) for key in keys):
                held.enter_context(self._path_locked(path))
            yield

    @contextlib.contextmanager
    def _path_locked(self, data: Path) -> Iterator[None]:
        path = data.with_name(data.name.removesuffix(OFFSET_SUFFIX) + LOCK_SUFFIX)
        with self._guard:
            thread_lock = self._thread_locks.setdefault(path, threading.Lock())
        # Threads of this process take turns without asking the file again and again.
        if not thread_lock.acquire(timeout=self._lock_timeout):
            raise OffsetLockTimeout(path, self._lock_timeout)
        try:
            if path in self._held:
                yield
                return
            descriptor = files.lock(path, self._lock_timeout)
            if self._exclusive:
                self._held[path] = descriptor
                yield
                return
            try:
                yield
            finally:
                os.close(descriptor)
        finally:
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
        data = files.read(path, MAX_FILE_BYTES)
        if data is None:
            raise OffsetCorrupt(path, "it is missing, so the consumer's name is not known")
        quoted = data.decode("ascii", "replace").strip()
    consumer = unquote(quoted)
    return consumer if part(consumer) == directory.name else None

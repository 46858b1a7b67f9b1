"""Positions in files, one per key, correct across threads and processes.

A save holds the key's lock, reads what is stored, decides, and either adds to the data file and
syncs it (`layouts` says when), or writes a temporary file, syncs it, renames it over the data file
and syncs the directory; a crash at any point leaves the old value or the new one. Keys that are
saved together share one file; adding to it needs the locks of all its names. A load takes no lock,
because a rename is atomic and an incomplete addition is ignored. There is no cache: the next load
sees positions saved by another process. An unreadable file is an error, never "no position". An
`OSError` is raised as `OffsetStoreError`, and the old value stays.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.clock import SYSTEM
from ottla.offsets import files
from ottla.offsets.directories import ConsumerDirectories, names
from ottla.offsets.errors import OffsetCorrupt, OffsetError, OffsetStoreError, wrapped
from ottla.offsets.files import Durability, OpenDirectory
from ottla.offsets.layouts import (
    MAX_FILE_BYTES,
    MAX_GROUP,
    OFFSET_SUFFIX,
    V1,
    Lance,
    Malformed,
)
from ottla.offsets.locks import KeyLocks
from ottla.offsets.rules import Stored, current, decide, saved, wish, wishes
from ottla.offsets.threaded import ThreadedOffsetStore
from ottla.offsets.types import (
    UNSET,
    check_consumer,
    check_epoch,
    check_flag,
    check_instance,
    check_key,
    check_path,
    check_seconds,
    member,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Self

    from ottla.offsets.files import Found
    from ottla.offsets.rules import Wish
    from ottla.offsets.types import CommitInfo, Expected, OffsetKey

DEFAULT_LOCK_TIMEOUT: Final = 10.0

_logger = logging.getLogger(__name__)


class OnCorrupt(Enum):
    """What to do with a damaged file: raise `OffsetCorrupt`, or set the file aside."""

    RAISE = "raise"
    QUARANTINE = "quarantine"
    """Rename it to `*.corrupt-<ns>`, log a warning, and continue without a position."""


@dataclass(slots=True)
class _Task:
    """One key of a save: the request, the stored value, the new value."""

    key: OffsetKey
    wanted: Wish
    stem: str
    found: Found | None = None
    before: Stored | None = None
    after: Stored | None = None
    """None if nothing changes."""

    @property
    def name(self) -> str:
        return self.stem + OFFSET_SUFFIX

    @property
    def entry(self) -> tuple[OffsetKey, Stored]:
        stored = self.after or self.before
        assert stored is not None  # what is not stored yet does change
        return self.key, stored


class SyncLockFileOffsetStore:
    """Positions in files below `base_dir`, one file per key; blocking.

    `layout` is `V1()` (default) or `Lance(name)`. `durability="rename"` leaves out syncs. A key
    locked by another process for `lock_timeout` seconds raises `OffsetLockTimeout`. With
    `exclusive` a key stays locked from its first use until `close`.
    """

    def __init__(
        self,
        base_dir: str | os.PathLike[str],
        layout: V1 | Lance | None = None,
        *,
        durability: Durability | str = Durability.FSYNC,
        lock_timeout: float = DEFAULT_LOCK_TIMEOUT,
        on_corrupt: OnCorrupt | str = OnCorrupt.RAISE,
        exclusive: bool = False,
    ) -> None:
        """The first save creates the directory; a path that cannot be one is refused here."""
        check_path("base_dir", base_dir)
        if layout is not None:
            check_instance("layout", layout, (V1, Lance), "V1() or Lance(name)")
        check_seconds("lock_timeout", lock_timeout)
        check_flag("exclusive", exclusive)
        self.base_dir = Path(base_dir)
        nearest = next(
            each for each in (self.base_dir, *self.base_dir.absolute().parents) if each.exists()
        )
        if not nearest.is_dir():
            raise OffsetStoreError(
                f"{self._name}: {nearest} is a file, name a directory "
                f"(a database of SQLite is sqlite:///{nearest})"
            )
        self.layout = layout or V1()
        self._directories = ConsumerDirectories(
            self.base_dir, self.layout, member(Durability, "durability", durability)
        )
        self._on_corrupt = member(OnCorrupt, "on_corrupt", on_corrupt)
        self._exclusive = exclusive
        self._locks = KeyLocks(lock_timeout, exclusive=exclusive)
        self._process = os.getpid()
        self._numbers = itertools.count()

    @wrapped
    def load(self, key: OffsetKey, *, epoch: str | None = None) -> int | None:
        check_key(key)
        check_epoch(epoch)
        self._check_process()
        directory = self._directories.of(key.consumer)
        stem = self.layout.stem(key)
        name = stem + OFFSET_SUFFIX
        if self._exclusive and directory.is_dir():
            with self._directories.opened(directory) as opened, self._locks.held(opened, [stem]):
                data = opened.read(name, MAX_FILE_BYTES)
                return current(key, self._stored(key, name, opened, data), epoch)
        data = files.read(f"{directory}/{name}", MAX_FILE_BYTES)
        entry = self._entry(key.consumer, directory, name, data)
        return None if entry is None else current(key, entry[1], epoch)

    @wrapped
    def save(
        self,
        key: OffsetKey,
        position: int,
        *,
        expected: Expected = UNSET,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> CommitInfo:
        check_key(key)
        return self._save({key: wish(position, expected, rewind, epoch)})[0]

    @wrapped
    def save_many(
        self,
        items: Mapping[OffsetKey, int],
        *,
        expected: Mapping[OffsetKey, int | None] | None = None,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> list[CommitInfo]:
        """Save several positions with two syncs; a crash leaves each key old or new."""
        return self._save(wishes(items, expected, rewind, epoch))

    @wrapped
    def delete(self, key: OffsetKey) -> bool:
        check_key(key)
        self._check_process()
        directory = self._directories.of(key.consumer)
        stem = self.layout.stem(key)
        if not directory.is_dir():
            return False
        with self._directories.opened(directory) as opened, self._locks.held(opened, [stem]):
            found = opened.remove(stem + OFFSET_SUFFIX)
            opened.sync()
        return found

    @wrapped
    def list_all(self, consumer: str | None = None) -> dict[OffsetKey, int]:
        check_consumer(consumer)
        self._check_process()
        found = {}
        for owner, directory in self._directories.all(consumer):
            for name in sorted(names(directory)):
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
        """Release the locks of an exclusive store."""
        self._locks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def _name(self) -> str:
        return f"offsets in {self.base_dir}"

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        return (OSError,)

    def _save(self, wanted: Mapping[OffsetKey, Wish]) -> list[CommitInfo]:
        self._check_process()
        tasks = [_Task(key, each, self.layout.stem(key)) for key, each in wanted.items()]
        by_directory: dict[str, list[_Task]] = {}
        for task in tasks:
            by_directory.setdefault(self.layout.directory(task.key.consumer), []).append(task)
        with contextlib.ExitStack() as held:
            opened = {}
            # In the order of their names, so that no two savers can deadlock.
            for name, here in sorted(by_directory.items()):
                path = self.base_dir / name
                self._directories.make(path, here[0].key.consumer, self._unique())
                opened[name] = directory = held.enter_context(self._directories.opened(path))
                held.enter_context(self._locks.held(directory, [task.stem for task in here]))
                self._read(directory, here)
            for task in tasks:
                task.after = decide(task.key, task.before, task.wanted)
            for name, here in by_directory.items():
                if any(task.after for task in here):
                    self._clean(opened[name], here)
                    if not self._add(opened[name], here):
                        self._write(opened[name], here)
        return [saved(task.key, task.before, task.after) for task in tasks]

    def _read(self, directory: OpenDirectory, tasks: Sequence[_Task]) -> None:
        found = directory.read_many([task.name for task in tasks], MAX_FILE_BYTES)
        for task, file in zip(tasks, found, strict=True):
            task.found = file
            data = None if file is None else file.data
            task.before = self._stored(task.key, task.name, directory, data)

    def _clean(self, directory: OpenDirectory, tasks: Iterable[_Task]) -> None:
        """Delete temporary files that a killed process left."""
        stems = {task.stem for task in tasks}
        for leftover in directory.names():
            if self.layout.stem_of_temporary(leftover) in stems:
                directory.remove(leftover)

    def _add(self, directory: OpenDirectory, tasks: Sequence[_Task]) -> bool:
        """Add to the files there are, if that is all there is to write and they may grow."""
        groups: dict[int, list[_Task]] = {}
        for task in tasks:
            if task.before is None or task.found is None:
                return False
            groups.setdefault(task.found.inode, []).append(task)
        if len(groups) > math.ceil(len(tasks) / MAX_GROUP):
            return False  # in one file they cost one sync
        additions = []
        for here in groups.values():
            found = here[0].found
            # A file may be written only if all of its names are locked.
            if found is None or found.names != len(here):
                return False
            addition = self.layout.addition(found.data, {task.stem: task.entry for task in here})
            if addition is None:
                return False
            additions.append((here[0].name, addition, len(found.data)))
        if any(addition.is_first for _, addition, _ in additions):
            # The process that renamed the file may have been killed before it synced the directory.
            directory.sync()
        for name, addition, end in additions:
            directory.add(name, addition.block, end)
        return True

    def _write(self, directory: OpenDirectory, tasks: Sequence[_Task]) -> None:
        """Write new data files, of those keys that change or all, to keep a group together."""
        size = MAX_GROUP if self.layout.shares_files else 1
        unique = self._unique()
        staged = {
            self.layout.temporary(task.stem, unique): task
            for task in tasks
            if size > 1 or task.after is not None
        }
        try:
            for start in range(0, len(staged), size):
                group = list(staged)[start : start + size]
                directory.stage(group, self.layout.encode([staged[name].entry for name in group]))
            for name, task in staged.items():
                directory.replace(name, task.name)
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
        """Decode a file whose lock is held."""
        try:
            return self._decode(consumer, directory.path, name, data)
        except OffsetCorrupt as corrupt:
            if self._on_corrupt is OnCorrupt.RAISE:
                raise
            evidence = f"{name}.corrupt-{SYSTEM.wall_ns()}"
            directory.replace(name, evidence)
            directory.sync()
            _logger.warning("%s; renamed to %s, continuing without a position", corrupt, evidence)
            return None

    def _entry(
        self, consumer: str, directory: Path, name: str, data: bytes | None
    ) -> tuple[OffsetKey, Stored] | None:
        """Decode a file that was read without a lock."""
        try:
            return self._decode(consumer, directory, name, data)
        except OffsetCorrupt:
            if self._on_corrupt is OnCorrupt.RAISE:
                raise
        # Another process may save a good value before we have the lock, so it is read again.
        with (
            self._directories.opened(directory) as opened,
            self._locks.held(opened, [name.removesuffix(OFFSET_SUFFIX)]),
        ):
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

    def _unique(self) -> str:
        return f"{self._process}.{next(self._numbers)}"

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise OffsetError(
                "this store was opened before a fork and shares its locks with the parent; "
                "open a new one in the child"
            )


class LockFileOffsetStore(ThreadedOffsetStore[SyncLockFileOffsetStore]):
    """Positions in files below `base_dir`, for asyncio; see `SyncLockFileOffsetStore`."""

    def __init__(
        self,
        base_dir: str | os.PathLike[str],
        layout: V1 | Lance | None = None,
        *,
        durability: Durability | str = Durability.FSYNC,
        lock_timeout: float = DEFAULT_LOCK_TIMEOUT,
        on_corrupt: OnCorrupt | str = OnCorrupt.RAISE,
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

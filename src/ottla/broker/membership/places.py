"""Where the directory of a partition is, among several nodes of one machine, and how it moves.

    <root>/                                          node 1: all that a single node has
    <root>/node.<k>/                                 node k: a log directory of its own
    <root>/handover/<topic>-<partition>.<topic id>   a partition that one node has released

- A directory moves by renames alone, from a node to `handover/` and from there to another node. So
  at any time it is in exactly one place, whoever dies.
- What is in `handover/` is complete: its log was closed cleanly, everything is durable, and
  `handover.json` has the offsets of its checkpoints. A node opens it as after a clean stop.
- Whoever renames a directory holds the root's lock of moves shared. Whoever looks for one holds it
  exclusively, until it is adopted or the empty log is made: so nothing that moves is overlooked.

Every call blocks.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.handover import NOTE, DamagedNote, Note, decode_note
from ottla.cluster.layout import (
    HANDOVER,
    MOVES_LOCK,
    ROOT_NODE,
    handover_name,
    node_directory,
    node_of_directory,
    parse_handover_name,
)
from ottla.log.checkpoints import (
    PARTITION_METADATA,
    CorruptCheckpoint,
    decode_partition_metadata,
)
from ottla.log.directory import partition_name
from ottla.log.os_storage import FILE_MODE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from uuid import UUID

    from ottla.cluster.placement import Place
    from ottla.log.checkpoints import TopicPartition
    from ottla.log.directory import DataDirectory
    from ottla.log.storage import Storage


def node_path(root: Path, node_id: int) -> Path:
    """Where a node keeps its logs."""
    return root / node_directory(node_id)


def node_paths(root: Path) -> dict[int, Path]:
    """The directories of all nodes that ever ran here, by node."""
    found = {ROOT_NODE: root}
    with os.scandir(root) as entries:
        for entry in entries:
            node_id = node_of_directory(entry.name)
            if node_id is not None and entry.is_dir():
                found[node_id] = root / entry.name
    return found


def read_note(storage: Storage, path: Path) -> Note | None:
    """Of the log in `path`; None if it was never handed over. Raises DamagedNote."""
    try:
        return decode_note(storage.read_file(path / NOTE))
    except FileNotFoundError:
        return None


class Sought(NamedTuple):
    """Where partitions are that a node leads and does not have; those in none of these are new."""

    adopted: dict[TopicPartition, Note]
    """Now in the node's own directory."""
    held: dict[TopicPartition, int]
    """The node that has it."""
    damaged: dict[TopicPartition, str]
    """Why it cannot be adopted."""


class Places:
    """The directory tree as one node sees it."""

    def __init__(self, root: Path, node_id: int, storage: Storage) -> None:
        self.root = root
        self.node_id = node_id
        self.storage = storage
        self.own = node_path(root, node_id)
        self.handover = root / HANDOVER
        storage.mkdir(root)
        storage.mkdir(self.handover)

    @contextmanager
    def _moves(self, operation: int) -> Iterator[None]:
        fd = os.open(self.root / MOVES_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, operation)
            yield
        finally:
            os.close(fd)

    def entry(self, name: TopicPartition, topic_id: UUID) -> Path:
        """The path of a partition on its way."""
        return self.handover / handover_name(*name, topic_id)

    def on_their_way(self) -> dict[Place, Path]:
        """The partitions that some node has released and none has adopted."""
        names = {name: parse_handover_name(name) for name in self.storage.listdir(self.handover)}
        return {place: self.handover / name for name, place in names.items() if place is not None}

    def release(
        self, source: Path, notes: Mapping[TopicPartition, Note]
    ) -> dict[TopicPartition, OSError]:
        """Move closed, durable logs out of the directory `source`; those that failed, and why."""
        failed: dict[TopicPartition, OSError] = {}
        for name, note in notes.items():
            path = source / partition_name(*name)
            try:
                self.storage.replace_file(path / NOTE, note.encode())
                with self._moves(fcntl.LOCK_SH):
                    self.storage.rename(path, self.entry(name, note.topic_id))
            except OSError as error:
                failed[name] = error
        if len(failed) < len(notes):
            self.storage.fsync_dir(self.handover)
            self.storage.fsync_dir(source)
        return failed

    def seek(self, wanted: Mapping[TopicPartition, UUID]) -> Sought:
        """Adopt those of these partitions that are on their way."""
        sought = Sought({}, {}, {})
        with self._moves(fcntl.LOCK_EX):
            siblings = self._siblings()
            for name, topic_id in wanted.items():
                holder = self._holder(name, topic_id, siblings)
                if holder is not None:
                    sought.held[name] = holder
                else:
                    self._adopt(name, topic_id, sought)
        if sought.adopted:
            self.storage.fsync_dir(self.own)
            self.storage.fsync_dir(self.handover)
        return sought

    def _adopt(self, name: TopicPartition, topic_id: UUID, sought: Sought) -> None:
        entry = self.entry(name, topic_id)
        try:
            note = read_note(self.storage, entry)
            if note is not None and note.topic_id == topic_id:
                self.storage.rename(entry, self.own / partition_name(*name))
                sought.adopted[name] = note
            elif entry.is_dir():
                sought.damaged[name] = f"{entry} has no {NOTE} of its own"
        except (OSError, DamagedNote) as error:
            sought.damaged[name] = f"{entry} cannot be adopted: {error}"

    def create(
        self, directory: DataDirectory, wanted: Mapping[TopicPartition, UUID]
    ) -> tuple[dict[TopicPartition, str], list[TopicPartition]]:
        """Make directories for new logs; why some failed, and those that exist somewhere."""
        with self._moves(fcntl.LOCK_EX):
            siblings = self._siblings()
            elsewhere = [
                name
                for name, topic_id in wanted.items()
                if self._holder(name, topic_id, siblings) is not None
                or self.entry(name, topic_id).is_dir()
            ]
            new = {name: wanted[name] for name in wanted if name not in elsewhere}
            return (directory.create_partitions(new) if new else {}), elsewhere

    def _siblings(self) -> dict[int, Path]:
        paths = node_paths(self.root)
        return {node_id: path for node_id, path in paths.items() if node_id != self.node_id}

    def _holder(
        self, name: TopicPartition, topic_id: UUID, siblings: Mapping[int, Path]
    ) -> int | None:
        """The sibling that has the partition. One without an id may be it."""
        for node_id, path in siblings.items():
            found = path / partition_name(*name)
            if found.is_dir() and self._topic_id(found) in (None, topic_id):
                return node_id
        return None

    def _topic_id(self, path: Path) -> UUID | None:
        try:
            return decode_partition_metadata(self.storage.read_file(path / PARTITION_METADATA))
        except (FileNotFoundError, CorruptCheckpoint):
            return None

"""Hand-over of logs between the nodes of one machine: what workers do for it.

- A node that no longer leads a partition closes its log, which makes it durable, and releases the
  directory. So nothing of the log is in the node's journal alone, and a later replay of that
  journal finds the partition gone, or its batches below the end of the log.
- A node that leads a partition adopts the directory from `handover/`.
- A directory that a sibling has stays there while that sibling lives: it will release it. The lock
  of a dead sibling is free. Whoever leads the partition takes that lock, and does what the sibling
  would do at its next start: recovers the log in its place, with the sibling's checkpoints and
  journal, closes it and releases it. Only then it moves, so a death on the way loses nothing.

Every call blocks.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.hosting.data import BrokenJournal, Data, WrongDirectory
from ottla.broker.membership.places import Places, node_path
from ottla.log.checkpoints import CorruptCheckpoint
from ottla.log.directory import DirectoryLocked
from ottla.log.errors import LogError, NotArrived, StorageFailure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from ottla.broker.hosting.work import LogRequest
    from ottla.cluster.handover import Note
    from ottla.log.checkpoints import TopicPartition
    from ottla.log.directory import DataDirectory
    from ottla.metadata.image import MetadataImage

logger = logging.getLogger(__name__)


class Brought(NamedTuple):
    """What became of the look for one partition; without both it exists nowhere."""

    note: Note | None = None  # adopted: it is in the node's own directory
    error: LogError | None = None  # it exists, and cannot be had now


class Handover:
    """Releases and adopts for one node."""

    def __init__(self, places: Places, *, ephemeral: bool, accept_loss: bool) -> None:
        self.places = places
        self._ephemeral = ephemeral
        self._accept_loss = accept_loss

    def release(self, notes: Mapping[TopicPartition, Note]) -> dict[TopicPartition, OSError]:
        """Let closed and durable logs go; those that stay, and why."""
        return self.places.release(self.places.own, notes)

    def create(
        self, directory: DataDirectory, wanted: Mapping[TopicPartition, UUID]
    ) -> tuple[dict[TopicPartition, str], list[TopicPartition]]:
        """Make directories for new logs; why some failed, and those that exist somewhere."""
        return self.places.create(directory, wanted)

    def bring(
        self, requests: Sequence[LogRequest], image: MetadataImage
    ) -> dict[TopicPartition, Brought]:
        """Adopt logs that this node leads and does not have; one result for each."""
        wanted = {request.name: request.topic_id for request in requests}
        sought = self.places.seek(wanted)
        rescued: dict[TopicPartition, LogError] = {}
        if sought.held:
            for node_id in set(sought.held.values()):
                theirs = [one for one in requests if sought.held.get(one.name) == node_id]
                rescued.update(self._rescue(node_id, theirs, image))
            again = self.places.seek({name: wanted[name] for name in sought.held})
            sought = again._replace(
                adopted={**sought.adopted, **again.adopted},
                damaged={**sought.damaged, **again.damaged},
            )
        brought = {}
        for name in wanted:
            error: LogError | None = None
            if name in sought.damaged:
                error = StorageFailure(sought.damaged[name])
            elif name in sought.held:
                error = rescued.get(name) or NotArrived(
                    f"{name.topic}-{name.partition} is still with node {sought.held[name]}"
                )
            brought[name] = Brought(sought.adopted.get(name), error)
        return brought

    def _rescue(
        self, node_id: int, requests: Sequence[LogRequest], image: MetadataImage
    ) -> dict[TopicPartition, LogError]:
        """Release logs of a dead sibling in its place; why some cannot be had."""
        path = node_path(self.places.root, node_id)
        try:
            data = Data(path, ephemeral=self._ephemeral)
        except DirectoryLocked:
            return {}
        except (OSError, CorruptCheckpoint) as error:
            return _all_failed(requests, error)
        try:
            data.look_for_journal(accept_loss=self._accept_loss)
            data.keep_leftover_of(image)
            failed = self._release_of(data, requests)
            data.mark_clean()
        except (BrokenJournal, WrongDirectory, OSError, CorruptCheckpoint) as error:
            return _all_failed(requests, error)
        finally:
            data.close()
        logger.info("took %d partitions of node %d, which is not running", len(requests), node_id)
        return failed

    def _release_of(
        self, data: Data, requests: Sequence[LogRequest]
    ) -> dict[TopicPartition, LogError]:
        failed: dict[TopicPartition, LogError] = {}
        own = [
            data.request(one.name, one.topic_id, one.config, create=False)
            for one in requests
            if data.has(one.name)
        ]
        unclean = [one for one in own if not one.trusted]
        notes = {one.name: data.note(one.name, one.topic_id, 0) for one in own}
        for one, (opened, is_trusted) in zip(unclean, data.work.recover(unclean), strict=True):
            if opened.log is not None and is_trusted:
                data.was_opened(one, opened)
                data.was_closed(one.name, trusted=True)
                log = opened.log
                notes[one.name] = replace(
                    notes[one.name],
                    recovery_point=log.recovery_point,
                    high_watermark=log.high_watermark,
                    log_start_offset=log.log_start_offset,
                )
                continue
            del notes[one.name]
            failed[one.name] = opened.error or StorageFailure(
                f"{one.name.topic}-{one.name.partition} could not be recovered"
            )
        for name, error in self.places.release(data.path, notes).items():
            failed[name] = StorageFailure(f"{name.topic}-{name.partition} cannot move: {error}")
        for one in own:
            if one.name not in failed:
                data.forget(one.name, one.topic_id.bytes)
        return failed


def _all_failed(requests: Sequence[LogRequest], error: Exception) -> dict[TopicPartition, LogError]:
    return {one.name: StorageFailure(str(error)) for one in requests}

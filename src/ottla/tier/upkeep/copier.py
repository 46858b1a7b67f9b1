"""One copy of one segment, as a sequence of named steps.

If a broker crashes before any step, the rules for orphans clean up its state: an entry in state
COPY_SEGMENT_STARTED and none, one or two objects that are never read. Only the last step makes the
segment readable.

A retriable failure ends the attempt and leaves it to those rules; the next attempt has a new id. A
failure that will not pass is undone at once: the objects go, and the entry through its last states.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.objects.errors import RemoteStorageError, RetriableRemoteError
from ottla.tier.catalogue.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from ottla.tier.errors import StaleSegmentState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.tier.catalogue.rlmm import RemoteLogMetadataManager
    from ottla.tier.store.storage_manager import LogSegmentData, RemoteStorageManager

MAX_CUSTOM_METADATA: Final = 128  # remote.log.metadata.custom.metadata.max.bytes


class CustomMetadataTooLarge(RemoteStorageError):
    """The custom metadata of the store is larger than the catalogue allows."""


class CopyStep(Enum):
    """In this order."""

    ADD = "add COPY_SEGMENT_STARTED"
    COPY_LOG = "upload .log"
    COPY_META = "create .meta"
    FINISH = "update to COPY_SEGMENT_FINISHED"
    DONE = "done"


_NEXT: Final = {
    CopyStep.ADD: CopyStep.COPY_LOG,
    CopyStep.COPY_LOG: CopyStep.COPY_META,
    CopyStep.COPY_META: CopyStep.FINISH,
    CopyStep.FINISH: CopyStep.DONE,
}


class SegmentCopy:
    """`next` is the next step. `run` takes all steps, `step` takes one, for tests."""

    def __init__(
        self,
        catalogue: RemoteLogMetadataManager,
        storage: RemoteStorageManager,
        metadata: RemoteLogSegmentMetadata,
        data: LogSegmentData,
        *,
        clock_ms: Callable[[], int],
        max_custom_metadata: int = MAX_CUSTOM_METADATA,
    ) -> None:
        self.next = CopyStep.ADD
        self.metadata = metadata
        self._catalogue = catalogue
        self._storage = storage
        self._data = data
        self._clock_ms = clock_ms
        self._max_custom = max_custom_metadata
        self._log_crc = 0
        self._custom = b""

    async def run(self) -> RemoteLogSegmentMetadata:
        """Copy; the metadata as it is in the catalogue afterwards."""
        try:
            while self.next is not CopyStep.DONE:
                await self.step()
        except (RetriableRemoteError, StaleSegmentState):
            raise
        except RemoteStorageError:
            await self.undo()
            raise
        return self.metadata

    async def step(self) -> None:
        """Take the next step."""
        if self.next is CopyStep.ADD:
            await self._catalogue.add_remote_log_segment_metadata(self.metadata)
        elif self.next is CopyStep.COPY_LOG:
            self._log_crc = await self._storage.copy_log(self.metadata, self._data)
        elif self.next is CopyStep.COPY_META:
            self._custom = await self._storage.copy_meta(self.metadata, self._data, self._log_crc)
            if len(self._custom) > self._max_custom:
                raise CustomMetadataTooLarge(
                    f"{len(self._custom)} bytes of custom metadata are more than {self._max_custom}"
                )
        elif self.next is CopyStep.FINISH:
            await self._update(SegmentState.COPY_SEGMENT_FINISHED, self._custom)
        self.next = _NEXT[self.next]

    async def undo(self) -> None:
        """Undo the steps so far."""
        if self.next is CopyStep.ADD:
            return
        await delete_segment(
            self._catalogue,
            self._storage,
            self.metadata,
            broker_id=self.metadata.broker_id,
            clock_ms=self._clock_ms,
        )

    async def _update(self, state: SegmentState, custom: bytes | None) -> None:
        update = RemoteLogSegmentMetadataUpdate(
            self.metadata.id, self.metadata.broker_id, self._clock_ms(), custom, state
        )
        await self._catalogue.update_remote_log_segment_metadata(update)
        self.metadata = self.metadata.after(update)


async def start_delete(
    catalogue: RemoteLogMetadataManager,
    metadata: RemoteLogSegmentMetadata,
    *,
    broker_id: int,
    now_ms: int,
) -> None:
    """Mark the segment as deleted; its objects stay for readers that planned it."""
    update = metadata.update(
        SegmentState.DELETE_SEGMENT_STARTED, broker_id=broker_id, now_ms=now_ms
    )
    await catalogue.update_remote_log_segment_metadata(update)


async def finish_delete(
    catalogue: RemoteLogMetadataManager,
    storage: RemoteStorageManager,
    metadata: RemoteLogSegmentMetadata,
    *,
    broker_id: int,
    now_ms: int,
) -> None:
    """Remove the objects, then the entry."""
    await storage.delete_log_segment_data(metadata)
    update = metadata.update(
        SegmentState.DELETE_SEGMENT_FINISHED, broker_id=broker_id, now_ms=now_ms
    )
    await catalogue.update_remote_log_segment_metadata(update)


async def delete_segment(
    catalogue: RemoteLogMetadataManager,
    storage: RemoteStorageManager,
    metadata: RemoteLogSegmentMetadata,
    *,
    broker_id: int,
    clock_ms: Callable[[], int],
) -> None:
    """Delete a segment completely, if no reader can be using it."""
    await start_delete(catalogue, metadata, broker_id=broker_id, now_ms=clock_ms())
    await finish_delete(catalogue, storage, metadata, broker_id=broker_id, now_ms=clock_ms())

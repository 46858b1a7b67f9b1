"""Copies that are killed, fail or race."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from ottla.log.checkpoints import encode_id
from ottla.objects.errors import RemoteStorageError, RetriableRemoteError
from ottla.tier.catalogue.rlmm import InMemoryRlmm, NotReadyRlmm
from ottla.tier.catalogue.segments import (
    MetadataEvent,
    PartitionDeleteState,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from ottla.tier.errors import NotReady, StaleSegmentState
from ottla.tier.upkeep.copier import CopyStep, CustomMetadataTooLarge, SegmentCopy, delete_segment
from ottla.tier.upkeep.expiring import orphans
from ottla.tier.upkeep.partition_delete import delete_partition
from tests.support.tier_copies import (
    copy_all,
    copy_of,
    failing,
    keys,
)
from tests.support.tier_logs import NOW_MS, rolled
from tests.support.tiering import DELETED, DELETING, FINISHED, STARTED, TIP, becomes

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.partition import PartitionLog
    from ottla.tier.store.storage_manager import RemoteStorageManager

HOUR = 3_600_000
STEPS = [step for step in CopyStep if step is not CopyStep.DONE]


class Recording(InMemoryRlmm):
    """Remembers the states that were published."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[SegmentState] = []

    async def publish(self, event: MetadataEvent) -> None:
        await super().publish(event)
        assert not isinstance(event, RemotePartitionDeleteMetadata)
        self.states.append(event.state)


async def test_a_copy_from_start_to_end(log: PartitionLog, storage: RemoteStorageManager) -> None:
    catalogue = Recording()
    one = next(rolled(log))
    copied = await copy_of(one, catalogue, storage).run()
    assert catalogue.states == [STARTED, FINISHED]
    assert catalogue.list_remote_log_segments(TIP) == [copied]
    assert copied.custom_metadata is not None
    assert len(await keys(storage)) == 2


@pytest.mark.parametrize("killed_before", STEPS)
async def test_case_31_killed_at_each_step(
    log: PartitionLog, storage: RemoteStorageManager, killed_before: CopyStep
) -> None:
    catalogue = Recording()
    first, second = next(rolled(log)), next(rolled(log, first_number=5000))
    dying = copy_of(first, catalogue, storage)
    while dying.next is not killed_before:
        await dying.step()
    # Nobody sees anything of it.
    metadata = first.metadata
    assert catalogue.remote_log_segment_metadata(TIP, 0, metadata.start_offset) is None
    # The next run copies again under a new id, and the sweep removes what was left.
    await copy_of(second, catalogue, storage).run()
    cache = catalogue.catalogue.cache(TIP)
    for orphan in orphans(cache, in_flight=(), now_ms=NOW_MS + HOUR + 1, age_ms=HOUR):
        await delete_segment(
            catalogue, storage, orphan, broker_id=5, clock_ms=lambda: NOW_MS + HOUR + 1
        )
    (left,) = catalogue.list_remote_log_segments(TIP)
    assert left.id == second.metadata.id
    assert len(await keys(storage)) == 2
    assert await storage.fetch_log_segment(left, 0) == second.data.log.read_bytes()


async def test_case_31_a_retriable_error_leaves_it_to_the_next_run(
    log: PartitionLog, storage: RemoteStorageManager
) -> None:
    catalogue = Recording()
    failing(storage).failure = RetriableRemoteError("away")
    with pytest.raises(RetriableRemoteError):
        await copy_of(next(rolled(log)), catalogue, storage).run()
    assert catalogue.states == [STARTED]
    failing(storage).failure = None
    await copy_of(next(rolled(log, first_number=5000)), catalogue, storage).run()
    assert catalogue.states == [STARTED, STARTED, FINISHED]


async def test_case_31_a_permanent_error_is_undone(
    log: PartitionLog, storage: RemoteStorageManager
) -> None:
    catalogue = Recording()
    failing(storage).failure = RemoteStorageError("refused")
    with pytest.raises(RemoteStorageError, match="refused"):
        await copy_of(next(rolled(log)), catalogue, storage).run()
    assert catalogue.states == [STARTED, DELETING, DELETED]
    assert await keys(storage) == []


async def test_case_32_custom_metadata_over_the_limit(
    log: PartitionLog, storage: RemoteStorageManager
) -> None:
    catalogue = Recording()
    one = next(rolled(log))
    copy = SegmentCopy(
        catalogue, storage, one.metadata, one.data, clock_ms=lambda: 0, max_custom_metadata=48
    )
    with pytest.raises(CustomMetadataTooLarge):
        await copy.run()
    assert catalogue.states == [STARTED, DELETING, DELETED]
    assert await keys(storage) == []


async def test_case_18_nothing_is_uploaded_without_a_catalogue(
    log: PartitionLog, storage: RemoteStorageManager
) -> None:
    with pytest.raises(NotReady):
        await copy_of(next(rolled(log)), NotReadyRlmm(), storage).run()
    assert await keys(storage) == []


async def test_a_copy_that_was_swept_meanwhile_does_not_come_back(
    log: PartitionLog, storage: RemoteStorageManager
) -> None:
    catalogue = Recording()
    one = next(rolled(log))
    zombie = copy_of(one, catalogue, storage)
    while zombie.next is not CopyStep.FINISH:
        await zombie.step()
    await catalogue.update_remote_log_segment_metadata(becomes(one.metadata, DELETING))
    with pytest.raises(StaleSegmentState):
        await zombie.run()
    assert catalogue.remote_log_segment_metadata(TIP, 0, 0) is None


@pytest.mark.parametrize("done", range(0, 24, 3))
async def test_case_53_a_partition_goes_with_all_its_objects(
    log: PartitionLog, storage: RemoteStorageManager, tmp_path: Path, done: int
) -> None:
    catalogue = InMemoryRlmm()
    await copy_all(log, catalogue, storage)
    recreated = TIP._replace(topic_id=UUID(int=99))
    for one in list(rolled(log, tip=recreated, first_number=9000))[:2]:
        await copy_of(one, catalogue, storage).run()
    orphan = next(rolled(log, first_number=7000))
    await storage.copy_log(orphan.metadata, orphan.data)

    async def delete() -> None:
        await delete_partition(catalogue, storage, TIP, broker_id=1, clock_ms=lambda: NOW_MS)

    store = failing(storage)
    store.deletions_left = done
    with suppress(RetriableRemoteError):
        await delete()
    store.deletions_left = 1 << 30
    await delete()
    await delete()
    assert catalogue.list_remote_log_segments(TIP) == []
    state = catalogue.catalogue.delete_state(TIP)
    assert state is PartitionDeleteState.DELETE_PARTITION_FINISHED
    assert catalogue.catalogue.tips() == [recreated]
    left = await keys(storage)
    assert len(left) == 4
    assert all(encode_id(recreated.topic_id) in key for key in left)


async def test_case_53_without_events_the_segments_go_all_the_same(
    log: PartitionLog, storage: RemoteStorageManager
) -> None:
    catalogue = Recording()
    await copy_all(log, catalogue, storage)
    await delete_partition(
        catalogue, storage, TIP, broker_id=1, clock_ms=lambda: NOW_MS, publish_events=False
    )
    assert await keys(storage) == []
    assert catalogue.catalogue.delete_state(TIP) is None

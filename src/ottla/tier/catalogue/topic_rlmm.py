"""The catalogue as a fold over a metadata topic, shared by all brokers that read the topic.

- Nothing is read before `reconcile_assignment` says which metadata partitions matter here. All
  events of such a partition are applied, whichever partition of data they are about.
- A question about a metadata partition that is not assigned, or not read up to where it ended when
  it was assigned, is refused with `NotReady`. `position` is the next offset to read; it moves past
  records that are no events, too.
- A mutation publishes its event, waits until the event has come back, and looks whether the
  catalogue has the new state; if another broker changed it first it raises `StaleSegmentState`.
- A snapshot file keeps positions and catalogue; without a usable one everything is replayed.
- If the log ends (it was closed, or the topic is another one) every answer is `NotReady`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from ottla.log.os_storage import OsStorage
from ottla.objects.errors import RetriableRemoteError
from ottla.tier.catalogue import snapshot
from ottla.tier.catalogue.catalogue import Catalogue
from ottla.tier.catalogue.codec import decode_event, encode_event
from ottla.tier.catalogue.event_log import (
    LogClosed,
    MetadataEventLog,
    PartitionReset,
    PartitionStart,
)
from ottla.tier.catalogue.lineage import Verdict
from ottla.tier.catalogue.placement import metadata_partition_for, metadata_partitions_for
from ottla.tier.catalogue.rlmm import RemoteLogMetadataManager, check_event, refuse
from ottla.tier.catalogue.segments import MetadataEvent, TopicIdPartition, event_tip
from ottla.tier.errors import CodecError, NotReady, SnapshotError, StaleSegmentState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from ottla.log.storage import Storage
    from ottla.tier.catalogue.event_log import MetadataEventRecord

SNAPSHOT_INTERVAL: Final = 30.0
CONSUME_WAIT: Final = 120.0  # remote.log.metadata.consume.wait.ms
_EVENTS_PER_TURN: Final = 256  # a long replay leaves room for the event loop's other work

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Partition:
    """One metadata partition: how far it is read, and how far it must be to answer."""

    position: int = 0
    target: int | None = None
    is_assigned: bool = False
    catalogue: Catalogue = field(default_factory=Catalogue)
    waiters: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)

    def advance(self, position: int) -> None:
        self.position = position
        if self.waiters:
            for offset, waiter in self.waiters:
                if offset < position and not waiter.done():
                    waiter.set_result(None)
            self.waiters = [one for one in self.waiters if one[0] >= position]

    def give_up(self, why: str) -> None:
        for _, waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(RetriableRemoteError(why))
        self.waiters.clear()


@dataclass(slots=True)
class CatalogueMetrics:
    """Counters of the reader of the metadata topic."""

    events: int = 0
    decode_errors: int = 0
    rejected_transitions: int = 0
    unknown_segments: int = 0
    not_ready_answers: int = 0


class TopicBasedRemoteLogMetadataManager(RemoteLogMetadataManager):
    """A manager whose catalogue is made from the events of a log; several may share one log.

    Make one with `start`, say with `reconcile_assignment` which metadata partitions to read, and
    end it with `close`.

    >>> from pathlib import Path
    >>> from ottla.tier.catalogue import InProcessMetadataEventLog
    >>> from ottla.tier.catalogue import TopicBasedRemoteLogMetadataManager
    >>> manager = await TopicBasedRemoteLogMetadataManager.start(
    ...     InProcessMetadataEventLog(16), Path("catalogue"), "my-cluster", snapshot_interval=30
    ... )
    >>> await manager.reconcile_assignment([0, 1])
    >>> manager.lags()
    {0: 0, 1: 0}
    >>> await manager.close()
    """

    def __init__(
        self,
        event_log: MetadataEventLog,
        cache_dir: Path,
        cluster_id: str,
        *,
        snapshot_interval: float = SNAPSHOT_INTERVAL,
        consume_wait: float = CONSUME_WAIT,
        storage: Storage | None = None,
    ) -> None:
        self.metrics = CatalogueMetrics()
        self._event_log = event_log
        self._path = cache_dir / snapshot.FILE_NAME
        self._identity = snapshot.Identity(
            cluster_id, event_log.topic_id, event_log.partition_count
        )
        self._snapshot_interval = snapshot_interval
        self._consume_wait = consume_wait
        self._storage = OsStorage() if storage is None else storage
        self._partitions: dict[int, _Partition] = {}
        self._hosted: set[TopicIdPartition] = set()
        self._written: dict[int, int] = {}
        self._subscription = event_log.subscribe()
        self._pump: asyncio.Task[None] | None = None
        self._snapshotter: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        event_log: MetadataEventLog,
        cache_dir: Path,
        cluster_id: str,
        *,
        snapshot_interval: float = SNAPSHOT_INTERVAL,
        consume_wait: float = CONSUME_WAIT,
        storage: Storage | None = None,
    ) -> Self:
        """Load the snapshot, if there is a usable one, and wait for an assignment."""
        manager = cls(
            event_log,
            cache_dir,
            cluster_id,
            snapshot_interval=snapshot_interval,
            consume_wait=consume_wait,
            storage=storage,
        )
        await asyncio.to_thread(manager._storage.mkdir, cache_dir)
        await asyncio.to_thread(manager._load)
        manager._pump = asyncio.create_task(manager._run_pump())
        manager._snapshotter = asyncio.create_task(manager._run_snapshotter())
        return manager

    async def close(self) -> None:
        """Stop, and write a last snapshot. The event log is its owner's to close."""
        tasks = [task for task in (self._pump, self._snapshotter) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._subscription.close()
        for one in self._partitions.values():
            one.give_up("the catalogue was closed")
        await self.write_snapshot()

    # Assignment

    def on_partition_leadership_changes(
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        self._hosted.update(leaders, followers)

    def on_stop_partitions(self, tips: Collection[TopicIdPartition]) -> None:
        self._hosted.difference_update(tips)

    def wanted_partitions(self, also: Iterable[int] = ()) -> list[int]:
        """The metadata partitions of all hosted partitions and these, for `reconcile`."""
        count = self._event_log.partition_count
        return sorted({*metadata_partitions_for(self._hosted, count), *also})

    async def reconcile_assignment(self, desired: Iterable[int]) -> None:
        """Follow these metadata partitions and no others. For one task; call it again and again.

        Where the end of a partition cannot be learnt now, its questions stay refused until a later
        call learns it.
        """
        wanted = set(desired)
        # Unused partitions of a snapshot stay; they may be needed later.
        for number in self._subscription.assigned() - wanted:
            self._forget(number)
        unsure = sorted(
            number
            for number in wanted
            if number not in self._partitions
            or not self._partitions[number].is_assigned
            or self._partitions[number].target is None
        )
        if not unsure:
            return
        marks = await self._high_water_marks()
        for number in unsure:
            self._assign(number, None if marks is None else marks[number])

    async def _high_water_marks(self) -> list[int] | None:
        try:
            return await self._event_log.high_water_marks()
        except RetriableRemoteError as error:
            _log.warning("the ends of the metadata partitions are not known yet: %s", error)
            return None

    def _forget(self, number: int) -> None:
        self._subscription.remove(number)
        self._partitions.pop(number).give_up(f"metadata partition {number} is not assigned")

    def _assign(self, number: int, mark: int | None) -> None:
        one = self._partitions.setdefault(number, _Partition())
        if mark is not None and one.position > mark:
            _log.warning("metadata partition %d ends before its snapshot; replayed", number)
            self._forget(number)
            one = self._partitions[number] = _Partition()
        one.target = mark
        if not one.is_assigned:
            one.is_assigned = True
            self._subscription.add(PartitionStart(number, one.position))

    # Questions

    def catalogue_of(self, tip: TopicIdPartition) -> Catalogue:
        return self._ready(self.metadata_partition_of(tip)).catalogue

    def metadata_partition_of(self, tip: TopicIdPartition) -> int:
        return metadata_partition_for(*tip.identity, self._event_log.partition_count)

    def _ready(self, number: int) -> _Partition:
        one = self._partitions.get(number)
        why = None
        if self._pump is None or self._pump.done():
            why = "the metadata topic is not read any more"
        elif one is None or not one.is_assigned:
            why = f"metadata partition {number} is not assigned"
        elif one.target is None:
            why = f"the end of metadata partition {number} is not known"
        elif one.position < one.target:
            why = f"metadata partition {number} is read to {one.position} of {one.target}"
        if why is not None or one is None:
            self.metrics.not_ready_answers += 1
            raise NotReady(f"{why}; try again")
        return one

    def catalogues(self) -> dict[int, Catalogue]:
        """By metadata partition, those that are ready: for sweeps and tools."""
        found = {}
        for number, one in self._partitions.items():
            if one.is_assigned and one.target is not None and one.position >= one.target:
                found[number] = one.catalogue
        return found

    def lags(self) -> dict[int, int | None]:
        """Events to read before a metadata partition answers; None while its end is unknown."""
        return {
            number: None if one.target is None else max(0, one.target - one.position)
            for number, one in self._partitions.items()
            if one.is_assigned
        }

    # Mutations

    async def publish(self, event: MetadataEvent) -> None:
        check_event(event)
        number = self.metadata_partition_of(event_tip(event))
        one = self._ready(number)
        refuse(one.catalogue.judge(event), event)
        offset = await self._event_log.publish(number, encode_event(event))
        await self._caught_up(one, number, offset)
        if not one.catalogue.reflects(event):
            raise StaleSegmentState(f"{event} came after another change")

    async def _caught_up(self, one: _Partition, number: int, offset: int) -> None:
        if one.position > offset:
            return
        if self._partitions.get(number) is not one:
            raise RetriableRemoteError(f"metadata partition {number} is not assigned any more")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        one.waiters.append((offset, waiter))
        try:
            async with asyncio.timeout(self._consume_wait):
                await waiter
        except TimeoutError:
            raise RetriableRemoteError(
                f"event {offset} of metadata partition {number} did not come back in "
                f"{self._consume_wait:g} s; it may be written"
            ) from None
        finally:
            if (offset, waiter) in one.waiters:
                one.waiters.remove((offset, waiter))

    # Reading

    async def _run_pump(self) -> None:
        try:
            while True:
                for _ in range(_EVENTS_PER_TURN):
                    self._take(await self._subscription.next())
                await asyncio.sleep(0)
        except LogClosed as error:
            _log.error("the catalogue of remote segments ends: %s", error)
            for one in self._partitions.values():
                one.give_up(str(error))

    def _take(self, record: MetadataEventRecord | PartitionReset) -> None:
        one = self._partitions.get(record.partition)
        if one is None:
            return
        if isinstance(record, PartitionReset):
            one.give_up("the metadata partition is read again from its start")
            one.catalogue = Catalogue()
            one.position = record.earliest
            return
        self.metrics.events += 1
        try:
            self._note(one.catalogue.apply(decode_event(record.payload)), record)
        except CodecError as error:
            self.metrics.decode_errors += 1
            _log.warning(
                "event %d of metadata partition %d: %s", record.offset, record.partition, error
            )
        one.advance(record.offset + 1)

    def _note(self, verdict: Verdict, record: MetadataEventRecord) -> None:
        if verdict is Verdict.ILLEGAL_TRANSITION:
            self.metrics.rejected_transitions += 1
            _log.warning(
                "event %d of metadata partition %d is invalid after the events before it; dropped",
                record.offset,
                record.partition,
            )
        elif verdict is Verdict.UNKNOWN_SEGMENT:
            self.metrics.unknown_segments += 1

    # Snapshots

    def _load(self) -> None:
        try:
            loaded = snapshot.decode(self._storage.read_file(self._path), self._identity)
        except FileNotFoundError:
            return
        except (SnapshotError, OSError) as error:
            _log.warning("catalogue snapshot %s is ignored: %s", self._path, error)
            return
        for number, position in loaded.positions.items():
            if position > 0:
                self._partitions[number] = _Partition(position, catalogue=loaded.catalogues[number])
        self._written = self._positions()

    def _positions(self) -> dict[int, int]:
        return {number: one.position for number, one in self._partitions.items() if one.position}

    async def _run_snapshotter(self) -> None:
        while True:
            await asyncio.sleep(self._snapshot_interval)
            try:
                await self.write_snapshot()
            except OSError as error:
                _log.warning("catalogue snapshot %s cannot be written: %s", self._path, error)

    async def write_snapshot(self) -> bool:
        """Write the file if some position has changed; whether it has been written."""
        positions = self._positions()
        if positions == self._written:
            return False
        captured = snapshot.capture(positions, [p.catalogue for p in self._partitions.values()])
        await asyncio.to_thread(self._store, captured)
        self._written = positions
        return True

    def _store(self, captured: snapshot.Captured) -> None:
        self._storage.replace_file(self._path, snapshot.encode(self._identity, captured))

"""The share-partitions of this node: state machines, locks, writes and waiting fetches.

A share-partition is loaded from the persister at its first fetch. It is dropped when the persister
says that another leader has it now, when its group has no session left, or when its partition is
deleted or moved. While it loads, fetches wait. The machine decides; this shell reads the log for
it, sends its writes, keeps its clock and wakes waiting members.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.errors import ApiError
from ottla.broker.hosting.hosted import NotOpen, topic_uuid
from ottla.broker.hosting.waiting import Line
from ottla.broker.shares.cold import ColdReads
from ottla.broker.shares.reads import NOTHING, KeptReads, UnusedReads, deliver
from ottla.broker.shares.settings import resolve_start
from ottla.coordination.share_state import messages as m
from ottla.coordination.share_state.batches import StateBatch
from ottla.coordination.share_state.records import ShareKey
from ottla.redaction import printable
from ottla.sharing.dead_letters import mourned
from ottla.sharing.describing import Held, held
from ottla.sharing.partition import SharePartition
from ottla.sharing.requests import FENCING, client_error
from ottla.sharing.values import BadPersistedState, PersistedState, ShareError
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Sequence

    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.running.services import Lazy
    from ottla.broker.shares.dead_letters import DeadLetters
    from ottla.broker.shares.persister import Answer, Persister
    from ottla.broker.shares.reads import Delivered
    from ottla.broker.shares.settings import ShareGroupConfig, ShareGroupConfigs
    from ottla.broker.tiering.tiering import Tiering
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.metadata.image import MetadataImage
    from ottla.sharing.values import Ack, Archived, FetchTurn, Write

logger = logging.getLogger(__name__)


class Collaborators(NamedTuple):
    """The services that share-partitions use."""

    clock: Clock
    configs: Lazy[ShareGroupConfigs]
    persister: Lazy[Persister]
    groups: Lazy[GroupService]
    dead_letters: Lazy[DeadLetters]
    tiering: Lazy[Tiering]
    workers: Workers


class LedSharePartition:
    """One share-partition: its machine once it is loaded."""

    def __init__(
        self,
        shares: LedSharePartitions,
        services: Collaborators,
        key: ShareKey,
        hosted: HostedPartition,
    ) -> None:
        self.key = key
        self.hosted = hosted
        self.machine: SharePartition | None = None
        self.dropped = False
        self.deliveries = 0
        """Records handed out since it was loaded, each time they were."""
        self.line = Line()
        """Members that found nothing."""
        self._listens = False
        """Whether the log calls when it has more."""
        self._shares = shares
        self._services = services
        self._ahead = UnusedReads(hosted, services.workers, self._read_from_disk)
        self._cold = ColdReads(services.tiering, hosted, self.pass_on)
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0
        self._moved_ms = services.clock.monotonic_ms()
        """When the start moved last, or the window got its first records."""
        self._last_waiting: asyncio.Future[None] | None = None
        """Done when the last write that waits for dead letters has been sent."""
        self.loading = asyncio.ensure_future(self._load())
        self.loading.add_done_callback(lambda _: self.line.wake_all())

    @property
    def moved_ms(self) -> int:
        """When the start moved last, or the window got its first records (monotonic)."""
        return self._moved_ms

    @property
    def _config(self) -> ShareGroupConfig:
        return self._services.configs().of(self.key.group_id)

    def _up_to_date(self) -> SharePartition | None:
        """The machine with the group's settings as they are now."""
        if self.machine is not None:
            self.machine.settings = self._config.settings
        return self.machine

    # -- loading and dropping ---------------------------------------------------------------------

    async def _load(self) -> ErrorCode:
        """Load the state; returns the error code for clients, or NONE."""
        services = self._services
        await self._shares.writes_ended(self.key)
        answer = await services.persister().ask(
            m.ReadState(self.key, services.groups().topics, self.hosted.leader_epoch),
            m.ReadStateResponse,
        )
        if answer.error != ErrorCode.NONE:
            return client_error(answer.error)
        start = answer.start_offset
        resolved = start < 0
        if resolved:
            try:
                # Once in the life of a group: what another node has just set must count.
                config = await services.configs().newest(self.key.group_id)
                start = await resolve_start(
                    config.reset,
                    self.hosted,
                    services.tiering,
                    services.workers,
                    services.clock,
                )
            except ApiError:
                # The remote tier or the metadata store is not ready; the client gets no records
                # and retries.
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            self.machine = SharePartition(
                self._config.settings,
                PersistedState(answer.state_epoch, start, answer.batches),
            )
        except BadPersistedState:
            logger.exception("share state of %s is unusable", self.key)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if resolved:
            # Otherwise a new leader would resolve `latest` again and skip newer records.
            self._send(self.machine.start_write())
        return ErrorCode.NONE

    def check_loading(self) -> None:
        """Raise if loading failed; the next fetch loads again.

        If the coordinator cannot be reached, the client just gets no records.
        """
        if not self.loading.done() or self.loading.cancelled():
            return
        self._shares.drop(self.key)
        code = self.loading.result()
        if code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
            raise ApiError(code)

    def drop(self) -> None:
        """Drop the state; waiting fetches end."""
        self.dropped = True
        self.machine = None
        self.loading.cancel()
        self._shares.reads.drop(self._ahead)
        if self._timer is not None:
            self._timer.cancel()
        self.line.wake_all()

    # -- waiting ----------------------------------------------------------------------------------

    def listen(self) -> Line:
        """The queue of members that found nothing; an append wakes the first."""
        if not self._listens:
            self._listens = True
            self.hosted.waiters.add(self._appended)
        return self.line

    def _appended(self) -> None:
        self._listens = False
        self.pass_on()
        if self.line:
            self.listen()

    def pass_on(self) -> None:
        """Wake the first in line if there is something to acquire.

        A member that acquires records wakes the next one, so that as many are woken as there are
        records for. A woken member that cannot take records must wake the next one, too.
        """
        if self.line and self._has_more():
            self.line.wake_first()

    def _read_from_disk(self) -> None:
        """Records have come from the disk: the first in line takes them."""
        if not self.dropped:
            self._shares.reads.use(self._ahead)
            self.pass_on()

    def _has_more(self) -> bool:
        machine = self._up_to_date()
        if machine is None or not machine.can_acquire:
            return False
        log = self.hosted.log
        bound = log.last_stable_offset if self._config.reads_committed else log.high_watermark
        return machine.next_fetch_offset < bound

    # -- delivering -------------------------------------------------------------------------------

    def acquire(self, turn: FetchTurn, max_bytes: int, *, views: bool, min_one: bool) -> Delivered:
        """Deliver records to a member, up to the limits; `views` and `min_one` as in `deliver`."""
        machine = self._up_to_date()
        if machine is None:
            return NOTHING
        committed = self._config.reads_committed
        now = self._services.clock.monotonic_ms()
        if machine.start_offset == machine.end_offset:
            self._moved_ms = now
        ahead = self._shares.reads.use(self._ahead)
        delivered = deliver(
            self.hosted.log,
            ahead,
            self._cold,
            machine,
            turn,
            max_bytes,
            committed=committed,
            views=views,
            min_one=min_one,
            now_ms=now,
        )
        self.deliveries += delivered.offsets
        self._arm()
        return delivered

    # -- acknowledging ----------------------------------------------------------------------------

    def acknowledge(
        self, member: str, acks: Sequence[Ack]
    ) -> ErrorCode | asyncio.Future[ErrorCode]:
        """The error code for the client, or the write to wait for."""
        machine = self._up_to_date()
        if machine is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            write = machine.acknowledge(member, acks, self._services.clock.monotonic_ms())
        except ShareError as error:
            return error.code
        self._arm()
        if write is None:
            return ErrorCode.NONE
        return self._written(machine, write)

    def release(self, member: str) -> None:
        """Release the records of a member that has left."""
        if (machine := self._up_to_date()) is not None:
            self._send(machine.release(member, self._services.clock.monotonic_ms()))
            self._arm()
            self.pass_on()

    # -- writes and time --------------------------------------------------------------------------

    def _send(self, write: Write | None) -> None:
        """Start a write without waiting for it."""
        if write is not None and self.machine is not None:
            self._written(self.machine, write)

    def _written(self, machine: SharePartition, write: Write) -> asyncio.Future[ErrorCode]:
        """Write in order: at once, or after waiting writes."""
        given_up = self._mourned(write)
        if given_up or self._last_waiting is not None:
            answered = self._write_later(write, given_up)
        else:
            answered = self._persist(write)

        async def settle() -> ErrorCode:
            answer = await answered()
            if answer.error == ErrorCode.NONE:
                start = machine.start_offset
                machine.write_succeeded(write.write_id)
                if machine.start_offset != start:
                    self._moved_ms = self._services.clock.monotonic_ms()
                self.pass_on()
                return ErrorCode.NONE
            why = answer.message or answer.error.name
            logger.warning("share state of %s: %s", printable(self.key), why)
            if answer.error in FENCING:
                self._shares.drop_one(self)
            else:
                self._send(
                    machine.write_failed(write.write_id, self._services.clock.monotonic_ms())
                )
                self._arm()
                self.pass_on()
            return client_error(answer.error)

        return self._shares.in_background(self.key, settle())

    def _persist(self, write: Write) -> Answer:
        return self._services.persister().write(
            m.WriteState(
                self.key,
                self._services.groups().topics,
                write.state_epoch,
                self.hosted.leader_epoch,
                write.start_offset,
                tuple(StateBatch(*batch) for batch in write.batches),
                write.delivery_complete_count,
            )
        )

    def _mourned(self, write: Write) -> list[Archived]:
        """Records of a write that need dead letters; letters of letters would never end."""
        to = self._config.dead_letters
        if to is None or not write.archived or to.name == self.hosted.topic:
            return []
        return mourned(write.archived)

    def _write_later(self, write: Write, given_up: Sequence[Archived]) -> Answer:
        """Dead letters first: a crash in between then costs a second letter, not the first."""
        before, started = self._last_waiting, asyncio.get_running_loop().create_future()
        self._last_waiting = started
        to = self._config.dead_letters

        async def in_turn() -> m.StateResponse:
            try:
                if before is not None:
                    await asyncio.wait([before])
                if given_up and to is not None and not self.hosted.leaving:
                    group = self.key.group_id
                    await self._services.dead_letters().write(to, group, self.hosted, given_up)
                answered = self._persist(write)
            finally:
                started.set_result(None)
                if self._last_waiting is started:
                    self._last_waiting = None
            return await answered()

        return in_turn

    def _arm(self) -> None:
        """Wake up when the next lock ends; that it ends later is noticed on waking up."""
        deadline = None if self.machine is None else self.machine.next_deadline()
        if deadline is None or (self._timer is not None and self._armed_for <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay = max(0, deadline - self._services.clock.monotonic_ms()) / 1000
        self._armed_for = deadline
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if (machine := self._up_to_date()) is not None:
            write = machine.tick(self._services.clock.monotonic_ms())
            self._arm()
            if write is not None:
                self._send(write)
                self.pass_on()


class LedSharePartitions:
    """All of them, by key."""

    def __init__(self, partitions: Partitions, services: Collaborators) -> None:
        self.reads = KeptReads()
        self._partitions = partitions
        self._services = services
        self._led: dict[ShareKey, LedSharePartition] = {}
        self._writes: dict[ShareKey, set[asyncio.Future[ErrorCode]]] = {}

    def __iter__(self) -> Iterator[LedSharePartition]:
        return iter(self._led.values())

    def find(self, group: str, topic_id: bytes, index: int) -> LedSharePartition:
        """The share-partition, which begins to load if it is new; `ApiError` if not led here."""
        hosted = self._partitions.find_by_id(topic_id, index)
        key = ShareKey(group, topic_uuid(topic_id), index)
        led = self._led.get(key)
        if led is None or led.hosted is not hosted:
            if led is not None:
                led.drop()
            led = self._led[key] = LedSharePartition(self, self._services, key, hosted)
        return led

    def loaded(self, group: str, topic_id: bytes, index: int) -> LedSharePartition:
        """A loaded share-partition, or `ApiError`."""
        with suppress(NotOpen):  # then no member has fetched from it
            self._partitions.find_by_id(topic_id, index)
        led = self._led.get(ShareKey(group, topic_uuid(topic_id), index))
        if led is None or led.machine is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return led

    def pass_on(self, group: str, keys: Iterable[tuple[bytes, int]]) -> None:
        """A member of the group does not wait for these any more, or has taken what it may."""
        for topic_id, index in keys:
            led = self._led.get(ShareKey(group, topic_uuid(topic_id), index))
            if led is not None:
                led.pass_on()

    def held(self, group: str, topic_id: bytes, index: int, most_runs: int) -> Held:
        """Records that members hold; nothing if it is not loaded."""
        led = self._led.get(ShareKey(group, topic_uuid(topic_id), index))
        if led is None or led.machine is None:
            return Held(0)
        return held(led.machine, self._services.clock.monotonic_ms(), led.moved_ms, most_runs)

    def release(self, group: str, member: str, topic_id: bytes, index: int) -> None:
        """Release the records of a member in a loaded share-partition."""
        led = self._led.get(ShareKey(group, topic_uuid(topic_id), index))
        if led is not None:
            led.release(member)

    def of_group(self, group: str) -> list[LedSharePartition]:
        return [led for key, led in self._led.items() if key.group_id == group]

    def drop(self, key: ShareKey) -> None:
        led = self._led.pop(key, None)
        if led is not None:
            led.drop()

    def drop_group(self, group: str) -> None:
        for led in self.of_group(group):
            self.drop(led.key)

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        """Drop those whose partition is deleted, or led by another node now."""
        if before.topics_by_name is after.topics_by_name:
            return
        for key, led in tuple(self._led.items()):
            if led.hosted.leaving:
                self.drop(key)

    def drop_one(self, led: LedSharePartition) -> None:
        """Drop this one, unless it has a successor already."""
        if self._led.get(led.key) is led:
            self.drop(led.key)

    def in_background(
        self, key: ShareKey, write: Coroutine[Any, Any, ErrorCode]
    ) -> asyncio.Future[ErrorCode]:
        """Finish a write in the background, even if its share-partition is dropped."""
        written = asyncio.ensure_future(write)
        writes = self._writes.setdefault(key, set())
        writes.add(written)

        def ended(_: asyncio.Future[ErrorCode]) -> None:
            writes.discard(written)
            if not writes and self._writes.get(key) is writes:
                del self._writes[key]

        written.add_done_callback(ended)
        return written

    async def writes_ended(self, key: ShareKey) -> None:
        """Wait for writes of a dropped share-partition, so that its state is read after them."""
        while writes := self._writes.get(key):
            await asyncio.wait(writes)

    async def stop(self) -> None:
        for key in tuple(self._led):
            self.drop(key)
        # Unwritten acknowledgements are delivered again; do not wait for them.
        writes = [written for some in self._writes.values() for written in some]
        for written in writes:
            written.cancel()
        await asyncio.gather(*writes, return_exceptions=True)

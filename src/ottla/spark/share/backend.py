"""A share group as a source: the driver acquires and accepts, workers read by plain fetches.

Rules:

- The machine and the queue are used only on the loop of the process, one step at a time: by Spark's
  calls and by the renewal of locks.
- A batch is settled by the next call for an offset: Spark makes it when the batch is in its commit
  log.
- In a process that continues a checkpoint, the sessions are ended once after the first batch is
  settled. The broker then redelivers records that an earlier process acquired and never planned,
  before their locks expire.
- The locks of a batch that another process planned are renewed like our own, if the broker allows
  it.
- Verdicts in a topic are read from the end that it had when the batch was planned, before the batch
  is settled, so that locks are renewed meanwhile. As long as a verdict is on a ghost, later batches
  carry the same place, so that a later process still reads it.
- When the query stops, records that were never planned are released, and planned ones stay locked
  for the next process (`share.onStop=hold`), as long as the group's grace and its locks last.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from ottla.client.admin.configs import ConfigCalls
from ottla.client.admin.types import ConfigSource
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import ClientError, UnsupportedApi
from ottla.client.share.membership import new_member_id
from ottla.client.share.settings import set_offset_reset
from ottla.spark.backend import Backend, Bounds, Limit, Offset, Task
from ottla.spark.background import background
from ottla.spark.cluster import Cluster, make_client
from ottla.spark.errors import BadVerdict
from ottla.spark.offsets import LATEST
from ottla.spark.options import LOG, SourceOptions
from ottla.spark.share.machine import ShareMachine, initial_offset, parse_offset
from ottla.spark.share.queue import ShareQueue
from ottla.spark.share.ranges import Spans, below, common, minus, pieces, plus, size
from ottla.spark.share.verdict_topic import VerdictTopic
from ottla.spark.share.verdicts import read_verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ottla.client.cluster.cluster import Client
    from ottla.client.cluster.view import Topic
    from ottla.spark.offsets import Offsets
    from ottla.spark.share.options import ShareOptions
    from ottla.spark.share.reading import ShareTask

CLOSE_SECONDS: Final = 2.0
RENEWALS_PER_LOCK: Final = 3
UNKNOWN_LOCK: Final = 1.0  # seconds; the shortest that Kafka allows
WARN_AFTER: Final = 0.6  # part of a lock's time, where locks are not renewed
FROZEN_WAIT: Final = 2.0  # seconds for the first records of a query that ends when there are none
GHOST_ROUNDS: Final = 8  # requests per batch to find out which ghosts are below the group's start
LIMIT: Final = "share.delivery.count.limit"


class _Lock(NamedTuple):
    """The locks of the running batch."""

    until: float
    breaks: int
    is_final: bool = False
    """Whether a renewal was refused."""


class ShareBackend(Backend):
    """Creating one does no I/O: workers create one only to read."""

    def __init__(self, options: SourceOptions, share: ShareOptions) -> None:
        self._options = options
        self._share = share
        self._machine = ShareMachine(share.group, share.member_id or new_member_id())
        self._cluster: Cluster | None = None
        self._client: Client | None = None
        self._queue: ShareQueue | None = None
        self._turn: asyncio.Lock | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._adopting: asyncio.Task[None] | None = None
        self._is_first_settle = True
        self._has_new_ghosts = False
        self._renews = share.renews
        self._planned_at = 0.0
        self._lock: _Lock | None = None
        self._target: Mapping[TopicPartition, int] | None = None
        self._frozen_wait = FROZEN_WAIT
        self._is_closing = False
        self._verdicts: Spans = {}
        self._verdict_topic: VerdictTopic | None = None

    # Called by the driver.

    def bounds(self) -> Bounds:
        first = initial_offset(self._share.group)
        return Bounds(first, first)

    def settle(self, end: Mapping[str, Any]) -> None:
        background().call(self._settle(dict(end)))

    def advance(self, start: Offset, limit: Limit) -> Offset:
        most = min(self._share.max_records, limit.max_rows or self._share.max_records)
        return background().call(self._advance(start, most))

    def plan(self, start: Offset, end: Offset) -> Sequence[Task]:
        from ottla.spark.share.reading import plan_spans

        background().call(self._adopt(end))
        ids = {name: topic.id for name, topic in self._topics().items()}
        ranges = parse_offset(end, self._share.group).ranges
        return plan_spans(ranges, ids, self._options.split)

    def freeze(self) -> None:
        places = [
            TopicPartition(name, one.index)
            for name, topic in self._topics().items()
            for one in topic.partitions
        ]
        assert self._cluster is not None
        self._target = self._cluster.offsets(dict.fromkeys(places, LATEST)) if places else {}

    def latest(self) -> Offset | None:
        """The state of the source, shown in the query's progress."""
        machine = self._machine
        found: Offset = {
            "held": size(machine.held),
            "waiting": size(machine.waiting),
            "ghosts": size(machine.ghosts),
            "lostLocks": machine.lost_locks,
        }
        if self._verdict_topic is not None:
            found["badVerdicts"] = self._verdict_topic.bad
        return found

    def close(self) -> None:
        self._is_closing = True
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()
        try:
            background().call(self._close(), CLOSE_SECONDS)
        except (TimeoutError, ClientError) as error:
            LOG.warning("could not leave share group %s cleanly: %s", self._share.group, error)

    # Called by workers.

    def read(self, task: Task, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from ottla.spark.share.reading import read_spans

        return read_spans(cast("ShareTask", task), self._options, columns)

    def _topics(self) -> dict[str, Topic]:
        if self._cluster is None:
            self._cluster = Cluster(self._options.client)
        return self._cluster.topics(self._options.selection)

    # On the loop.

    async def _opened(self) -> ShareQueue:
        """The queue; joins the group first if this process is not a member."""
        if self._queue is None:
            names = self._options.selection.names()
            assert names is not None
            if self._client is None:  # else it belongs to a failed attempt
                self._client = make_client(self._options.client)
            client = self._client
            await self._set_up(client)
            member = self._share.member_id or self._machine.member
            self._machine.member = member
            queue = ShareQueue(client, self._share.group, member, names)
            await queue.open()
            self._queue = queue
            self._renewing = asyncio.create_task(self._keep_locked(), name="ottla share renewal")
        return self._queue

    async def _set_up(self, client: Client) -> None:
        if self._share.reset is not None:
            await set_offset_reset(client, self._share.group, self._share.reset)
        try:
            await _raise_limit(client, self._share.group)
        except ClientError as error:
            LOG.warning(
                "the delivery limit of share group %s stays as it is: %s", self._share.group, error
            )

    @property
    def _one_at_a_time(self) -> asyncio.Lock:
        if self._turn is None:
            self._turn = asyncio.Lock()
        return self._turn

    async def _settle(self, start: Offset) -> None:
        machine = self._machine
        owed = machine.to_settle(start)
        if not owed:
            return
        await self._read_verdicts(start, owed)
        async with self._one_at_a_time:
            queue = await self._opened()
            lock, self._lock = self._lock, None
            now = asyncio.get_running_loop().time()
            overdue = lock is not None and (now > lock.until or queue.breaks != lock.breaks)
            refused = await self._done_with(queue, owed)
            if refused:
                # An earlier process may have accepted them; the next records show whether it did.
                level = logging.INFO if self._is_first_settle else logging.WARNING
                LOG.log(
                    level,
                    "the locks of %d records expired before their batch was done; they are "
                    "accepted when they are delivered again, unless another member gets them",
                    size(refused),
                )
            machine.settled(start, refused, overdue=overdue)
            if self._is_first_settle:
                await queue.let_go()
            self._is_first_settle = False
            self._has_new_ghosts = bool(machine.ghosts)

    async def _done_with(self, queue: ShareQueue, spans: Spans) -> Spans:
        """Accept records, or reject those with a verdict; returns refused ones."""
        bad = common(spans, self._verdicts)
        refused = await queue.accept(minus(spans, bad))
        return plus(refused, await queue.reject(bad))

    async def _lay_ghosts(self, queue: ShareQueue) -> None:
        """Drop ghosts below the group's start: they will not be delivered again."""
        machine = self._machine
        for _ in range(GHOST_ROUNDS):
            oldest = machine.oldest_ghosts()
            laid = minus(oldest, await queue.accept(oldest))
            if not laid:
                return
            machine.laid(laid)

    async def _read_verdicts(self, start: Offset, owed: Spans) -> None:
        topic = self._verdicts_in_topic()
        if topic is not None:
            since = parse_offset(start, self._share.group).verdicts or {}
            self._verdicts = await topic.read(since, plus(self._machine.ghosts, owed))
        elif self._share.verdicts is not None:
            try:
                self._verdicts = read_verdicts(self._share.verdicts)
            except OSError as error:
                raise BadVerdict(f"share.verdicts cannot be read: {error}") from None

    def _verdicts_in_topic(self) -> VerdictTopic | None:
        if self._verdict_topic is None and self._share.verdict_topic is not None:
            self._verdict_topic = VerdictTopic(self._options, self._share.verdict_topic)
        return self._verdict_topic

    async def _verdicts_since(self, start: Offset) -> Offsets | None:
        """The place from which to read the verdicts of the batch that is being planned."""
        topic = self._verdicts_in_topic()
        if topic is None:
            return None
        if common(self._machine.ghosts, self._verdicts):
            return parse_offset(start, self._share.group).verdicts
        return await topic.ends()

    async def _advance(self, start: Offset, most: int) -> Offset:
        machine = self._machine
        async with self._one_at_a_time:
            self._is_first_settle = False
            queue = await self._opened()
            began = asyncio.get_running_loop().time()
            wait = self._options.long_poll
            if self._target is not None:
                wait, self._frozen_wait = self._frozen_wait, wait
            while size(machine.waiting) < most and pieces(machine.waiting) < machine.room:
                before = size(machine.waiting)
                again = machine.acquired(await queue.acquire(most - before, wait))
                machine.laid(minus(again, await self._done_with(queue, again)))
                await self._leave_beyond(queue)
                if size(machine.waiting) == before and not again:
                    break
                wait = 0.0
            if self._is_closing:
                return start
            if self._has_new_ghosts:
                self._has_new_ghosts = False
                await self._lay_ghosts(queue)
            since = await self._verdicts_since(start) if machine.waiting else None
            end = machine.end(start, most, since)
            self._planned_at = asyncio.get_running_loop().time()
            if end != start:
                # They are renewed together with the waiting records, at the latest.
                self._lock = _Lock(began + (queue.lock_timeout or math.inf), queue.breaks)
            return end

    async def _leave_beyond(self, queue: ShareQueue) -> None:
        """Leave records written after the query started to the next one (AvailableNow)."""
        if self._target is not None:
            beyond = minus(self._machine.waiting, below(self._machine.waiting, self._target))
            await queue.give_back(beyond)
            self._machine.given_back(beyond)

    async def _adopt(self, end: Offset) -> None:
        """Start renewing the locks of an earlier process's batch in the background."""
        if self._machine.adopt(end):
            self._lock = _Lock(0.0, 0)
            self._adopting = asyncio.create_task(self._lock_adopted(), name="ottla share adoption")

    async def _lock_adopted(self) -> None:
        async with self._one_at_a_time:
            try:
                await self._renew(await self._opened())
            except ClientError as error:
                LOG.warning("the locks of a replayed batch are not renewed: %s", error)

    # Locks.

    async def _keep_locked(self) -> None:
        assert self._queue is not None
        queue, now = self._queue, asyncio.get_running_loop().time
        warned_of = 0.0
        while True:
            lock = queue.lock_timeout or UNKNOWN_LOCK
            await asyncio.sleep(lock / RENEWALS_PER_LOCK)
            if self._renews:
                async with self._one_at_a_time:
                    await self._try_to_renew(queue)
            elif (
                self._machine.held
                and warned_of != self._planned_at
                and now() - self._planned_at > lock * WARN_AFTER
            ):
                warned_of = self._planned_at
                LOG.warning(
                    "a batch runs for more than %d %% of the time its records are locked for, %g "
                    "s, and locks are not renewed: make batches smaller with share.maxRecords, or "
                    "allow renewal",
                    WARN_AFTER * 100,
                    lock,
                )

    async def _try_to_renew(self, queue: ShareQueue) -> None:
        try:
            await self._renew(queue)
        except UnsupportedApi as error:
            self._renews = False
            LOG.warning("locks are not renewed: %s", error)
        except ClientError as error:
            LOG.warning("locks are not renewed this time: %s", error)

    async def _renew(self, queue: ShareQueue) -> None:
        machine = self._machine
        locked = plus(machine.held, machine.waiting)
        began = asyncio.get_running_loop().time()
        refused = await queue.renew(locked)
        if self._lock is not None and not self._lock.is_final:
            if common(machine.held, refused):
                self._lock = self._lock._replace(is_final=True)
            else:
                self._lock = _Lock(began + queue.lock_timeout, queue.breaks)
        if refused:
            # Without renewal the locks are still valid: waiting records are released uncounted, so
            # that they do not use up their deliveries without being planned.
            await queue.give_back(common(machine.waiting, refused))
            machine.unlocked(refused)
            LOG.warning(
                "the locks of %d records could not be renewed; the group's settings "
                "share.renew.acknowledge.enable and share.session.grace.ms matter here",
                size(refused),
            )

    async def _close(self) -> None:
        for task in (self._renewing, self._adopting):
            if task is not None:
                task.cancel()
        async with self._one_at_a_time:
            queue, self._queue = self._queue, None
            client, self._client = self._client, None
            topic, self._verdict_topic = self._verdict_topic, None
            if topic is not None:
                await topic.close()
            if queue is not None:
                await queue.give_back(self._machine.waiting)
                if self._share.on_stop == "release":
                    await queue.let_go()
                await queue.close()
            if client is not None:
                await client.close()


async def _raise_limit(client: Client, group: str) -> None:
    """Raise the delivery limit of the group to the broker's maximum, unless it is set."""
    configs = ConfigCalls(client)
    found = await configs.describe_configs("group", group, [LIMIT])
    if any(one.name == LIMIT and one.source is ConfigSource.GROUP for one in found):
        return
    await client.refresh([])
    most = f"group.{LIMIT.replace('share.', 'share.max.')}"
    for node in sorted(client.view.brokers)[:1]:
        for one in await configs.describe_configs("broker", str(node), [most]):
            if one.name == most and one.value is not None:
                await configs.alter_configs("group", group, {LIMIT: one.value})

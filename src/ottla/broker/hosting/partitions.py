"""The partitions this node leads: log, leader epoch, and waiting readers.

    unwritten --first append--> opening --> open --> closing --> gone
    closed    --first use-----> opening --^

- *Unwritten*: the partition has no directory. Readers get a view with all offsets 0, and nothing is
  created. A reader that waits for the first record waits at the `HostedPartition`, which is the
  same object once the log is open.
- *Closed*: a log on disk that no request has used. It stays closed until it is needed.
- *Opening* happens in worker threads, in batches, once for all waiting requests. Afterwards the
  topic's id and leader are checked again: a log that was deleted or moved meanwhile is closed, not
  served.
- *Open*: found without waiting (`find`).
- *Closing, gone*: the topic was deleted or another node leads. Closing and renaming run in worker
  threads; a new topic of that name creates its directory after that.

With other nodes on the machine (`ottla.broker.membership`) a partition without a directory here may
have one with another node: it is looked for before it counts as unwritten. When another node leads
a partition, its log is drained and closed, and its directory is released.

`find` never waits and raises `NotOpen` for a closed log. Callers that may need a closed log, or
append to an unwritten one, await `opening` first.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from ottla.broker.errors import ApiError
from ottla.broker.hosting.hosted import HostedPartition, NotOpen, topic_uuid
from ottla.broker.workers import BLOCKING_THREADS
from ottla.log.checkpoints import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.errors import LogError, NotArrived, StorageFailure
from ottla.metadata.config.values import resolve_topic_overrides, topic_values
from ottla.metadata.delta import delta
from ottla.metadata.image import NO_LEADER, ResourceType
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Coroutine,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from typing import Any
    from uuid import UUID

    from ottla.broker.cluster import Cluster
    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.work import LogRequest, Opened
    from ottla.broker.membership.handover import Brought
    from ottla.broker.workers import Workers
    from ottla.log.closed import ClosedLog
    from ottla.log.partition import PartitionLog
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import MetadataImage, Topic

# Logs that one worker opens at a time: enough to share a sync of the data directory, few enough
# that requests for the first do not wait long for the last.
BATCH: Final = 32
REPAIRS_AT_ONCE: Final = 128  # no request waits for these, and each batch costs a sync
OPENERS: Final = 2  # of the worker threads; the others are left for syncs
# A log that could not be opened is not tried again by lookers before that: each try costs a walk.
RETRY_SECONDS: Final = 1.0
# A log that another node is about to release is looked for so often while a request waits for it;
# then the request is refused. A release takes some 10 ms. If the first of several requests on a
# connection were refused at once, and the log came before the second, a producer would see a gap in
# its sequence numbers.
ARRIVAL_LOOKS: Final = 50
ARRIVAL_SECONDS: Final = 0.01  # between two looks
NOTED_AT_ONCE: Final = 500  # logs that were closed, in one turn of the loop
FILE_DELETE_DELAY: Final = "file.delete.delay.ms"
RECOVERY_PAUSE: Final = 1.0  # pause, in times that a batch of repairs took, for requests

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class _Opening:
    """A log that is being opened, and its waiters."""

    name: TopicPartition
    topic_id: UUID
    create: bool
    done: asyncio.Future[None]
    is_visit: bool = False
    looks: int = 0  # for a log that another node has not released yet
    looks_again: bool = False


class Partitions:
    """Finds partitions by topic and index, and follows the metadata image."""

    def __init__(self, cluster: Cluster, data: Data, workers: Workers) -> None:
        self._cluster = cluster
        self._data = data
        self._workers = workers
        # Open logs; the keys are plain tuples, equal to names, because this is the hot path.
        self._open: dict[tuple[str, int], HostedPartition] = {}
        self.open_names = self._open.keys()
        self._unwritten: dict[tuple[str, int], HostedPartition] = {}
        self._opening: dict[TopicPartition, _Opening] = {}
        self._queue: list[_Opening] = []
        self._openers: set[asyncio.Task[None]] = set()
        # Paths on which a worker closes, renames or repairs something.
        self._busy: dict[TopicPartition, asyncio.Future[None]] = {}
        self._failed: dict[TopicPartition, tuple[LogError, float]] = {}
        # Errors already logged of logs that cannot be opened, so that retries do not log again.
        self._told: dict[TopicPartition, str] = {}
        self._configs: dict[str, LogConfig] = {}
        # Of topics by the bytes of their ids: those of the image take longer to look up.
        self._names: dict[bytes, str] = {}
        # Directories of deleted topics, by name, and when by the loop's clock each may go.
        self._going: dict[str, float] = {}
        self._purging = asyncio.Lock()
        self._finishing = asyncio.Lock()
        # Told of each partition whose log is closed and durable, or deleted.
        self.left: Callable[[HostedPartition], None] = lambda _: None
        self._recovery: asyncio.Task[None] | None = None
        self._is_closed = False  # the directory may be another node's soon
        # Make all records of these durable and acknowledge them; see `Durability.sync`.
        self.durable: Callable[[Sequence[HostedPartition]], Awaitable[None]] = _durable
        # Logs that could not be closed cleanly: some of their records may be in this run's journal
        # alone, so they stay here until the next start replays it.
        self._broken: set[TopicPartition] = set()
        # Logs that could not be released, and when by the loop's clock it is tried again.
        self._stuck: dict[TopicPartition, float] = {}
        # Told of partitions that came from other nodes, and when some may go to others.
        self.arrived: Callable[[Sequence[TopicPartition]], None] = lambda _: None
        self.released: Callable[[], None] = lambda: None
        self.adopted = 0  # logs that came from other nodes since the start
        self.handed_over = 0  # logs that went to others

    def __iter__(self) -> Iterator[HostedPartition]:
        """Those that are open."""
        return iter(tuple(self._open.values()))

    # -- finding ----------------------------------------------------------------------------------

    def find(self, topic: str, index: int) -> HostedPartition:
        """The partition if it can be looked at now; ApiError or LogError when not."""
        hosted = self._open.get((topic, index))
        if hosted is None:
            return self._look(topic, index)
        hosted.is_visit = False
        return hosted

    def find_by_id(self, topic_id: bytes, index: int) -> HostedPartition:
        return self.find(self.name_of(topic_id), index)

    def name_of(self, topic_id: bytes) -> str:
        name = self._names.get(topic_id)
        if name is None:
            name = self._cluster.image.topic_names.get(topic_uuid(topic_id))
            if name is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            self._names[topic_id] = name
        return name

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether the log failed, or could not be opened within the last `RETRY_SECONDS`."""
        hosted = self._open.get((topic, index))
        if hosted is not None:
            return not hosted.log.online
        if not self._failed:
            return False
        return self._recent_failure(TopicPartition(topic, index)) is not None

    def _look(self, topic: str, index: int) -> HostedPartition:
        """A partition that is not open: the view of an unwritten one, or raise."""
        name = TopicPartition(topic, index)
        if (error := self._recent_failure(name)) is not None:
            raise error
        hosted = self._unwritten.get(name)
        if hosted is not None and self._data.has(name):
            raise NotOpen(name)  # it came from another node
        if hosted is None:
            found = self._led(name)
            if self._data.may_have(name):
                raise NotOpen(name)
            from ottla.broker.hosting.unwritten import UnwrittenLog

            log = cast("PartitionLog", UnwrittenLog(self.log_config(topic)))
            hosted = self._unwritten[name] = HostedPartition(found, index, log)
            hosted.internal = self._cluster.is_own(found)
        return hosted

    def _led(self, name: TopicPartition) -> Topic:
        topic = self._cluster.image.topic(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._is_closed or topic.partitions[name.partition].leader != self._cluster.node_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return topic

    def _recent_failure(self, name: TopicPartition) -> LogError | None:
        failed = self._failed.get(name)
        if failed is None:
            return None
        error, until = failed
        if asyncio.get_running_loop().time() < until:
            return error
        del self._failed[name]
        return None

    @property
    def have_tables(self) -> bool:
        """Whether a topic is kept as a table; no broker has a default for that."""
        configs = self._cluster.image.topic_configs.values()
        return any(one.get("ottla.table.enable") == "true" for one in configs)

    def log_config(self, topic: str) -> LogConfig:
        """One object for all partitions of a topic."""
        config = self._configs.get(topic)
        if config is None:
            values = topic_values(self._cluster.image, topic, self._cluster.config)
            config = self._configs[topic] = LogConfig.from_topic_configs(values)
        return config

    # -- opening ----------------------------------------------------------------------------------

    def opening(
        self, names: Iterable[tuple[str, int]], *, write: bool = False
    ) -> Awaitable[None] | None:
        """An awaitable until these partitions are open; None if they are.

        With `write` unwritten partitions get their logs. Waiting never fails: `find` raises what
        went wrong with a partition.
        """
        closed = [TopicPartition(*name) for name in names if name not in self._open]
        begun = [one for name in closed if (one := self._begin(name, write=write)) is not None]
        return self._opened(begun, closed, write=write) if begun else None

    def visiting(self, names: Iterable[TopicPartition]) -> Awaitable[object] | None:
        """`opening` for background work, until `leave`; None if there is nothing to wait for."""
        begun = [one for name in names if (one := self._begin(name, write=False, visit=True))]
        return asyncio.wait([one.done for one in begun]) if begun else None

    def leave(self, visited: Iterable[HostedPartition]) -> None:
        """Close those that are open for background work alone and have nothing under way."""
        closing = [hosted for hosted in visited if hosted.is_visit and hosted.log.is_idle]
        for hosted in closing:
            del self._open[hosted.name]
            hosted.log.begin_close()
        if closing:
            self._in_background(partial(self._close, closing), [hosted.name for hosted in closing])

    def foresee(self, names: Iterable[tuple[str, int]]) -> None:
        """Start opening these partitions for a write that follows."""
        for name in names:
            self._begin(TopicPartition(*name), write=True)

    def opening_by_id(self, keys: Iterable[tuple[bytes, int]]) -> Awaitable[None] | None:
        """`opening` of those whose topics exist."""
        names = self._cluster.image.topic_names
        found = [(names.get(topic_uuid(topic_id)), index) for topic_id, index in keys]
        return self.opening((name, index) for name, index in found if name is not None)

    async def open(self, topic: str, index: int, *, write: bool = False) -> HostedPartition:
        """`opening` and `find` of one partition."""
        if (topic, index) in self._open:
            return self.find(topic, index)
        opening = self.opening([(topic, index)], write=write)
        if opening is not None:
            await opening
        return self.find(topic, index)

    async def _opened(
        self, begun: Sequence[_Opening], names: Sequence[TopicPartition], *, write: bool
    ) -> None:
        await asyncio.wait([one.done for one in begun])
        # Another request may have opened it for reading, and found another topic's directory.
        again = [one for name in names if (one := self._begin(name, write=write, again=True))]
        if again:
            await asyncio.wait([one.done for one in again])

    def _begin(
        self, name: TopicPartition, *, write: bool, again: bool = False, visit: bool = False
    ) -> _Opening | None:
        """The opening of a log that has to be opened for this caller, if there is one to open."""
        if name in self._open:
            return None
        on_disk = self._data.may_have(name)
        under_way = self._opening.get(name)
        if under_way is not None and (on_disk or under_way.create or not write):
            under_way.is_visit &= visit
            return under_way
        # After a failure a reader does not retry at once; a writer retries once.
        failure = self._recent_failure(name)
        if not (on_disk or write) or (failure is not None and (again or not write)):
            return None
        try:
            topic = self._led(name)
        except ApiError:
            return None
        self._failed.pop(name, None)
        begun = _Opening(
            name, topic.topic_id, write, asyncio.get_running_loop().create_future(), visit
        )
        self._opening[name] = begun
        self._enqueue(begun)
        return begun

    def _enqueue(self, one: _Opening) -> None:
        """As soon as nothing of an older topic is under way in its path."""
        if self._opening.get(one.name) is not one or self._is_closed:
            one.done.set_result(None)  # its topic is deleted, and the deletion waits for it
            return
        busy = self._busy.get(one.name)
        if busy is not None:
            busy.add_done_callback(lambda _: self._enqueue(one))
            return
        self._queue.append(one)
        if len(self._openers) < OPENERS:
            # It begins after the current turn: requests that were read together share a batch.
            self._openers.add(asyncio.create_task(self._open_queued()))

    async def _open_queued(self) -> None:
        try:
            await self._open_all()
        finally:
            opener = asyncio.current_task()
            assert opener is not None
            # In the turn that saw the empty queue: with a callback, what is queued until that runs
            # would count on an opener that has ended.
            self._openers.discard(opener)

    async def _open_all(self) -> None:
        while self._queue:
            batch, self._queue = self._queue[:BATCH], self._queue[BATCH:]
            try:
                await self._open_batch(batch)
            except Exception as error:
                logger.exception("logs could not be opened")
                for one in batch:
                    self._fail(one, _unexpected(one.name, error))
            finally:
                for one in batch:
                    if one.looks_again and self._opening.get(one.name) is one:
                        one.looks_again = False
                        asyncio.get_running_loop().call_later(ARRIVAL_SECONDS, self._enqueue, one)
                        continue
                    if self._opening.get(one.name) is one:
                        del self._opening[one.name]
                    if not one.done.done():
                        one.done.set_result(None)
                # Those that came, or were opened, while another node became their leader.
                self.depart(one.name for one in batch)

    async def _open_batch(self, batch: Sequence[_Opening]) -> None:
        vacant = await asyncio.gather(*map(self._is_vacant, batch))
        ready = [
            one
            for one, is_vacant in zip(batch, vacant, strict=True)
            if is_vacant and self._opening.get(one.name) is one
        ]
        ready = await self._brought(ready)
        requests = [self._request(one) for one in ready]
        if self._data.work.is_quick(requests):
            results = self._data.work.open_logs(requests)
            await asyncio.sleep(0)  # others are served between batches
        else:
            results = await self._workers.run(partial(self._data.work.open_logs, requests))
        strays = []
        for one, request, opened in zip(ready, requests, results, strict=True):
            if self._opening.get(one.name) is not one:
                # Deleted meanwhile. The deletion waits for this, then takes the directory away.
                if opened.log is not None:
                    await self._drop(opened.log, clean=False)
                continue
            self._data.was_opened(request, opened)
            if opened.stray and one.create:
                strays.append(one)
            else:
                await self._settle(one, opened)
        if strays:
            await self._open_batch(strays)

    async def _brought(self, ready: Sequence[_Opening]) -> list[_Opening]:
        """Those that can be opened, after a look for those that other nodes may have."""
        missing = [
            one for one in ready if self._data.may_have(one.name) and not self._data.has(one.name)
        ]
        if not missing:
            return list(ready)
        results = await self._seek([self._request(one) for one in missing])
        for one in missing:
            error = results[one.name].error
            if isinstance(error, NotArrived) and one.looks < ARRIVAL_LOOKS and self._is_led(one):
                one.looks += 1
                one.looks_again = True
            elif error is not None:
                self._fail(one, error)
        return [
            one
            for one in ready
            if self._opening.get(one.name) is one
            and (one.name not in results or results[one.name].error is None)
        ]

    def _is_led(self, one: _Opening) -> bool:
        topic = self._cluster.image.topic_by_id(one.topic_id)
        if topic is None or self._is_closed:
            return False
        return topic.partitions[one.name.partition].leader == self._cluster.node_id

    async def _seek(self, requests: Sequence[LogRequest]) -> dict[TopicPartition, Brought]:
        """Adopt logs that are on their way to this node, or that a dead one has."""
        handover, image = self._data.work.handover, self._cluster.image
        assert handover is not None
        results = await self._workers.run(partial(handover.bring, requests, image))
        arrived, deleted = [], []
        for request in requests:
            name, brought = request.name, results[request.name]
            if self._cluster.image.topic_by_id(request.topic_id) is None:
                if brought.note is not None:
                    deleted.append(name)
                continue
            self._data.was_brought(request, brought)
            if brought.note is not None:
                self._failed.pop(name, None)
                arrived.append(name)
        if deleted:
            await self._workers.run(partial(self._data.work.retire, deleted))
        if arrived:
            self.adopted += len(arrived)
            self.arrived(arrived)
            self.released()  # a dead node's lock, for which others may wait
        return results

    def _request(self, one: _Opening) -> LogRequest:
        config = self.log_config(one.name.topic)
        return self._data.request(one.name, one.topic_id, config, create=one.create)

    async def _is_vacant(self, one: _Opening) -> bool:
        """Whether no checkpoint of an older topic could be taken for this one's after a crash."""
        try:
            if not self._data.has(one.name):
                await self._data.checkpoints.vacant(one.name)
        except LogError as error:
            self._fail(one, error)
            return False
        return True

    async def _settle(self, one: _Opening, opened: Opened) -> None:
        """Serve the log, unless another node leads it now."""
        name, log = one.name, opened.log
        if opened.elsewhere:
            self._data.seek_again(name)
            self._fail(one, NotArrived(f"{name.topic}-{name.partition} is on its way"))
        if opened.error is not None:
            self._fail(one, opened.error)
        if log is None:
            return
        topic = self._cluster.image.topics_by_name[name.topic]
        if topic.partitions[name.partition].leader != self._cluster.node_id:
            self._data.was_closed(name, trusted=await self._drop(log, clean=True))
            return
        log.config = self.log_config(name.topic)
        hosted = self._unwritten.pop(name, None)
        if hosted is None:
            hosted = HostedPartition(topic, name.partition, log)
            hosted.internal = self._cluster.is_own(topic)
            hosted.is_visit = one.is_visit
        hosted.log = log
        self._open[name] = hosted
        self._told.pop(name, None)
        if log.log_end_offset and (hosted.waiters or hosted.watchers):
            hosted.wake()  # readers of an unwritten partition that another node had written

    async def _drop(self, log: PartitionLog, *, clean: bool) -> bool:
        log.begin_close()
        (closed,) = await self._workers.run(partial(self._data.work.close_logs, [log], clean=clean))
        return closed

    def _fail(self, one: _Opening, error: LogError) -> None:
        is_coming = isinstance(error, NotArrived)
        pause = ARRIVAL_SECONDS if is_coming else RETRY_SECONDS
        self._failed[one.name] = error, asyncio.get_running_loop().time() + pause
        if not is_coming:
            self.tell(one.name, error)

    def tell(self, name: TopicPartition, error: LogError) -> None:
        """Log why a partition cannot be used, once."""
        if self._told.get(name) != str(error):
            self._told[name] = str(error)
            logger.error("%s-%d cannot be used: %s", *name, error)

    # -- recovery ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Repair in the background the logs that an unclean stop left."""
        if self._data.was_empty:
            return
        self._recovery = asyncio.create_task(self._recover())

    async def _recover(self) -> None:
        await self.purge()
        loop = asyncio.get_running_loop()
        left = self._data.untrusted()
        while left:
            batch, left = left[:REPAIRS_AT_ONCE], left[REPAIRS_AT_ONCE:]
            batch = [name for name in batch if self._is_idle(name, trusted=False)]
            if batch:
                began = loop.time()
                await asyncio.wait(
                    [self._in_background(partial(self._recover_batch, batch), batch)]
                )
                await asyncio.sleep((loop.time() - began) * RECOVERY_PAUSE)
        await self.finish_replay()

    async def finish_replay(self) -> None:
        """Let the journal of the run before go, if all that it held is in the logs."""
        # Once: whoever came second would remove the journal of this run.
        async with self._finishing:
            if self._data.is_replayed:
                await self._workers.run(self._data.drop_journal)
                self._data.work.leftover = None

    def _is_idle(self, name: TopicPartition, *, trusted: bool) -> bool:
        """Whether the log is closed and unused, and whether it is trusted."""
        if name in self._open or name in self._opening or name in self._busy:
            return False
        if not self._data.has(name) or self._data.is_trusted(name) != trusted:
            return False
        try:
            self._led(name)
        except ApiError:
            return False
        return True

    def _requests(self, names: Iterable[TopicPartition]) -> list[LogRequest]:
        """Of closed logs of topics that exist."""
        topics = self._cluster.image.topics_by_name
        return [
            self._data.request(
                name, topics[name.topic].topic_id, self.log_config(name.topic), create=False
            )
            for name in names
        ]

    async def _recover_batch(self, names: Sequence[TopicPartition]) -> None:
        requests = self._requests(names)
        results = await self._workers.run(partial(self._data.work.recover, requests))
        for request, (opened, trusted) in zip(requests, results, strict=True):
            if not self._data.has(request.name):
                continue  # deleted meanwhile
            self._data.was_opened(request, opened)
            self._data.was_closed(request.name, trusted=trusted)
            if opened.error is not None:
                self.tell(request.name, opened.error)

    # -- retention of closed logs -----------------------------------------------------------------

    async def shrink(
        self, names: Iterable[TopicPartition], now_ms: int
    ) -> dict[TopicPartition, ClosedLog]:
        """Apply retention to closed logs in a worker; they stay closed.

        Returns the rest of each log that was not opened meanwhile; opening waits for it.
        """
        idle = [name for name in names if self._is_idle(name, trusted=True)]
        left: dict[TopicPartition, ClosedLog] = {}
        if idle:
            await asyncio.wait(
                [self._in_background(partial(self._shrink, idle, now_ms, left), idle)]
            )
        return left

    async def _shrink(
        self, names: Sequence[TopicPartition], now_ms: int, left: dict[TopicPartition, ClosedLog]
    ) -> None:
        requests = self._requests(names)
        results = await self._workers.run(partial(self._data.work.shrink, requests, now_ms))
        for request, shrunk in zip(requests, results, strict=True):
            name = request.name
            if not self._data.has(name):
                continue  # deleted meanwhile
            self._data.was_opened(request, shrunk.opened)
            self._data.was_closed(name, trusted=shrunk.is_trusted)
            if shrunk.opened.error is not None:
                self.tell(name, shrunk.opened.error)
            elif shrunk.left is not None and shrunk.is_trusted:
                left[name] = shrunk.left

    # -- following the image ----------------------------------------------------------------------

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        """Drop deleted and moved partitions; adopt new leader epochs and settings."""
        changes = delta(before, after)
        if changes.deleted:
            self._names.clear()
        if changes.deleted or changes.configs:
            self._configs.clear()
        if changes.deleted:
            self._delete(changes.deleted, before)
        for topic in changes.created:
            self._note_new(topic, 0)
        self._follow_leaders(changes.changed)
        touched = {name for kind, name in changes.configs if kind is ResourceType.TOPIC}
        everything = any(kind is ResourceType.BROKER for kind, _ in changes.configs)
        if touched or everything:
            for hosted in (*self._open.values(), *self._unwritten.values()):
                if everything or hosted.topic in touched:
                    hosted.log.config = self.log_config(hosted.topic)

    def _note_new(self, topic: Topic, first: int) -> None:
        """Partitions that this node leads and nobody has led before it exist nowhere."""
        for index, partition in enumerate(topic.partitions[first:], first):
            if partition.leader == self._cluster.node_id and not partition.leader_epoch:
                self._data.is_new(TopicPartition(topic.name, index))

    def _follow_leaders(self, changed: Iterable[tuple[Topic, Topic]]) -> None:
        moved, closed = [], []
        for old, topic in changed:
            self._note_new(topic, len(old.partitions))
            for index, (before, after) in enumerate(
                zip(old.partitions, topic.partitions, strict=False)  # partitions may be added
            ):
                if before is after:
                    continue
                name = TopicPartition(topic.name, index)
                if before.leader != after.leader:
                    self._data.seek_again(name)
                hosted = self._open.get(name) or self._unwritten.get(name)
                if after.leader != self._cluster.node_id:
                    if hosted is None:
                        closed.append(name)
                    else:
                        moved.append(hosted)
                elif hosted is not None:
                    hosted.leader_epoch = after.leader_epoch
        if moved:
            self._give_up(moved)
        self.depart(closed)

    def _give_up(self, moved: Sequence[HostedPartition]) -> None:
        """Another node leads these from now on."""
        closing = [hosted for hosted in moved if self._open.pop(hosted.name, None) is not None]
        for hosted in moved:
            self._unwritten.pop(hosted.name, None)
            hosted.leaving = True
        if closing:
            self._in_background(partial(self._leave, closing), [hosted.name for hosted in closing])
        for hosted in moved:
            hosted.wake()

    async def _leave(self, closing: list[HostedPartition]) -> None:
        """Close logs that another node leads, after all their records are acknowledged."""
        while behind := [
            hosted
            for hosted in closing
            if hosted.log.online and hosted.log.high_watermark < hosted.log.log_end_offset
        ]:
            await self.durable(behind)
        names, logs = [hosted.name for hosted in closing], [hosted.log for hosted in closing]
        for hosted in closing:
            hosted.log.begin_close()
            hosted.gone = True
        await self._close(closing)
        await asyncio.gather(*map(_unused, logs))
        await self._release(names)

    # -- other nodes of the machine ---------------------------------------------------------------

    def depart(self, names: Iterable[TopicPartition]) -> None:
        """Release closed logs that other nodes lead."""
        leaving = [
            name
            for name in names
            if self._is_led_elsewhere(name) and name not in self._open and name not in self._opening
        ]
        if leaving:
            self._in_background(partial(self._release, leaving), leaving)

    def depart_again(self) -> None:
        """Retry the logs that could not be released a while ago."""
        now = asyncio.get_running_loop().time()
        due = [name for name, at in self._stuck.items() if at <= now]
        for name in due:
            del self._stuck[name]
        self.depart(due)

    async def bring(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, Brought]:
        """Look for logs that this node leads and does not have; they stay closed."""
        missing = []
        for name in names:
            if self._data.has(name) or name in self._opening or name in self._busy:
                continue
            try:
                self._led(name)
                await self._data.checkpoints.vacant(name)
            except (ApiError, LogError):
                continue
            if name not in self._opening and name not in self._busy:
                missing.append(name)
        results: dict[TopicPartition, Brought] = {}

        async def seek() -> None:
            results.update(await self._seek(self._requests(missing)))

        if missing:
            await asyncio.wait([self._in_background(seek, missing)])
            self.depart(missing)  # another node may lead them by now
        return results

    def _is_led_elsewhere(self, name: TopicPartition) -> bool:
        """Whether the log is here, and another node waits for it."""
        if self._data.work.handover is None or not self._data.has(name) or name in self._broken:
            return False
        topic = self._cluster.image.topic(name.topic)
        if topic is None or not name.partition < len(topic.partitions):
            return False
        return topic.partitions[name.partition].leader not in (NO_LEADER, self._cluster.node_id)

    async def _release(self, names: Iterable[TopicPartition]) -> None:
        """Those that are not as a clean close leaves them are recovered first, or stay."""
        handover, image = self._data.work.handover, self._cluster.image
        names = [name for name in names if self._is_led_elsewhere(name)]
        if handover is None or not names:
            return
        unclean = [name for name in names if not self._data.is_trusted(name)]
        if unclean:
            await self._recover_batch(unclean)
        notes = {}
        for name in names:
            if self._is_led_elsewhere(name) and self._data.is_trusted(name):
                topic = image.topics_by_name[name.topic]
                epoch = topic.partitions[name.partition].leader_epoch
                notes[name] = self._data.note(name, topic.topic_id, epoch)
        failed = await self._workers.run(partial(handover.release, notes))
        for name in names:
            if name not in notes or name in failed:
                self._stuck[name] = asyncio.get_running_loop().time() + RETRY_SECONDS
            if name in failed:
                self.tell(name, StorageFailure(f"its directory cannot be moved: {failed[name]}"))
            elif name in notes:
                self._data.was_released(name, notes[name].topic_id.bytes)
        if notes:
            self.handed_over += len(notes) - len(failed)
            self.released()

    async def _close(self, closing: list[HostedPartition], *, clean: bool = True) -> None:
        """Close the logs. Empties the list, so that not all of them are freed in one turn."""
        logs = [hosted.log for hosted in closing]
        closed = await self._workers.run(partial(self._data.work.close_logs, logs, clean=clean))
        del logs
        while closing:
            part, closing[-NOTED_AT_ONCE:] = closing[-NOTED_AT_ONCE:], ()
            results, closed[-NOTED_AT_ONCE:] = closed[-NOTED_AT_ONCE:], ()
            for hosted, trusted in zip(part, results, strict=True):
                if trusted:  # otherwise it is unknown which of its offsets are durable
                    self._data.checkpoints.note(hosted)
                    self.left(hosted)
                else:
                    self._broken.add(hosted.name)
                self._data.was_closed(hosted.name, trusted=trusted)
            await asyncio.sleep(0)

    def _delete(self, topics: Sequence[Topic], before: MetadataImage) -> None:
        """Out of sight at once; files are closed and renamed by a worker, and removed later."""
        gone: list[HostedPartition] = []
        logs: list[PartitionLog] = []
        openings: list[_Opening] = []
        names: list[TopicPartition] = []
        delays = _delete_delays(before, [topic.name for topic in topics], self._cluster.config)
        for topic in topics:
            for index in range(len(topic.partitions)):
                name = TopicPartition(topic.name, index)
                hosted = self._open.pop(name, None)
                if hosted is not None:
                    hosted.log.begin_close()
                    logs.append(hosted.log)
                hosted = hosted or self._unwritten.pop(name, None)
                self._data.seek_again(name)
                if hosted is not None:
                    hosted.gone = hosted.leaving = True
                    self.left(hosted)
                    gone.append(hosted)
                opening = self._opening.pop(name, None)
                if opening is not None:
                    openings.append(opening)
                self._failed.pop(name, None)
                self._told.pop(name, None)
                if self._data.forget(name, topic.topic_id.bytes) or opening is not None:
                    names.append(name)
        if names:
            self._in_background(partial(self._retire, logs, openings, names, delays), names)
        for hosted in gone:
            hosted.wake()

    async def _retire(
        self,
        logs: list[PartitionLog],
        openings: Sequence[_Opening],
        names: Sequence[TopicPartition],
        delays: Mapping[str, float],
    ) -> None:
        if openings:
            # When they are open they find that they are not needed any more, and close.
            await asyncio.wait([one.done for one in openings])
        await self._workers.run(partial(self._data.work.close_logs, logs, clean=False))
        while logs:  # thousands of them are not freed in one turn
            del logs[-NOTED_AT_ONCE:]
            await asyncio.sleep(0)
        retired = await self._workers.run(partial(self._data.work.retire, names))
        now = asyncio.get_running_loop().time()
        for name, directory in retired.items():
            if directory is None:
                self._data.was_not_retired(name)
            else:
                self._going[directory] = now + delays[name.topic]

    async def purge(self) -> None:
        """Remove the files of topics that were deleted long enough ago, or before the start."""
        async with self._purging:
            now = asyncio.get_running_loop().time()
            self._going = {name: at for name, at in self._going.items() if at > now}
            await self._workers.run(partial(self._data.work.purge, frozenset(self._going)))

    def purge_is_due(self) -> bool:
        """Whether file.delete.delay.ms of a deleted topic has passed since the last purge."""
        now = asyncio.get_running_loop().time()
        return any(at <= now for at in self._going.values())

    def _in_background(
        self, work: Callable[[], Coroutine[Any, Any, None]], names: Sequence[TopicPartition]
    ) -> asyncio.Task[None]:
        """Run what keeps these paths busy, after what keeps them busy now."""
        before = {busy for name in names if (busy := self._busy.get(name)) is not None}

        async def run() -> None:
            if before:
                await asyncio.wait(before)
            try:
                await work()
            except Exception:
                logger.exception("could not close, delete or recover logs")

        task = asyncio.create_task(run())
        for name in names:
            self._busy[name] = task

        def free(_: object) -> None:
            for name in names:
                if self._busy.get(name) is task:
                    del self._busy[name]

        task.add_done_callback(free)
        return task

    # -- stopping ---------------------------------------------------------------------------------

    async def close(self, *, clean: bool) -> None:
        """Close every log, so that the next start need not walk it if `clean`."""
        self._is_closed = True
        if self._recovery is not None:
            self._recovery.cancel()
        pending: set[asyncio.Future[None]] = {*self._busy.values(), *self._openers}
        if self._recovery is not None:
            pending.add(self._recovery)
        if pending:
            await asyncio.wait(pending)
        closing = list(self._open.values())
        self._open.clear()
        for hosted in closing:
            hosted.log.begin_close()
        # As few shares as there are threads: each costs a sync of the file system.
        shares = [closing[start::BLOCKING_THREADS] for start in range(BLOCKING_THREADS)]
        closing.clear()
        await asyncio.gather(*(self._close(share, clean=clean) for share in shares if share))


async def _durable(_: Sequence[HostedPartition]) -> None:
    """Without a `Durability` nothing was appended."""


async def _unused(log: PartitionLog) -> None:
    """Wait until no thread works in the directory of a log that is being closed."""
    loop = asyncio.get_running_loop()
    unused = loop.create_future()

    def tell() -> None:
        loop.call_soon_threadsafe(unused.set_result, None)

    log.when_closed(tell)
    await unused


def _unexpected(name: TopicPartition, error: Exception) -> LogError:
    return StorageFailure(f"no log for {name.topic}-{name.partition}: {error!r}")


def _delete_delays(
    image: MetadataImage, topics: Iterable[str], config: BrokerConfig
) -> dict[str, float]:
    """file.delete.delay.ms of these topics, in seconds; shared settings are resolved once."""
    default = resolve_topic_overrides(image, {}, config).get_int(FILE_DELETE_DELAY)
    own = ((topic, image.topic_configs.get(topic, {})) for topic in topics)
    return {topic: int(values.get(FILE_DELETE_DELAY, default)) / 1000 for topic, values in own}

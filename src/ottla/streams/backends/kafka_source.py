"""A consumer's way into Kafka: in a group, or with partitions assigned by hand.

| how | when | start | commits |
|---|---|---|---|
| group | RESUMABLE, LOAD_BALANCED | committed or stored position, else reset | to the group |
| by hand | REAL_TIME | the ends, read once, or the beginning | none |
| by hand | after a seek or rewind | as asked | to the group, in RESUMABLE |

Start offsets are looked up when partitions are assigned and given to librdkafka as numbers. So
messages sent after the consumer has opened are delivered, also with `reset=LATEST`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException

from ottla.streams.backends.kafka_config import consumer_config, is_cooperative
from ottla.streams.backends.kafka_places import Places, partition, shard_of
from ottla.streams.backends.kafka_thread import NS_PER_MS, ConsumerThread, ThreadEnded
from ottla.streams.base import Source
from ottla.streams.errors import ConnectError, ConsumerClosed, Evicted, StreamError
from ottla.streams.types import Mode, Reset, ShardKey, to_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from confluent_kafka import Consumer, TopicPartition

    from ottla.streams.backends.kafka_config import Config
    from ottla.streams.base import Host, Progress
    from ottla.streams.positions import StoredPositions
    from ottla.streams.types import ConsumerOptions, KafkaOptions, Message, SeqPos

T = TypeVar("T")

LOGGER: Final = logging.getLogger(__name__)

SETTLING: Final = frozenset((KafkaError.REBALANCE_IN_PROGRESS, KafkaError._WAIT_COORD))
EVICTED: Final = frozenset((KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID))
RETRY_DELAY: Final = 0.2
SETTLE_TIME: Final = 5.0  # seconds in which a group usually has a coordinator and a generation


class KafkaSource(Source):
    """One confluent-kafka consumer in its own thread."""

    def __init__(
        self,
        base: Config,
        streams: Sequence[str],
        options: ConsumerOptions,
        kafka: KafkaOptions,
        *,
        group: str | None,
        timeout: float,
        stored: StoredPositions | None = None,
    ) -> None:
        # librdkafka wants a name even where no group is joined; nothing is committed under it.
        name = group or f"ottla-{uuid.uuid4()}"
        self._config = consumer_config(base, kafka, options, name)
        self._is_cooperative = is_cooperative(self._config)
        self._streams = list(streams)
        self._options = options
        self._kafka = kafka
        self._group = group
        self._timeout = timeout
        self._stored = stored
        self._spare: deque[Message] = deque()
        self._owned: set[ShardKey] = set()
        self._known: set[ShardKey] = set()
        self._began: dict[ShardKey, int] = {}
        """Start offsets of assigned partitions: the position until a message was read."""
        self._joined = asyncio.Event()
        self._is_manual = group is None
        self._is_chosen = False
        self._is_moving = False
        self._has_thread = asyncio.Event()  # not set while a move replaces it
        self._has_thread.set()
        self._next_refresh = 0.0
        self._thread_: ConsumerThread | None = None
        self._host_: Host | None = None

    @property
    def native(self) -> object:
        return self._thread.consumer

    @property
    def group(self) -> str | None:
        return None if self._is_manual else self._group  # a seek has left it

    @property
    def no_commit(self) -> str | None:
        if self._is_manual and self._options.mode is Mode.LOAD_BALANCED:
            return "a seek has taken this consumer out of its group, whose other members go on"
        return None

    @property
    def _thread(self) -> ConsumerThread:
        assert self._thread_ is not None
        return self._thread_

    # -- from the beginning to the end ------------------------------------------------------------

    async def open(self, host: Host) -> None:
        self._host_ = host
        self._new_thread()
        shards = await self._all_shards()
        self._known = set(shards)
        if self._is_manual:
            reset = self._options.reset
            await self._assign(
                await self._ask(
                    lambda places: [partition(one, places.by_reset(one, reset)) for one in shards]
                )
            )
        else:
            await self._join()

    def _new_thread(self) -> None:
        try:
            self._thread_ = ConsumerThread(
                self._config,
                asyncio.get_running_loop(),
                self._options.prefetch,
                self._options.prefetch_bytes,
            )
        except KafkaException as error:
            raise ConnectError(f"librdkafka refuses the options: {error}") from error

    async def _join(self) -> None:
        """Subscribe, and wait for the first assignment, which may be empty."""
        await self._thread.run(
            lambda consumer: consumer.subscribe(
                self._streams,
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
        )
        deadline = _now() + self._timeout
        while not self._joined.is_set():
            await self._thread.wait(max(deadline - _now(), 0))
            self._thread.check()
            if _now() >= deadline and not self._joined.is_set():
                raise ConnectError(
                    f"not a member of group {self._group!r} after {self._timeout:g} s; "
                    "check that the cluster has a coordinator for it"
                )
            await asyncio.sleep(0)

    async def close(self) -> None:
        if self._thread_ is not None:
            self._is_moving = True
            await self._thread.close()

    # -- messages in ------------------------------------------------------------------------------

    async def fetch(self, max_messages: int, timeout: float) -> list[Message]:  # noqa: ASYNC109
        spare = self._spare
        if not spare:
            if self._is_manual and _now() >= self._next_refresh:
                await self._refresh()
            await self._thread.wait(timeout)
            batch = self._thread.take()
            if len(batch) <= max_messages:
                return batch
            spare.extend(batch)
        return [spare.popleft() for _ in range(min(max_messages, len(spare)))]

    def interrupt(self) -> None:
        self._thread.wake()

    async def _refresh(self) -> None:
        """Partitions that were added since are read from their beginning."""
        self._next_refresh = _now() + self._kafka.metadata_refresh
        if self._is_chosen:
            return
        try:
            found = await self._all_shards()
        except StreamError as error:
            LOGGER.warning("could not refresh partitions; trying again later: %s", error)
            return
        new = [shard for shard in found if shard not in self._known]
        if new:
            self._known.update(new)
            starts = [partition(shard, OFFSET_BEGINNING) for shard in new]
            await self._thread.run(lambda consumer: consumer.incremental_assign(starts))
            self._owned.update(new)

    # -- partitions come and go: in the consumer's thread -----------------------------------------

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        starts = self._thread.wait_for(self._starts([shard_of(one) for one in given]))
        began = {shard_of(one): one.offset for one in starts}
        if self._is_cooperative:
            consumer.incremental_assign(starts)
        else:
            consumer.assign(starts)
        self._thread.tell(lambda: self._now_owned(began))

    async def _starts(self, shards: list[ShardKey]) -> list[TopicPartition]:
        if self._stored is None:
            return await self._ask(lambda places: self._after_commits(places, shards))
        loaded = await self._stored.load(shards)
        return await self._ask(
            lambda places: [
                partition(one, self._unknown(places, one))
                if at is None
                else partition(one, places.stored(one, at, self._options))
                for one, at in loaded.items()
            ]
        )

    def _after_commits(self, places: Places, shards: list[ShardKey]) -> list[TopicPartition]:
        return [
            partition(one, places.by_reset(one, self._options.reset) if at is None else at)
            for one, at in places.committed(shards).items()
        ]

    def _unknown(self, places: Places, shard: ShardKey) -> int:
        """A shard the store knows nothing of: the start position, unless reset forbids one."""
        if self._options.reset is Reset.NONE:
            return places.by_reset(shard, Reset.NONE)
        return places.place(shard, self._options.start_position)

    def _on_revoke(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        self._give_up(consumer, gone, lost=False)

    def _on_lost(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        self._give_up(consumer, gone, lost=True)

    def _give_up(self, consumer: Consumer, gone: list[TopicPartition], *, lost: bool) -> None:
        # When the consumer closes or moves, its shell has settled what there was to settle.
        if gone and not self._is_moving:
            self._thread.wait_for(self._revoke([shard_of(one) for one in gone], lost=lost))
        if self._is_cooperative:
            consumer.incremental_unassign(gone)
        else:
            consumer.unassign()

    async def _revoke(self, shards: list[ShardKey], *, lost: bool) -> None:
        self._thread.discard(shards)
        gone = set(shards)
        self._spare = deque(one for one in self._spare if (one.stream, one.shard) not in gone)
        self._owned -= gone
        assert self._host_ is not None
        try:
            await self._host_.revoke(gone, lost=lost, within=self._kafka.revoke_timeout)
        except Exception as error:  # noqa: BLE001  # the group is not to wait for our store
            LOGGER.warning("could not commit acknowledged messages of %s: %s", shards, error)

    def _now_owned(self, began: dict[ShardKey, int]) -> None:
        self._owned.update(began)
        self._began.update(began)
        self._joined.set()
        self._thread.wake()

    # -- acknowledgements out ---------------------------------------------------------------------

    async def commit(self, progress: Progress) -> None:
        offsets = [partition(shard, at) for shard, at in progress.positions.items()]
        if not offsets:
            return
        deadline = _now() + SETTLE_TIME
        while True:
            error = await self._run(lambda consumer: _commit(consumer, offsets))
            if error is None:
                return
            if error.code() in EVICTED:
                raise Evicted(
                    f"Kafka refused the commit, because the group removed this consumer: "
                    f"{error.str()}; uncommitted messages are delivered again, so read on"
                )
            if error.code() not in SETTLING or _now() >= deadline:
                raise StreamError(
                    f"Kafka refused the commit: {error.str()}; it will be tried again"
                )
            await asyncio.sleep(RETRY_DELAY)

    async def group_metadata(self) -> object:
        """Group metadata for a transaction."""
        return await self._run(lambda consumer: consumer.consumer_group_metadata())

    # -- moving -----------------------------------------------------------------------------------

    async def seek(self, to: datetime, shards: frozenset[ShardKey]) -> None:
        after = to_ns(to) // NS_PER_MS
        chosen = shards or await self._all_shards()
        await self._move(await self._ask(lambda places: places.later_than(chosen, after)), shards)

    async def rewind(self, to: SeqPos, shards: frozenset[ShardKey]) -> None:
        owned = sorted(self._owned) or [ShardKey(stream, 0) for stream in self._streams]
        await self._move(await self._ask(lambda places: places.at(shards or owned, to)), shards)

    async def _all_shards(self) -> list[ShardKey]:
        """All partitions of the topics, as the cluster has them now."""
        return await self._ask(lambda places: places.shards(self._streams), between_reads=True)

    async def _ask(self, question: Callable[[Places], T], *, between_reads: bool = False) -> T:
        """Ask the cluster. What asks for topics does so between reads, see `kafka_thread`."""
        try:
            return await self._run(
                lambda consumer: question(Places(consumer, self._timeout)),
                between_reads=between_reads,
            )
        except KafkaException as error:
            raise StreamError(f"Kafka did not answer: {error}") from error

    async def _run(self, job: Callable[[Consumer], T], *, between_reads: bool = False) -> T:
        """Run `job` in the thread; one that comes during a move waits for the new consumer."""
        while True:
            thread = self._thread
            try:
                return await thread.run(job, between_reads=between_reads)
            except ThreadEnded:
                await self._has_thread.wait()
                if self._thread is thread:
                    raise ConsumerClosed("the consumer is closed") from None

    async def _move(self, starts: list[TopicPartition], chosen: frozenset[ShardKey]) -> None:
        if not self._is_manual:
            # A member that reads by hand would hold up its group, so it leaves.
            self._is_moving = True
            self._has_thread.clear()
            try:
                await self._thread.close()
                self._is_moving = False
                self._is_manual = True
                self._new_thread()
            finally:
                self._has_thread.set()
        self._is_chosen = bool(chosen)
        await self._assign(starts)

    async def _assign(self, starts: list[TopicPartition]) -> None:
        def assign(consumer: Consumer) -> None:
            consumer.assign(starts)
            self._thread.discard()

        await self._thread.run(assign)
        self._spare.clear()
        self._began = {shard_of(one): one.offset for one in starts}
        self._owned = set(self._began)
        self._next_refresh = _now() + self._kafka.metadata_refresh

    async def ends_now(self) -> dict[ShardKey, int]:
        began = {shard: self._began.get(shard, 0) for shard in sorted(self._owned)}
        return await self._ask(lambda places: dict(places.ends_after(began)))

    async def lag(self, positions: Mapping[ShardKey, int]) -> dict[ShardKey, int | None]:
        # A partition of which nothing was read is where its assignment began.
        began = {shard: self._began.get(shard, 0) for shard in sorted(self._owned)}
        return await self._ask(lambda places: dict(places.lags(began, positions)))


def _commit(consumer: Consumer, offsets: list[TopicPartition]) -> KafkaError | None:
    """The error of a commit, of all or of any partition."""
    try:
        done = consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        failed: KafkaError = error.args[0]
        return failed
    return next((one.error for one in done or () if one.error is not None), None)


def _now() -> float:
    return asyncio.get_running_loop().time()

"""A consumer's way into Redis Streams: lanes of keys, acknowledged entry by entry.

In a group the server keeps the pending entries; without one (real time, an external offset store,
after a seek) the lanes only remember the id to read after. Seeking leaves the group permanently.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from redis.exceptions import RedisError, ResponseError

from ottla.streams.backends.redis_entries import pairs
from ottla.streams.backends.redis_keys import by_slot
from ottla.streams.backends.redis_lane import BEGINNING_ID, Lane, Plan, Shard, id_parts
from ottla.streams.backends.redis_link import told_as_ours
from ottla.streams.backends.redis_replies import text
from ottla.streams.backends.redis_shards import Shards
from ottla.streams.base import Source
from ottla.streams.errors import FormatError, NoStoredPosition, PositionOutOfRange, StreamError
from ottla.streams.types import AutoCommit, Mode, Reset, ShardKey, to_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from ottla.streams.backends.redis_entries import EntryFormat
    from ottla.streams.backends.redis_lane import Found
    from ottla.streams.backends.redis_link import Link
    from ottla.streams.backends.redis_replies import RawEntry
    from ottla.streams.base import Host, Progress
    from ottla.streams.positions import StoredPositions
    from ottla.streams.types import ConsumerOptions, Message, RedisOptions, SeqPos

LOGGER: Final = logging.getLogger(__name__)

BATCH: Final = 500
BATCH_BALANCED: Final = 10  # small, so that a fast member is not starved by a slow one's prefetch
RENEWALS_PER_IDLE: Final = 3
WAKE_AGAIN: Final = 0.05  # seconds
ACKS_PER_COMMAND: Final = 1000  # bounds how long one command holds up the server


class RedisSource(Source):
    """Reads streams in a group, or after given ids."""

    def __init__(
        self,
        link: Link,
        entries: EntryFormat,
        streams: Sequence[str],
        options: ConsumerOptions,
        redis: RedisOptions,
        *,
        group: str | None,
        consumer: str,
        stored: StoredPositions | None = None,
    ) -> None:
        self._link = link
        self._stored = stored
        self._entries = entries
        self._options = options
        self._redis = redis
        self._group = group
        self._consumer = consumer
        self._is_detached = False  # out of its group, by a seek
        self._is_chosen = False  # the shards are those of a seek: none is added
        self._shards = Shards(link, streams, redis)
        self._lanes: list[Lane] = []
        self._reads: dict[asyncio.Task[list[Found]], Lane] = {}
        self._spare: deque[Message] = deque()
        self._failure: StreamError | None = None
        self._wake = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._next_refresh = 0.0
        self.per_entry = group is not None

    @property
    def native(self) -> object:
        return self._link.client

    @property
    def group(self) -> str | None:
        return self._group

    @property
    def no_commit(self) -> str | None:
        if self._is_detached:
            return "a seek has taken this consumer out of its group; open another one to commit"
        return None

    # -- from the beginning to the end ------------------------------------------------------------

    async def open(self, host: Host) -> None:
        with told_as_ours("open the streams"):
            await self._open()

    async def _open(self) -> None:
        found = await self._shards.discover()
        stored: Mapping[ShardKey, int | None] = {}
        if self._stored is not None:
            stored = await self._stored.load([shard.id for shard in found])
        for shard in found:
            if self._group is not None:
                await self._join(shard, self._group)
            else:
                await self._place(shard, stored.get(shard.id))
        self._start(found)

    async def _join(self, shard: Shard, group: str) -> None:
        reset = self._options.reset
        if reset is Reset.NONE and not await self._shards.has_group(shard, group):
            raise _nothing_stored(shard)
        start = "$" if reset is Reset.LATEST else BEGINNING_ID
        await self._shards.create_group(shard, group, start)

    async def _place(self, shard: Shard, position: int | None) -> None:
        """Find the id after which to read: that before a stored position, or by the options."""
        tail = await self._shards.tail(shard)
        if position is not None:
            shard.last = self._entries.ids.predecessor(position)
            if id_parts(shard.last) > id_parts(tail):
                shard.last = self._out_of_range(shard, position, tail)
        elif self._stored is not None:
            if self._options.reset is Reset.NONE:
                raise _nothing_stored(shard)
            shard.last = self._id_before(self._options.start_position, tail)
        else:
            shard.last = tail if self._options.reset is Reset.LATEST else BEGINNING_ID

    def _out_of_range(self, shard: Shard, position: int, tail: str) -> str:
        choice = self._options.on_out_of_range
        if choice == "raise":
            raise PositionOutOfRange(
                f"the stored position {position} is beyond the last id {tail}; "
                "choose on_out_of_range=wait, earliest or latest",
                stream=shard.stream,
                shard=shard.number,
            )
        return {"wait": shard.last, "earliest": BEGINNING_ID, "latest": tail}[choice]

    def _id_before(self, to: SeqPos, tail: str) -> str:
        if to.kind == "at":
            return self._entries.ids.predecessor(to.seq)
        return tail if to.kind == "end" else BEGINNING_ID

    def _start(self, shards: Iterable[Shard]) -> None:
        plan = self._plan()
        by_key = {shard.key: shard for shard in shards}
        for shard in by_key.values():
            shard.began = shard.last
        groups = by_slot(by_key) if self._link.is_cluster else [list(by_key)]
        self._lanes = [Lane(self._link, [by_key[key] for key in keys], plan) for keys in groups]
        self._next_refresh = _now() + self._redis.shard_refresh
        if plan.claim_idle is not None and self._group is not None and self._keeper is None:
            keep = self._keep(self._group, plan.claim_idle / RENEWALS_PER_IDLE)
            self._keeper = asyncio.create_task(keep, name="ottla redis renewal")

    def _plan(self) -> Plan:
        is_balanced = self._options.mode is Mode.LOAD_BALANCED
        return Plan(
            count=self._redis.batch
            or (BATCH_BALANCED if is_balanced else max(min(BATCH, self._options.prefetch), 1)),
            max_bytes=self._options.prefetch_bytes,
            block=self._redis.block,
            group=self._group,
            consumer=self._consumer,
            is_noack=self._options.auto_commit is AutoCommit.IMMEDIATE,
            claim_idle=self._redis.auto_claim_idle
            if is_balanced and self._redis.auto_claim_interval is not None
            else None,
            claim_interval=self._redis.auto_claim_interval or 0.0,
            recreate=self._redis.recreate_group,
        )

    async def close(self) -> None:
        await self._stop()

    async def _stop(self) -> None:
        """Stop reading; entries received meanwhile are returned to the group."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        while True:
            await asyncio.gather(*(lane.stop() for lane in self._lanes))
            # A command that was sent but not yet waiting when it was woken is woken again.
            if not self._reads or not (await asyncio.wait(self._reads, timeout=WAKE_AGAIN))[1]:
                break
        self._reads.clear()
        for lane in self._lanes:
            await lane.close()
        if self._group is not None and self._options.mode is Mode.LOAD_BALANCED:
            await self._give_back(self._group)

    async def _give_back(self, group: str) -> None:
        """Mark held entries as idle, so that others claim them next.

        A member without pending entries leaves the group, or its name would stay there. With
        pending entries it must not, because the group would forget them.
        """
        idle = int(self._redis.auto_claim_idle * 1000)
        client = self._link.client
        try:
            async with client.pipeline(transaction=False) as pipe:
                for shard in self._all():
                    if shard.held:
                        who = (shard.key, group, self._consumer)
                        pipe.xclaim(*who, 0, [*sorted(shard.held)], idle=idle, justid=True)
                await pipe.execute()
            for shard in self._all():
                if not await self._pending(shard, group, 1):
                    await client.execute_command(
                        "XGROUP", "DELCONSUMER", shard.key, group, self._consumer
                    )
        except ResponseError as error:
            if not str(error).startswith(("NOGROUP", "ERR The XGROUP")):
                LOGGER.warning("this member stays in its group: %s", error)
        except (RedisError, OSError) as error:
            LOGGER.warning("entries stay pending until they are idle: %s", error)

    async def _pending(self, shard: Shard, group: str, count: int) -> list[str]:
        """Ids of entries that the group holds for this member."""
        found = await self._link.client.xpending_range(
            shard.key, group, "-", "+", count, self._consumer
        )
        return [text(one["message_id"]) for one in found]

    async def _keep(self, group: str, every: float) -> None:
        """Renew held entries, so that others do not claim them.

        Renews only entries that still belong to this member and were idle for half a round; an
        entry that another member has claimed since was not idle.
        """
        keeper = asyncio.current_task()
        # redis-py can turn a cancellation into an error of its own, which must not go on.
        while keeper is None or not keeper.cancelling():
            await asyncio.sleep(every)
            try:
                for shard in self._all():
                    if shard.held:
                        mine = await self._pending(shard, group, len(shard.held))
                        kept = [one for one in mine if one in shard.held]
                        if kept:
                            idle_ms = int(every * 500)
                            who = (shard.key, group, self._consumer)
                            await self._link.client.xclaim(*who, idle_ms, [*kept], justid=True)
            except Exception as error:  # noqa: BLE001  # it goes on, and the next round may succeed
                LOGGER.warning("could not renew held entries: %s", error)

    # -- messages in ------------------------------------------------------------------------------

    async def fetch(self, max_messages: int, timeout: float) -> list[Message]:  # noqa: ASYNC109
        if not self._spare:
            await self._fill(max_messages, timeout)
        if not self._spare and self._failure is not None:
            raise self._failure
        spare = self._spare
        return [spare.popleft() for _ in range(min(max_messages, len(spare)))]

    async def _fill(self, limit: int, timeout: float) -> None:  # noqa: ASYNC109
        if _now() >= self._next_refresh:
            await self._refresh()
        busy = set(self._reads.values())
        for lane in self._lanes:
            if lane not in busy:
                self._reads[asyncio.create_task(lane.read(limit))] = lane
        self._wake.clear()
        waker = asyncio.create_task(self._wake.wait())
        try:
            await asyncio.wait(
                {*self._reads, waker}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waker.cancel()
        for task in [task for task in self._reads if task.done()]:
            del self._reads[task]
            with told_as_ours("read the streams"):
                arrived = task.result()
            for found in arrived:
                await self._admit(found)

    def interrupt(self) -> None:
        self._wake.set()

    async def _admit(self, found: Found) -> None:
        counts: Mapping[str, int] = {}
        if found.is_again and found.entries and self._group is not None:
            try:
                counts = await self._shards.delivery_counts(found, self._group, self._consumer)
            except (RedisError, OSError) as error:
                LOGGER.warning("entries count as delivered for the first time: %s", error)
        shard, message = found.shard, self._entries.message
        stream, number, spare = shard.stream, shard.number, self._spare
        for entry in found.entries:
            try:
                spare.append(message(stream, number, entry, counts.get(entry.id, 1)))
            except FormatError as error:
                if self._redis.on_bad_entry == "raise":
                    self._failure = error
                    return
                try:
                    await self._put_aside(shard, entry, error)
                except (RedisError, OSError) as lost:
                    LOGGER.warning("entry %s of %s stays pending: %s", entry.id, shard.key, lost)

    async def _put_aside(self, shard: Shard, entry: RawEntry, error: FormatError) -> None:
        """Acknowledge a bad entry, after copying it to the dead letters if requested."""
        LOGGER.warning("%s", error)
        client = self._link.client
        if self._redis.on_bad_entry == "dead_letter" and self._options.dead_letter is not None:
            laid = [part for pair in pairs(entry.fields) for part in pair]
            origin = ("stream", shard.key, "id", entry.id)
            await client.execute_command("XADD", self._options.dead_letter, "*", *laid, *origin)
        if self._group is not None:
            await client.execute_command("XACK", shard.key, self._group, entry.id)
            shard.held.discard(entry.id)

    async def _refresh(self) -> None:
        """Shards that were added since are read from their beginning."""
        self._next_refresh = _now() + self._redis.shard_refresh
        if self._is_chosen:
            return
        try:
            new = await self._shards.appeared({shard.key for shard in self._all()})
            for shard in new:
                if self._group is not None:
                    await self._shards.create_group(shard, self._group, BEGINNING_ID)
        except (RedisError, OSError, StreamError) as error:
            LOGGER.warning("could not look for new shards; trying again later: %s", error)
            return
        if not new:
            return
        if self._link.is_cluster:
            groups = by_slot(shard.key for shard in new)
            by_key = {shard.key: shard for shard in new}
            plan = self._plan()
            self._lanes += [Lane(self._link, [by_key[k] for k in keys], plan) for keys in groups]
        else:
            self._lanes[0].add(new)

    # -- acknowledgements out ---------------------------------------------------------------------

    async def commit(self, progress: Progress) -> None:
        if self._group is None or self._options.auto_commit is AutoCommit.IMMEDIATE:
            return
        by_shard = {(shard.stream, shard.number): shard for shard in self._all()}
        acked: dict[tuple[str, int], list[int]] = {}
        for stream, number, seq in progress.acked:
            acked.setdefault((stream, number), []).append(seq)
        to_id = self._entries.ids.to_id
        done = [(by_shard[key], max(seqs), [*map(to_id, seqs)]) for key, seqs in acked.items()]
        try:
            async with self._link.client.pipeline(transaction=False) as pipe:
                for shard, _, ids in done:
                    for first in range(0, len(ids), ACKS_PER_COMMAND):
                        part = ids[first : first + ACKS_PER_COMMAND]
                        pipe.execute_command("XACK", shard.key, self._group, *part)
                await pipe.execute()
        except (RedisError, OSError) as error:
            raise StreamError(
                f"acknowledgements were not taken: {error}; they are sent again"
            ) from error
        for shard, highest, ids in done:
            shard.held.difference_update(ids)
            shard.floor = max(shard.floor, to_id(highest), key=id_parts)

    # -- moving -----------------------------------------------------------------------------------

    async def seek(self, to: datetime, shards: frozenset[ShardKey]) -> None:
        targets = self._targets(shards)
        start = self._entries.ids.after_time(to_ns(to))
        await self._detach({shard.key: start for shard in targets}, targets)

    async def rewind(self, to: SeqPos, shards: frozenset[ShardKey]) -> None:
        targets = self._targets(shards)
        with told_as_ours("tell where the streams end"):
            tails = {shard.key: await self._shards.tail(shard) for shard in targets}
        starts = {key: self._id_before(to, tail) for key, tail in tails.items()}
        await self._detach(starts, targets)

    def _targets(self, chosen: frozenset[ShardKey]) -> list[Shard]:
        """The shards to read from now on: those chosen, or all that are read."""
        known = {shard.id: shard for shard in self._all()}
        if not chosen:
            return list(known.values())
        return [known.get(key) or self._shards.shard(key.stream, key.shard) for key in chosen]

    async def _detach(self, starts: Mapping[str, str], targets: Iterable[Shard]) -> None:
        await self._stop()
        self._spare.clear()
        self._failure = None
        self._is_detached = self._is_detached or self._group is not None
        self._is_chosen = True
        self._group = None
        self._start(
            Shard(shard.stream, shard.number, shard.key, last=starts[shard.key])
            for shard in targets
        )

    async def ends_now(self) -> dict[ShardKey, int]:
        with told_as_ours("tell where the streams end"):
            tails = {shard.id: await self._shards.tail(shard) for shard in self._all()}
        return {
            shard.id: self._entries.ids.to_seq(tails[shard.id]) + 1
            for shard in self._all()
            if shard.id in tails and id_parts(shard.began) < id_parts(tails[shard.id])
        }

    async def lag(self, positions: Mapping[ShardKey, int]) -> dict[ShardKey, int | None]:
        with told_as_ours("tell the lag"):
            return {shard.id: await self._lag(shard, positions) for shard in self._all()}

    async def _lag(self, shard: Shard, positions: Mapping[ShardKey, int]) -> int | None:
        if self._group is not None:
            return await self._shards.group_lag(shard, self._group)
        position = positions.get(shard.id)
        done = shard.last if position is None else self._entries.ids.predecessor(position)
        # Ids have holes: only that nothing is left can be told without reading.
        return None if await self._shards.has_after(shard, done) else 0

    def _all(self) -> list[Shard]:
        return [shard for lane in self._lanes for shard in lane.shards.values()]


def _nothing_stored(shard: Shard) -> NoStoredPosition:
    return NoStoredPosition(
        "there is no stored position and reset=NONE forbids to choose one; "
        "choose Reset.EARLIEST or Reset.LATEST",
        stream=shard.stream,
        shard=shard.number,
    )


def _now() -> float:
    return asyncio.get_running_loop().time()

"""A lane: keys that one command reads, and the order of reading their entries.

    INIT -> PENDING -> NEW <-> CLAIM        in a group
                        ^-> RECOVER -^
    TAIL                                    without one

PENDING reads entries that this consumer got before and did not acknowledge. NEW waits for more.
CLAIM takes over the entries of dead members of the group (as this consumer, in pages). RECOVER
connects again and reads its own entries that were on the wire when the connection broke: those
after the highest id that arrived. `held` are the sequences delivered and not yet acknowledged; they
are never delivered twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from redis.exceptions import MovedError, ResponseError

from ottla.randomness import RANDOM
from ottla.streams.backends.redis_link import FATAL, LOST
from ottla.streams.backends.redis_replies import claim_reply, read_reply
from ottla.streams.errors import ConnectError, GroupLost
from ottla.streams.types import ShardKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redis.asyncio.connection import AbstractConnection

    from ottla.streams.backends.redis_link import Link
    from ottla.streams.backends.redis_replies import RawEntry

LOGGER: Final = logging.getLogger(__name__)

BEGINNING_ID: Final = "0-0"
MAX_BACKOFF: Final = 64.0


@dataclass(slots=True)
class Shard:
    """The reading position of one key."""

    stream: str
    number: int
    key: str
    last: str = BEGINNING_ID  # the highest id that arrived, or after which to read
    began: str = BEGINNING_ID  # the first value of that
    cursor: str | None = None  # own pending entries: the id to go on after; None: all read
    claim: str | None = None  # the cursor of a claim under way
    floor: str = BEGINNING_ID  # the highest acknowledged id, for a group that must be made again
    held: set[str] = field(default_factory=set)

    @property
    def id(self) -> ShardKey:
        return ShardKey(self.stream, self.number)


@dataclass(frozen=True, slots=True)
class Plan:
    """How to read; without a group `consumer` and what follows mean nothing."""

    count: int
    max_bytes: int
    block: float
    group: str | None = None
    consumer: str = ""
    is_noack: bool = False
    claim_idle: float | None = None  # None: never claim
    claim_interval: float = 30.0
    recreate: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """Entries of one key; `is_again` if they may have been delivered before."""

    shard: Shard
    entries: list[RawEntry]
    is_again: bool = False


FIRST_COUNT: Final = 10


class Pace:
    """Number of entries to request, because Redis has no limit in bytes. Pure.

    It begins small, at most doubles with each reply, and depends on the size of the messages.
    """

    def __init__(self, most: int, max_bytes: int) -> None:
        self.count = min(most, FIRST_COUNT)
        self._most = most
        self._max_bytes = max_bytes

    def came(self, found: Iterable[Found]) -> None:
        """A reply has come."""
        entries = sum(len(one.entries) for one in found)
        if entries:
            average = max(sum(map(_weight, found)) // entries, 1)
            self.count = max(min(self._most, 2 * self.count, self._max_bytes // average), 1)


def _weight(found: Found) -> int:
    all_fields = (
        fields.values() if isinstance(fields, Mapping) else fields for _, fields in found.entries
    )
    return sum(map(len, chain.from_iterable(all_fields)))


class Lane:
    """`read` returns entries, or nothing after the time; `stop` ends a waiting read."""

    def __init__(self, link: Link, shards: Sequence[Shard], plan: Plan) -> None:
        self.shards = {shard.key: shard for shard in shards}
        self._link = link
        self._plan = plan
        self._pace = Pace(plan.count, plan.max_bytes)
        self._count = self._pace.count
        self._connection: AbstractConnection | None = None
        self._client_id = 0
        self._next_claim = 0.0
        self._attempt = 0
        self._stopping = asyncio.Event()
        if plan.group is not None and not plan.is_noack:
            for shard in shards:
                shard.cursor = BEGINNING_ID

    async def read(self, limit: int) -> list[Found]:
        """`limit` bounds reads without acknowledgement."""
        self._count = min(limit, self._pace.count) if self._plan.is_noack else self._pace.count
        while not self._stopping.is_set():
            try:
                if self._connection is None:
                    await self._connect()
                    continue  # whoever stopped it meanwhile had nobody to wake
                found = await self._step()
                self._pace.came(found)
                return found
            except FATAL as error:
                raise ConnectError(f"Redis refuses the login: {error}; check the URL") from error
            except LOST as error:
                await self._lost(error)
            except MovedError:
                await self._drop()
                await self._link.moved()
            except ResponseError as error:
                if not str(error).startswith("NOGROUP"):
                    raise
                await self._group_lost(error)
        return []

    async def stop(self) -> None:
        """Make `read` return the entries that the server has already sent."""
        self._stopping.set()
        if self._connection is not None and self._client_id:
            try:
                await self._link.wake(next(iter(self.shards)), self._client_id)
            except LOST:
                await self._drop()

    async def close(self) -> None:
        await self._drop()

    def add(self, shards: Iterable[Shard]) -> None:
        """Read more keys from the next command on."""
        for shard in shards:
            shard.cursor = None if self._plan.group is None else BEGINNING_ID
            self.shards[shard.key] = shard

    # -- the states -------------------------------------------------------------------------------

    async def _step(self) -> list[Found]:
        if self._plan.group is None:
            ids = [shard.last for shard in self.shards.values()]
            reply = await self._call("XREAD", *self._waiting(), "STREAMS", *self.shards, *ids)
            return self._arrived(reply)
        pending = [shard for shard in self.shards.values() if shard.cursor is not None]
        if pending:
            return await self._own_pending(pending)
        if self._plan.claim_idle is not None and self._now() >= self._next_claim:
            return await self._claim_page(self._plan.claim_idle)
        noack = ("NOACK",) if self._plan.is_noack else ()
        news = ">" * len(self.shards)
        reply = await self._group_read(*self._waiting(), *noack, "STREAMS", *self.shards, *news)
        return self._arrived(reply)

    async def _own_pending(self, pending: list[Shard]) -> list[Found]:
        keys = [shard.key for shard in pending]
        cursors = [shard.cursor for shard in pending]
        reply = await self._group_read("COUNT", self._count, "STREAMS", *keys, *cursors)
        for shard in pending:
            shard.cursor = None
        found = []
        for key, entries in read_reply(reply):
            shard = self.shards[key.decode()]
            if entries:
                shard.cursor = entries[-1].id
                shard.last = max(shard.last, shard.cursor, key=id_parts)
                found.append(await self._without_trimmed(shard, entries))
        return found

    async def _claim_page(self, idle: float) -> list[Found]:
        """One page of one key; the others follow, then the timer starts again."""
        shards = list(self.shards.values())
        if all(shard.claim is None for shard in shards):
            for shard in shards:
                shard.claim = BEGINNING_ID
        shard = next(one for one in shards if one.claim is not None)
        reply = await self._call(
            *("XAUTOCLAIM", shard.key, self._plan.group, self._plan.consumer),
            *(int(idle * 1000), shard.claim, "COUNT", self._count),
        )
        cursor, entries, _deleted = claim_reply(reply)
        shard.claim = None if cursor == BEGINNING_ID else cursor
        if all(one.claim is None for one in shards):
            self._next_claim = self._now() + self._plan.claim_interval
        return [await self._without_trimmed(shard, entries)] if entries else []

    async def _without_trimmed(self, shard: Shard, entries: list[RawEntry]) -> Found:
        trimmed = [entry.id for entry in entries if not entry.fields]
        if trimmed:
            await self._call("XACK", shard.key, self._plan.group, *trimmed)
        fresh = self._hold(shard, [one for one in entries if one.fields])
        return Found(shard, fresh, is_again=True)

    def _arrived(self, reply: object) -> list[Found]:
        found = []
        is_kept = self._plan.group is not None and not self._plan.is_noack
        for key, entries in read_reply(reply):
            shard = self.shards[key.decode()]
            shard.last = entries[-1].id
            found.append(Found(shard, self._hold(shard, entries) if is_kept else entries))
        return found

    @staticmethod
    def _hold(shard: Shard, entries: list[RawEntry]) -> list[RawEntry]:
        """Those that were not handed on yet; now they are."""
        ids = {one.id for one in entries}
        fresh = entries
        if not shard.held.isdisjoint(ids):
            fresh = [one for one in entries if one.id not in shard.held]
        shard.held |= ids
        return fresh

    # -- when it does not go well -----------------------------------------------------------------

    async def _lost(self, error: Exception) -> None:
        await self._drop()
        delay = min(2.0 ** (self._attempt - 1), MAX_BACKOFF) if self._attempt else 0.0
        self._attempt += 1
        LOGGER.warning("the connection to Redis was lost (%s); again in %.0f s", error, delay)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay * RANDOM.uniform(1.0, 1.2)):
                await self._stopping.wait()
        if self._plan.group is not None and not self._plan.is_noack:
            for shard in self.shards.values():
                shard.cursor = shard.last if shard.cursor is None else shard.cursor

    async def _group_lost(self, error: ResponseError) -> None:
        group = self._plan.group
        if not self._plan.recreate:
            raise GroupLost(
                f"the group {group!r} was deleted on the server ({error}); connect with "
                "RedisOptions(recreate_group=True) to create it again"
            ) from error
        for shard in self.shards.values():
            try:
                await self._call("XGROUP", "CREATE", shard.key, group, shard.floor, "MKSTREAM")
            except ResponseError as busy:
                if not str(busy).startswith("BUSYGROUP"):
                    raise
            shard.cursor = None

    async def _connect(self) -> None:
        first = next(iter(self.shards))
        self._connection, self._client_id = await self._link.reading(first, self._plan.block)
        self._attempt = 0

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._client_id = 0
        if connection is not None:
            await connection.disconnect(nowait=True)

    # -- commands ---------------------------------------------------------------------------------

    def _waiting(self) -> tuple[object, ...]:
        """COUNT and BLOCK; no longer than until the next claim."""
        block = self._plan.block
        if self._plan.group is not None and self._plan.claim_idle is not None:
            block = min(block, max(self._next_claim - self._now(), 0.001))
        return ("COUNT", self._count, "BLOCK", max(int(block * 1000), 1))

    async def _group_read(self, *args: object) -> object:
        return await self._call("XREADGROUP", "GROUP", self._plan.group, self._plan.consumer, *args)

    async def _call(self, *command: object) -> object:
        connection = self._connection
        assert connection is not None
        await connection.send_command(*command)
        return await connection.read_response()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def id_parts(entry_id: str) -> tuple[int, int]:
    left, _, sub = entry_id.partition("-")
    return int(left), int(sub)

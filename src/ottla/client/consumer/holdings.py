"""The partitions that a member has: how they come and go, and what of them is committed.

- Changes are applied inside calls of the consumer only. If the caller is cancelled, the next call
  applies what is left.
- Before partitions are revoked their offsets are committed (with `auto_commit`), then the caller's
  listener is told, then they are forgotten. New ones start at their committed offsets.
- `in_hand` says where the records begin that the caller still works on; automatic commits end
  before them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.client.consumer import commits
from ottla.client.consumer.machine import Lost
from ottla.client.consumer.types import NoOffset, OffsetReset
from ottla.client.errors import ClientError
from ottla.client.reader.types import EARLIEST, LATEST, Place
from ottla.client.transactions.types import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from ottla.client.cluster.cluster import Client
    from ottla.client.cluster.view import TopicPartition
    from ottla.client.consumer.fetching import Owned
    from ottla.client.consumer.group import Group
    from ottla.client.consumer.machine import Member
    from ottla.client.reader.buffer import Buffer

    Listener: TypeAlias = Callable[[frozenset[TopicPartition]], Awaitable[None] | None]

_STARTS: Final = {"earliest": Place(None, EARLIEST), "latest": Place(None, LATEST)}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listeners:
    """Functions of the caller's that are told of changes."""

    assigned: Listener | None
    revoked: Listener | None
    lost: Listener | None


class Holdings:
    """Those of one consumer."""

    def __init__(
        self,
        client: Client,
        member: Member,
        planner: Owned,
        buffer: Buffer[TopicPartition],
        *,
        group: str,
        instance_id: str | None,
        reset: OffsetReset,
        auto_commit: bool,
        listeners: Listeners,
    ) -> None:
        self.in_hand: dict[TopicPartition, int] = {}
        """Where the records begin that the caller works on, by partition."""
        self._client = client
        self._member = member
        self._planner = planner
        self._buffer = buffer
        self._group = group
        self._instance_id = instance_id
        self._reset: OffsetReset = reset
        self._auto_commit = auto_commit
        self._listeners = listeners
        self._committed: dict[TopicPartition, int] = {}
        self._teller: asyncio.Task[object] | None = None
        """The task that is in a listener of the caller's."""

    @property
    def is_telling(self) -> bool:
        """Whether this is called by a listener."""
        return self._teller is not None and self._teller is asyncio.current_task()

    async def settle(self, group: Group, poke: Callable[[], None]) -> None:
        """Apply the group's changes; `poke` has new partitions fetched."""
        wish = self._member.wish()
        owned = self._member.owned
        if isinstance(wish, Lost):
            self._forget(owned)
            await self._tell(self._listeners.lost, owned)
            self._member.settled(frozenset())
        elif wish is not None:
            if owned - wish.partitions:
                await self.give_up(group, owned - wish.partitions)
                self._member.settled(owned & wish.partitions)
            if added := wish.partitions - owned:
                await self._begin(group, added, poke)
                self._member.settled(wish.partitions)
            if not wish.partitions:
                self._member.settled(frozenset())
        group.poke()
        group.polled()

    async def give_up(self, group: Group, partitions: frozenset[TopicPartition]) -> None:
        """Commit what is done, tell the caller, and forget the partitions."""
        if not partitions:
            return
        if self._auto_commit:
            try:
                await self._commit_done(group, partitions)
            except ClientError as error:
                logger.warning("group %s: last commit failed: %s", self._group, error)
        await self._tell(self._listeners.revoked, partitions)
        self._forget(partitions)

    async def commit_now_and_then(
        self, interval: float, joined: Callable[[], Group | None]
    ) -> None:
        """Automatic commits, until it is cancelled."""
        while True:
            await asyncio.sleep(interval)
            group = joined()
            if group is None or not self._member.is_steady:
                continue
            try:
                await self._commit_done(group, self._member.owned)
            except ClientError as error:
                logger.warning("group %s: automatic commit failed: %s", self._group, error)

    async def commit(
        self, group: Group, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit these offsets."""
        if not offsets:
            return
        await commits.commit(
            self._client, group.coordinator, self._member, self._instance_id, offsets
        )
        self._committed |= {
            key: one.offset for key, one in offsets.items() if key in self._member.owned
        }

    async def _commit_done(self, group: Group, partitions: Collection[TopicPartition]) -> None:
        """Commit the records that the caller has finished."""
        done = {
            key: OffsetAndMetadata(offset)
            for key in partitions
            if (offset := self.in_hand.get(key, self._buffer.positions.get(key))) is not None
            and offset != self._committed.get(key)
        }
        await self.commit(group, done)

    async def _begin(
        self, group: Group, partitions: frozenset[TopicPartition], poke: Callable[[], None]
    ) -> None:
        found = await commits.committed(self._client, group.coordinator, self._member, partitions)
        missing = sorted(key for key, offset in found.items() if offset is None)
        if missing and self._reset == "error":
            raise NoOffset(
                f"group {self._group!r} has committed nothing for {missing[0]}; "
                'seek there, or choose auto_offset_reset="earliest" or "latest"'
            )
        if missing:
            logger.info(
                "group %s has no committed offset for %d partitions (%s, ...): starts at %s",
                self._group,
                len(missing),
                missing[0],
                self._reset,
            )
        for key, offset in sorted(found.items()):
            place = _STARTS[self._reset] if offset is None else Place(offset)
            self._planner.add(key, place)
            if offset is not None:
                self._buffer.moved(key, offset)
                self._committed[key] = offset
        self._planner.added()
        poke()
        await self._tell(self._listeners.assigned, partitions)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for key in partitions:
            self._planner.drop(key)
            self._buffer.forget(key)
            self._committed.pop(key, None)
            self.in_hand.pop(key, None)

    async def _tell(self, listener: Listener | None, partitions: frozenset[TopicPartition]) -> None:
        if listener is None or not partitions:
            return
        self._teller = asyncio.current_task()
        try:
            told = listener(partitions)
            if inspect.isawaitable(told):
                await told
        finally:
            self._teller = None

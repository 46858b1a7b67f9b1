"""The source of polls: arrived bytes, decoded on demand.

- Records that are decoded and not given wait in `ahead`; they are given as long as their lock lasts
  and their session lives.
- Every wait can be cancelled: nothing is taken from the arrivals before it is decoded, and what is
  decoded is entered in one go.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.client.errors import ClientClosed, NotSubscribed
from ottla.client.share.decode import BulkLoader, read_records

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from ottla.client.share.acks import Ledger
    from ottla.client.share.decode import Arrival
    from ottla.client.share.delivery import Delivery
    from ottla.client.share.leaders import Leaders
    from ottla.client.share.member import Member
    from ottla.client.share.session import Limits
    from ottla.client.share.settings import PollLimits
    from ottla.client.share.types import ShareRecord, UndecodableRecords

# Below this a hop to another thread and back takes longer than the work it spares the loop.
OFF_LOOP_BYTES: Final = 512 * 1024


class Inbox:
    """One reader at a time; `changed` wakes it."""

    def __init__(
        self,
        member: Member,
        leaders: Leaders,
        ledger: Ledger,
        changed: asyncio.Event,
        limits: PollLimits,
    ) -> None:
        self.ahead: deque[ShareRecord] = deque()
        """Decoded, and not yet given to the caller."""
        self.is_closed = False
        self._member = member
        self._leaders = leaders
        self._ledger = ledger
        self._changed = changed
        self._limits = limits
        self._bulk = BulkLoader()
        self._spoiled: UndecodableRecords | None = None
        self._now = asyncio.get_running_loop().time

    async def fill(self, within: float) -> None:
        """Let records wait in `ahead`; none may come in time."""
        self.drop_stale()
        deadline = self._now() + within
        while not self.ahead and await self._until_arrived(deadline, self._limits.records):
            for arrival in self._leaders.arrived.first(self._limits.records.max_records):
                records, spoiled = read_records(arrival, self._bulk.reader)
                self._bulk.records += len(records)
                if self._take(arrival, arrival.delivery, spoiled):
                    self.ahead.extend(records)
            self.drop_stale()

    def subscribe(self, topics: Collection[str]) -> None:
        """Release waiting records of other topics."""
        self._ledger.release_waiting(keep=topics)
        self.ahead = deque(one for one in self.ahead if one.topic in topics)
        self._leaders.subscribe(topics)

    def take_ahead(self) -> list[ShareRecord]:
        """All records that wait and are still locked for this consumer."""
        self.drop_stale()
        records = list(self.ahead)
        self.ahead.clear()
        if len(records) != self._ledger.waiting:
            records = [one for one in records if self._is_waiting(one)]
        return records

    async def columns(self, within: float) -> list[pa.RecordBatch]:
        """The next arrivals that hold records, as columns; none may come in time."""
        from ottla.client.share.arrow import read_columns

        found: list[pa.RecordBatch] = []
        deadline = self._now() + within
        limits = self._limits.columns
        while not found and await self._until_arrived(deadline, limits):
            arrivals = self._leaders.arrived.first(limits.max_records)
            # With states of their own: a thread may outlive a call that is cancelled.
            copies = [one._replace(delivery=one.delivery.copy()) for one in arrivals]
            decoded = [
                read_columns(one)
                if len(one.records) < OFF_LOOP_BYTES
                else await asyncio.to_thread(read_columns, one)
                for one in copies
            ]
            for arrival, own, (rows, spoiled) in zip(arrivals, copies, decoded, strict=True):
                if self._take(arrival, own.delivery, spoiled):
                    found += rows
        return found

    def drop_stale(self) -> None:
        """Let the next record that waits be one that is still locked for this consumer."""
        self._ledger.expire_waiting(self._now())
        while self.ahead and not self._is_waiting(self.ahead[0]):
            self.ahead.popleft()

    def _is_waiting(self, record: ShareRecord) -> bool:
        return self._ledger.is_waiting(record.delivery, record.offset)

    async def _until_arrived(self, deadline: float, limits: Limits) -> bool:
        """Fetch until something comes; False when it is too late."""
        leaders = self._leaders
        while True:
            self._check()
            leaders.arrived.expire(self._now())
            if leaders.arrived:
                return True
            left = deadline - self._now()
            self._changed.clear()
            leaders.fetch(self._member.routes, min(self._limits.max_wait, max(left, 0.0)), limits)
            if left <= 0:
                return False
            await self._change(min(deadline, leaders.wake_at()))

    async def _change(self, until: float) -> None:
        """Wait for news, or until a time."""
        if until == math.inf:
            await self._changed.wait()
            return
        timer = asyncio.get_running_loop().call_at(until, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    def _check(self) -> None:
        """Raise a pending error for the caller."""
        if self.is_closed:
            raise ClientClosed("the share consumer was closed under a poll")
        if not self._leaders.topics:
            raise NotSubscribed("the share consumer was unsubscribed under a poll; subscribe first")
        spoiled, self._spoiled = self._spoiled, None
        if spoiled is not None:
            raise spoiled
        self._member.check()
        self._leaders.check()

    def _take(
        self, arrival: Arrival, delivery: Delivery, spoiled: UndecodableRecords | None
    ) -> bool:
        """Add decoded records; False if their delivery was lost meanwhile."""
        if not self._leaders.arrived.take(arrival):
            return False
        self._spoiled = spoiled or self._spoiled
        self._ledger.add(delivery)
        return True

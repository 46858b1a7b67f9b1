"""The seam between an append and its answer: when may readers see it, when is it acknowledged?

`Durability` is what everything that appends talks to. Behind it stand a sync of each log in rounds
(`GroupFlusher`, ottla.flush.mode=group), a journal for all of them (`JournalDurability`, mode
`journal`) and the operating system's own time (`OsDurability`, mode `os` and ephemeral brokers).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ottla.broker.hosting.flusher import GroupFlusher
    from ottla.broker.hosting.hosted import HostedPartition

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """An owner of waiting answers, in practice a connection."""

    def acked(self) -> None:
        """Some of its answers may leave."""


class Ack(Protocol):
    """An answer that waits: no future and no task, because there is one for each request."""

    waits: int
    """Syncs that are not done."""

    def settle(self) -> Listener | None:
        """Called when all logs are durable; returns the listener to notify, if any."""


def one_is_done(acks: Iterable[Ack]) -> None:
    """One log of these answers is durable; notify each connection once."""
    told: dict[Listener, None] = {}
    for ack in acks:
        ack.waits -= 1
        if not ack.waits and (listener := ack.settle()) is not None:
            told[listener] = None
    for listener in told:
        try:
            listener.acked()
        except Exception:
            logger.exception("acknowledgements could not be sent")


class Durability(Protocol):
    """All calls belong to the event loop.

    Only this class moves high watermarks. If records cannot be made durable their log goes offline,
    so check `log.online` after waiting. Waiting itself never fails and always ends; cancelling it
    only stops waiting.
    """

    @property
    def rounds(self) -> int:
        """How often logs were synced."""

    @property
    def stalled(self) -> bool:
        """Whether appends should wait: more is pending than the limit of this implementation."""

    def enlist(self, partitions: Sequence[HostedPartition], ack: Ack | None) -> bool:
        """Call it in the turn of the appends; returns whether their answer must wait.

        If so `ack` is settled, and its listener told, when these logs are durable or offline.
        """

    def join(self, partitions: Sequence[HostedPartition]) -> Awaitable[None] | None:
        """For coordinators: an awaitable for the durability of their appends.

        None if they may be acknowledged at once.
        """

    def sync(self, partitions: Sequence[HostedPartition]) -> Awaitable[None]:
        """Completes when all current records of these logs are durable, in any mode (flush.ms)."""

    def forget(self, partition: HostedPartition) -> None:
        """Its log was closed and is durable, or it is deleted: keep nothing for it."""

    async def barrier(self) -> None:
        """Return when everything that was joined before is settled."""

    async def drain(self) -> None:
        """Wait until nothing is pending, including later joins."""

    async def close(self) -> None:
        """Give back threads and files; to be called after `drain`."""


D = TypeVar("D", bound=Durability)


class LateDurability(Generic[D]):
    """Stands for one that is made with the first append: a broker is ready without its modules.

    The worker that opens the first log has imported them by then.
    """

    def __init__(self, make: Callable[[], D]) -> None:
        self._make = make
        self.made: D | None = None

    def _needed(self) -> D:
        if self.made is None:
            self.made = self._make()
        return self.made

    @property
    def rounds(self) -> int:
        return 0 if self.made is None else self.made.rounds

    @property
    def stalled(self) -> bool:
        return self.made is not None and self.made.stalled

    def enlist(self, partitions: Sequence[HostedPartition], ack: Ack | None) -> bool:
        return self._needed().enlist(partitions, ack)

    def join(self, partitions: Sequence[HostedPartition]) -> Awaitable[None] | None:
        return self._needed().join(partitions)

    def sync(self, partitions: Sequence[HostedPartition]) -> Awaitable[None]:
        return self._needed().sync(partitions)

    def forget(self, partition: HostedPartition) -> None:
        if self.made is not None:
            self.made.forget(partition)

    async def barrier(self) -> None:
        if self.made is not None:
            await self.made.barrier()

    async def drain(self) -> None:
        if self.made is not None:
            await self.made.drain()

    async def close(self) -> None:
        if self.made is not None:
            await self.made.close()


class OsDurability:
    """Acknowledged when written: the operating system syncs when it likes.

    flush.messages and flush.ms still cause syncs, but no request waits for them.
    """

    stalled = False

    def __init__(self, flusher: GroupFlusher) -> None:
        self._flusher = flusher

    @property
    def rounds(self) -> int:
        return self._flusher.rounds

    def enlist(self, partitions: Sequence[HostedPartition], ack: Ack | None) -> bool:
        self.join(partitions)
        return False

    def join(self, partitions: Sequence[HostedPartition]) -> None:
        for hosted in partitions:
            log = hosted.log
            hosted.advance(log.log_end_offset)
            if log.unflushed >= log.config.flush_messages:
                self._flusher.enlist([hosted], None)

    def sync(self, partitions: Sequence[HostedPartition]) -> Awaitable[None]:
        return self._flusher.sync(partitions)

    def forget(self, partition: HostedPartition) -> None:
        """Nothing is kept."""

    async def barrier(self) -> None:
        await self._flusher.barrier()

    async def drain(self) -> None:
        await self._flusher.drain()

    async def close(self) -> None:
        await self._flusher.close()

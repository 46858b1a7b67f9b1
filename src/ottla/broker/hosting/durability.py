"""The seam between an append and its answer: when may readers see it, when is it acknowledged?

`Durability` is what everything that appends talks to. Behind it stand a sync of each log in rounds
(`GroupFlusher`, ottla.flush.mode=group) and the operating system's own time (`OsDurability`, mode
`os` and ephemeral brokers); a journal for all partitions and the shared log of a cluster have the
same four faces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from ottla.broker.hosting.flusher import GroupFlusher
    from ottla.broker.hosting.partitions import HostedPartition


class Durability(Protocol):
    """All calls belong to the event loop.

    High watermarks are moved here and nowhere else. What could not be made durable takes its log
    offline: whoever waited looks at `log.online` afterwards. Waiting itself never fails and always
    ends; cancelling it only stops waiting.
    """

    @property
    def rounds(self) -> int:
        """How often logs were synced."""

    @property
    def stalled(self) -> bool:
        """Whether appends should wait: more is pending than the limit of this implementation."""

    def join(self, partitions: Sequence[HostedPartition]) -> Awaitable[None] | None:
        """To be called in the turn of the appends: what to await before they are acknowledged.

        None if they may be acknowledged at once.
        """

    def sync(self, partitions: Sequence[HostedPartition]) -> Awaitable[None]:
        """Completes when all that these logs hold now is durable, whatever the mode (flush.ms)."""

    async def barrier(self) -> None:
        """Return when everything that was joined before is settled."""

    async def drain(self) -> None:
        """Return when nothing is pending, also of what is joined meanwhile."""


class OsDurability:
    """Acknowledged when written: the operating system syncs when it likes.

    flush.messages and flush.ms still ask for syncs, which nobody waits for.
    """

    stalled = False

    def __init__(self, flusher: GroupFlusher) -> None:
        self._flusher = flusher

    @property
    def rounds(self) -> int:
        return self._flusher.rounds

    def join(self, partitions: Sequence[HostedPartition]) -> None:
        for hosted in partitions:
            log = hosted.log
            hosted.advance(log.log_end_offset)
            if log.unflushed >= log.config.flush_messages:
                self._flusher.join([hosted])

    def sync(self, partitions: Sequence[HostedPartition]) -> Awaitable[None]:
        return self._flusher.sync(partitions)

    async def barrier(self) -> None:
        await self._flusher.barrier()

    async def drain(self) -> None:
        await self._flusher.drain()

"""The parts of an open share consumer: created, started and closed together."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.client.errors import BrokerUnreachable, ClientError, RequestTimedOut
from ottla.client.share.inbox import Inbox
from ottla.client.share.leaders import Leaders
from ottla.client.share.member import Member
from ottla.client.share.settings import set_offset_reset

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.client.cluster.cluster import Client
    from ottla.client.share.acks import Ledger
    from ottla.client.share.membership import Membership
    from ottla.client.share.settings import PollLimits

# Of the time for the end: a leader that is stuck must not keep the group from knowing.
CLOSING_SHARE: Final = 0.8
LOOKS_PER_LOCK: Final = 8
UNKNOWN_LOCK: Final = 1.0  # seconds; the shortest that Kafka allows

logger = logging.getLogger(__name__)


class Parts:
    """Nothing runs before `open`, nor after `end`. `changed` is set whenever something has come."""

    def __init__(
        self,
        client: Client,
        membership: Membership,
        ledger: Ledger,
        changed: asyncio.Event,
        limits: PollLimits,
        news: Callable[[], None],
    ) -> None:
        self.member = Member(client, membership)
        self.member.news = changed.set
        self.leaders = Leaders(
            client,
            membership.group,
            membership.member_id,
            ledger,
            news=news,
            look_again=self.member.look_again,
        )
        self.leaders.topics = frozenset(membership.topics)
        self.inbox = Inbox(self.member, self.leaders, ledger, changed, limits)
        self._client = client
        self._group = membership.group
        self._renewal: Renewal | None = None

    async def open(self, offset_reset: str | None, *, renews: bool) -> None:
        """Become a member, and keep locks from then on if that is wanted."""
        try:
            async with asyncio.timeout(self._client.api_timeout):
                if offset_reset is not None:
                    await set_offset_reset(self._client, self._group, offset_reset)
                await self.member.join()
        except TimeoutError:
            late = f"not a member of share group {self._group!r} after {self._client.api_timeout:g}"
            unheard = self.member.unheard
            if unheard is not None:
                raise BrokerUnreachable(f"{late} s: {unheard}") from unheard
            raise RequestTimedOut(
                f"{late} s; check that the cluster is up and serves share groups"
            ) from None
        if offset_reset is None:
            logger.info(
                "share group %r: where it has not begun it starts as its share.auto.offset.reset "
                'says, at the end by default; pass auto_offset_reset="earliest" to start before',
                self._group,
            )
        if renews:
            self._renewal = Renewal(self.leaders)

    async def end(self, within: float) -> None:
        """Send the last acknowledgements and leave, if there is time; then end all tasks."""
        try:
            if self._renewal is not None:
                await self._renewal.stop()
            with suppress(TimeoutError):
                async with asyncio.timeout(within * CLOSING_SHARE):
                    await self.leaders.close()
            with suppress(TimeoutError, ClientError):
                async with asyncio.timeout(within * (1 - CLOSING_SHARE)):
                    await self.member.leave()
        finally:
            await self.leaders.abort()
            await self.member.stop()


class Renewal:
    """Keeps the locks of records while the caller works on them: a task from its making to `stop`.

    At intervals, locks that end soon are renewed: those of records that the caller has and did not
    acknowledge, and of records that wait for the caller. Pending acknowledgements are sent with the
    same request. A stuck consumer then holds its records as long as its process lives; therefore
    renewal is off by default.
    """

    def __init__(self, leaders: Leaders) -> None:
        leaders.renews = True
        self._leaders = leaders
        self._task = asyncio.create_task(self._run(), name="ottla share renewal")

    async def stop(self) -> None:
        """Let locks end when they do."""
        self._leaders.renews = False
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep((self._leaders.lock_timeout or UNKNOWN_LOCK) / LOOKS_PER_LOCK)
            try:
                self._leaders.renew()
            except Exception:
                logger.exception("the renewal of locks goes on after an error")

"""What an open share consumer consists of: made together, joined, and ended together."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.client.errors import ClientError
from ottla.client.share_inbox import Inbox
from ottla.client.share_leaders import Leaders
from ottla.client.share_member import Member
from ottla.client.share_renewal import Renewal

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.client.cluster import Client
    from ottla.client.share_acks import Ledger
    from ottla.client.share_membership import Membership
    from ottla.client.share_settings import PollLimits

# Of the time for the end: a leader that is stuck must not keep the group from knowing.
CLOSING_SHARE: Final = 0.8


class Parts:
    """Nothing runs before `join`, nor after `end`. `changed` is set whenever something has come."""

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
        self._renewal: Renewal | None = None

    async def join(self, *, renews: bool) -> None:
        """Become a member, and keep locks from then on if that is wanted."""
        await self.member.join()
        if renews:
            self._renewal = Renewal(self.leaders)

    async def end(self, within: float) -> None:
        """Send what is left to say and leave, if that can be done in time; then end all tasks."""
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

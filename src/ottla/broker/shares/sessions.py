"""Share sessions of connected members, and the release of their records.

When a member's connection closes, its records are released: at once, or after its group's
`share.session.grace.ms` if it has not reconnected by then.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.sharing.sessions import ShareSessions

if TYPE_CHECKING:
    from ottla.broker.shares.partitions import LedSharePartitions
    from ottla.broker.shares.settings import ShareGroupConfigs
    from ottla.sharing.sessions import ClosedConnection, ShareSession


class MemberSessions:
    """The sessions (`machine`); ends those of closed connections."""

    def __init__(
        self, max_sessions: int, configs: ShareGroupConfigs, shares: LedSharePartitions
    ) -> None:
        self.machine = ShareSessions(max_sessions)
        self._configs = configs
        self._shares = shares

    def connection_closed(self, connection_id: int) -> None:
        grace = self._configs.of
        closed = self.machine.connection_closed(
            connection_id, lambda group: grace(group).session_grace > 0
        )
        self._release(closed)
        for session in closed.kept:
            asyncio.get_running_loop().call_later(
                grace(session.group).session_grace, self._grace_ended, session
            )

    def _grace_ended(self, session: ShareSession) -> None:
        self._release(self.machine.grace_ended(session))

    def _release(self, closed: ClosedConnection) -> None:
        for session in closed.sessions:
            for topic_id, index in session.partitions:
                self._shares.release(session.group, session.member, topic_id, index)
        for group in closed.idle_groups:
            self._shares.drop_group(group)

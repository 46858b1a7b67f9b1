"""Share sessions: the partitions that a member fetches, remembered between requests.

Rules:

- A session belongs to (group, member). Whether the group knows the member plays no part.
- It also belongs to the principal that opened it: for another there is none, and none can be opened
  in its place, so that nobody acknowledges or releases what somebody else holds.
- ShareFetch and ShareAcknowledge share one sequence of epochs: 0 opens, then 1, 2, ... 2147483647,
  1, ...; -1 closes. A refused request does not move it.
- Only ShareFetch opens, and an opening request carries no acknowledgements. It replaces what the
  member had; the records the member holds stay its own.
- A fetch adds every partition it names, then removes what it forgets. A forgotten partition keeps
  its locks.
- A session ends with its last request, or with the connection that opened it. The caller gets its
  partitions, to release the member's records in them. A connection that did not open the
  session as it is now does not end it.
- A group may grant its members a grace: a session whose connection went is then kept aside, with
  what its member holds, until the member opens one again or the caller says that the time is over.
- When a connection goes, groups it served that have no session left are named, so that their share
  partitions can be dropped.
- Partitions take turns: each request starts one further, and one that gave records goes last.

Pure: the caller says which connection a request came on, and when it closed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.sharing.values import ShareError
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 0x7FFFFFFF

MAX_SESSION_PARTITIONS: Final = 100_000
"""More than a broker leads; a client must not fill memory with invented names."""
MAX_CONNECTION_GROUPS: Final = 64
"""A connection serves one member of one group. Beyond this many groups the oldest is forgotten,
and its share partitions stay until something else ends them."""

Key: TypeAlias = tuple[bytes, int]
"""Topic id and partition."""
ConnectionId: TypeAlias = int


@dataclass(slots=True)
class ShareSession:
    group: str
    member: str
    connection: ConnectionId
    owner: str = ""
    """The principal that opened it."""
    epoch: int = 1
    """The one expected next; -1 when the session is over."""
    _partitions: dict[Key, None] = field(default_factory=dict)
    _unlisted: set[Key] = field(default_factory=set)
    """Partitions that no response has listed without an error since they came."""

    @property
    def partitions(self) -> Collection[Key]:
        return self._partitions.keys()

    def gave_records(self, keys: Iterable[Key]) -> None:
        """Sends partitions to the end of the order."""
        for key in keys:
            if key in self._partitions:
                del self._partitions[key]
                self._partitions[key] = None

    def must_list(self, key: Key, *, has_news: bool, has_error: bool) -> bool:
        """Whether a response has to list a partition, given that it is then listed.

        A partition has news if it has records, or if the request had acknowledgements for it.
        """
        listed = has_news or has_error or key in self._unlisted
        if has_error:
            self._unlisted.add(key)
        else:
            self._unlisted.discard(key)
        return listed

    def _change(self, added: Iterable[Key], forgotten: Iterable[Key]) -> None:
        partitions = self._partitions | dict.fromkeys(added)
        new = partitions.keys() - self._partitions.keys()
        for key in forgotten:
            partitions.pop(key, None)
        if len(partitions) > MAX_SESSION_PARTITIONS:
            raise ShareError(
                ErrorCode.INVALID_REQUEST,
                f"expected at most {MAX_SESSION_PARTITIONS} partitions in a session, "
                f"got {len(partitions)}",
            )
        self._partitions = partitions
        self._unlisted = (self._unlisted | new) & partitions.keys()


class SessionTurn(NamedTuple):
    """One request's place in its session."""

    session: ShareSession
    epoch: int
    """The session's once the request is admitted."""
    is_final: bool = False
    """Fetch nothing; after the acknowledgements release the member's records."""

    @property
    def is_current(self) -> bool:
        """False if another request overtook this one while it waited."""
        return self.session.epoch == self.epoch

    @property
    def order(self) -> list[Key]:
        """The partitions in the order in which to try them."""
        keys = list(self.session.partitions)
        if not keys:
            return keys
        turn = self.epoch % len(keys)
        return keys[turn:] + keys[:turn]


class ClosedConnection(NamedTuple):
    sessions: list[ShareSession]
    """Ended; what their members hold is to be released."""
    idle_groups: list[str]
    """Without a session on this broker; their share partitions are to be dropped."""
    kept: list[ShareSession]
    """Ended, and kept aside; `grace_ended` is to be called for each when its time is over."""


class ShareSessions:
    """The sessions of one broker, at most `max_sessions` (group.share.max.share.sessions)."""

    def __init__(self, max_sessions: int) -> None:
        self._max = max_sessions
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._sessions_of_group: dict[str, int] = {}
        self._opened: dict[ConnectionId, set[tuple[str, str]]] = {}
        self._groups_served: dict[ConnectionId, dict[str, None]] = {}
        self._kept: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin_fetch(
        self,
        group: str,
        member: str,
        epoch: int,
        connection: ConnectionId,
        *,
        added: Iterable[Key] = (),
        forgotten: Iterable[Key] = (),
        has_acks: bool = False,
        owner: str = "",
    ) -> SessionTurn:
        """Admits a ShareFetch, or raises the `ShareError` that answers all of it.

        `owner` is the principal that asks.

        SHARE_SESSION_LIMIT_REACHED is to be answered only when the request's wait is over.
        """
        if epoch == INITIAL_EPOCH:
            if has_acks:
                raise ShareError(
                    ErrorCode.INVALID_REQUEST, "a request that opens a session acknowledges nothing"
                )
            return self._open(ShareSession(group, member, connection, owner), added)
        session = self._expect(group, member, epoch, owner)
        if epoch == FINAL_EPOCH:
            return self._close(session)
        session._change(added, forgotten)
        return _next(session)

    def begin_acknowledge(
        self, group: str, member: str, epoch: int, *, owner: str = ""
    ) -> SessionTurn:
        """Admits a ShareAcknowledge, or raises the `ShareError` that answers all of it."""
        if epoch == INITIAL_EPOCH:
            raise ShareError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "acknowledging cannot open a session"
            )
        session = self._expect(group, member, epoch, owner)
        return self._close(session) if epoch == FINAL_EPOCH else _next(session)

    def connection_closed(
        self, connection: ConnectionId, has_grace: Callable[[str], bool] = lambda _: False
    ) -> ClosedConnection:
        """`has_grace` tells whether members of a group may reconnect to their records."""
        keys = self._opened.pop(connection, set())
        closed = ClosedConnection([], [], [])
        groups = self._groups_served.pop(connection, {})
        for key in sorted(keys):
            session = self._sessions[key]
            self._forget(session)
            # Keep no more than may be open: members that never return cost memory, too.
            if has_grace(session.group) and len(self._kept) < self._max:
                self._kept[key] = session
                closed.kept.append(session)
            else:
                closed.sessions.append(session)
        closed.idle_groups.extend(group for group in groups if self._is_idle(group))
        return closed

    def grace_ended(self, session: ShareSession) -> ClosedConnection:
        """The grace of a kept session is over; no effect if its member has reconnected."""
        key = session.group, session.member
        if self._kept.get(key) is not session:
            return ClosedConnection([], [], [])
        del self._kept[key]
        idle = [session.group] if self._is_idle(session.group) else []
        return ClosedConnection([session], idle, [])

    def _is_idle(self, group: str) -> bool:
        return group not in self._sessions_of_group and all(
            session.group != group for session in self._kept.values()
        )

    def _expect(self, group: str, member: str, epoch: int, owner: str) -> ShareSession:
        session = self._sessions.get((group, member))
        if session is None or session.owner != owner:
            raise _not_found(group, member)
        if epoch not in {FINAL_EPOCH, session.epoch}:
            raise ShareError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"expected epoch {session.epoch}, got {epoch}",
            )
        return session

    def _open(self, session: ShareSession, added: Iterable[Key]) -> SessionTurn:
        session._change(added, ())
        key = session.group, session.member
        held = self._sessions.get(key) or self._kept.get(key)
        if held is not None and held.owner != session.owner:
            raise _not_found(*key)
        if (old := self._sessions.get(key)) is not None:
            self._opened[old.connection].discard(key)
            self._forget(old)
        if len(self._sessions) >= self._max:
            raise ShareError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"{self._max} share sessions are open"
            )
        self._kept.pop(key, None)
        self._sessions[key] = session
        self._sessions_of_group[session.group] = 1 + self._sessions_of_group.get(session.group, 0)
        self._opened.setdefault(session.connection, set()).add(key)
        served = self._groups_served.setdefault(session.connection, {})
        served.pop(session.group, None)
        served[session.group] = None
        if len(served) > MAX_CONNECTION_GROUPS:
            del served[next(iter(served))]
        return SessionTurn(session, session.epoch)

    def _close(self, session: ShareSession) -> SessionTurn:
        self._opened[session.connection].discard((session.group, session.member))
        self._forget(session)
        return SessionTurn(session, FINAL_EPOCH, is_final=True)

    def _forget(self, session: ShareSession) -> None:
        session.epoch = FINAL_EPOCH
        del self._sessions[session.group, session.member]
        left = self._sessions_of_group[session.group] - 1
        if left:
            self._sessions_of_group[session.group] = left
        else:
            del self._sessions_of_group[session.group]


def _not_found(group: str, member: str) -> ShareError:
    return ShareError(
        ErrorCode.SHARE_SESSION_NOT_FOUND, f"member {member} of {group} has no session"
    )


def _next(session: ShareSession) -> SessionTurn:
    session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
    return SessionTurn(session, session.epoch)

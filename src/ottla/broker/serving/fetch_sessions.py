"""Fetch sessions (KIP-227): the partitions of a consumer, remembered between requests.

Rules:

- (id 0, epoch -1): no session. (0, 0): make one. (id, n): change that one; n must be the epoch
  expected next, which runs 1, 2, ... 2147483647, 1. (id, -1): drop it and fetch without one.
- An incremental answer lists a partition when it has records or an error, or when its high
  watermark or log start moved since it was last listed.
- A partition that was answered with records goes to the end of the order, so that a full answer
  cannot starve those behind it.
- A session belongs to the principal that opened it; for another there is none of this id (70).
- Within a session topics are named all by id or all by name; a change of mind is error 106.
- The cache holds a bounded number of sessions. When it is full, a new one takes the place of one
  that has been idle for `EVICTION_MS`; if there is none, the consumer goes on without a session.

The cost of a request depends on the changed partitions, not on the size of the session. A session
keeps a list of the partitions that are due for a check:

- All are due when the session begins, when the cluster or the isolation level has changed, and
  every `RECHECK_MS`, for changes that are not reported (a log that went offline).
- One becomes due when the request names it again, and when the partition changes: it notifies its
  watchers when its high watermark or log start moves and when it is closed.
- One stops being due when a check finds nothing to report: the consumer has read all records and
  knows the offsets. A partition with records or an error stays due until then.

A fetch without a session that has to wait does so with a `Session` that is in no cache.

Pure: time comes in as an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.broker.errors import ApiError
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from ottla.wire.schema.fetch import FetchRequest, PartitionData

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 0x7FFFFFFF
EVICTION_MS: Final = 120_000  # Kafka's: a consumer polls far more often than every two minutes

RECHECK_MS: Final = 10_000  # 5 ms of CPU for 1,000 partitions: a two-thousandth

Key = tuple["str | bytes", int]
"""Topic (its name up to v12, its id from v13) and partition."""


class Wanted(NamedTuple):
    """A consumer's fetch of one partition."""

    topic: str | bytes
    partition: int
    fetch_offset: int
    max_bytes: int
    leader_epoch: int

    @property
    def key(self) -> Key:
        return self.topic, self.partition


class Watcher(Protocol):
    """A watcher of a partition."""

    def news(self, partition: Watched, /) -> None: ...


class Watched(Protocol):
    """The part of a partition that sessions use."""

    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def index(self) -> int: ...
    @property
    def watchers(self) -> set[Watcher]: ...


class Session:
    """The partitions of one consumer, their last reported state, and those to check."""

    __slots__ = (
        "by_id",
        "due",
        "epoch",
        "fresh",
        "last_used_ms",
        "next_rank",
        "owner",
        "ranks",
        "rechecked_ms",
        "session_id",
        "told",
        "view",
        "waiters",
        "wanted",
        "watched",
    )

    def __init__(
        self, session_id: int, wanted: Iterable[Wanted], *, by_id: bool, owner: str = ""
    ) -> None:
        self.session_id = session_id
        self.owner = owner
        self.by_id = by_id
        self.epoch = 1
        self.last_used_ms = self.rechecked_ms = 0
        self.view: Hashable = None
        self.wanted: dict[Key, Wanted] = {want.key: want for want in wanted}
        self.told: dict[Key, tuple[int, int]] = {}
        self.ranks: dict[Key, int] = {key: rank for rank, key in enumerate(self.wanted)}
        self.next_rank = len(self.ranks)
        self.due: dict[Key, None] = dict.fromkeys(self.wanted)
        self.watched: dict[Key, Watched] = {}
        self.fresh = False  # whether there was news since the last look
        self.waiters: set[Callable[[], None]] = set()

    # -- what is due ----------------------------------------------------------------------------

    def recheck(self) -> None:
        """Look at all of them."""
        self.due = dict.fromkeys(self.wanted)

    def news(self, partition: Watched) -> None:
        key = (partition.topic_id if self.by_id else partition.topic, partition.index)
        if key in self.wanted:
            self.due[key] = None
            self.fresh = True
            for waiter in tuple(self.waiters):
                waiter()

    def begin_look(self) -> list[Wanted]:
        """The partitions to check now, in the order of the session."""
        self.fresh = False
        wanted = self.wanted
        return [wanted[key] for key in sorted(self.due, key=self.ranks.__getitem__)]

    def looked(self, key: Key, data: PartitionData, *, caught_up: bool, tells_all: bool) -> None:
        """Take note of a look. `tells_all`: the answer lists the partition in any case."""
        if caught_up and (tells_all or self.told.get(key) == _marks(data)):
            self.due.pop(key, None)

    # -- what is wanted -------------------------------------------------------------------------

    def want(self, want: Wanted) -> None:
        key = want.key
        self.wanted[key] = want
        self.due[key] = None
        if key not in self.ranks:
            self._to_the_end(key)

    def _to_the_end(self, key: Key) -> None:
        self.ranks[key] = self.next_rank
        self.next_rank += 1

    def forget(self, key: Key) -> None:
        self.wanted.pop(key, None)
        self.ranks.pop(key, None)
        self.told.pop(key, None)
        self.due.pop(key, None)
        self._unwatch(key)

    def watch(self, key: Key, partition: Watched) -> None:
        """Watch the partition, which may be a new object."""
        if self.watched.get(key) is not partition:
            self._unwatch(key)
            self.watched[key] = partition
            partition.watchers.add(self)

    def _unwatch(self, key: Key) -> None:
        watched = self.watched.pop(key, None)
        if watched is not None:
            watched.watchers.discard(self)

    def close(self) -> None:
        """Stop watching."""
        for partition in self.watched.values():
            partition.watchers.discard(self)
        self.watched.clear()

    # -- what is told ---------------------------------------------------------------------------

    def changed(self, key: Key, data: PartitionData) -> bool:
        """Whether an incremental answer must include this partition; remembers its state."""
        marks = _marks(data)
        has_records = bool(data.records)
        listed = has_records or data.error_code != 0 or self.told.get(key) != marks
        if has_records and key in self.wanted:
            self._to_the_end(key)
            self.due[key] = None
        if listed and key in self.wanted:
            self.told[key] = marks
        return listed


def _marks(data: PartitionData) -> tuple[int, int]:
    return data.high_watermark, data.log_start_offset


class FetchPlan(NamedTuple):
    """The partitions that a request fetches, and how to answer."""

    wanted: Sequence[Wanted]  # of a request without a session
    session: Session | None
    incremental: bool

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id

    @property
    def is_empty(self) -> bool:
        return not (self.wanted if self.session is None else self.session.wanted)


class FetchSessions:
    """The sessions of one broker. `new_id` gives random positive 32-bit integers."""

    def __init__(self, slots: int, new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._new_id = new_id
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._sessions

    def begin(
        self, request: FetchRequest, *, by_id: bool, view: Hashable, now_ms: int, owner: str = ""
    ) -> FetchPlan:
        """The session of a request, or `ApiError`. `owner` is the principal that asks.

        `view` is the other state that checks depend on: when it has changed, a session checks all
        of its partitions.
        """
        wanted = _wanted(request, by_id=by_id)
        session_id, epoch = request.session_id, request.session_epoch
        session = self._sessions.get(session_id)
        if session is not None and session.owner != owner:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            self._drop(session_id)
            return FetchPlan(wanted, None, incremental=False)
        if epoch == INITIAL_EPOCH:
            self._drop(session_id)
            opened = self._open(wanted, by_id, now_ms, owner)
            if opened is not None:
                opened.view = view
            return FetchPlan(wanted, opened, incremental=False)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.by_id != by_id:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        for want in wanted:
            session.want(want)
        for key in _forgotten(request, by_id=by_id):
            session.forget(key)
        if session.view != view or now_ms - session.rechecked_ms >= RECHECK_MS:
            session.view = view
            session.rechecked_ms = now_ms
            session.recheck()
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        session.last_used_ms = now_ms
        return FetchPlan((), session, incremental=True)

    def _open(self, wanted: list[Wanted], by_id: bool, now_ms: int, owner: str) -> Session | None:
        if not wanted or not self._has_room(now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_id()
        session = Session(session_id, wanted, by_id=by_id, owner=owner)
        session.last_used_ms = session.rechecked_ms = now_ms
        self._sessions[session_id] = session
        return session

    def _has_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        idle = min(self._sessions.values(), key=lambda s: s.last_used_ms, default=None)
        if idle is None or now_ms - idle.last_used_ms < EVICTION_MS:
            return False
        self._drop(idle.session_id)
        return True

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()


def _wanted(request: FetchRequest, *, by_id: bool) -> list[Wanted]:
    return [
        Wanted(
            topic.topic_id if by_id else topic.topic,
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]


def _forgotten(request: FetchRequest, *, by_id: bool) -> Iterable[Key]:
    for topic in request.forgotten_topics_data:
        name = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            yield name, partition

"""Fetch sessions (KIP-227): what a consumer fetches, remembered between its requests.

Rules:

- (id 0, epoch -1): no session. (0, 0): make one. (id, n): change that one; n must be the epoch
  expected next, which runs 1, 2, ... 2147483647, 1. (id, -1): drop it and fetch without one.
- An incremental answer lists a partition when it has records or an error, or when its high
  watermark or log start moved since it was last listed.
- A partition that was answered with records goes to the end of the order, so that a full answer
  cannot starve those behind it.
- Within a session topics are named all by id or all by name; a change of mind is error 106.
- The cache holds a bounded number of sessions. When it is full, a new one takes the place of one
  that has been idle for `EVICTION_MS`; if there is none, the consumer goes on without a session.

Pure: time comes in as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.errors import ApiError
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.wire.schema.fetch import FetchRequest, PartitionData

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 0x7FFFFFFF
EVICTION_MS: Final = 120_000  # Kafka's: a consumer polls far more often than every two minutes

Key = tuple["str | bytes", int]
"""Topic (its name up to v12, its id from v13) and partition."""


class Wanted(NamedTuple):
    """What a consumer asks of one partition."""

    topic: str | bytes
    partition: int
    fetch_offset: int
    max_bytes: int
    leader_epoch: int

    @property
    def key(self) -> Key:
        return self.topic, self.partition


@dataclass(slots=True)
class Session:
    session_id: int
    by_id: bool
    epoch: int = 1
    last_used_ms: int = 0
    wanted: dict[Key, Wanted] = field(default_factory=dict)
    told: dict[Key, tuple[int, int]] = field(default_factory=dict)

    def changed(self, key: Key, data: PartitionData) -> bool:
        """Whether an incremental answer has to list this partition; remembers what it tells."""
        marks = (data.high_watermark, data.log_start_offset)
        has_records = bool(data.records)
        listed = has_records or data.error_code != 0 or self.told.get(key) != marks
        if has_records and (wanted := self.wanted.pop(key, None)) is not None:
            self.wanted[key] = wanted
        if listed:
            self.told[key] = marks
        return listed


class FetchPlan(NamedTuple):
    """The partitions to read, and how to answer."""

    wanted: list[Wanted]
    session: Session | None
    incremental: bool

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id


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

    def begin(self, request: FetchRequest, *, by_id: bool, now_ms: int) -> FetchPlan:
        """What this request fetches, or an `ApiError` for the whole of it."""
        wanted = _wanted(request, by_id=by_id)
        session_id, epoch = request.session_id, request.session_epoch
        if epoch == FINAL_EPOCH:
            self._sessions.pop(session_id, None)
            return FetchPlan(wanted, None, incremental=False)
        if epoch == INITIAL_EPOCH:
            self._sessions.pop(session_id, None)
            return FetchPlan(wanted, self._open(wanted, by_id, now_ms), incremental=False)
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.by_id != by_id:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self._update(session, wanted, _forgotten(request, by_id=by_id))
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        session.last_used_ms = now_ms
        return FetchPlan(list(session.wanted.values()), session, incremental=True)

    def _open(self, wanted: list[Wanted], by_id: bool, now_ms: int) -> Session | None:
        if not wanted or not self._has_room(now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_id()
        session = Session(session_id, by_id, last_used_ms=now_ms)
        session.wanted = {want.key: want for want in wanted}
        self._sessions[session_id] = session
        return session

    def _has_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        idle = min(self._sessions.values(), key=lambda s: s.last_used_ms, default=None)
        if idle is None or now_ms - idle.last_used_ms < EVICTION_MS:
            return False
        del self._sessions[idle.session_id]
        return True

    @staticmethod
    def _update(session: Session, wanted: list[Wanted], forgotten: Iterable[Key]) -> None:
        for want in wanted:
            session.wanted[want.key] = want
        for key in forgotten:
            session.wanted.pop(key, None)
            session.told.pop(key, None)


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

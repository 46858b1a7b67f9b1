"""The share partition: one group's deliveries from one partition, as a machine without I/O.

Rules:

- Everything that ends a delivery comes out as a `Write` for the persister. The caller sends the
  writes in order, may have several under way, and reports each one's end exactly once.
- An acknowledgement is tentative until its write succeeds: meanwhile no member can acquire the
  record or acknowledge it again, and its lock keeps running. If the write fails the record belongs
  to its owner again or, if the lock has expired, is treated as one that timed out.
- A lock that expires, or whose owner has left, ends at once, even if the write fails: then the
  persister has counted one delivery too few.
- A request for one partition is atomic: one range that must be refused, and none is applied.
- The start offset moves past the records at the head that are settled. A write carries the start
  as it was when the write was made; a reload finds the same start from the batches.
- Records below the start are gone: acknowledging them succeeds and does nothing.

`start_offset` is Kafka's SPSO; `end_offset`, exclusive here, is its SPEO plus one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.sharing import acquire
from ottla.sharing.values import (
    TERMINAL,
    AcknowledgeType,
    Archived,
    ArchiveReason,
    BadPersistedState,
    RecordState,
    ShareError,
    Write,
)
from ottla.sharing.window import ACKNOWLEDGED, ARCHIVED, Condition, InFlightBatch, Window
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.write_share_group_state import StateBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.sharing.values import (
        Ack,
        Acquisition,
        DeliverySettings,
        FetchTurn,
        LogBatch,
        PersistedState,
    )
    from ottla.sharing.window import Run

SETTLED = {RecordState.ACKNOWLEDGED: ACKNOWLEDGED, RecordState.ARCHIVED: ARCHIVED}
PERSISTED_STATES = frozenset({RecordState.AVAILABLE, *TERMINAL})


class _Change(NamedTuple):
    """A run whose delivery ends, and its outcome."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    reason: ArchiveReason | None

    def applied(self, _: Run) -> Condition:
        return _settled(self.state, self.delivery_count)


class SharePartition:
    """Starts from the persisted state; `settings` may be replaced at any time."""

    def __init__(self, settings: DeliverySettings, persisted: PersistedState) -> None:
        self.settings = settings
        self.state_epoch = persisted.state_epoch
        self._window = _loaded(persisted)
        self._last_write = 0
        self._transitions: dict[int, list[tuple[int, int]]] = {}

    @property
    def start_offset(self) -> int:
        return self._window.start

    @property
    def end_offset(self) -> int:
        return self._window.end

    @property
    def next_fetch_offset(self) -> int:
        """Where to read for the next acquisition."""
        lowest = self._window.lowest_available()
        return self._window.end if lowest is None else lowest

    @property
    def can_acquire(self) -> bool:
        """Whether a read could lead to an acquisition, given that the log has something."""
        window = self._window
        return window.available > 0 or window.size < self.settings.max_record_locks

    @property
    def delivery_complete_count(self) -> int:
        return self._window.complete

    @property
    def available(self) -> int:
        """Records of the window that can be delivered again."""
        return self._window.available

    @property
    def in_flight(self) -> int:
        """Records that members hold, or give back in a write that has not ended."""
        window = self._window
        return window.size - window.available - window.complete

    def runs(self) -> list[Run]:
        """The current window, for describing it."""
        return list(self._window.runs())

    def acquire(
        self, turn: FetchTurn, fetch_offset: int, batches: Sequence[LogBatch], now_ms: int
    ) -> Acquisition:
        """Delivers to a member from what a read at `fetch_offset` found: whole batches, ascending,
        from the one that holds the offset, or the first after it, without leaving any out.

        An empty result may still have moved `next_fetch_offset`; then reading again is worth it.
        """
        return acquire.acquire(self._window, self.settings, turn, fetch_offset, batches, now_ms)

    def acknowledge(self, member: str, acks: Sequence[Ack], now_ms: int) -> Write | None:
        """Ends deliveries, or renews their locks. The answer waits for the write, if there is one;
        a `ShareError` is the answer to all of them."""
        kept = self._checked(member, acks)
        write_id = self._last_write + 1
        changes: list[_Change] = []
        for ack in kept:
            if ack.type is AcknowledgeType.RENEW:
                deadline = now_ms + self.settings.lock_duration_ms
                self._relock(ack.first_offset, ack.last_offset, deadline)
            else:
                changes += self._begin(ack, write_id)
        if not changes:
            return None
        self._transitions[write_id] = [(change.first, change.last) for change in changes]
        return self._write(changes)

    def release(self, member: str, now_ms: int) -> Write | None:
        """Release the records of a member whose session ended or connection broke."""
        for run in self.runs():
            if run.condition.owner == member:
                self._relock(run.first, run.last, now_ms)
        return self.tick(now_ms)

    def next_deadline(self) -> int | None:
        """When the next lock ends."""
        return self._window.next_deadline()

    def tick(self, now_ms: int) -> Write | None:
        """Ends the locks that are due."""
        changes: list[_Change] = []
        while (deadline := self._window.next_deadline()) is not None and deadline <= now_ms:
            for run in self._window.locked_until(deadline):
                change = self._ended(run, AcknowledgeType.RELEASE)
                changes.append(change)
                self._window.change(run.first, run.last, change.applied)
        if not changes:
            return None
        write = self._write(sorted(changes))
        self._window.advance()
        return write

    def write_succeeded(self, write_id: int) -> None:
        for first, last in self._in_transition(write_id):
            self._window.change(first, last, _committed)
        self._window.advance()

    def write_failed(self, write_id: int, now_ms: int) -> Write | None:
        """Rolls the write's acknowledgements back; locks that ended meanwhile end now."""
        for first, last in self._in_transition(write_id):
            self._window.change(first, last, _rolled_back)
        return self.tick(now_ms)

    def log_start_moved(self, offset: int) -> None:
        """Records below `offset` are deleted. The next write tells the persister."""
        if offset > self._window.start:
            self._window.cut(offset)
            self._window.advance()

    def start_write(self) -> Write:
        """Store only the start offset, for example a resolved `latest`."""
        return self._write([])

    def _checked(self, member: str, acks: Sequence[Ack]) -> list[Ack]:
        """The acknowledgements, cut to the window, if every one of them may be applied."""
        kept: list[Ack] = []
        start, end = self._window.start, self._window.end
        previous = start - 1
        for ack in acks:
            first, last, kind = max(ack.first_offset, start), ack.last_offset, ack.type
            if last < start:
                continue
            where = f"offsets {ack.first_offset}..{last}"
            if last >= end:
                raise ShareError(ErrorCode.INVALID_REQUEST, f"{where}: the window ends at {end}")
            if kind is AcknowledgeType.RENEW and not self.settings.renew_enabled:
                raise ShareError(ErrorCode.INVALID_RECORD_STATE, f"{where}: renewing is disabled")
            if first <= previous:
                raise ShareError(ErrorCode.INVALID_RECORD_STATE, f"{where}: named twice")
            for run in self._window.runs(first, last):
                condition = run.condition
                if not condition.is_locked or condition.owner != member:
                    raise ShareError(
                        ErrorCode.INVALID_RECORD_STATE,
                        f"{where}: {max(run.first, first)} is not held by the member",
                    )
            previous = last
            kept.append(ack._replace(first_offset=first))
        return kept

    def _ended(self, run: Run, kind: AcknowledgeType) -> _Change:
        """The new state of a run when its delivery ends."""
        count = run.condition.delivery_count
        state, reason = RecordState.ARCHIVED, None
        if kind is AcknowledgeType.ACCEPT:
            state = RecordState.ACKNOWLEDGED
        elif kind is AcknowledgeType.REJECT:
            reason = ArchiveReason.REJECTED
        elif kind is AcknowledgeType.GAP:
            reason = ArchiveReason.GAP
        elif count >= self.settings.delivery_count_limit:
            reason = ArchiveReason.DELIVERY_LIMIT
        else:
            state = RecordState.AVAILABLE
        return _Change(run.first, run.last, state, count, reason)

    def _given_back(self, run: Run) -> _Change:
        """The new state of a run that was released unprocessed."""
        count = run.condition.delivery_count - 1
        return _Change(run.first, run.last, RecordState.AVAILABLE, count, None)

    def _relock(self, first: int, last: int, deadline_ms: int) -> None:
        self._window.change(
            first, last, lambda run: run.condition._replace(deadline_ms=deadline_ms)
        )

    def _begin(self, ack: Ack, write_id: int) -> list[_Change]:
        """Mark acknowledged records as waiting for their write."""
        changes: list[_Change] = []

        def tentative(run: Run) -> Condition:
            change = self._given_back(run) if ack.is_uncounted else self._ended(run, ack.type)
            changes.append(change)
            return run.condition._replace(
                target=change.state, delivery_count=change.delivery_count, write_id=write_id
            )

        self._window.change(ack.first_offset, ack.last_offset, tentative)
        return changes

    def _in_transition(self, write_id: int) -> list[tuple[int, int]]:
        """The records of a finished write that are still in the window."""
        start = self._window.start
        ranges = self._transitions.pop(write_id, [])
        return [(max(first, start), last) for first, last in ranges if last >= start]

    def _write(self, changes: Sequence[_Change]) -> Write:
        self._last_write += 1
        batches: list[StateBatch] = []
        for change in changes:
            batch = StateBatch(*change[:4])
            if batches and _continues(batches[-1], batch):
                batches[-1] = batch._replace(first_offset=batches[-1].first_offset)
            else:
                batches.append(batch)
        archived = [
            Archived(change.first, change.last, change.delivery_count, change.reason)
            for change in changes
            if change.reason is not None
        ]
        return Write(
            self._last_write,
            self.state_epoch,
            self._window.start,
            self._window.complete,
            batches,
            archived,
        )


def _continues(before: StateBatch, after: StateBatch) -> bool:
    return before.last_offset + 1 == after.first_offset and before[2:] == after[2:]


def _settled(state: RecordState, delivery_count: int) -> Condition:
    return SETTLED.get(state) or Condition(state, delivery_count)


def _committed(run: Run) -> Condition:
    assert run.condition.target is not None
    return _settled(run.condition.target, run.condition.delivery_count)


def _rolled_back(run: Run) -> Condition:
    return run.condition._replace(target=None, write_id=0)


def _loaded(persisted: PersistedState) -> Window:
    """The persisted window; records it does not mention count as not delivered."""
    window = Window(persisted.start_offset)
    for first, last, state, count in persisted.batches:
        if first < window.end or last < first or state not in PERSISTED_STATES or count < 0:
            raise BadPersistedState(
                f"expected batches of states 0, 2 or 4, ascending from {window.end}, "
                f"got {first}..{last} in state {state}, delivered {count} times"
            )
        if first > window.end:
            hole = InFlightBatch(window.end, first - 1)
            window.append(hole, [(*hole, acquire.NEVER_DELIVERED)])
        batch = InFlightBatch(first, last)
        window.append(batch, [(*batch, _settled(RecordState(state), count))])
    window.advance()
    return window

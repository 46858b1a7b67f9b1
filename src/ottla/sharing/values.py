"""Values of this package: states, acknowledgements, settings, inputs and outputs.

A record leaves its states along these ways only:

    AVAILABLE  -> ACQUIRED                              delivered; its delivery count goes up by one
    AVAILABLE  -> ARCHIVED                              it no longer exists, or is never to be seen
    ACQUIRED   -> AVAILABLE | ACKNOWLEDGED | ARCHIVED   the delivery ends
    ACKNOWLEDGED, ARCHIVED                              the end

A record at the delivery count limit whose delivery ends without success is archived, unless the
member that gives it back says that it was no delivery: then the count goes down again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.wire.error_codes import ErrorCode
    from ottla.wire.schema.share_fetch import AcquiredRecords
    from ottla.wire.schema.write_share_group_state import StateBatch


class RecordState(IntEnum):
    """As persisted. ACQUIRED never is; ARCHIVING is reserved for dead letter queues (KIP-1191)."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


TERMINAL: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class AcknowledgeType(IntEnum):
    """As on the wire. RENEW (KIP-1222) exists from version 2 of the APIs on."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(IntEnum):
    """Whether a limit may be overshot to keep log batches whole (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class ArchiveReason(Enum):
    """Why a record was given up."""

    GAP = "gap"
    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery limit"


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """A group's settings, as they are when an operation begins."""

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    """How far the window may reach past its start: one stuck record costs this much memory."""
    renew_enabled: bool = True


class ShareError(Exception):
    """A refusal, to be answered with this code."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message or self.code.name


class BadPersistedState(Exception):
    """The persisted state is invalid."""


class PersistedState(NamedTuple):
    """The state a share partition starts from; the start offset is resolved, never -1."""

    state_epoch: int
    start_offset: int
    batches: Sequence[tuple[int, int, int, int]] = ()
    """Ascending: first offset, last offset, delivery state, delivery count."""


class LogBatch(NamedTuple):
    """A whole record batch that was read from the log."""

    first_offset: int
    last_offset: int
    has_data: bool = True
    """False if no consumer may see it: control records, an aborted transaction under
    read_committed, or a batch that compaction emptied."""


class FetchTurn(NamedTuple):
    """One member's fetch from one share partition."""

    member: str
    max_records: int
    batch_size: int
    """Offsets after which a new in-flight batch begins; acknowledging whole ones is cheapest."""
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class Acquisition(NamedTuple):
    """The acquired ranges, and the log batches that hold them."""

    ranges: Sequence[AcquiredRecords] = ()
    batches: range = range(0)
    records: int = 0
    """Number of offsets in the ranges, which counts towards the limit of the response."""


class Ack(NamedTuple):
    """One type for all offsets of a range."""

    first_offset: int
    last_offset: int
    type: AcknowledgeType
    is_uncounted: bool = False
    """Of a release: the records were not processed, so this delivery does not count."""


class Archived(NamedTuple):
    """Records given up by a write; they are given up for good when it succeeds."""

    first_offset: int
    last_offset: int
    delivery_count: int
    reason: ArchiveReason


class Write(NamedTuple):
    """A write for the persister. Writes of one share partition must stay in order."""

    write_id: int
    state_epoch: int
    start_offset: int
    delivery_complete_count: int
    """Offsets of the window that need no delivery any more, this write's included (KIP-1226)."""
    batches: Sequence[StateBatch] = ()
    archived: Sequence[Archived] = ()

"""The interface of a coordinator's state machine.

Rules of every machine:

- A decision's records are applied as they are emitted, by the same `apply` that replay uses, so a
  later step of one decision sees the earlier ones. Durable state changes in no other way.
- Volatile state (sessions, deadlines, waiting requests) is lost in a restart.
- A request may be parked: its decision has no reply for its token. A later decision replies.
- A request may belong to a producer's transaction: its records are written as a batch of that
  transaction and take effect with the commit marker. Only the log knows whether a producer has been
  fenced, so the runtime asks it before it passes such a request to the machine.
- Work outside the machine is an effect, emitted after the records are committed; its outcome
  returns as a request. A restart or a failed append can lose an effect.
- Time is an argument: deadlines and times compared with them are monotonic; wall time only stamps
  stored records. A tick at `next_deadline()` is a decision like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Generic,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.clock import Now
    from ottla.wire.error_codes import ErrorCode

Token: TypeAlias = int
"""Identifies a request, so that a later decision can reply to it."""

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResponseT = TypeVar("ResponseT")
RecordT = TypeVar("RecordT")


class Reply(NamedTuple, Generic[ResponseT]):
    token: Token
    response: ResponseT


class Transactional(NamedTuple):
    """The producer of a transactional request."""

    producer_id: int
    producer_epoch: int


class Marker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool


Transaction: TypeAlias = Transactional | Marker


class Batch(NamedTuple):
    """A batch of the log: records, or a single marker."""

    records: Sequence[tuple[bytes, bytes | None]]
    transaction: Transaction | None = None


class Refused(Exception):
    """Raised in a decision to refuse a request without changes; the machine replies with it."""

    def __init__(self, error: ErrorCode, message: str = "") -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message


class Effect:
    """Work outside the machine; each machine has its own kinds."""

    __slots__ = ()


@dataclass(slots=True)
class Decision(Generic[RecordT, ResponseT]):
    """The result of a request or a tick: records to commit, then replies and effects."""

    records: list[RecordT] = field(default_factory=list)
    replies: list[Reply[ResponseT]] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    def reply(self, token: Token, response: ResponseT) -> None:
        self.replies.append(Reply(token, response))


class Machine(Protocol[RequestT_contra, RecordT, ResponseT]):
    """One partition's coordinator."""

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply one committed record to the state."""

    def loaded(self, now: Now) -> None:
        """Called after replay: start the deadlines."""

    def decide(
        self, request: RequestT_contra, token: Token, now: Now
    ) -> Decision[RecordT, ResponseT]: ...

    def tick(self, now: Now) -> Decision[RecordT, ResponseT]: ...

    def next_deadline(self) -> int | None:
        """When to tick, in monotonic milliseconds."""

    def encode(self, record: RecordT) -> tuple[bytes, bytes | None]: ...


@runtime_checkable
class TransactionalMachine(Protocol):
    """Further methods of a machine whose topic has transactions."""

    def replay_transactional(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Apply a record that takes effect if the producer's next marker is a commit."""

    def replay_marker(self, marker: Marker) -> None:
        """Apply the end of a transaction."""

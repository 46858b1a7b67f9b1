"""The state of a producer's transactions: what may be sent, and requests to the coordinator.

No sockets, no clock: the shell (`shell`) asks it and tells it. Rules:

- One transaction at a time. Records go into the one that was open when their call began; a call
  that is late, since it waited for memory or metadata, is refused and not put into the next.
- A partition's batches leave once the coordinator has added the partition to the transaction.
  One request to add is under way at a time, with all that are waiting for it.
- After the first failure the transaction accepts and sends no more records, and can only be
  aborted. A fatal failure ends the producer.
- While committing, it accepts no more records but sends those it has. While aborting, it sends
  none.
- The end is requested from the coordinator only if something was added: an empty transaction ends
  without a request.
- After a transaction that lost records in flight, sequences are in doubt. The epoch is raised
  before the next one, so that sequences start over and records still in flight are refused.
- A transaction whose outcome is unknown ends the producer, too: only the user can decide what to
  do.
- A guest has the identity of another producer's transaction. It is open from the start and never
  ends it: the producer that owns the identity does.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from ottla.client.transactions.types import (
    FatalTransactionError,
    TransactionAborted,
    TransactionUnresolved,
    WrongTransactionState,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.client.cluster.view import TopicPartition
    from ottla.client.errors import ClientError
    from ottla.client.producer.batches import Identity


class Phase(Enum):
    """The phases of a producer."""

    IDLE = auto()
    OPEN = auto()
    COMMITTING = auto()
    ABORTING = auto()
    OVER = auto()


class TransactionState:
    """The machine of one producer."""

    def __init__(self, guest: Identity | None = None) -> None:
        self.identity = guest
        self.is_guest = guest is not None
        self.phase = Phase.IDLE if guest is None else Phase.OPEN
        self.number = 0
        self.failure: ClientError | None = None
        self.in_doubt = False
        self.is_known = False
        """Whether the coordinator may know of the transaction."""
        self._added: set[TopicPartition] = set()
        self._wanted: set[TopicPartition] = set()
        self._adding: frozenset[TopicPartition] = frozenset()

    # From one transaction to the next.

    @property
    def wants_identity(self) -> bool:
        """Whether InitProducerId comes before the next transaction."""
        return self.identity is None or self.in_doubt

    def initialised(self, identity: Identity) -> None:
        """InitProducerId was answered."""
        self.identity = identity
        self.in_doubt = False

    def refuse_to_begin(self) -> None:
        """Raise unless a transaction may begin now."""
        self._refuse_guest()
        self._refuse_if_over()
        if self.phase is not Phase.IDLE:
            raise WrongTransactionState(
                "a transaction of this producer is open; end it first, or use another producer "
                "with a transactional_id of its own"
            )

    def begin(self) -> None:
        """Open the next transaction; there is an identity for it."""
        self.refuse_to_begin()
        assert not self.wants_identity
        self.phase = Phase.OPEN
        self.number += 1
        self.failure = None
        self.is_known = False
        self._added.clear()
        self._wanted.clear()
        self._adding = frozenset()

    # While it is open.

    def ticket(self) -> int:
        """The number of the transaction that is open, for a call that hands records over."""
        self.check(self.number)
        return self.number

    def check(self, number: int) -> None:
        """Raise unless this transaction takes records."""
        self._refuse_if_over()
        if self.phase is Phase.IDLE:
            raise WrongTransactionState(
                "a producer with a transactional_id sends in transactions only; "
                "use `async with producer.transaction():`"
            )
        if not self.is_open(number):
            raise WrongTransactionState(
                "the transaction has ended before the record was handed over; "
                "await every send inside of it"
            )
        if self.failure is not None:
            raise self.loss()

    def loss(self) -> ClientError:
        """What to tell those whose records are lost by a failure that was not theirs."""
        if self.phase is Phase.OVER:
            return self._why_over()
        error = TransactionAborted(
            f"nothing of the transaction is written: {self.failure or 'it was aborted'}; "
            "do its work again in another one"
        )
        error.__cause__ = self.failure
        return error

    def admit(self, ready: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those of the partitions whose batches may leave; the others are to be added first."""
        if not self._lets_leave:
            return []
        admitted = []
        for one in ready:
            if one in self._added:
                admitted.append(one)
            elif one not in self._adding:
                self._wanted.add(one)
        return admitted

    @property
    def _lets_leave(self) -> bool:
        return self.phase in (Phase.OPEN, Phase.COMMITTING) and self.failure is None

    def to_add(self) -> frozenset[TopicPartition]:
        """What to ask the coordinator to add now; nothing while it is being asked."""
        if self._adding or not self._wanted or not self._lets_leave:
            return frozenset()
        self.is_known = True
        self._adding = frozenset(self._wanted)
        self._wanted.clear()
        return self._adding

    def added(self) -> None:
        """The coordinator has added the requested partitions."""
        self._added |= self._adding
        self._adding = frozenset()

    def touch(self, number: int) -> None:
        """Offsets are about to be added to this transaction."""
        self.check(number)
        self.is_known = True

    def failed(self, error: ClientError) -> None:
        """Something of the transaction was refused or lost."""
        if self.phase in (Phase.IDLE, Phase.OVER):
            return
        self.in_doubt = True
        if isinstance(error, FatalTransactionError | TransactionUnresolved):
            self.failure = error
            self.phase = Phase.OVER
        elif self.failure is None and self.phase is not Phase.ABORTING:
            self.failure = error

    # Its end.

    def commit(self, number: int) -> None:
        """Take no more records."""
        self._refuse_if_over()
        if not self.is_open(number):
            raise WrongTransactionState(
                "the transaction was aborted when its producer was closed; close it afterwards"
            )
        self.phase = Phase.COMMITTING

    def is_open(self, number: int) -> bool:
        """Whether this transaction has not begun to end."""
        return self.phase is Phase.OPEN and number == self.number

    def abort(self, *, loses_records: bool) -> None:
        """Let nothing leave any more."""
        if self.phase is not Phase.OVER:
            self.phase = Phase.ABORTING
            self.in_doubt = self.in_doubt or loses_records

    def ended(self) -> None:
        """The coordinator has confirmed the end, or no request was needed."""
        if self.phase is not Phase.OVER:
            self.phase = Phase.IDLE

    def _refuse_guest(self) -> None:
        if self.is_guest:
            raise WrongTransactionState(
                "this producer joined the transaction of another one; begin and end it there"
            )

    def _refuse_if_over(self) -> None:
        if self.phase is Phase.OVER:
            raise self._why_over()

    def _why_over(self) -> ClientError:
        assert self.failure is not None
        # Afresh: an exception shared by callers would collect their tracebacks.
        error = type(self.failure)(*self.failure.args)
        error.__cause__ = self.failure
        return error

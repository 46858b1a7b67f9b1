"""Whether offsets may be committed in a transaction: `admission`, for a group's coordinator.

As with a batch that a client sends, the first offsets of a transaction must be known to its
coordinator before they are written, or no marker would ever end them: from v5 of TxnOffsetCommit on
the partition of the group's offsets is added to the transaction, before that it must be in it. And
as there, a marker that comes while the coordinator is asked makes the answer worthless, up to the
moment in which the commit is decided, and makes it worth asking again from v5 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.coordinators.admission import MAX_QUESTIONS, begin_verification, is_open, refusal
from ottla.coordination.runtime import RefusedByLog
from ottla.coordination.transactions.messages import AddPartitions
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.coordinators.admission import Verification
    from ottla.broker.coordinators.transactions import TransactionService
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.running.services import Lazy
    from ottla.broker.running.settings import Settings
    from ottla.coordination.machine import Transactional

FIRST_VERSION_THAT_ADDS: Final = 5
FIRST_VERSION_WITH_ABORTABLE: Final = 4


class OffsetAdmission:
    """One TxnOffsetCommit request to the partition that has its group."""

    def __init__(self, partition: HostedPartition, producer: Transactional) -> None:
        self._partition = partition
        self._producer = producer
        self._verification: Verification | None = None

    async def verify(
        self,
        transactional_id: str,
        version: int,
        transactions: Lazy[TransactionService],
        settings: Settings,
    ) -> None:
        """Asks the transaction's coordinator, if there is anything to ask."""
        adds = version >= FIRST_VERSION_THAT_ADDS
        partition, producer = self._partition, self._producer
        if not (adds or settings.verify_transactions) or is_open(partition, producer):
            return
        key = partition.topic, partition.index
        question = AddPartitions(
            transactional_id,
            *producer,
            frozenset({key}),
            verify_only=not adds,
            version_2=adds,
        )
        for _ in range(MAX_QUESTIONS if adds else 1):
            self._verification = begin_verification(partition, producer)
            said = await (await transactions.ready()).join(question)
            code = said.get(key, ErrorCode.NETWORK_EXCEPTION)
            if code != ErrorCode.NONE:
                raise refusal(
                    code,
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    knows_abortable=version >= FIRST_VERSION_WITH_ABORTABLE,
                    retries_concurrent=False,
                )
            if self._holds():
                return

    def _holds(self) -> bool:
        """Whether no marker has ended the verification."""
        found = self._partition.verifications.get(self._producer.producer_id)
        return found is self._verification or is_open(self._partition, self._producer)

    def check(self) -> None:
        """Raise unless the commit may be decided now."""
        producer_id = self._producer.producer_id
        if self._verification is None or is_open(self._partition, self._producer):
            return
        if self._partition.verifications.get(producer_id) is not self._verification:
            raise RefusedByLog(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction of producer {producer_id} ended before its offsets arrived",
            )
        del self._partition.verifications[producer_id]

"""Transaction without async. Made by scripts/generate_sync.py; do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.transactions.transaction import Transaction as AsyncTransaction
from ottla.sync.twin import Twin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client.cluster.view import TopicPartition
    from ottla.client.transactions.shell import Transactions
    from ottla.client.transactions.types import ConsumerGroupMetadata, OffsetAndMetadata


class Transaction(Twin[AsyncTransaction]):
    """A context manager; records sent inside it are committed together or not at all.

    Left in peace it commits, left by an exception it aborts and lets the exception go on.
    `Producer.transaction` makes it.
    """

    def __init__(self, transactions: Transactions) -> None:
        super().__init__(lambda: AsyncTransaction(transactions))

    def send_offsets(
        self,
        group: str | ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    ) -> None:
        """Commit offsets of a consumer group, when and if the transaction commits.

        An offset is that of the next record to read. Given a member (`ConsumerGroupMetadata`)
        rather than the name of a group, they are refused once it is no longer a member.
        """
        self._run(self._async.send_offsets(group, offsets))

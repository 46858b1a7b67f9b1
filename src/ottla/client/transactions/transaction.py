"""One transaction of a producer, as its user sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from ottla.client.cluster.view import TopicPartition
    from ottla.client.transactions.shell import Transactions
    from ottla.client.transactions.types import ConsumerGroupMetadata, OffsetAndMetadata


class Transaction:
    """An async context manager; what is sent inside of it is written together or not at all.

    Left in peace it commits, left by an exception it aborts and lets the exception go on.
    `Producer.transaction` makes it.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._ticket = 0

    async def __aenter__(self) -> Self:
        self._ticket = await self._transactions.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self._transactions.commit(self._ticket)
        else:
            await self._transactions.abort(self._ticket)

    async def send_offsets(
        self,
        group: str | ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    ) -> None:
        """Commit offsets of a consumer group, when and if the transaction commits.

        An offset is that of the next record to read. Given a member (`ConsumerGroupMetadata`)
        rather than the name of a group, they are refused once it is no longer a member.
        """
        await self._transactions.send_offsets(self._ticket, group, offsets)

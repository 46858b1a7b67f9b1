"""One transaction of a producer, as its user sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ottla.client import arguments
from ottla.client.arguments import INT64
from ottla.client.transactions.types import ConsumerGroupMetadata, OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from ottla.client.cluster.view import TopicPartition
    from ottla.client.transactions.shell import Transactions


class Transaction:
    """An async context manager; records sent inside it are committed together or not at all.

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
        await self._transactions.send_offsets(self._ticket, _group(group), _offsets(offsets))


def _group(given: object) -> str | ConsumerGroupMetadata:
    if not isinstance(given, ConsumerGroupMetadata):
        return arguments.text("group", given, "a group's name or a ConsumerGroupMetadata")
    group, generation, member, instance = given
    arguments.text("group.group_id", group)
    arguments.whole("group.generation_id", generation, -1)
    arguments.instance("group.member_id", member, str, "str")
    arguments.optional_text("group.group_instance_id", instance)
    return given


def _offsets(given: object) -> dict[TopicPartition, OffsetAndMetadata | int]:
    wanted = "offsets by partition, such as {TopicPartition('orders', 0): 42}"
    return {
        arguments.partition("offsets: key", key): _offset(f"offsets[{key!r}]", one)
        for key, one in arguments.mapping("offsets", given, wanted).items()
    }


def _offset(name: str, given: object) -> OffsetAndMetadata | int:
    if not isinstance(given, OffsetAndMetadata):
        return arguments.whole(name, given, 0, INT64, "an offset or an OffsetAndMetadata")
    offset, metadata, epoch = given
    arguments.instance(f"{name}.metadata", metadata, str, "str")
    return OffsetAndMetadata(
        arguments.whole(f"{name}.offset", offset, 0, INT64),
        metadata and arguments.text(f"{name}.metadata", metadata, "a note"),
        arguments.whole(f"{name}.leader_epoch", epoch, -1),
    )

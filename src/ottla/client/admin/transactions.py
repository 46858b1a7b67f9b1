"""Admin calls for transactions: list, describe, find hanging ones, abort.

A transaction is known in two places. Its coordinator knows the transactional id, the state and the
partitions; the leader of each partition knows which producer has a transaction open there, by
producer id. One that is open in a partition although no coordinator knows of it is hanging: it
blocks readers of committed records until it is aborted there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client import arguments
from ottla.client.admin.base import by_topic
from ottla.client.admin.offsets import OffsetCalls
from ottla.client.admin.types import (
    HangingTransaction,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from ottla.client.arguments import INT64
from ottla.client.cluster.cluster import Coordinator, together
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import BadArgument, check
from ottla.client.transactions.requests import TRANSACTION, TransactionCoordinator
from ottla.clock import SYSTEM
from ottla.wire.schema.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.wire.schema.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.wire.schema.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_TRANSACTION: Final = 20 * 60.0
"""Seconds: the default of transaction.max.timeout.ms, and 5 minutes for its coordinator to act."""

_NOT_OPEN: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
_WITH_DURATION: Final = 1
_WITH_PATTERN: Final = 2


class NoSuchTransaction(BadArgument):
    """No transaction is open in the partition from that offset on."""


class TransactionCalls(OffsetCalls):
    """List, describe and abort transactions; find those that hang."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than: float | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Transactions of all coordinators that match all filters.

        States are Kafka's, such as Ongoing; `longer_than` is for how many seconds it has been open,
        `pattern` a regular expression for the transactional id.
        """
        least = arguments.optional_seconds("longer_than", longer_than)
        least_ms = -1 if least is None else int(least * 1000)
        request = ListTransactionsRequest(
            arguments.texts("states", states),
            arguments.wholes("producer_ids", producer_ids, INT64),
            least_ms,
            arguments.optional_text("pattern", pattern, "a regular expression"),
        )
        low = _WITH_PATTERN if pattern else _WITH_DURATION if least is not None else 0

        async def of(broker: int) -> list[TransactionListing]:
            answer: ListTransactionsResponse = await self._client.send(
                request, to=broker, min_version=low
            )
            check(answer.error_code, f"list the transactions of broker {broker}")
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                raise BadArgument(
                    f"no state {unknown}; one is Ongoing, others Empty, CompleteAbort"
                )
            found = [TransactionListing(*one) for one in answer.transaction_states]
            # To brokers one that has not begun has been open since 1970.
            return [one for one in found if least is None or one.state not in _NOT_OPEN]

        async def attempt() -> list[TransactionListing]:
            view = await self._client.refresh(())
            found = await together(of(broker) for broker in view.brokers)
            return sorted(
                (one for some in found for one in some), key=lambda one: one.transactional_id
            )

        return await self._client.retry(attempt)

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> list[TransactionDescription]:
        """Describe transactions with their partitions, in the requested order."""
        return await together(
            self._describe_transaction(one)
            for one in arguments.texts("transactional_ids", transactional_ids)
        )

    async def describe_producers(
        self, of: Iterable[str | tuple[str, int]]
    ) -> dict[TopicPartition, list[ProducerState]]:
        """The active producers of each partition; a topic name means all its partitions."""
        wanted = arguments.places("of", of)

        async def attempt() -> dict[TopicPartition, list[ProducerState]]:
            leaders = await self._by_leader(await self._partitions(wanted))
            found = await together(
                self._describe_producers(leader, partitions)
                for leader, partitions in leaders.items()
            )
            return {key: one[key] for one in found for key in one}

        return dict(sorted((await self._client.retry(attempt)).items()))

    async def find_hanging_transactions(
        self,
        of: Iterable[str | tuple[str, int]] | None = None,
        *,
        longer_than: float = LONGEST_TRANSACTION,
    ) -> list[HangingTransaction]:
        """The transactions open in these partitions (None: all) that no coordinator will end.

        `longer_than`, in seconds, is to be more than any transaction may take, see
        transaction.max.timeout.ms of the brokers: a younger one may just be on its way.
        """
        longer_than = arguments.seconds("longer_than", longer_than)
        if of is None:
            view = await self._client.retry(lambda: self._client.refresh(None))
            of = list(view.topics)
        latest = SYSTEM.wall_ms() - int(longer_than * 1000)
        open_ones = [
            HangingTransaction(key.topic, key.partition, one)
            for key, producers in (await self.describe_producers(of)).items()
            for one in producers
            if one.transaction_start_offset is not None and one.last_timestamp_ms <= latest
        ]
        if not open_ones:
            return []
        listed = await self.list_transactions(
            producer_ids={one.producer.producer_id for one in open_ones}
        )
        known = await self.describe_transactions(one.transactional_id for one in listed)
        coordinated = {(*key, one.producer_id) for one in known for key in one.partitions}
        return [
            one
            for one in open_ones
            if (one.topic, one.partition, one.producer.producer_id) not in coordinated
        ]

    async def abort_transaction(self, topic: str, partition: int, start_offset: int) -> None:
        """Abort a hanging transaction in the partition where it began at `start_offset`.

        It is aborted in that partition only, without its coordinator: to end one that has a
        coordinator, `fence_producer`.
        """
        key = arguments.partition("partition", (topic, partition))
        arguments.whole("start_offset", start_offset, 0, INT64)
        [producers] = (await self.describe_producers([key])).values()
        found = [one for one in producers if one.transaction_start_offset == start_offset]
        if not found:
            raise NoSuchTransaction(
                f"no transaction is open in {key} from offset {start_offset} on; "
                "see which are with describe_producers"
            )
        marker = WritableTxnMarker(
            found[0].producer_id,
            found[0].producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(topic, [partition])],
            # A partition that has never seen a coordinator has none to compare with.
            coordinator_epoch=max(0, found[0].coordinator_epoch),
        )

        async def attempt() -> None:
            answer: WriteTxnMarkersResponse = await self._client.send(
                WriteTxnMarkersRequest([marker]), to=key
            )
            for one in answer.markers[0].topics[0].partitions:
                check(one.error_code, f"abort the transaction in {key}")

        await self._client.retry(attempt)

    async def fence_producer(self, transactional_id: str) -> None:
        """Abort the producer's open transaction and fence it; a new producer may start."""
        arguments.text("transactional_id", transactional_id)
        coordinator = TransactionCoordinator(self._client, transactional_id)
        await coordinator.init(self._timeout_ms)

    async def _describe_transaction(self, transactional_id: str) -> TransactionDescription:
        coordinator = Coordinator(transactional_id, TRANSACTION)

        async def attempt() -> TransactionDescription:
            answer: DescribeTransactionsResponse = await self._client.send(
                DescribeTransactionsRequest([transactional_id]), to=coordinator
            )
            found = answer.transaction_states[0]
            check(found.error_code, f"describe transactional id {transactional_id!r}")
            start = found.transaction_start_time_ms
            return TransactionDescription(
                transactional_id,
                await self._client.coordinator_of(coordinator),
                found.transaction_state,
                found.producer_id,
                found.producer_epoch,
                found.transaction_timeout_ms,
                start if start >= 0 else None,
                [
                    TopicPartition(topic.topic, number)
                    for topic in found.topics
                    for number in topic.partitions
                ],
            )

        return await self._client.retry(attempt)

    async def _describe_producers(
        self, leader: int, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState]]:
        request = DescribeProducersRequest(
            [TopicRequest(*one) for one in by_topic(partitions).items()]
        )
        answer: DescribeProducersResponse = await self._client.send(request, to=leader)
        found = {}
        for topic in answer.topics:
            for one in topic.partitions:
                key = TopicPartition(topic.name, one.partition_index)
                check(one.error_code, f"describe the producers of {key}", one.error_message)
                found[key] = [
                    ProducerState(
                        state.producer_id,
                        state.producer_epoch,
                        state.last_sequence,
                        state.last_timestamp,
                        state.coordinator_epoch,
                        start if (start := state.current_txn_start_offset) >= 0 else None,
                    )
                    for state in one.active_producers
                ]
        return found

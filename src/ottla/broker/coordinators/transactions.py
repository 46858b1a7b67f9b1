"""The transaction coordinators of this node, and the writing of markers.

- A transaction that is ending has a task of its own, which writes the markers, again and again
  until every partition has its own, and then tells the coordinator. It gives up when this node no
  longer coordinates the transaction: the new coordinator starts over.
- Partitions join a transaction through `join`, wherever its coordinator is. A producer that goes on
  at once after its last transaction finds that one ending still; it is worth a short wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.broker.coordinators.markers import MarkerWriter
from ottla.broker.coordinators.service import CoordinatorService
from ottla.broker.errors import ApiError
from ottla.broker.running.peers import PeerUnreachable
from ottla.coordination.machine import Marker
from ottla.coordination.partitioner import partition_for
from ottla.coordination.transactions import messages as m
from ottla.coordination.transactions.coordinator import (
    TransactionConfig,
    TransactionCoordinator,
)
from ottla.metadata.names import TRANSACTION_STATE_TOPIC
from ottla.redaction import printable
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.coordinators.log import Hosting
    from ottla.broker.running.peers import Peers
    from ottla.broker.running.services import Lazy
    from ottla.coordination.machine import Effect
    from ottla.coordination.transactions.records import TransactionRecord
    from ottla.metadata.image import MetadataImage

ResponseT = TypeVar("ResponseT")

FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 1.0
COMPLETION_SECONDS: Final = 1.0  # how long a join waits for the transaction before it to end
ADD_PARTITIONS_VERSION: Final = 5
OPEN: Final = frozenset(
    {
        m.TransactionState.ONGOING,
        m.TransactionState.PREPARE_COMMIT,
        m.TransactionState.PREPARE_ABORT,
    }
)

logger = logging.getLogger(__name__)


class TransactionService:
    """Asks the coordinator of a transactional id; refusals are `ApiError`."""

    def __init__(self, hosting: Hosting, groups: Lazy[GroupService], peers: Lazy[Peers]) -> None:
        self._cluster = hosting.cluster
        self._peers = peers
        self.markers = MarkerWriter(hosting, groups, peers)
        self._machines: dict[int, TransactionCoordinator] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._service: CoordinatorService[m.Request, TransactionRecord, m.Response] = (
            CoordinatorService(hosting, TRANSACTION_STATE_TOPIC, self._machine, self._perform)
        )

    def arrived(self, index: int) -> None:
        """The log of this partition came from another node."""
        self._service.arrived(index)

    def start(self) -> None:
        """Load partitions that were used before; ending transactions continue to end."""
        self._service.start()

    async def stop(self) -> None:
        ending = tuple(self._ending.values())
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._service.close()

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        if before.topics_by_name is not after.topics_by_name:
            self._service.leaders_changed(after)

    async def coordinator_of(self, transactional_id: str) -> int:
        """The node that coordinates the id; makes the internal topic if need be."""
        config = self._cluster.config
        topic = await self._service.ensure_topic(
            config.get_int("transaction.state.log.num.partitions"),
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(config.get_int("transaction.state.log.segment.bytes")),
            },
        )
        return topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader

    async def ask(
        self, transactional_id: str, request: m.Request, expect: type[ResponseT]
    ) -> ResponseT:
        """The id's coordinator here decides; the answer comes when it is committed."""
        return await self._service.ask(transactional_id, request, expect)

    async def list_transactions(self, request: m.ListTransactions) -> list[m.ListedTransaction]:
        """The transactions of all coordinators on this node."""
        answers = await self._service.ask_all(request, m.ListTransactionsResponse)
        return [transaction for answer in answers for transaction in answer.transactions]

    # -- for metrics ------------------------------------------------------------------------------

    @property
    def loading(self) -> int:
        return self._service.loading

    def states(self) -> Counter[str]:
        """Number of transactional ids by state, in loaded partitions."""
        return Counter(
            transaction.state.label
            for machine in self._loaded()
            for transaction in machine.transactions.values()
        )

    def longest_open(self, wall_ms: int) -> float:
        """Age in seconds of the oldest transaction that is open, in loaded partitions."""
        return max(
            (
                max(0, wall_ms - transaction.start_ms) / 1000
                for machine in self._loaded()
                for transaction in machine.transactions.values()
                if transaction.state in OPEN
            ),
            default=0.0,
        )

    @property
    def timed_out(self) -> int:
        """Number of transactions aborted by their timeout, in loaded partitions."""
        return sum(machine.timed_out for machine in self._loaded())

    @property
    def ending(self) -> int:
        """How many transactions wait for markers to be written."""
        return len(self._ending)

    def _loaded(self) -> list[TransactionCoordinator]:
        return [self._machines[index] for index in self._service.loaded]

    # -- joining ----------------------------------------------------------------------------------

    async def join(self, request: m.AddPartitions) -> dict[m.Partition, ErrorCode]:
        """Ask the coordinator, here or on another node, to add partitions; their errors."""
        try:
            coordinator = await self.coordinator_of(request.transactional_id)
            if coordinator != self._cluster.node_id:
                return await self._join_there(coordinator, request)
            answer = await self.add_partitions(request)
        except ApiError as error:
            return dict.fromkeys(request.partitions, error.code)
        except PeerUnreachable:
            return dict.fromkeys(request.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return outcome(request, answer)

    async def add_partitions(self, request: m.AddPartitions) -> m.AddPartitionsResponse:
        """The same for a coordinator on this node."""
        name = request.transactional_id
        answer = await self.ask(name, request, m.AddPartitionsResponse)
        if answer.error == ErrorCode.CONCURRENT_TRANSACTIONS and not request.verify_only:
            ending = self._ending.get(name)
            if ending is not None:
                await asyncio.wait([ending], timeout=COMPLETION_SECONDS)
                answer = await self.ask(name, request, m.AddPartitionsResponse)
        return answer

    async def _join_there(
        self, node_id: int, request: m.AddPartitions
    ) -> dict[m.Partition, ErrorCode]:
        if node_id < 0:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        topics: dict[str, list[int]] = {}
        for name, index in sorted(request.partitions):
            topics.setdefault(name, []).append(index)
        asked = AddPartitionsToTxnTransaction(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.verify_only,
            [AddPartitionsToTxnTopic(name, indexes) for name, indexes in topics.items()],
        )
        answer = await self._peers().ask(
            node_id, AddPartitionsToTxnRequest(transactions=[asked]), ADD_PARTITIONS_VERSION
        )
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code))
        return {
            (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }

    # -- ending -----------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        assert isinstance(effect, m.WriteMarkers)
        name = effect.transactional_id
        before = self._ending.get(name)
        if before is not None:
            # A reloaded coordinator requests running work again; the outcome of the first request
            # is not used any more.
            before.cancel()
        task = self._ending[name] = asyncio.ensure_future(self._end(effect))

        def ended(_: asyncio.Task[None]) -> None:
            if self._ending.get(name) is task:
                del self._ending[name]

        task.add_done_callback(ended)

    async def _end(self, effect: m.WriteMarkers) -> None:
        name = effect.transactional_id
        left: Collection[m.Partition] = effect.partitions
        pause = FIRST_PAUSE_SECONDS
        try:
            while left := await self._try_to_mark(effect, left):
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            await self.ask(name, m.MarkersWritten(effect), m.Noted)
        except ApiError as error:
            logger.info("this node stops ending transaction %s: %s", printable(name), error)

    async def _try_to_mark(
        self, effect: m.WriteMarkers, partitions: Collection[m.Partition]
    ) -> Collection[m.Partition]:
        """The partitions without a marker; `ApiError` if another node coordinates it now."""
        marker = self._marker(effect)
        try:
            codes = await self.markers.write(marker, partitions)
        except Exception:
            # Retry after any error: giving up would leave the transaction open until the next
            # start.
            logger.exception("markers of transaction %s not written", effect.transactional_id)
            return partitions
        if ErrorCode.TRANSACTION_COORDINATOR_FENCED in codes.values():
            raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        return [partition for partition, code in codes.items() if code not in _SETTLED]

    def _marker(self, effect: m.WriteMarkers) -> Marker:
        """As of now: the epoch of the coordinator is that of its partition's leader."""
        index = self._service.index_of(effect.transactional_id)
        topic = self._cluster.image.topics_by_name[TRANSACTION_STATE_TOPIC]
        epoch = topic.partitions[index].leader_epoch
        return Marker(effect.producer_id, effect.producer_epoch, epoch, effect.commit)

    def _machine(self, index: int) -> TransactionCoordinator:
        config = self._cluster.config
        machine = self._machines[index] = TransactionCoordinator(
            TransactionConfig(
                max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
                id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
            )
        )
        return machine


# A producer of a newer epoch has been there: the transaction this marker is for ended before.
_SETTLED: Final = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH})


def outcome(
    request: m.AddPartitions, answer: m.AddPartitionsResponse
) -> dict[m.Partition, ErrorCode]:
    """An error code for each partition."""
    return {
        partition: ErrorCode.TRANSACTION_ABORTABLE if partition in answer.missing else answer.error
        for partition in request.partitions
    }

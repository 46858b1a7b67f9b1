"""Produce (0): append batches.

- Partitions are independent: one that is refused does not affect the others.
- acks=all answers when the batches are durable (ottla.flush.mode=group) or written (os); requests
  that a client sends meanwhile are appended meanwhile, so that one sync serves them all;
  acks=1 when they are written; acks=0 is not answered, and an error closes the connection so that
  the client learns of it.
- A batch that opens a transaction waits until the transaction's coordinator knows of it, and with
  it what its connection sends after it (`admission`). Requests without transactional batches, and
  those that go on with open transactions, wait for nobody.
- A repeated batch of an idempotent producer is answered with the offsets it got the first time.
- Topics are named up to v12 and identified by id in v13.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ottla.broker.errors import ApiError
from ottla.broker.serving.context import Pipelined
from ottla.log.errors import InvalidRecordError, LogError
from ottla.log.validate import validate_produce
from ottla.wire.batch import TRANSACTIONAL
from ottla.wire.error_codes import ErrorCode
from ottla.wire.errors import MessageError
from ottla.wire.schema.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ottla.broker.coordinators.admission import Admission
    from ottla.broker.coordinators.transactions import TransactionService
    from ottla.broker.hosting.partitions import Appended, HostedPartition, Partitions
    from ottla.broker.running.services import Lazy
    from ottla.broker.running.settings import Settings
    from ottla.broker.serving.context import RequestContext
    from ottla.clock import Clock

Answer: TypeAlias = "ProduceResponse | Pipelined[ProduceResponse] | None"

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
ATTRIBUTES_BYTE = 22  # of a batch, the lower one
FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_IDS = 13


class AcksNoneFailed(MessageError):
    """The client does not read answers; closing the connection is the only way to tell it."""

    summary = "produce without acknowledgement failed"


class Produced:
    """Collects the answers of one request and the partitions it wrote to."""

    def __init__(
        self,
        version: int,
        acks: int,
        partitions: Partitions,
        now_ms: int,
        admission: Admission | None,
    ) -> None:
        self.version = version
        self.partitions = partitions
        self.acks = acks
        self.admission = admission
        self.now_ms = now_ms
        self.written: list[HostedPartition] = []
        self.failed: ApiError | LogError | None = None

    def topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        partitions = self.partitions
        by_id = self.version >= FIRST_VERSION_WITH_IDS
        responses = []
        for data in topic.partition_data:
            try:
                if self.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
                    raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
                if by_id:
                    partition = partitions.find_by_id(topic.topic_id, data.index_)
                else:
                    partition = partitions.find(topic.name, data.index_)
                responses.append(self.append(partition, data))
            except (ApiError, LogError) as error:
                self.failed = error
                responses.append(_refused(data.index_, error))
        return TopicProduceResponse(topic.name, topic.topic_id, responses)

    def append(
        self, partition: HostedPartition, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        if partition.internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "Only the broker writes to it.")
        log = partition.log
        assert data.records is None or isinstance(data.records, memoryview)
        batch = validate_produce(
            data.records or memoryview(b""),
            log.config,
            now_ms=self.now_ms,
            zstd_allowed=self.version >= FIRST_VERSION_WITH_ZSTD,
        )
        if self.admission is not None and batch.attributes & TRANSACTIONAL:
            self.admission.check(partition, batch)
        result = log.append(batch, leader_epoch=partition.leader_epoch, now_ms=self.now_ms)
        # The first sending of a duplicate may be waiting for its sync still.
        if not result.duplicate or result.last_offset >= log.high_watermark:
            self.written.append(partition)
        return PartitionProduceResponse(
            data.index_,
            ErrorCode.NONE,
            result.base_offset,
            result.log_append_time_ms,
            result.log_start_offset,
        )


def produce(
    context: RequestContext,
    request: ProduceRequest,
    partitions: Partitions,
    appended: Appended,
    clock: Clock,
    transactions: Lazy[TransactionService],
    settings: Settings,
) -> ProduceResponse | Awaitable[Answer] | Pipelined[ProduceResponse] | None:
    version = context.version
    if not _is_transactional(request):
        return _append(version, request, partitions, appended, clock, None)
    from ottla.broker.coordinators.admission import Admission

    try:
        admission = Admission(version, request, partitions, transactions, settings)
    except ApiError as error:
        return _refuse_all(request, error)
    if admission.must_wait:
        return _append_verified(version, request, partitions, appended, clock, admission)
    return _append(version, request, partitions, appended, clock, admission)


def _is_transactional(request: ProduceRequest) -> bool:
    """Whether any batch is part of a transaction; what is no batch is refused later."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records and len(records) > ATTRIBUTES_BYTE:
                assert isinstance(records, memoryview)
                if records[ATTRIBUTES_BYTE] & TRANSACTIONAL:
                    return True
    return False


async def _append_verified(
    version: int,
    request: ProduceRequest,
    partitions: Partitions,
    appended: Appended,
    clock: Clock,
    admission: Admission,
) -> Answer:
    await admission.verify()
    return _append(version, request, partitions, appended, clock, admission)


def _append(
    version: int,
    request: ProduceRequest,
    partitions: Partitions,
    appended: Appended,
    clock: Clock,
    admission: Admission | None,
) -> Answer:
    produced = Produced(version, request.acks, partitions, clock.wall_ms(), admission)
    response = ProduceResponse([produced.topic(topic) for topic in request.topic_data])
    durable = appended(produced.written)
    if request.acks == ACKS_NONE:
        if produced.failed is not None:
            raise AcksNoneFailed("batches that can be appended", str(produced.failed), "Produce")
        return None
    if request.acks == ACKS_ALL and durable is not None:
        return Pipelined(_when_durable(response, produced.written, durable))
    return response


def _refuse_all(request: ProduceRequest, error: ApiError) -> ProduceResponse | None:
    if request.acks == ACKS_NONE:
        raise AcksNoneFailed("batches that can be appended", str(error), "Produce")
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [_refused(data.index_, error) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


async def _when_durable(
    response: ProduceResponse, written: list[HostedPartition], durable: Awaitable[None]
) -> ProduceResponse:
    await durable
    if all(partition.log.online for partition in written):
        return response
    offline = {
        (topic, partition.index)
        for partition in written
        if not partition.log.online
        for topic in (partition.topic, partition.topic_id)
    }
    return ProduceResponse(
        [
            topic._replace(
                partition_responses=[
                    PartitionProduceResponse(p.index_, ErrorCode.KAFKA_STORAGE_ERROR, -1)
                    if (topic.name, p.index_) in offline or (topic.topic_id, p.index_) in offline
                    else p
                    for p in topic.partition_responses
                ]
            )
            for topic in response.responses
        ]
    )


def _refused(index: int, error: ApiError | LogError) -> PartitionProduceResponse:
    record_errors: list[BatchIndexAndErrorMessage] = []
    if isinstance(error, InvalidRecordError):
        record_errors = [BatchIndexAndErrorMessage(i, text) for i, text in error.record_errors]
    return PartitionProduceResponse(
        index,
        error.code,
        -1,
        record_errors=record_errors,
        error_message=str(error),
        current_leader=LeaderIdAndEpoch(),
    )

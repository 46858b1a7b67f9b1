"""The batches of one Produce request: checked, appended, and the answer of each partition."""

from __future__ import annotations

from functools import partial
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.errors import ApiError
from ottla.log.errors import InvalidRecordError, LogError
from ottla.log.validate import (
    ALL,
    SAMPLED,
    TakesLong,
    check_records,
    must_look,
    open_batch,
    use_compiled,
)
from ottla.wire.batch import TRANSACTIONAL
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from ottla.broker.coordinators.admission import Admission
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.serving.context import RequestContext
    from ottla.broker.workers import Workers
    from ottla.log.config import LogConfig
    from ottla.wire.batch import RecordBatch

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
FIRST_VERSION_WITH_ZSTD: Final = 7
FIRST_VERSION_WITH_LEADERS: Final = 10
FIRST_VERSION_WITH_IDS: Final = 13


class Long(NamedTuple):
    """A batch that a worker has to look into, and where its answer belongs."""

    partition: HostedPartition
    batch: RecordBatch
    responses: list[PartitionProduceResponse]
    place: int
    sampled: bool


class Produced:
    """Collects the answers of one request and the partitions it wrote to."""

    __slots__ = (
        "acks",
        "admission",
        "failed",
        "long",
        "now_ms",
        "partitions",
        "scrutiny",
        "version",
        "written",
    )

    def __init__(
        self,
        context: RequestContext,
        acks: int,
        partitions: Partitions,
        now_ms: int,
        admission: Admission | None,
    ) -> None:
        self.version = context.version
        self.scrutiny = context.peer.scrutiny
        self.partitions = partitions
        self.acks = acks
        self.admission = admission
        self.now_ms = now_ms
        self.written: list[HostedPartition] = []
        self.long: list[Long] = []
        self.failed: ApiError | LogError | None = None

    def topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        responses: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            self.one(topic, data, responses)
        return TopicProduceResponse(topic.name, topic.topic_id, responses)

    def one(
        self,
        topic: TopicProduceData,
        data: PartitionProduceData,
        responses: list[PartitionProduceResponse],
    ) -> None:
        try:
            if self.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
            if self.version >= FIRST_VERSION_WITH_IDS:
                partition = self.partitions.find_by_id(topic.topic_id, data.index_)
            else:
                partition = self.partitions.find(topic.name, data.index_)
            responses.append(self.partition(partition, data, responses))
        except (ApiError, LogError) as error:
            responses.append(self.refuse(data.index_, error))

    def partition(
        self,
        partition: HostedPartition,
        data: PartitionProduceData,
        responses: list[PartitionProduceResponse],
    ) -> PartitionProduceResponse:
        if partition.internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "Only the broker writes to it.")
        config = partition.log.config
        assert data.records is None or isinstance(data.records, memoryview)
        batch = open_batch(
            data.records or memoryview(b""),
            config,
            now_ms=self.now_ms,
            zstd_allowed=self.version >= FIRST_VERSION_WITH_ZSTD,
        )
        always = not config.leaves_records and must_look(batch, config)
        if always or (config.ottla_validate_records == SAMPLED and self.scrutiny.wants()):
            if config.ottla_validate_records == ALL:
                use_compiled()
            start = perf_counter_ns()
            try:
                batch = check_records(batch, config, now_ms=self.now_ms, quick=True)
            except TakesLong:
                self.long.append(Long(partition, batch, responses, len(responses), not always))
                return PartitionProduceResponse(data.index_)  # until the worker is done
            if not always:
                self.scrutiny.took(perf_counter_ns() - start, batch.size)
        return self.append(partition, data.index_, batch)

    async def look_into_long(self, workers: Workers) -> None:
        """Let workers look into the batches that take long, and append those."""
        for partition, batch, responses, place, sampled in self.long:
            look = partial(_look_into, batch, partition.log.config, self.now_ms)
            try:
                checked, nanoseconds = await workers.run(look)
                if sampled:
                    self.scrutiny.took(nanoseconds, batch.size)
                responses[place] = self.append(partition, responses[place].index_, checked)
            except (ApiError, LogError) as error:
                responses[place] = self.refuse(responses[place].index_, error)

    def refuse(self, index: int, error: ApiError | LogError) -> PartitionProduceResponse:
        self.failed = error
        if isinstance(error, InvalidRecordError):
            self.scrutiny.distrust()
        return refused_row(index, error)

    def append(
        self, partition: HostedPartition, index: int, batch: RecordBatch
    ) -> PartitionProduceResponse:
        log = partition.log
        if self.admission is not None and batch.attributes & TRANSACTIONAL:
            self.admission.check(partition, batch)
        result = log.append(
            batch, leader_epoch=partition.leader_epoch, now_ms=self.now_ms, owned=True
        )
        # The first sending of a duplicate may be waiting for its sync still.
        if not result.duplicate or result.last_offset >= log.high_watermark:
            self.written.append(partition)
        return PartitionProduceResponse(
            index,
            ErrorCode.NONE,
            result.base_offset,
            result.log_append_time_ms,
            result.log_start_offset,
        )


def _look_into(batch: RecordBatch, config: LogConfig, now_ms: int) -> tuple[RecordBatch, int]:
    """In a worker: check the batch; returns the bytes to store and the CPU time."""
    start = thread_time_ns()
    return check_records(batch, config, now_ms=now_ms), thread_time_ns() - start


def refused_row(index: int, error: ApiError | LogError) -> PartitionProduceResponse:
    record_errors: list[BatchIndexAndErrorMessage] = []
    if isinstance(error, InvalidRecordError):
        record_errors = [BatchIndexAndErrorMessage(i, text) for i, text in error.record_errors]
    return PartitionProduceResponse(
        index,
        error.code,
        -1,
        record_errors=record_errors,
        error_message=str(error),
    )

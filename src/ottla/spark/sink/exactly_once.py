"""Rows into topics exactly once: one transaction for all tasks of a batch.

Rules:

- The source takes the lease when it creates the writer of a planned batch (`source`). Spark sends
  the lease with the writer to the tasks, and their messages carry it to the process that commits a
  stream's batch, whose own writer has no lease. Pickling a writer takes no lease.
- All tasks of a batch share one producer id, so a partition belongs to exactly one of them, whose
  sequence starts at 0 there. `ottla.spark.sink.owners.by_partition` arranges a frame like that.
  Rows that name neither key nor partition go to one partition of their task's own.
- If two tasks write to one partition nevertheless, the broker's check of sequences refuses one of
  them, or the batch is refused before its commit.
- No task is retried: its first attempt may have written. If Spark repeats one without saying so,
  the broker treats its batches as duplicates and answers with the offsets of the first ones. These
  are below the log's end when the task began, so each response is compared with that.
- A batch that the marker covers is not written again, even if it has other rows now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import ClientError, KafkaError
from ottla.client.transactions.types import FatalTransactionError
from ottla.spark.background import background
from ottla.spark.cluster import offsets_at
from ottla.spark.errors import OwnerRule, SparkError, TaskRepeated
from ottla.spark.sink.sink import Part, Written, count, divided, make_producer, parcels_of, sent
from ottla.spark.sink.transaction import (
    Batch,
    Lease,
    abort,
    batch_lost,
    commit,
    kept_client,
    take_lease,
)
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from ottla.client.cluster.cluster import Client
    from ottla.client.cluster.view import Topic
    from ottla.client.producer.types import DeliveredRange
    from ottla.spark.offsets import Offsets
    from ottla.spark.sink.options import SinkOptions, Transactional

LATEST: Final = -1
HOW_TO_OWN: Final = (
    "each partition has to be written by one task: write "
    "ottla.spark.sink.owners.by_partition(frame, options), or the frame in one task "
    "with coalesce(1)"
)


class Task(NamedTuple):
    """A task and its micro-batch; a batch query has no micro-batch."""

    number: int
    attempt: int
    batch: Batch | None

    @classmethod
    def current(cls, *, stream: bool) -> Task:
        """The task that Spark runs in this process now.

        Batch queries inside `foreachBatch` see the properties of its micro-batch, which are not
        theirs.
        """
        context = TaskContext.get()
        assert context is not None  # writers are called in tasks
        batch = None
        if stream:
            query = context.getLocalProperty("sql.streaming.queryId")
            number = context.getLocalProperty("streaming.sql.batchId")
            assert query is not None  # Spark sets both
            assert number is not None
            batch = Batch(query, int(number))
        return cls(context.partitionId(), context.attemptNumber(), batch)


@dataclass(frozen=True)
class WrittenOnce(Written):
    """Rows written by one task, and its transaction."""

    lease: Lease | None = None
    batch: Batch | None = None


class _Leased:
    """Common base of both writers."""

    stream: bool

    def __init__(
        self, options: SinkOptions, transactional: Transactional, lease: Lease | None
    ) -> None:
        self._options = options
        self._transactional = transactional
        self._lease = lease

    @classmethod
    def leased(cls, options: SinkOptions, transactional: Transactional) -> Self:
        """A writer for the tasks of a new batch; fences the previous batch."""
        return cls(options, transactional, take_lease(transactional, stream=cls.stream))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenOnce:
        return self._write(iterator, Task.current(stream=self.stream))

    def _write(self, iterator: Iterator[pa.RecordBatch], task: Task) -> WrittenOnce:
        assert self._lease is not None  # tasks have the writer of a planned batch
        return write_once(iterator, self._options, self._transactional, self._lease, task)

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        written = [one for one in messages if isinstance(one, WrittenOnce) and one.rows]
        check_owners(written)
        if written:
            lease = written[0].lease
            assert lease is not None
            topics = {place.topic for one in written for place in one.rows}
            commit(self._transactional, lease.identity, written[0].batch, topics)


class OnceBatchWriter(_Leased, DataSourceArrowWriter):
    """The result of a query, in one transaction."""

    stream = False

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._lease is not None:
            abort(self._transactional, self._lease.identity)


class OnceStreamWriter(_Leased, DataSourceStreamArrowWriter):
    """One micro-batch after the other, each in a transaction with its marker."""

    stream = True

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Abort the batch; without any message of a task, the next run or the timeout aborts it."""
        for one in messages:
            if isinstance(one, WrittenOnce) and one.lease is not None:
                abort(self._transactional, one.lease.identity)
                return


def check_owners(written: Iterable[WrittenOnce]) -> None:
    """Raise if a partition has rows of two tasks."""
    owned: set[TopicPartition] = set()
    for one in written:
        for place in one.rows:
            if place in owned:
                raise OwnerRule(f"two tasks of the batch have written to {place}; {HOW_TO_OWN}")
            owned.add(place)


def write_once(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    of: Transactional,
    lease: Lease,
    task: Task,
) -> WrittenOnce:
    """Write all rows of a task into the transaction of its batch."""
    if task.attempt:
        raise TaskRepeated(
            f"task {task.number} of an exactly-once batch has failed, and rows of it may be "
            "written: the batch is given up; see the task's first failure, then start the query "
            "again"
        )
    if task.batch is not None and lease.has_batch(*task.batch):
        for _ in batches:
            pass
        return WrittenOnce({}, lease, task.batch)
    rows: dict[TopicPartition, int] = {}
    with kept_client(options.client) as client:
        logs = Logs(client, options, task)
        parcels = (
            list(logs.placed(divided(parcel, options.topic, position)))
            for position, parcel in parcels_of(batches, options)
        )
        producer = make_producer(options, lease.identity)
        try:
            for delivered in sent(producer, parcels):
                logs.check(delivered)
                count(delivered, rows)
        except ClientError as error:
            explained = _explained(of, error)
            if explained is None:
                raise
            raise explained from error
        finally:
            background().call(producer.close(0))
    return WrittenOnce(rows, lease, task.batch)


def _explained(of: Transactional, error: BaseException | None) -> SparkError | None:
    """A clearer error for a broker's refusal."""
    while error is not None and not isinstance(error, KafkaError):
        error = error.__cause__
    if error is None:
        return None
    if error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return OwnerRule(f"another task has written there ({error}); {HOW_TO_OWN}")
    # After the end of a transaction its partition no longer knows the producer.
    if isinstance(error, FatalTransactionError) or error.code == ErrorCode.INVALID_TXN_STATE:
        return batch_lost(of, error)
    return None


class Logs:
    """The partitions that a task writes to: their ends before the task, and its own partition."""

    def __init__(self, client: Client, options: SinkOptions, task: Task) -> None:
        self._client = client
        self._settings = replace(options.client, isolation="read_uncommitted")
        self._task = task
        self._ends: dict[str, Offsets] = {}

    def placed(self, parts: Iterable[Part]) -> Iterator[Part]:
        """The same rows; rows without key and partition get the task's own partition."""
        for part in parts:
            ends = self._ends_of(part.topic)
            if part.partition is not None:
                yield part
            elif "key" not in part.rows.schema.names:
                yield Part(part.topic, self._own(part.topic, len(ends)), part.rows)
            else:
                keyed = pc.is_valid(part.rows.column("key"))
                yield Part(part.topic, None, part.rows.filter(keyed))
                rest = part.rows.filter(pc.invert(keyed))
                if rest.num_rows:
                    yield Part(part.topic, self._own(part.topic, len(ends)), rest)

    def check(self, delivered: Iterable[DeliveredRange]) -> None:
        """Raise if the broker had what was sent before this task began."""
        for topic, partition, base_offset, _ in delivered:
            place = TopicPartition(topic, partition)
            if base_offset < self._ends[topic][place]:
                raise OwnerRule(
                    f"{place} had rows of this batch before the task began, from another task or "
                    f"from an earlier run of this one; {HOW_TO_OWN}"
                )

    def _own(self, topic: str, partitions: int) -> int:
        """The task's own partition; it changes with each batch, so that partitions fill evenly."""
        task, _, batch = self._task
        if task >= partitions:
            raise OwnerRule(
                f"task {task} has no partition of its own, since {topic} has {partitions}; "
                f"{HOW_TO_OWN}"
            )
        return (task + (0 if batch is None else batch.number)) % partitions

    def _ends_of(self, topic: str) -> Offsets:
        if topic not in self._ends:
            self._ends[topic] = background().call(self._find(topic))
        return self._ends[topic]

    async def _find(self, name: str) -> Offsets:
        async def attempt() -> Topic:
            if name not in self._client.view.topics:
                await self._client.refresh([name], create_missing=True)
            return (await self._client.topics([name]))[name]

        topic = await self._client.retry(attempt)
        places = [TopicPartition(name, one.index) for one in topic.partitions]
        return await offsets_at(self._client, self._settings, dict.fromkeys(places, LATEST))

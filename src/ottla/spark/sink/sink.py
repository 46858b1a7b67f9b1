"""Writes rows to topics: the classes that Spark calls.

Rules:

- A task's rows are written in the order they come, by one idempotent producer. `write` returns when
  all of them are acknowledged; a task or a batch that Spark repeats is written again.
- While one chunk of rows is being sent the next is taken from Spark; memory holds two.
- The option `topic` comes before the column; a `partition` that is not null before the key's hash.
- The tasks' messages carry what the commit of a batch needs: which partitions each task wrote, and
  how many rows. The committing process has no other source for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ottla.client.cluster.cluster import together
from ottla.client.cluster.view import TopicPartition
from ottla.client.producer.producer import Producer
from ottla.spark.background import background
from ottla.spark.errors import SparkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from ottla.client.producer.batches import Identity
    from ottla.client.producer.types import DeliveredRange
    from ottla.spark.sink.options import SinkOptions

PARCEL_BYTES: Final = 8 * 1024 * 1024  # bytes that the producer encodes at a time


class BadRow(SparkError, ValueError):
    """A row without a topic, or with an invalid partition."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """Rows written by one task, by partition."""

    rows: dict[TopicPartition, int] = field(default_factory=dict)


class BatchWriter(DataSourceArrowWriter):
    """The result of a query, once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: rows are visible when they are written."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: rows that are written stay."""


class StreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch after the other."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Nothing: rows are visible when they are written."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Nothing: rows that are written stay."""


def write_rows(batches: Iterable[pa.RecordBatch], options: SinkOptions) -> Written:
    """Write all rows of a task and wait until they are acknowledged."""
    rows: dict[TopicPartition, int] = {}
    parcels = (
        divided(parcel, options.topic, position)
        for position, parcel in parcels_of(batches, options)
    )
    with background().borrowed(options, lambda: make_producer(options)) as producer:
        for delivered in sent(producer, parcels):
            count(delivered, rows)
    return Written(rows)


def sent(producer: Producer, parcels: Iterable[Sequence[Part]]) -> Iterator[list[DeliveredRange]]:
    """Send one chunk after the other; the next is taken while one is being sent."""
    loop = background()
    sending: Future[list[DeliveredRange]] | None = None
    try:
        for parts in parcels:
            if sending is not None:
                yield sending.result()
            sending = loop.start(_send(producer, parts))
        if sending is not None:
            yield sending.result()
    except BaseException:
        if sending is not None:
            sending.cancel()
        raise


@dataclass(frozen=True)
class Part:
    """Rows for one topic and, where they name one, one partition."""

    topic: str
    partition: int | None
    rows: pa.Table


def divided(parcel: pa.Table, topic: str | None, position: int = 0) -> list[Part]:
    """The rows by where they go, in their order; the first is at `position` in its task."""
    if topic is not None:
        return _by_partition(topic, parcel, position)
    topics = parcel.column("topic")
    if topics.null_count:
        row = position + pc.index(topics.is_null(), True).as_py()
        raise BadRow(f"row {row} of the task has no topic; fill the column or set the option topic")
    names = topics.unique().to_pylist()
    parts = []
    for name in names:
        rows = parcel if len(names) == 1 else parcel.filter(pc.equal(topics, name))
        parts += _by_partition(name, rows.drop_columns(["topic"]), position)
    return parts


def _by_partition(topic: str, rows: pa.Table, position: int) -> list[Part]:
    if "partition" not in rows.schema.names:
        return [Part(topic, None, rows)]
    numbers = rows.column("partition")
    rest = rows.drop_columns(["partition"])
    parts = []
    for number in numbers.unique().to_pylist():
        if number is not None and number < 0:
            row = position + pc.index(numbers, number).as_py()
            raise BadRow(f"row {row} of the task has partition {number}; partitions start at 0")
        chosen = numbers.is_null() if number is None else pc.equal(numbers, number)
        parts.append(Part(topic, number, rest.filter(chosen)))
    return parts


def parcels_of(
    batches: Iterable[pa.RecordBatch], options: SinkOptions
) -> Iterator[tuple[int, pa.Table]]:
    """The rows in pieces of a good size, each with the place of its first row in the task."""
    waiting: list[pa.RecordBatch] = []
    size = position = 0
    for batch in batches:
        waiting.append(batch.select(options.columns))
        size += waiting[-1].nbytes
        if size >= PARCEL_BYTES:
            yield position, pa.Table.from_batches(waiting)
            position += sum(one.num_rows for one in waiting)
            waiting, size = [], 0
    if waiting:
        yield position, pa.Table.from_batches(waiting)


async def _send(producer: Producer, parts: Sequence[Part]) -> list[DeliveredRange]:
    sent = await together(
        producer.send_arrow(one.topic, one.rows, partition=one.partition)
        for one in parts
        if one.rows.num_rows
    )
    return [delivered for part in sent for delivered in part]


def count(delivered: Iterable[DeliveredRange], rows: dict[TopicPartition, int]) -> None:
    """Add up the written rows by partition."""
    for topic, partition, _, records in delivered:
        place = TopicPartition(topic, partition)
        rows[place] = rows.get(place, 0) + records


def make_producer(options: SinkOptions, identity: Identity | None = None) -> Producer:
    """A producer with the settings of a query; with an identity, one of several of a batch."""
    client, producer = options.client, options.producer
    return Producer(
        client.bootstrap,
        client_id=client.client_id,
        security=client.security,
        acks=producer.acks if producer.acks == "all" else int(producer.acks),
        enable_idempotence=producer.enable_idempotence and producer.acks == "all",
        compression_type=producer.compression_type,
        linger_ms=producer.linger_ms,
        buffer_memory=max(producer.buffer_memory, producer.max_request_size),
        max_request_size=producer.max_request_size,
        delivery_timeout_ms=producer.delivery_timeout_ms,
        request_timeout_ms=client.request_timeout * 1000,
        transactional_id=None if options.transactional is None else options.transactional.sink_id,
        identity=identity,
    )

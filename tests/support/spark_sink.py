"""An exactly-once sink without Spark: what the driver and the tasks of a batch do, by hand."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from ottla.spark.sink.exactly_once import OnceStreamWriter, Task
from ottla.spark.sink.transaction import Batch
from ottla.spark.source import OttlaSource
from tests.support.topics import read_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.spark.sink.exactly_once import WrittenOnce

SCHEMA: Final = StructType().add("value", "binary").add("partition", "integer")


class Sink:
    """A stream into one topic, with a driver that plans and ends batches."""

    def __init__(
        self, bootstrap: str, topic: str, schema: StructType = SCHEMA, /, **options: str
    ) -> None:
        self._bootstrap = bootstrap
        self.topic = topic
        self._schema = schema
        self._options = {
            "kafka.bootstrap.servers": bootstrap,
            "delivery": "exactly-once",
            "sinkId": f"sink of {topic}",
            **({} if "topic" in schema.names else {"topic": topic}),
            **options,
        }

    def writer(self) -> OnceStreamWriter:
        """As the process that commits makes one: of a source that was sent to it."""
        return self._made(pickle.loads(pickle.dumps(OttlaSource(self._options))))

    def planned(self) -> OnceStreamWriter:
        """As the tasks of a batch get it."""
        made: OnceStreamWriter = pickle.loads(pickle.dumps(self._made(OttlaSource(self._options))))
        return made

    def _made(self, source: OttlaSource) -> OnceStreamWriter:
        writer = source.streamWriter(self._schema, overwrite=False)
        assert isinstance(writer, OnceStreamWriter)
        return writer

    def seen(self, topic: str | None = None) -> list[tuple[int, bytes | None]]:
        """What readers of committed records see."""
        found = read_all(self._bootstrap, topic or self.topic, isolation="read_committed")
        return [(one.partition, one.record.value) for one in found]


def rows(partition: int, *values: bytes) -> pa.RecordBatch:
    places = pa.array([partition] * len(values), pa.int32())
    return pa.record_batch({"value": pa.array(values, pa.binary()), "partition": places})


def task(
    writer: OnceStreamWriter,
    batches: Sequence[pa.RecordBatch],
    *,
    number: int = 0,
    batch: int = 0,
    attempt: int = 0,
    query: str = "query",
) -> WrittenOnce:
    return writer._write(iter(batches), Task(number, attempt, Batch(query, batch)))

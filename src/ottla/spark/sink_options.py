"""Options of the sink, by the names of Spark's Kafka sink where it has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.spark.client_settings import (
    ClientSettings,
    ProducerOptions,
    client_settings,
    producer_options,
)
from ottla.spark.errors import BadOption
from ottla.spark.schema import WRITABLE, check_writable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

SINK_NAMES: Final = ("topic", "includeHeaders", "delivery", "partitioner", "compression")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All a writer needs to know; picklable, and a key to the producer it uses."""

    client: ClientSettings
    producer: ProducerOptions
    topic: str | None
    columns: tuple[str, ...]


def parse_sink(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> SinkOptions:
    """The options of one write; a `BadOption` or `BadSchema` for the first that is wrong."""
    options = {name.lower(): value for name, value in given.items()}
    client = client_settings(options, writes=True)
    if overwrite:
        raise BadOption('mode overwrite is not supported: a log is appended to, use mode("append")')
    delivery = options.get("delivery", "at-least-once")
    if delivery == "exactly-once":
        raise BadOption(
            "delivery=exactly-once needs transactions, which are not in this version; leave it out "
            "to write at least once"
        )
    if delivery != "at-least-once":
        raise BadOption(f"delivery is at-least-once or exactly-once, not {delivery!r}")
    partitioner = options.get("partitioner", "murmur2")
    if partitioner != "murmur2":
        raise BadOption(
            f"partitioner is murmur2, not {partitioner!r}; to choose partitions, add a column "
            "partition"
        )
    topic = options.get("topic")
    check_writable(schema, has_topic=topic is not None)
    return SinkOptions(
        client,
        producer_options(options),
        topic,
        tuple(
            name
            for name in schema.fieldNames()
            if name in WRITABLE and not (name == "topic" and topic is not None)
        ),
    )

"""Options of the sink, with the names of Spark's Kafka sink where it has them.

An exactly-once sink has a name that stays the same from run to run, `sinkId`: it is the
transactional id by which a new run fences an old one, and the group that holds the last batch. A
stream without one is named after its checkpoint and its query.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from pathlib import Path
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

SINK_NAMES: Final = (
    *("topic", "includeHeaders", "delivery", "partitioner", "compression"),
    *("sinkId", "transactionTimeoutMs"),
)
AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
# Long enough for most batches; it limits how long readers of committed records wait for a dead
# driver.
DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 300_000


@dataclass(frozen=True, slots=True)
class Transactional:
    """The id of an exactly-once sink, and the timeout of its batches."""

    client: ClientSettings
    sink_id: str
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of a writer; picklable, and the key of its cached producer."""

    client: ClientSettings
    producer: ProducerOptions
    topic: str | None
    columns: tuple[str, ...]
    transactional: Transactional | None = None
    """None: at least once."""


def parse_sink(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool = False, stream: bool = False
) -> SinkOptions:
    """Parse the options of one write; raises `BadOption` or `BadSchema` for the first error."""
    options = {name.lower(): value for name, value in given.items()}
    client = client_settings(options, writes=True)
    if overwrite:
        raise BadOption('mode overwrite is not supported: a log is appended to, use mode("append")')
    partitioner = options.get("partitioner", "murmur2")
    if partitioner != "murmur2":
        raise BadOption(
            f"partitioner is murmur2, not {partitioner!r}; to choose partitions, add a column "
            "partition"
        )
    topic = options.get("topic")
    check_writable(schema, has_topic=topic is not None)
    producer = producer_options(options)
    return SinkOptions(
        client,
        producer,
        topic,
        tuple(
            name
            for name in schema.fieldNames()
            if name in WRITABLE and not (name == "topic" and topic is not None)
        ),
        _transactional(options, client, producer, stream=stream),
    )


def _transactional(
    options: Mapping[str, str], client: ClientSettings, producer: ProducerOptions, *, stream: bool
) -> Transactional | None:
    delivery = options.get("delivery", AT_LEAST_ONCE)
    if delivery not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise BadOption(f"delivery is {AT_LEAST_ONCE} or {EXACTLY_ONCE}, not {delivery!r}")
    if delivery == AT_LEAST_ONCE:
        for name in ("sinkId", "transactionTimeoutMs"):
            if name.lower() in options:
                raise BadOption(f"{name} belongs to delivery={EXACTLY_ONCE}: set that too")
        return None
    if producer.acks != "all" or not producer.enable_idempotence:
        raise BadOption(
            f"delivery={EXACTLY_ONCE} needs kafka.acks=all and kafka.enable.idempotence=true: "
            "leave both out"
        )
    sink_id = options.get("sinkid") or _name(options, stream=stream)
    text = options.get("transactiontimeoutms", str(DEFAULT_TRANSACTION_TIMEOUT_MS))
    if not text.isdecimal() or int(text) == 0:
        raise BadOption(f"transactionTimeoutMs is a number of 1 or more, not {text!r}")
    return Transactional(client, sink_id, int(text))


def _name(options: Mapping[str, str], *, stream: bool) -> str:
    """The name of the sink: unique for a batch write, the same in each run of a stream."""
    if not stream:
        return f"ottla-{uuid.uuid4()}"
    checkpoint = options.get("checkpointlocation")
    if not checkpoint:
        raise BadOption(
            f"delivery={EXACTLY_ONCE} needs a name that is the same in each run: set sinkId, or "
            "checkpointLocation as an option of the query"
        )
    if ":" not in checkpoint:  # a path, not a URL
        checkpoint = str(Path(checkpoint).absolute())
    query = options.get("queryname", "")
    digest = hashlib.sha256(f"{query}\n{checkpoint.rstrip('/')}".encode()).hexdigest()[:16]
    return f"ottla-{query or 'query'}-{digest}"

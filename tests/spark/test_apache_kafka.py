"""Source and sink against Apache Kafka itself, transactions included; needs no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from ottla.client.cluster_view import TopicPartition
from ottla.spark.log_backend import LogBackend
from ottla.spark.options import parse_source
from ottla.spark.sink import write_rows
from ottla.spark.sink_options import parse_sink
from ottla.wire.records import Record
from tests.support.jvm import ApacheKafka, why_no_jvm
from tests.support.spark_source import rows
from tests.support.topics import create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(why_no_jvm() is not None, reason=str(why_no_jvm()))


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with ApacheKafka(heap="256m") as kafka:
        yield kafka.bootstrap


def source(bootstrap: str, topic: str, **options: str) -> LogBackend:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
    return LogBackend(parse_source(given, "batch"))


def values(found: LogBackend) -> list[bytes | None]:
    return [value for _, _, value in rows(found, *found.bounds())]


def test_case_08_transactions(bootstrap: str) -> None:
    create_topic(bootstrap, "transactions")

    def send(value: bytes, transaction: bool | None) -> None:
        config = {} if transaction is None else {"transactional.id": "spark"}
        records = [Record(0, 1000, None, value, ())] * 3
        produce(bootstrap, "transactions", records, transaction=transaction, config=config)

    send(b"plain", None)
    send(b"committed", True)
    send(b"aborted", False)
    send(b"after", None)
    all_of_them = source(bootstrap, "transactions")
    assert (
        values(all_of_them)
        == [b"plain"] * 3 + [b"committed"] * 3 + [b"aborted"] * 3 + [b"after"] * 3
    )
    committed = source(bootstrap, "transactions", **{"kafka.isolation.level": "read_committed"})
    assert values(committed) == [b"plain"] * 3 + [b"committed"] * 3 + [b"after"] * 3


def test_what_the_sink_writes_the_source_reads(bootstrap: str) -> None:
    create_topic(bootstrap, "written", 3)
    schema = StructType().add("key", "binary").add("value", "binary")
    options = parse_sink(
        {"kafka.bootstrap.servers": bootstrap, "topic": "written", "compression": "zstd"},
        schema,
        overwrite=False,
    )
    numbers = [str(number).encode() for number in range(1000)]
    batch = pa.record_batch({"key": pa.array(numbers), "value": pa.array(numbers)})
    written = write_rows([batch] * 3, options)
    assert written.rows.keys() == {TopicPartition("written", number) for number in range(3)}
    assert sorted(values(source(bootstrap, "written"))) == sorted(numbers * 3)  # type: ignore[type-var]  # none is null

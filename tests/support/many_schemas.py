"""A topic `_schemas` with many subjects, written while no registry serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.registry.records import SchemaRecord, encode
from ottla.schemas.model import Kind, Schema
from ottla.sync import Admin, Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC: Final = "_schemas"


def schema_of(number: int) -> str:
    return f'{{"type":"record","name":"R{number}","fields":[{{"name":"n","type":"long"}}]}}'


def subject_of(number: int) -> str:
    return f"topic-{number:06}-value"


def fill_schemas(bootstrap: str, count: int) -> None:
    """Subjects with ids from 1 on, one version each."""
    import pyarrow as pa

    def records() -> Iterator[tuple[bytes, bytes | None]]:
        for number in range(1, count + 1):
            schema = Schema(Kind.AVRO, schema_of(number))
            yield encode(SchemaRecord(subject_of(number), 1, number, schema))

    keys, values = zip(*records(), strict=True)
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
    with Producer(bootstrap) as producer:
        rows = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
        producer.send_arrow(TOPIC, pa.table(rows))

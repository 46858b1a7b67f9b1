"""Rows as records in Avro, in Spark's workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

RECORDS: Final = "key string, value binary"


@dataclass(frozen=True, slots=True)
class RowEncoder:
    """Encodes rows by a schema that is registered with this id; `key` is a column for the key."""

    schema: str
    id: int
    key: str | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from ottla.schemas.encode import encode
        from ottla.schemas.model import Kind, Schema

        schema = Schema(Kind.AVRO, self.schema)
        for rows in batches:
            keys = pa.nulls(rows.num_rows, pa.string())
            if self.key is not None:
                keys = rows.column(self.key).cast(pa.string())
            values = encode(rows, schema, id=self.id)
            yield pa.RecordBatch.from_arrays([keys, values], names=["key", "value"])

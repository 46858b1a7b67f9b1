"""Record batches to Arrow columns and back, without a Python object per record.

`batches_to_arrow` reads the bytes of fetch answers or log segments into the schema of Spark's
Kafka source; `arrow_to_batches` writes columns as batches that are ready to be produced. This
package needs the `arrow` extra.
"""

from ottla.wire.arrow.decode import (
    SCHEMA,
    ColumnTooLarge,
    batches_to_arrow,
)
from ottla.wire.arrow.encode import (
    MAX_BATCH_BYTES,
    NullHeaderKey,
    RecordTooLarge,
    UnsupportedColumn,
    arrow_to_batches,
)

__all__ = [
    "MAX_BATCH_BYTES",
    "SCHEMA",
    "ColumnTooLarge",
    "NullHeaderKey",
    "RecordTooLarge",
    "UnsupportedColumn",
    "arrow_to_batches",
    "batches_to_arrow",
]

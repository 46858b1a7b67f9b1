"""Record batches to Arrow columns and back, without a Python object per record.

`batches_to_arrow` decodes the bytes of fetch responses or log segments into the schema of Spark's
Kafka source; `arrow_to_batches` encodes columns as batches for Produce. This package needs the
`arrow` extra.
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

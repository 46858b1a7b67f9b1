"""Converts the status of kernels to errors, and checks the records of a batch without columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ottla.wire.errors import (
    InvalidVarint,
    LengthPastEnd,
    NegativeLength,
    RecordCountMismatch,
    RecordError,
)
from ottla.wire.kernels import decode
from ottla.wire.walk import MAX_ATTRIBUTES, RecordsSummary, check_record_count

if TYPE_CHECKING:
    import numpy.typing as npt
    from _typeshed import ReadableBuffer


def address_of(buffer: ReadableBuffer | npt.NDArray[Any]) -> int:
    """The address of `buffer`; valid as long as the buffer is referenced."""
    array: npt.NDArray[Any] = (
        buffer if isinstance(buffer, np.ndarray) else np.frombuffer(memoryview(buffer), np.uint8)
    )
    address: int = array.__array_interface__["data"][0]
    return address


def record_error(status: int, record: int, position: int, detail: int, where: str) -> RecordError:
    """The error for a status other than OK, at byte `position` of the uncompressed records."""
    if status == decode.TOO_FEW_RECORDS:
        return RecordCountMismatch(f"{detail} records", record, where)
    if status == decode.TOO_MANY_RECORDS:
        return RecordCountMismatch(f"{record} records", f"{detail} more bytes", where)
    where = f"{where}, record {record}, byte {position}"
    if status == decode.BAD_VARINT:
        return InvalidVarint("a varint that fits its type and its record", "none", where)
    if status == decode.NEGATIVE_LENGTH:
        return NegativeLength("a length or count", detail, where)
    if status == decode.LENGTH_PAST_END:
        return LengthPastEnd("a length or count within the record", detail, where)
    if status == decode.BAD_ATTRIBUTES:
        return RecordError(f"attributes of 0 to {MAX_ATTRIBUTES}", detail, where)
    if status == decode.OFFSET_DELTA:
        return RecordError(f"an offset delta of {record}", detail, where)
    if status == decode.TIMESTAMP_RANGE:
        return RecordError(f"a timestamp within {decode.MAX_TIMESTAMP_MS} ms", detail, where)
    return RecordError("a record that fills its length", f"{detail} bytes left over", where)


def validate_records(
    payload: ReadableBuffer, count: int, *, where: str = "records"
) -> RecordsSummary:
    """Check the `count` records that must fill the uncompressed `payload`, as `walk` does."""
    size = memoryview(payload).nbytes
    check_record_count(count, size, where)
    status, record, position, detail, null_keys, largest, smallest = decode.summarize(
        address_of(payload), size, count
    )
    if status != decode.OK:
        raise record_error(status, record, position, detail, where)
    return RecordsSummary(null_keys, largest, smallest)

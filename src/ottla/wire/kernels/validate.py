"""What kernels report, as errors, and the check of one batch's records without columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ottla.wire.errors import (
    InvalidVarint,
    LengthPastEnd,
    NegativeLength,
    RecordCountMismatch,
    RecordError,
)
from ottla.wire.kernels import decode

if TYPE_CHECKING:
    import numpy.typing as npt
    from _typeshed import ReadableBuffer


class RecordsSummary(NamedTuple):
    """What a walk over sound records found; an empty batch has no largest delta."""

    null_keys: int
    max_timestamp_delta: int | None
    contiguous: bool


def address_of(buffer: ReadableBuffer | npt.NDArray[Any]) -> int:
    """Where the bytes of `buffer` are; good for as long as the buffer is held."""
    array: npt.NDArray[Any] = (
        buffer if isinstance(buffer, np.ndarray) else np.frombuffer(memoryview(buffer), np.uint8)
    )
    address: int = array.__array_interface__["data"][0]
    return address


def check_record_count(count: int, size: int, where: str) -> None:
    """Refuse a count that `size` bytes of records cannot hold, before memory is set aside."""
    most = size // decode.MIN_RECORD_SIZE
    if not 0 <= count <= most:
        raise RecordCountMismatch(f"0 to {most} records in {size} bytes", count, where)


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
    if status == decode.TIMESTAMP_RANGE:
        return RecordError(f"a timestamp within {decode.MAX_TIMESTAMP_MS} ms", detail, where)
    return RecordError("a record that fills its length", f"{detail} bytes left over", where)


def validate_records(
    payload: ReadableBuffer, count: int, *, where: str = "records"
) -> RecordsSummary:
    """Walk the `count` records that must fill the uncompressed `payload`."""
    size = memoryview(payload).nbytes
    check_record_count(count, size, where)
    status, record, position, detail, null_keys, largest, contiguous = decode.summarize(
        address_of(payload), size, count
    )
    if status != decode.OK:
        raise record_error(status, record, position, detail, where)
    return RecordsSummary(null_keys, largest if count else None, contiguous)

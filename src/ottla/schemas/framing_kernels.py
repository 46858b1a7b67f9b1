"""The frames of a whole column; rules as in `framing`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.schemas.framing import (
    GUID,
    GUID_SIZE,
    ID,
    ID_SIZE,
    KEY_HEADER,
    MAX_INDEX_BYTES,
    VALUE_HEADER,
    NotFramed,
    indexes_of,
)
from ottla.schemas.reasons import Reason
from ottla.schemas.spans import NO_VALUE, Spans
from ottla.wire.kernels.jit import byte_at, kernel

if TYPE_CHECKING:
    from ottla.wire.kernels.jit import I32, I64, U8

NONE: Final = 0
BY_ID: Final = 1
BY_GUID: Final = 2


class Frames(NamedTuple):
    """What each row of a column names, and the spans of what follows.

    `kinds` are NONE (no value, or not framed), BY_ID and BY_GUID; `guids` is a dictionary of the
    rows by GUID, since they are few kinds. `headed` are the rows whose header named the schema.
    """

    kinds: U8
    ids: I32
    guids: dict[bytes, I64]
    payloads: Spans
    headed: I64
    rests: list[bytes]
    """What follows the GUID in the header of each of `headed`: the message indexes of Protobuf."""


@kernel
def _split(begins: I64, ends: I64, kinds: U8, ids: I32) -> None:
    for row in range(len(begins)):
        begin = begins[row]
        if begin < 0:
            continue
        size = ends[row] - begin
        if size >= ID_SIZE and byte_at(begin) == ID:
            kinds[row] = BY_ID
            ids[row] = np.int32(
                byte_at(begin + 1) << 24
                | byte_at(begin + 2) << 16
                | byte_at(begin + 3) << 8
                | byte_at(begin + 4)
            )
            begins[row] = begin + ID_SIZE
        elif size >= GUID_SIZE and byte_at(begin) == GUID:
            kinds[row] = BY_GUID
            begins[row] = begin + GUID_SIZE
        else:
            begins[row] = NO_VALUE


@kernel
def _take_zero(begins: I64, ends: I64, rows: I64, others: U8) -> None:
    """Step over the single `00` that stands for [0]; others[i] is set for other indexes."""
    for index in range(len(rows)):
        row = rows[index]
        if begins[row] < ends[row] and byte_at(begins[row]) == 0:
            begins[row] += 1
        else:
            others[index] = 1


def take_indexes(frames: Frames, rows: I64, reasons: U8) -> dict[tuple[int, ...], I64]:
    """The rows of Protobuf values by message indexes, which are taken off the payloads.

    `reasons` of rows with other bytes are set to NOT_FRAMED.
    """
    headed = dict(zip(frames.headed.tolist(), frames.rests, strict=True))
    payloads = frames.payloads
    plain = rows[~np.isin(rows, frames.headed)]
    others = np.zeros(len(plain), np.uint8)
    _take_zero(payloads.begins, payloads.ends, plain, others)
    found: dict[tuple[int, ...], list[int]] = {}
    for row in plain[others != 0].tolist():
        _enter(found, row, payloads.value(row)[:MAX_INDEX_BYTES], payloads, reasons)
    for row in np.intersect1d(rows, frames.headed).tolist():
        _enter(found, row, headed[row], None, reasons)
    groups = {key: np.array(sorted(of), np.int64) for key, of in found.items()}
    if len(simple := plain[others == 0]):
        groups[(0,)] = np.union1d(groups.get((0,), simple), simple)
    return groups


def _enter(
    found: dict[tuple[int, ...], list[int]],
    row: int,
    data: bytes,
    payloads: Spans | None,
    reasons: U8,
) -> None:
    try:
        indexes, end = indexes_of(data, 0)
    except NotFramed:
        reasons[row] = Reason.NOT_FRAMED
        return
    if payloads is not None:
        payloads.begins[row] += end
    elif end != len(data):
        reasons[row] = Reason.NOT_FRAMED
        return
    found.setdefault(indexes, []).append(row)


def split_column(values: Spans, headers: pa.Array | None, *, is_key: bool = False) -> Frames:
    """The frames of `values`. `headers` are lists of `struct<key, value>`, or null."""
    rows = len(values.begins)
    begins = values.begins.copy()
    kinds = np.zeros(rows, np.uint8)
    ids = np.zeros(rows, np.int32)
    named = _headers(headers, KEY_HEADER if is_key else VALUE_HEADER)
    headed = np.fromiter((row for row in named if values.begins[row] >= 0), np.int64)
    begins[headed] = NO_VALUE
    _split(begins, values.ends, kinds, ids)
    guids: dict[bytes, list[int]] = {}
    rests = []
    for row in np.flatnonzero(kinds == BY_GUID).tolist():
        begin = int(begins[row]) - GUID_SIZE + 1
        guid = pa.foreign_buffer(begin, GUID_SIZE - 1, values.owner).to_pybytes()
        guids.setdefault(guid, []).append(row)
    for row in headed.tolist():
        header = named[row]
        is_whole = header is not None and len(header) >= GUID_SIZE and header[0] == GUID
        if header is not None and is_whole:
            kinds[row] = BY_GUID
            begins[row] = values.begins[row]
            guids.setdefault(header[1:GUID_SIZE], []).append(row)
            rests.append(header[GUID_SIZE:])
        else:
            rests.append(b"")
    return Frames(
        kinds,
        ids,
        {guid: np.array(sorted(of), np.int64) for guid, of in guids.items()},
        Spans(begins, values.ends, values.owner),
        headed,
        rests,
    )


def _headers(headers: pa.Array | None, name: str) -> dict[int, bytes | None]:
    """The value of the last header `name` of each row that has one."""
    if headers is None or headers.null_count == len(headers):
        return {}
    pairs = headers.flatten()
    found = np.flatnonzero(_equal(pairs.field(0), name))
    if not len(found):
        return {}
    owners = np.asarray(pc.list_parent_indices(headers))[found]
    values = pairs.field(1).take(pa.array(found)).to_pylist()
    return dict(zip(owners.tolist(), values, strict=True))


def _equal(keys: pa.Array, name: str) -> Any:
    return np.asarray(pc.equal(keys, pa.scalar(name, keys.type)).fill_null(False))

"""The kernels agree with a plain decoder, on sound input and on hostile, and stay in bounds."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, TypeAlias

import numba
import pytest

from ottla.wire.arrow import batches_to_arrow
from ottla.wire.batch import HEADER_SIZE
from ottla.wire.columns import COLUMNS
from ottla.wire.errors import (
    InvalidVarint,
    LengthPastEnd,
    NegativeLength,
    RecordCountMismatch,
    RecordError,
    WireError,
)
from ottla.wire.kernels import jit
from ottla.wire.kernels.validate import validate_records
from ottla.wire.walk import RecordsSummary, walk_records
from tests.support.plain_records import (
    Record,
    batch_of,
    decode_batch,
    decode_records,
    encode_record,
    mutated,
    varint,
)
from tests.support.rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

PER_SEED = 2_000


def _outcome(decode: Callable[[bytes], object], data: bytes) -> object:
    try:
        return decode(data)
    except WireError as error:
        return type(error)


@pytest.mark.parametrize("codec", range(5))
def test_mutated_batches_end_as_the_plain_decoder_ends(codec: int) -> None:
    rng = random.Random(f"mutated {codec}")
    outcomes = []
    for _ in range(PER_SEED):
        data = mutated(rng, codec=codec)
        expected = _outcome(decode_batch, data)
        got = _outcome(lambda d: rows_of(batches_to_arrow(d, "t", 0, columns=COLUMNS)), data)
        assert got == expected, data.hex()
        outcomes.append(expected if isinstance(expected, type) else list)
    assert set(outcomes) >= {
        list,
        InvalidVarint,
        LengthPastEnd,
        NegativeLength,
        RecordCountMismatch,
        RecordError,
    }


Check: TypeAlias = "Callable[..., RecordsSummary]"
CHECKS = [validate_records, walk_records]
"""The compiled walk and the one in plain Python: they must agree in everything."""

BODY = b"\x00" + varint(0) + varint(0)
NULL = varint(-1)


def _sized(body: bytes) -> bytes:
    return varint(len(body)) + body


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (b"\x80" * 10, InvalidVarint),
        (varint(2**31) + bytes(7), InvalidVarint),
        (b"\xff\xff\xff\xff\x1f" + bytes(7), InvalidVarint),
        (varint(-5) + bytes(7), NegativeLength),
        (varint(8) + bytes(7), LengthPastEnd),
        (varint(0) + bytes(7), LengthPastEnd),
        (_sized(b"\x00" + b"\xff" * 9 + b"\x02" + bytes(9)), InvalidVarint),
        (_sized(b"\x00\x00" + b"\xff" * 5 + bytes(9)), InvalidVarint),
        (_sized(BODY + varint(-2) + bytes(9)), NegativeLength),
        (_sized(BODY + varint(10) + bytes(9)), LengthPastEnd),
        (_sized(BODY + NULL + varint(-2) + bytes(9)), NegativeLength),
        (_sized(BODY + NULL + varint(10) + bytes(9)), LengthPastEnd),
        (_sized(BODY + NULL + NULL + varint(-1)), NegativeLength),
        (_sized(BODY + NULL + NULL + varint(5) + bytes(9)), LengthPastEnd),
        (_sized(BODY + NULL + NULL + varint(1) + varint(-1) + bytes(1)), NegativeLength),
        (_sized(BODY + NULL + NULL + varint(1) + varint(0) + varint(-2)), NegativeLength),
        (_sized(BODY + NULL + NULL + varint(1) + varint(0) + varint(1)), LengthPastEnd),
        (_sized(BODY + NULL + NULL + varint(0) + bytes(1)), RecordError),
        (_sized(BODY + NULL + NULL) + bytes(7), InvalidVarint),
    ],
)
@pytest.mark.parametrize("check", CHECKS)
def test_each_fault_has_its_error(check: Check, payload: bytes, error: type[WireError]) -> None:
    with pytest.raises(WireError) as caught:
        check(payload, 1, where="here")
    assert type(caught.value) is error
    assert caught.value.where.startswith("here, record 0, byte ")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_count_that_lies_is_refused(check: Check, count: int) -> None:
    payload = b"".join(encode_record(Record(0, delta, value=bytes(10))) for delta in (0, 1))
    with pytest.raises(RecordCountMismatch):
        check(payload, count)
    assert check(payload, 2).null_keys == 2


@pytest.mark.parametrize("check", CHECKS)
def test_the_summary_is_that_of_the_plain_decoder(check: Check) -> None:
    rng = random.Random("summary")
    for _ in range(200):
        size = rng.randint(1, 20)
        deltas = rng.sample(range(size), size) if rng.random() < 0.3 else range(size)
        times = rng.choice(((-(2**62), 2**62), (0, 2000), (-10, 10), (-20, -5)))
        records = [
            Record(rng.randint(*times), delta, rng.choice((None, b"", b"key"))) for delta in deltas
        ]
        payload = batch_of(*records)[HEADER_SIZE:]
        assert decode_records(payload, size) == records
        if [*deltas] != [*range(size)]:
            with pytest.raises(RecordError, match="offset delta"):
                check(payload, size)
            continue
        assert check(payload, size) == RecordsSummary(
            sum(record.key is None for record in records),
            max(record.timestamp_delta for record in records),
            min(0, *(record.timestamp_delta for record in records)),
        )


@pytest.mark.parametrize("seed", range(5))
def test_mutated_records_end_alike_in_the_kernel_and_in_plain_python(seed: int) -> None:
    rng = random.Random(f"walks {seed}")
    outcomes = set()
    for _ in range(PER_SEED):
        data = mutated(rng, codec=0)
        payload, count = data[HEADER_SIZE:], int.from_bytes(data[57:61], "big", signed=True)
        compiled = _outcome(lambda d: validate_records(d, count), payload)  # noqa: B023
        assert _outcome(lambda d: walk_records(d, count), payload) == compiled, data.hex()  # noqa: B023
        outcomes.add(compiled if isinstance(compiled, type) else RecordsSummary)
    assert outcomes >= {RecordsSummary, InvalidVarint, LengthPastEnd, NegativeLength, RecordError}


def test_plain_python_reads_numbers_of_any_size() -> None:
    """Every border of a varint's bytes, for each field that the plain walk has a short cut for."""
    borders = [(1 << bits) + by for bits in (5, 6, 7, 12, 13, 14, 20) for by in (-1, 0, 1)]
    for size in borders:
        for record in (
            Record(size, 0, b"k", b"v"),
            Record(0, 0, bytes(size), b"v"),
            Record(0, 0, None, bytes(size)),
            Record(0, 0, b"k", None, ((b"h", bytes(size)),)),
        ):
            payload = encode_record(record)
            assert walk_records(payload, 1) == validate_records(payload, 1)
            assert walk_records(memoryview(payload), 1).max_timestamp_delta == record[0]
    many = [Record(0, delta, b"k", b"v") for delta in range(20_000)]
    payload = b"".join(map(encode_record, many))
    assert walk_records(payload, len(many)) == RecordsSummary(0, 0, 0)
    for wrong in (64, 8_191, 8_192, 16_384):
        many[wrong], kept = many[wrong]._replace(offset_delta=wrong + 1), many[wrong]
        with pytest.raises(RecordError, match=f"offset delta of {wrong}, got {wrong + 1}"):
            walk_records(b"".join(map(encode_record, many)), len(many))
        many[wrong] = kept


def test_kernels_compile_where_nothing_can_be_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = numba.njit

    def no_locator(*, cache: bool = False, **options: Any) -> Any:
        def decorate(function: Callable[..., object]) -> object:
            if cache:
                raise RuntimeError("cannot cache function: no locator available")
            return compiled(**options)(function)

        return decorate

    monkeypatch.setattr(numba, "njit", no_locator)

    def double(value: int) -> int:
        return value * 2

    assert jit.kernel(double)(21) == 42

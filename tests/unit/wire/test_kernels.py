"""The kernels agree with a plain decoder, on sound input and on hostile, and stay in bounds."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from ottla.wire.kernels.validate import RecordsSummary, validate_records
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

ROOT = Path(__file__).parents[3]
PER_SEED = 2_000


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


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


def test_nothing_outside_the_buffers_is_touched(tmp_path: Path) -> None:
    # Bounds checks are compiled in here, so this process must not share a cache with others.
    done = _run(
        "-m",
        "tests.support.guard_pages",
        "guarded",
        str(PER_SEED),
        NUMBA_BOUNDSCHECK="1",
        NUMBA_CACHE_DIR=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{PER_SEED} decoded")


def test_the_guard_page_would_notice() -> None:
    assert _run("-m", "tests.support.guard_pages", "past-end").returncode == -signal.SIGSEGV


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
def test_each_fault_has_its_error(payload: bytes, error: type[WireError]) -> None:
    with pytest.raises(WireError) as caught:
        validate_records(payload, 1, where="here")
    assert type(caught.value) is error
    assert caught.value.where.startswith("here, record 0, byte ")


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_count_that_lies_is_refused(count: int) -> None:
    payload = encode_record(Record(value=bytes(10))) * 2
    with pytest.raises(RecordCountMismatch):
        validate_records(payload, count)
    assert validate_records(payload, 2).null_keys == 2


def test_the_summary_is_that_of_the_plain_decoder() -> None:
    rng = random.Random("summary")
    for _ in range(200):
        size = rng.randint(0, 20)
        deltas = rng.sample(range(size + 1), size) if rng.random() < 0.5 else range(size)
        records = [
            Record(rng.randint(-(2**62), 2**62), delta, rng.choice((None, b"", b"key")))
            for delta in deltas
        ]
        payload = batch_of(*records)[HEADER_SIZE:]
        assert decode_records(payload, size) == records
        assert validate_records(payload, size) == RecordsSummary(
            sum(record.key is None for record in records),
            max((record.timestamp_delta for record in records), default=None),
            [record.offset_delta for record in records] == list(range(size)),
        )


def test_the_wire_room_imports_without_numba() -> None:
    program = "import sys, ottla.wire, ottla.wire.batch; print({'numba', 'numpy'} & {*sys.modules})"
    assert _run("-c", program).stdout == "set()\n"


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

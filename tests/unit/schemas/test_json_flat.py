"""The kernel for plain JSON objects gives what the parser gives, or leaves a value to it."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from ottla.schemas.ddl import parse_ddl
from ottla.schemas.json_columns import JsonColumns
from ottla.schemas.json_flat import MAX_COLUMNS, flat_reader
from ottla.schemas.spans import spans_of

if TYPE_CHECKING:
    from collections.abc import Sequence

DDL = "a int, b bigint, c double, d string, e boolean, at timestamp, day date, f float"
FIELDS = ("a", "b", "c", "d", "e", "at", "day", "f", "other", "ab", "")
SCALARS = (
    *("0", "-0", "7", "-7", "2147483647", "2147483648", "-2147483648", "-2147483649"),
    *("9223372036854775807", "9223372036854775808", "123456789012345678", "1234567890123456789"),
    *("1.5", "-0.0", "0.1", "123456789.123456", "1234567890.1234567", "1e3", "1E-3", "1.", ".5"),
    *("01", "-", "--1", "+1", "1.5.5", "NaN", "Infinity", "true", "false", "null", "tru", "nul"),
    *("fals", "falsee", "nulll", '""', '"x"', '"a text that is longer than a word"', '"é€😀"'),
    *('"a\\nb"', '"\\u0041"', '"\\ud800"', '"tab\there"', '"', '"open', "[1]", "{}", '{"a":1}'),
    *('"2026-11-16T10:00:00Z"', '"2026-11-16"', '"2026-13-01"', "[", "}", " 1 ", "\n1\n", ""),
)
BROKEN = (
    *(b"", b" ", b"{", b"}", b"{}", b" {} ", b"{}{}", b"{} x", b"[]", b"null", b'"a"', b"{,}"),
    *(b'{"a":1,}', b'{"a":1 "b":2}', b'{"a" 1}', b"{a:1}", b'{"a":1}}', b'{"d":"\xff"}'),
    *(b'{"d":"\xe2\x82"}', b'{"\xff":1}', b'{"a":1,"a":2}', b'{"a":null,"a":2}', b'{"a":'),
    *(b'{"x":1,"x":2}', b'{"\\u0061":1}', b"\xef\xbb\xbf{}", b'{"d":"' + b"x" * 9 + b'"}\x00'),
)


def both(values: Sequence[bytes | None], ddl: str = DDL) -> tuple[Any, Any]:
    spans = spans_of(pa.array(values, pa.binary()))
    plain = JsonColumns(parse_ddl(ddl))
    assert plain._flat is not None
    slow = JsonColumns(parse_ddl(ddl))
    slow._flat = None
    return plain.read(spans), slow.read(spans)


def test_case_30_the_same_rows_and_reasons_as_the_parser() -> None:
    rng = random.Random("flat")
    values: list[bytes | None] = [*BROKEN, None]
    for _ in range(2_000):
        fields = rng.sample(FIELDS, rng.randint(0, 5))
        white = rng.choice(("", "", " ", "\n", " \t\r"))
        pairs = [f'{white}"{name}"{white}:{white}{rng.choice(SCALARS)}' for name in fields]
        values.append(f"{{{f'{white},'.join(pairs)}{white}}}{white}".encode())
        if rng.random() < 0.3:
            text = bytearray(values[-1] or b"")
            text[rng.randrange(len(text))] = rng.randrange(256)
            values.append(bytes(text))
    for one in values[:300]:  # alone, so that no neighbour decides how it is read
        (mine, reasons), (theirs, wanted) = both([one])
        assert reasons.tolist() == wanted.tolist(), one
        assert mine.to_pylist() == theirs.to_pylist(), one
    (mine, reasons), (theirs, wanted) = both(values)
    assert reasons.tolist() == wanted.tolist()
    assert mine.to_pylist() == theirs.to_pylist()
    mine.validate(full=True)


def test_numbers_are_the_nearest_doubles() -> None:
    rng = random.Random("doubles")
    texts = [f"{rng.choice(('', '-'))}{rng.randrange(10**6)}.{rng.randrange(10**8)}"
             for _ in range(2_000)]  # fmt: skip
    spans = spans_of(pa.array([f'{{"c":{one}}}'.encode() for one in texts], pa.binary()))
    found = flat_reader([pa.field("c", pa.float64())])
    assert found is not None
    read = found.read(spans)
    assert read is not None
    [array], others = read
    assert not len(others)
    assert array.to_pylist() == [float(one) for one in texts]


def test_a_few_other_values_are_put_in_their_places() -> None:
    values: list[bytes | None] = [
        json.dumps({"b": n, "d": f"text {n}"}).encode() for n in range(1_000)
    ]
    values[7] = b'{"b": 7, "d": "\\u0041"}'
    values[500] = b"{"
    values[999] = None
    (found, reasons), _ = both(values)
    assert np.flatnonzero(reasons).tolist() == [500]
    rows = found.column("b").to_pylist()
    assert rows == [None if n in (500, 999) else n for n in range(1_000)]
    assert found.column("d")[7].as_py() == "A"


@pytest.mark.parametrize("ddl", ["a array<int>", "a struct<b: int>", "a decimal(4,2)"])
def test_other_columns_are_left_to_the_parser(ddl: str) -> None:
    assert JsonColumns(parse_ddl(ddl))._flat is None


def test_many_columns_are_left_to_the_parser() -> None:
    fields = [pa.field(f"c{n}", pa.int64()) for n in range(MAX_COLUMNS + 1)]
    assert flat_reader(fields) is None
    assert flat_reader(fields[1:]) is not None

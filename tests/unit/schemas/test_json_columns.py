"""JSON values to columns: each value has its own verdict, whatever its neighbours are."""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.json
import pytest

from ottla.schemas.ddl import parse_ddl
from ottla.schemas.decode import Decoded, decode
from ottla.schemas.json_columns import JsonColumns
from ottla.schemas.reasons import Reason

OK, MALFORMED, TRAILING = Reason.OK, Reason.MALFORMED, Reason.TRAILING_BYTES
OUT, LARGE = Reason.OUT_OF_RANGE, Reason.TOO_LARGE


def read(ddl: str, *values: bytes | str | None) -> Decoded:
    encoded = [each.encode() if isinstance(each, str) else each for each in values]
    return decode(pa.array(encoded, pa.binary()), None, None, parse_ddl(ddl), format="json")


def verdicts(found: Decoded) -> list[Reason]:
    reasons = [OK] * found.columns.num_rows
    for row, reason in zip(found.bad.tolist(), found.reasons.tolist(), strict=True):
        reasons[row] = Reason(reason)
    return reasons


POISON: list[tuple[bytes, Reason]] = [
    (b'{"a":1}{"a":2}', TRAILING),
    (b'{"a":1}\n{"a":2}', TRAILING),
    (b'{"a":1} x', TRAILING),
    (b"", MALFORMED),
    (b" \n\t", MALFORMED),
    (b"[1]", MALFORMED),
    (b"1", MALFORMED),
    (b"null", MALFORMED),
    (b'{"a":1', MALFORMED),
    (b'{"a":1]', MALFORMED),
    (b'{"a":"x}', MALFORMED),
    (b'{"a":}', MALFORMED),
    (b'{"a":1,}', MALFORMED),
    (b"{'a':1}", MALFORMED),
    (b'{"s":"a\nb"}', MALFORMED),
    (b'{"s":"a\0b"}', MALFORMED),
    (b'{"s":"\xff"}', MALFORMED),
    (b'{"s":"\xed\xa0\x80"}', MALFORMED),
    (b'{"s":"\\ud800"}', MALFORMED),
    (b'{"s":"\\x"}', MALFORMED),
    (b'{"a":1,"a":2}', MALFORMED),
    (b'{"a":1.5}', OUT),
    (b'{"a":1e2}', OUT),
    (b'{"a":9223372036854775808}', OUT),
    (b'{"a":-9223372036854775809}', OUT),
    (b'{"a":' + b"9" * 5_000 + b"}", OUT),
    (b'{"i":2147483648}', OUT),
    (b'{"d":1e999}', OUT),
    (b'{"d":NaN}', MALFORMED),
    (b'{"d":-Infinity}', MALFORMED),
    (b'{"f":1e39}', OUT),
    (b'{"a":"1"}', MALFORMED),
    (b'{"a":true}', MALFORMED),
    (b'{"b":0}', MALFORMED),
    (b'{"l":1}', MALFORMED),
    (b'{"l":{"a":1}}', MALFORMED),
    (b'{"n":[]}', MALFORMED),
    (b'{"n":{"x":"1"}}', MALFORMED),
    (b'{"t":"yesterday"}', MALFORMED),
    (b'{"t":1}', MALFORMED),
    (b'{"t":"2026-02-29T00:00:00Z"}', MALFORMED),
    (b'{"t":"2026-01-01T24:00:00Z"}', MALFORMED),
    (b'{"t":"2026-01-01T10:00:00+24:00"}', MALFORMED),
    (b'{"t":"2026-01-01T10:00:00.Z"}', MALFORMED),
    (b'{"j":"2026-01-01T10:00:00Z"}', MALFORMED),
    (b'{"y":"2026-13-01"}', MALFORMED),
    (b'{"y":"2026-01-01T00:00:00"}', MALFORMED),
    (b'{"w":["2026-01-01T00:00:00Z","x"]}', MALFORMED),
    (b'{"e":123456789.12}', OUT),
    (b'{"e":1.234}', OUT),
    (b'{"e":"x"}', MALFORMED),
    (b'{"g":"***"}', MALFORMED),
    (b'{"x":' + b"[" * 1_000 + b"]" * 1_000 + b"}", LARGE),
]
GOOD: list[tuple[bytes, dict[str, Any]]] = [
    (b"{}", {}),
    (b' { "a" : 7 } \n', {"a": 7}),
    (b'{"a":1,\n\r\n"s":"x"}', {"a": 1, "s": "x"}),
    (b'{"a":null,"s":null,"l":null,"n":null}', {}),
    (b'{"s":1.50}', {"s": "1.50"}),
    (b'{"s":false}', {"s": "false"}),
    (b'{"s":{"x": [1, "y\\n", null]}}', {"s": '{"x":[1,"y\\n",null]}'}),
    (b'{"n":{"m":["a",1,null]}}', {"n": {"x": None, "m": ["a", "1", None]}}),
    (b'{"a":9223372036854775807}', {"a": 2**63 - 1}),
    (b'{"a":-9223372036854775808}', {"a": -(2**63)}),
    (b'{"i":-2147483648}', {"i": -(2**31)}),
    (b'{"d":1,"f":0.5}', {"d": 1.0, "f": 0.5}),
    (b'{"d":-1.5e-3}', {"d": -1.5e-3}),
    (
        b'{"s":"}{\\"\\\\ \\u00e9 \\ud83d\\ude00 \xc3\xa9 \xf0\x9f\x90\x9f, line\\n"}',
        {"s": '}{"\\ é 😀 é 🐟, line\n'},
    ),
    (b'{"x":{"deep":[1,{"a":2}]},"a":3}', {"a": 3}),
    (b'{"x":1,"x":2,"a":4}', {"a": 4}),
    (b'{"l":[1,null,3],"n":{"x":5,"z":6}}', {"l": [1, None, 3], "n": {"x": 5, "m": None}}),
    (b'{"l":[],"n":{}}', {"l": [], "n": {"x": None, "m": None}}),
    (b'{"n":{"m":["a",null]}}', {"n": {"x": None, "m": ["a", None]}}),
    (b'{"b":true}', {"b": True}),
    (b'{"e":12.5}', {"e": Decimal("12.50")}),
    (b'{"e":"-99999.99"}', {"e": Decimal("-99999.99")}),
    (b'{"g":"AAEC"}', {"g": b"\0\1\2"}),
    (b'{"y":"2024-02-29"}', {"y": datetime.date(2024, 2, 29)}),
    (b'{"y":"0001-01-01"}', {"y": datetime.date(1, 1, 1)}),
    (
        b'{"t":"2026-11-16T10:20:30Z"}',
        {"t": datetime.datetime(2026, 11, 16, 10, 20, 30, tzinfo=datetime.UTC)},
    ),
    (
        b'{"t":"2026-11-16 10:20:30.123456789+01:30"}',
        {"t": datetime.datetime(2026, 11, 16, 8, 50, 30, 123456, tzinfo=datetime.UTC)},
    ),
    (
        b'{"t":"1969-12-31T23:59"}',
        {"t": datetime.datetime(1969, 12, 31, 23, 59, tzinfo=datetime.UTC)},
    ),
    (b'{"j":"2026-11-16T10:20:30.5"}', {"j": datetime.datetime(2026, 11, 16, 10, 20, 30, 500_000)}),
    (
        b'{"w":["2026-01-01T00:00:00Z",null]}',
        {"w": [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None]},
    ),
]
DDL = (
    "a bigint, i int, d double, f float, s string, b boolean, l array<bigint>, "
    "n struct<x: bigint, m: array<string>>, t timestamp, j timestamp_ntz, y date, "
    "w array<timestamp>, e decimal(7,2), g binary"
)
EMPTY = dict.fromkeys(parse_ddl(DDL).names)


def test_case_30_each_value_alone() -> None:
    for value, expected in GOOD:
        found = read(DDL, value)
        assert verdicts(found) == [OK], value
        assert found.columns.to_pylist() == [EMPTY | expected], value
    for value, reason in POISON:
        found = read(DDL, value)
        assert verdicts(found) == [reason], value
        assert found.columns.to_pylist() == [EMPTY], value


def test_case_30_all_together_each_offset_has_its_own_verdict() -> None:
    values: list[tuple[bytes, Reason, dict[str, Any]]] = [
        *((value, OK, expected) for value, expected in GOOD * 20),
        *((value, reason, {}) for value, reason in POISON),
    ]
    random.Random("mixed").shuffle(values)
    found = read(DDL, *(value for value, _, _ in values))
    assert verdicts(found) == [reason for _, reason, _ in values]
    assert found.columns.to_pylist() == [EMPTY | expected for _, _, expected in values]


def test_case_30_one_bad_value_among_good_ones() -> None:
    good = [value for value, _ in GOOD]
    expected = [EMPTY | each for _, each in GOOD]
    for value, reason in POISON:
        found = read(DDL, *good * 4, value, *good * 4)
        assert found.bad.tolist() == [4 * len(good)]
        assert found.reasons.tolist() == [reason]
        assert found.columns.to_pylist() == [*expected * 4, EMPTY, *expected * 4], value


@pytest.mark.parametrize("count", [0, 1, 100, 32_768])
def test_case_31_many_values_with_some_bad(count: int) -> None:
    rng = random.Random(count)
    bad = set(rng.sample(range(32_768), count))
    poison = [b'{"a":1.5}', b'{"a":', b'{"a":"x"}', b'{"a":1}{}', b'{"a":1,"a":2}']
    values = [
        rng.choice(poison) if row in bad else b'{"a":%d,"s":"v%d"}' % (row, row)
        for row in range(32_768)
    ]
    found = read("a bigint, s string", *values)
    assert set(found.bad.tolist()) == bad
    assert found.columns.column("a").null_count == count
    rows = found.columns.to_pylist()
    for row in range(0, 32_768, 37):
        assert rows[row] == ({"a": None, "s": None} if row in bad else {"a": row, "s": f"v{row}"})


def test_case_31_poison_is_isolated_in_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splitting stops when bad values are many, so the cost is bounded."""
    calls = 0
    read_json = pyarrow.json.read_json

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return read_json(*arguments, **options)

    monkeypatch.setattr(pyarrow.json, "read_json", counted)
    for share, most in ((1, 30), (128, 600), (512, 600), (8_192, 100)):
        calls = 0
        step = 32_768 // share
        values = [b'{"a":1.5}' if row % step == 0 else b'{"a":1}' for row in range(32_768)]
        assert len(read("a bigint", *values).bad) == share
        assert calls <= most, (share, calls)


def test_case_38_a_tombstone_is_a_row_and_an_empty_value_is_not() -> None:
    found = read("a bigint", None, b'{"a":1}', b"", None)
    assert found.columns.column("a").to_pylist() == [None, 1, None, None]
    assert found.bad.tolist() == [2]
    assert found.reasons.tolist() == [MALFORMED]
    assert read("a bigint", None, None).columns.num_rows == 2
    assert read("a bigint").columns.num_rows == 0


def test_maps_and_texts_of_json_are_read_in_python() -> None:
    from ottla.schemas import names
    from ottla.schemas.spans import spans_of

    columns = pa.schema(
        [
            names.field("m", pa.map_(pa.string(), pa.timestamp("us", tz="UTC"))),
            names.field("any", pa.string(), is_json=True),
            names.field("a", pa.int64()),
            names.field("a__string", pa.string(), source="a2"),
        ]
    )
    values = [
        b'{"m":{"k":"2026-01-01T00:00:00Z","n":null},"any":{"x":[1.10,"\\u00e9",null,true]},"a":1}',
        b'{"m":{"k":"no"},"a":2}',
        b'{"any":1e400,"a2":"x"}',
        b'{"any":"t","a":"x"}',
        b'{"m":{"k":null,"k":null}}',
    ]
    batch, reasons = JsonColumns(columns).read(spans_of(pa.array(values, pa.binary())))
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    nothing = dict.fromkeys(columns.names)
    assert reasons.tolist() == [OK, MALFORMED, OK, MALFORMED, MALFORMED]
    assert batch.to_pylist() == [
        nothing | {"m": [("k", moment), ("n", None)], "any": '{"x":[1.10,"é",null,true]}', "a": 1},
        nothing,
        nothing | {"any": "1e400", "a__string": "x"},
        nothing,
        nothing,
    ]


def test_case_36_names_that_differ_in_case_are_two_columns() -> None:
    found = read("Id int, id string, `a.b` int", '{"Id":1,"id":"x","a.b":2}', '{"id":"y"}')
    assert found.columns.to_pylist() == [
        {"Id": 1, "id__2": "x", "a.b": 2},
        {"Id": None, "id__2": "y", "a.b": None},
    ]


def test_slices_and_large_offsets_are_read_alike() -> None:
    values = pa.array([b"junk", b'{"a":1}', None, b'{"a":2}', b"junk"], pa.binary())
    columns = parse_ddl("a bigint")
    for array in (values[1:4], values.cast(pa.large_binary())[1:4]):
        found = decode(array, None, None, columns, format="json")
        assert found.columns.column("a").to_pylist() == [1, None, 2]
        assert not len(found.bad)


def test_python_and_pyarrow_give_the_same_rows() -> None:
    """The rows of a block that is read one by one are those of the block."""
    rng = random.Random("both ways")
    columns = parse_ddl(DDL)
    values = []
    for _ in range(500):
        made: dict[str, Any] = {
            "a": rng.randint(-(2**63), 2**63 - 1),
            "d": rng.uniform(-1e300, 1e300),
            "f": rng.randint(-1000, 1000) / 8,
            "s": "".join(rng.choices('aé🐟"\\/\n\t', k=rng.randint(0, 9))),
            "b": rng.random() < 0.5,
            "l": [rng.choice((None, rng.randint(0, 9))) for _ in range(rng.randint(0, 3))],
            "n": {"x": rng.randint(0, 9), "m": ["x"] * rng.randint(0, 2)},
            "e": rng.randint(-999_999, 999_999) / 100,
            "extra": {"deep": [{}]},
        }
        kept = {key: each for key, each in made.items() if rng.random() < 0.7}
        values.append(json.dumps(kept, ensure_ascii=rng.random() < 0.5).encode())
    fast = decode(pa.array(values, pa.binary()), None, None, columns, format="json")
    slow = [
        decode(pa.array([each, b'{"a":""}'], pa.binary()), None, None, columns, format="json")
        for each in values
    ]
    assert not len(fast.bad)
    assert fast.columns.to_pylist() == [each.columns.to_pylist()[0] for each in slow]


def test_raw_values_are_one_column() -> None:
    columns = pa.schema([("value", pa.binary())])
    values = pa.array([b"x", None, b""], pa.binary())
    found = decode(values, None, None, columns, format="raw")
    assert found.columns.column("value").equals(values)
    assert not len(found.bad)
    assert found.schema_ids.null_count == 3


def test_other_formats_are_refused() -> None:
    values = pa.array([b"x"], pa.binary())
    with pytest.raises(ValueError, match="got 'xml'"):
        decode(values, None, None, parse_ddl("a int"), format="xml")
    with pytest.raises(ValueError, match="a resolver"):
        decode(values, None, None, parse_ddl("a int"), format="registry")
    with pytest.raises(ValueError, match="a schema"):
        decode(values, None, None, parse_ddl("a int"), format="avro")
    with pytest.raises(TypeError, match="a column of bytes"):
        decode(pa.array([1]), None, None, parse_ddl("a int"), format="json")

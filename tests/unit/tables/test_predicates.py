"""Predicates of `ottla table erase`: what they mean, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ottla.tables.errors import BadStatement
from ottla.tables.predicates import Condition, Predicate, parse_predicate

ROWS = pa.RecordBatch.from_pydict(
    {
        "user": pa.array(["x", "it's", None, "x"]),
        "n": pa.array([1, 2, 3, None], pa.int64()),
        "_key": pa.array([b"a", b"\x00", None, b"a"], pa.binary()),
        "ok": pa.array([True, False, None, True]),
        "address": pa.array([{"city": "A"}, {"city": None}, None, {"city": "B"}]),
        "at": pa.array([0, 1, 2, None], pa.timestamp("us", tz="UTC")),
    }
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("user = 'x'", [0, 3]),
        ("user = 'it''s'", [1]),
        ("user is null", [2]),
        ("USER in ('x')".replace("USER", "user"), [0, 3]),
        ("user IN ('x', 'it''s') AND n = 2", [1]),
        ("n in (1, 3)", [0, 2]),
        ("n = -1", []),
        ("_key = 'a'", [0, 3]),
        ("_key = x'00'", [1]),
        ("ok = true", [0, 3]),
        ("address.city = 'B'", [3]),
        ("address.city is null", [1, 2]),
        ("\"user\" = 'x' and n is null", [3]),
        ("at = '1970-01-01T00:00:00.000001Z'", [1]),
    ],
)
def test_rows_are_chosen(text: str, rows: list[int]) -> None:
    mask = parse_predicate(text).checked(ROWS.schema).mask(ROWS)
    assert [at for at, one in enumerate(mask.to_pylist()) if one] == rows
    assert None not in mask.to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "user", "user =", "user = x", "user = 'x", "user = 'x' or n = 1",
        "lower(user) = 'x'",
        "user = (select 1)", "user in ()", "user in ('x'", "user in 'x'", "user is not null",
        "user <> 'x'", "= 'x'", "'x' = user", "user = 'x' n = 1", "user = 'x' and", "user = x'0'",
        "user = 'x'; drop table t", "user = null", "user = 'x' -- y", "n" * 65_537,
    ],
)  # fmt: skip
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(BadStatement):
        parse_predicate(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nobody = 'x'", "no column 'nobody'; the columns are user, n, _key"),
        ("user.name = 'x'", "no column 'user.name'"),
        ("address.zip = 'x'", "no column 'address.zip'"),
        ("n = 'x'", "n is int64"),
        ("n = 1.5", "n is int64"),
        ("n = 99999999999999999999", "n is int64"),
        ("ok = 'maybe'", "ok is bool"),
        ("at = 'yesterday'", "at is timestamp"),
    ],
)
def test_a_predicate_must_fit_the_columns(text: str, said: str) -> None:
    with pytest.raises(BadStatement) as error:
        parse_predicate(text).checked(ROWS.schema)
    assert said in str(error.value)


def test_a_predicate_is_what_it_says() -> None:
    found: Any = parse_predicate("a = 1 and b in ('x', 'y') and c is null")
    assert found == Predicate(
        (Condition("a", (1,)), Condition("b", ("x", "y")), Condition("c", ()))
    )
    assert found.columns == {"a", "b", "c"}

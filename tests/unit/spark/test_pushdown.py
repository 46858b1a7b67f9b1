"""Filters that make ranges smaller (case 28)."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
)

from ottla.spark.log.planning import Range
from ottla.spark.log.pushdown import bounds_of, clipped

TASKS = [
    (Range("a", None, 0, 0, 10), Range("a", None, 1, 0, 10)),
    (Range("b", None, 0, 5, 20),),
]


def left(*filters: Filter) -> list[tuple[str, int, int, int]]:
    tasks = clipped(TASKS, bounds_of(filters))
    return [(r.topic, r.partition, r.first, r.end) for task in tasks for r in task]  # type: ignore[attr-defined]  # ranges


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("topic",), "b")], [("b", 0, 5, 20)]),
        ([In(("partition",), (1, 7))], [("a", 1, 0, 10)]),
        ([LessThan(("partition",), 1)], [("a", 0, 0, 10), ("b", 0, 5, 20)]),
        ([GreaterThanOrEqual(("partition",), 1)], [("a", 1, 0, 10)]),
        ([GreaterThan(("offset",), 9)], [("b", 0, 10, 20)]),
        ([GreaterThanOrEqual(("offset",), 9), LessThanOrEqual(("offset",), 9)], None),
        ([LessThan(("offset",), 6)], [("a", 0, 0, 6), ("a", 1, 0, 6), ("b", 0, 5, 6)]),
        ([In(("offset",), (7, 8))], [("a", 0, 7, 9), ("a", 1, 7, 9), ("b", 0, 7, 9)]),
    ],
)
def test_case_28_ranges_are_cut(
    filters: list[Filter], expected: list[tuple[str, int, int, int]] | None
) -> None:
    nine = [("a", 0, 9, 10), ("a", 1, 9, 10), ("b", 0, 9, 10)]
    assert left(*filters) == (nine if expected is None else expected)


def test_case_28_what_says_nothing_about_ranges_cuts_nothing() -> None:
    assert len(left(StringContains(("topic",), "x"), EqualTo(("value",), b"x"))) == 3
    assert left(EqualTo(("offset",), 50)) == []

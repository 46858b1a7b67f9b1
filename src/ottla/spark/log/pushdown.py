"""Filters on topic, partition, offset and time, applied to ranges before they are read. Pure.

Only filters that make ranges smaller are used; Spark applies every filter to the rows again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql.datasource import Filter

    from ottla.spark.backend import Task
    from ottla.spark.log.planning import Range
    from ottla.spark.tier.planning import Piece

    R = TypeVar("R", Range, Piece)


class Bound(NamedTuple):
    """The bounds of one column from a filter."""

    column: str
    operator: str
    value: Any


_OPERATORS = {
    "EqualTo": "==",
    "EqualNullSafe": "==",
    "In": "in",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_COLUMNS = (("topic",), ("partition",), ("offset",))


def bounds_of(filters: Iterable[Filter]) -> list[Bound]:
    """The filters that restrict ranges."""
    found = []
    for one in filters:
        operator = _OPERATORS.get(type(one).__name__)
        if operator is None:
            continue
        # Filters with an operator have both attributes.
        column: tuple[str, ...] = getattr(one, "attribute")  # noqa: B009
        value = getattr(one, "value")  # noqa: B009
        if column in _COLUMNS and value is not None:
            found.append(Bound(column[0], operator, value))
    return found


def clipped(tasks: Sequence[Task], bounds: Sequence[Bound]) -> list[Task]:
    """Tasks clipped to the bounds."""
    found: list[Task] = []
    for task in tasks:
        ranges = tuple(
            left
            for one in cast("Sequence[Range]", task)
            if (left := _clip(one, bounds)) is not None
        )
        if ranges:
            found.append(ranges)
    return found


def _clip(one: R, bounds: Iterable[Bound]) -> R | None:
    for column, operator, value in bounds:
        if column == "offset":
            one = _offsets(one, operator, value)
        elif not _holds(getattr(one, column), operator, value):
            return None
    return one if one.size > 0 else None


def _offsets(one: R, operator: str, value: Any) -> R:
    first, end = one.first, one.end
    if operator == "==":
        first, end = max(first, value), min(end, value + 1)
    elif operator == "in":
        first, end = max(first, min(value)), min(end, max(value) + 1)
    elif operator in (">", ">="):
        first = max(first, value + (operator == ">"))
    else:
        end = min(end, value + (operator == "<="))
    return one._replace(first=first, end=end)


def _holds(have: Any, operator: str, value: Any) -> bool:
    if operator == "==":
        return bool(have == value)
    if operator == "in":
        return have in value
    if operator in (">", ">="):
        return bool(have > value or (operator == ">=" and have == value))
    return bool(have < value or (operator == "<=" and have == value))

"""The columns of records, with the names of Spark's Kafka source. Does not need Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
COLUMNS_WITHOUT_HEADERS: Final = COLUMNS[:-1]


class UnknownColumn(ValueError):
    """The requested column does not exist."""


def check_columns(names: Iterable[str]) -> None:
    """Raise if a name is not a column."""
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise UnknownColumn(f"expected columns of {', '.join(COLUMNS)}, got {', '.join(unknown)}")

"""The tables that flows write: where they are, and how they divide their rows.

Rows are divided by `shop`, `day(at)`, `hour(at)`, `month(at)`, `year(at)`. The values are
Iceberg's: days, hours, months and years since 1970 for times, the value itself for others. Pure;
parsing needs neither Arrow nor Iceberg.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.tables.errors import BadTableSetting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from ottla.objects.location import StoreLocation

IDENTITY: Final = "identity"
MICROS: Final = {"day": 86_400_000_000, "hour": 3_600_000_000}
OF_TIMES: Final = ("year", "month", "day", "hour")
_CALL: Final = re.compile(r"(\w+)\s*\(\s*(.+?)\s*\)")


@dataclass(frozen=True, slots=True)
class Divider:
    """One partition field: a column, and what is done to it."""

    column: str
    transform: str = IDENTITY

    @property
    def name(self) -> str:
        """The name of the field, as other engines choose it."""
        return self.column if self.transform == IDENTITY else f"{self.column}_{self.transform}"


@dataclass(frozen=True, slots=True)
class FlowTable:
    """Where a flow's table is. Each table that is made gets a directory of its own in `place`."""

    catalog: str
    namespace: str
    name: str
    place: StoreLocation
    dividers: tuple[Divider, ...] = ()

    @property
    def full_name(self) -> tuple[str, str]:
        return self.namespace, self.name

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


def parse_divider(text: str) -> Divider:
    """`column` or `transform(column)`."""
    found = _CALL.fullmatch(text.strip())
    if found is None:
        return Divider(text.strip())
    if found[1].lower() not in OF_TIMES:
        known = ", ".join(f"{one}(column)" for one in OF_TIMES)
        raise BadTableSetting(f"partition_by is a column or one of {known}, not {text!r}")
    return Divider(found[2], found[1].lower())


def check_dividers(dividers: Sequence[Divider], columns: pa.Schema) -> None:
    """Raise unless the columns are there and have values that divide rows."""
    import pyarrow as pa

    for one in dividers:
        if one.column not in columns.names:
            raise BadTableSetting(
                f"partition_by: there is no column {one.column}; there are "
                f"{', '.join(columns.names)}"
            )
        kind = columns.field(one.column).type
        is_time = pa.types.is_timestamp(kind) or (
            pa.types.is_date32(kind) and one.transform != "hour"
        )
        is_value = (
            pa.types.is_string(kind)
            or pa.types.is_integer(kind)
            or pa.types.is_boolean(kind)
            or pa.types.is_date32(kind)
        )
        if not (is_value if one.transform == IDENTITY else is_time):
            wanted = "text, a whole number or a date" if one.transform == IDENTITY else "a time"
            raise BadTableSetting(
                f"partition_by: {one.column} is {kind}, and {one.transform} needs {wanted}"
            )


def divide(
    rows: pa.RecordBatch, dividers: Sequence[Divider]
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The rows of each value, with the values of all fields."""
    import numpy as np
    import pyarrow as pa

    if not dividers:
        yield (), rows
        return
    names = [f"key{at}" for at in range(len(dividers))]
    keys = [_values(rows.column(one.column), one.transform) for one in dividers]
    numbers = pa.array(np.arange(rows.num_rows, dtype=np.int64))
    table = pa.table([*keys, numbers], names=[*names, "row"])
    groups = table.group_by(names, use_threads=False).aggregate([("row", "list")])
    for group in groups.to_pylist():
        yield tuple(group[name] for name in names), rows.take(pa.array(group["row_list"]))


def _values(column: pa.Array, transform: str) -> pa.Array:
    """The value of a partition field for each row."""
    import numpy as np
    import pyarrow as pa

    if transform == IDENTITY:
        return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
    if pa.types.is_date32(column.type):
        days = column.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
        times = days.astype("datetime64[D]").astype("datetime64[us]")
    else:
        times = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        times = times.view("datetime64[us]")
    if transform in MICROS:
        found = times.view(np.int64) // MICROS[transform]
    else:
        found = times.astype(f"datetime64[{'M' if transform == 'month' else 'Y'}]").view(np.int64)
    missing = np.asarray(column.is_null())
    return pa.array(found.astype(np.int32), mask=missing)

"""Options for reading old offsets from a topic's table: `table` and `tableMinRows`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.spark.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Final = ("table", "tableMinRows")
MODES: Final = ("off", "auto")
MIN_ROWS: Final = 200_000
"""A task over files costs about as much as fetching so many records."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """When a range of offsets is read from the table's files."""

    min_rows: int = MIN_ROWS


def table_settings(options: Mapping[str, str]) -> TableSettings | None:
    """The settings from options with lower-case names; None: read the log alone."""
    mode = options.get("table", "off").strip().lower()
    least = options.get("tableminrows", str(MIN_ROWS)).strip()
    if mode not in MODES:
        raise BadOption(f"table is {' or '.join(MODES)}, not {mode!r}")
    if not least.isdecimal():
        raise BadOption(f"tableMinRows is a whole number of 0 or more, not {least!r}")
    if mode == "off":
        return None
    if options.get("kafka.isolation.level", "").strip() != "read_committed":
        raise BadOption(
            "table=auto needs kafka.isolation.level=read_committed: tables have no records of "
            "aborted transactions"
        )
    for other in ("shareGroup", "store", "valueFormat", "pushdown"):
        if options.get(other.lower(), "false").strip().lower() != "false":
            raise BadOption(f"table=auto cannot be used together with {other}")
    return TableSettings(int(least))

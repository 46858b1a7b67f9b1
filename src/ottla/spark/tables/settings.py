"""Options for reading a topic's table: `table`, `tableMinRows`, and settings of its store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.spark.errors import BadOption
from ottla.spark.tier.settings import OPTION_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Final = ("table", "tableMinRows", "tableView")
MODES: Final = ("off", "auto")
ONLY: Final = "only"
"""What `ottla.spark.table` reads files with that Spark itself cannot open; with `tableView`."""
MIN_ROWS: Final = 200_000
"""A task over files costs about as much as fetching so many records."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """When a range of offsets is read from the table's files; `view` names all files to read."""

    min_rows: int = MIN_ROWS
    store: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    view: str | None = None


def store_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Settings of the object store with the files: `tier.endpoint` and the like."""
    return {
        name.removeprefix(OPTION_PREFIX): str(value)
        for name, value in options.items()
        if name.startswith(OPTION_PREFIX)
    }


def table_settings(options: Mapping[str, str]) -> TableSettings | None:
    """The settings from options with lower-case names; None: read the log alone."""
    mode = options.get("table", "off").strip().lower()
    least = options.get("tableminrows", str(MIN_ROWS)).strip()
    view = options.get("tableview")
    if mode not in MODES and not (mode == ONLY and view is not None):
        raise BadOption(f"table is {' or '.join(MODES)}, not {mode!r}")
    if not least.isdecimal():
        raise BadOption(f"tableMinRows is a whole number of 0 or more, not {least!r}")
    if mode == "off":
        return None
    store = tuple(sorted(store_settings(options).items()))
    if mode == ONLY:
        return TableSettings(int(least), store, view)
    if options.get("kafka.isolation.level", "").strip() != "read_committed":
        raise BadOption(
            "table=auto needs kafka.isolation.level=read_committed: tables have no records of "
            "aborted transactions"
        )
    for other in ("shareGroup", "store", "pushdown"):
        if options.get(other.lower(), "false").strip().lower() != "false":
            raise BadOption(f"table=auto cannot be used together with {other}")
    return TableSettings(int(least), store)

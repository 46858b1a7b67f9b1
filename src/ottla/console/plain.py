"""View models as JSON values: the same names; `Missing` becomes `{"missing": reason}`.

Times are RFC 3339 in UTC, durations seconds. What the web half encodes with msgspec looks the same;
this is for `ottla top`, which needs no extra.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from ottla.console.missing import Missing

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def plain(value: object) -> Json:
    """The value as JSON's own types."""
    if value is None or (isinstance(value, (bool, int, str)) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Missing):
        return {"missing": value.reason}
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    raise TypeError(f"a view model holds a {type(value).__name__}")

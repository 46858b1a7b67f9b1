"""One line for each change, in the form of the broker's audit log, by the logger `ottla.audit`."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

logger = logging.getLogger("ottla.audit")

MAX_VALUE: Final = 256
"""Characters of one value, as in the broker's lines."""


def line(
    wall_ms: int, *, cluster: str, host: str, operation: str, resource: str, outcome: str
) -> str:
    """The line; contents of records and values of settings are never part of it."""
    time = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
    found = {
        "time": time,
        "event": "admin",
        "outcome": outcome,
        "principal": "console",
        "host": host,
        "operation": operation,
        "resource": resource,
        "cluster": cluster,
    }
    return json.dumps({name: value[:MAX_VALUE] for name, value in found.items()})

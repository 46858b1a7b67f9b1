"""One line for each change and each login, as in the broker's audit log: logger `ottla.audit`."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger("ottla.audit")

MAX_VALUE: Final = 256
"""Characters of one value, as in the broker's lines."""


def line(
    wall_ms: int,
    *,
    principal: str,
    cluster: str,
    host: str,
    operation: str,
    resource: str,
    outcome: str,
) -> str:
    """Of a change; contents of records and values of settings are never part of it."""
    return _written(
        wall_ms,
        {
            "event": "admin",
            "outcome": outcome,
            "principal": principal,
            "host": host,
            "operation": operation,
            "resource": resource,
            "cluster": cluster,
        },
    )


def login_line(wall_ms: int, *, user: str, host: str, outcome: str, reason: str) -> str:
    """Of somebody who logs in, fails to, or logs out."""
    known = outcome != "failure"
    return _written(
        wall_ms,
        {
            "event": "authenticate",
            "outcome": outcome,
            "principal": f"User:{user}" if known else "",
            "user": "" if known else user,
            "host": host,
            "reason": reason,
        },
    )


def _written(wall_ms: int, found: Mapping[str, str]) -> str:
    time = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
    said = {name: value[:MAX_VALUE] for name, value in found.items() if value}
    return json.dumps({"time": time, **said})

"""Verdicts: records that a job does not want accepted, as lines of JSON in a file or a directory.

    {"topic": "orders", "partition": 0, "offset": 17}

The job writes them before its batch ends, with whatever writes JSON; files whose names begin with
`_` or `.` are not looked at, as in Spark. What is named is rejected when the batch is settled.
"""

from __future__ import annotations

import json
from pathlib import Path

from ottla.client.cluster_view import TopicPartition
from ottla.spark.errors import BadVerdict
from ottla.spark.share_ranges import Span, Spans, plus


def read_verdicts(where: str) -> Spans:
    """What is to be rejected; nothing while there is no such file."""
    path = Path(where.removeprefix("file://"))
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    found: dict[TopicPartition, set[int]] = {}
    for file in files:
        if file.name.startswith(("_", ".")):
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if line.strip():
                place, offset = _verdict(line, f"{file}:{number}")
                found.setdefault(place, set()).add(offset)
    return {
        place: plus({}, {place: [Span(one, one) for one in sorted(some)]})[place]
        for place, some in found.items()
    }


def _verdict(line: str, where: str) -> tuple[TopicPartition, int]:
    try:
        row = json.loads(line)
        return TopicPartition(str(row["topic"]), int(row["partition"])), int(row["offset"])
    except (ValueError, TypeError, KeyError):
        raise BadVerdict(
            f'{where}: expected {{"topic": "orders", "partition": 0, "offset": 17}}, '
            f"got {line[:100]!r}"
        ) from None

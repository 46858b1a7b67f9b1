"""Verdicts: records to reject, as lines of JSON in a file or a directory.

    {"topic": "orders", "partition": 0, "offset": 17}

The job writes them as JSON before its batch ends; files whose names begin with `_` or `.` are
ignored, as in Spark. The named records are rejected when the batch is settled. Verdicts in a topic
have the same form: see `verdict_topic`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.client.cluster.view import TopicPartition
from ottla.spark.errors import BadVerdict
from ottla.spark.share.ranges import Span, Spans, plus

if TYPE_CHECKING:
    from collections.abc import Iterable

FORM: Final = '{"topic": "orders", "partition": 0, "offset": 17}'


def read_verdicts(where: str) -> Spans:
    """The records to reject; empty if the file does not exist."""
    path = Path(where.removeprefix("file://"))
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    found = []
    for file in files:
        if file.name.startswith(("_", ".")):
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if line.strip():
                verdict = parse_verdict(line)
                if verdict is None:
                    raise BadVerdict(f"{file}:{number}: expected {FORM}, got {line[:100]!r}")
                found.append(verdict)
    return as_spans(found)


def parse_verdict(text: str | bytes) -> tuple[TopicPartition, int] | None:
    """The record that a verdict names; None if it names none."""
    try:
        row = json.loads(text)
        return TopicPartition(str(row["topic"]), int(row["partition"])), int(row["offset"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def as_spans(found: Iterable[tuple[TopicPartition, int]]) -> Spans:
    """Ranges of these offsets, given in any order, with repetitions."""
    by_place: dict[TopicPartition, set[int]] = {}
    for place, offset in found:
        by_place.setdefault(place, set()).add(offset)
    return plus({}, {place: [Span(at, at) for at in some] for place, some in by_place.items()})

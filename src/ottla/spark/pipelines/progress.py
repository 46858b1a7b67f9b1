"""Spark's report of a batch, for display, hooks and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PLAN: Final = ("latestOffset", "getBatch", "queryPlanning")
_LOG: Final = ("walCommit", "commitOffsets", "commitBatch")


class Progress(NamedTuple):
    """One batch of one flow. `lag` is None if the source does not report it."""

    flow: str
    batch: int
    timestamp: str
    rows: int
    rows_per_second: float
    processed_per_second: float
    lag: int | None
    plan_ms: int
    run_ms: int
    log_ms: int
    total_ms: int
    locks_held: int | None
    locks_lost: int | None
    offsets: tuple[Mapping[str, Any], ...]
    run_id: str = ""
    watermark: str = ""
    """Up to which event time the flow has seen everything; empty if it has no watermark."""

    @property
    def is_batch(self) -> bool:
        """Whether a batch ran; Spark also reports idle triggers."""
        return self.run_ms > 0

    def as_json(self) -> dict[str, Any]:
        """A flat dict for JSON."""
        return {"event": "progress", **self._asdict(), "offsets": list(self.offsets)}


def parse(report: Mapping[str, Any]) -> Progress:
    """Spark's progress report (its JSON) as ours."""
    took = report.get("durationMs") or {}
    sources = report.get("sources") or []
    ends = [_object(one.get("endOffset")) for one in sources]
    latest = [_object(one.get("latestOffset")) for one in sources]
    lags = [lag for end, last in zip(ends, latest, strict=True) if (lag := _lag(end, last)) >= 0]
    queues = [end for end in ends if "ranges" in end]
    return Progress(
        flow=report.get("name") or report.get("id") or "",
        batch=int(report.get("batchId", -1)),
        timestamp=report.get("timestamp", ""),
        rows=int(_sum(sources, "numInputRows")),
        rows_per_second=_sum(sources, "inputRowsPerSecond"),
        processed_per_second=_sum(sources, "processedRowsPerSecond"),
        lag=sum(lags) if lags else None,
        plan_ms=sum(int(took.get(part, 0)) for part in _PLAN),
        run_ms=int(took.get("addBatch", 0)),
        log_ms=sum(int(took.get(part, 0)) for part in _LOG),
        total_ms=int(took.get("triggerExecution", 0)),
        locks_held=sum(_records(end["ranges"]) for end in queues) if queues else None,
        locks_lost=sum(_records(end.get("ghosts", {})) for end in queues) if queues else None,
        offsets=tuple(ends),
        run_id=report.get("runId", ""),
        watermark=str((report.get("eventTime") or {}).get("watermark", "")),
    )


def _sum(sources: Sequence[Mapping[str, Any]], field: str) -> float:
    """The sum over all sources; reports of a Connect session do not contain it."""
    return sum(float(one.get(field) or 0.0) for one in sources)


def _object(offset: object) -> dict[str, Any]:
    """The offsets of a source if they are a JSON object, else an empty one."""
    return offset if isinstance(offset, dict) else {}


def _lag(end: Mapping[str, Any], latest: Mapping[str, Any]) -> int:
    """Records between two offsets by topic and partition; -1 if they are not of that shape."""
    pairs = [
        (last, end.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        if isinstance(partitions, dict) and isinstance(end.get(topic, {}), dict)
        for partition, last in partitions.items()
    ]
    numbers = [last - done for last, done in pairs if type(last) is int and type(done) is int]
    return sum(max(0, number) for number in numbers) if numbers else -1


def _records(ranges: object) -> int:
    """How many records ranges `{topic: {partition: [[first, last, ...]]}}` have."""
    if not isinstance(ranges, dict):
        return 0
    return sum(
        one[1] - one[0] + 1
        for partitions in ranges.values()
        for found in partitions.values()
        for one in found
    )

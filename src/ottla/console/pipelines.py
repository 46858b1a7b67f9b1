"""What pipelines told the topic `ottla.pipelines`, folded: the last record of each key. Pure.

Whoever may write to the topic may write anything, so everything here is bounded: a record that is
too long, no JSON or no record of ours is counted and passed over; of each text so many characters
are kept, and of all names so many. Of a long topic the newest records are read; a run repeats
everything every 30 s, so what runs is among them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION: Final = 1
MOST_READ: Final = 5_000
"""Records of a partition that are read at the first look, the newest: some MiB."""
MOST_KEYS: Final = 2_000
"""Pipelines and flows that are kept, those that were heard of last."""
MOST_BYTES: Final = 256 * 1024
"""Of a record; what is longer is none of ours."""
MOST_EDGES: Final = 1_000
MOST_RESTARTS: Final = 20
NAME: Final = 249
TEXT: Final = 500
LARGEST: Final = 2**63 - 1
KINDS: Final = ("flow", "topic", "table", "source", "console")
STATES: Final = ("waiting", "starting", "running", "pausing", "done", "stopped", "failed")
ENDED: Final = ("done", "stopped", "failed")

Node: TypeAlias = tuple[str, str]
"""Its kind and its name."""


class Unreadable(Exception):
    """A record that is none of ours, or of a newer version."""


@dataclass(frozen=True, slots=True)
class PipelineState:
    """A run of a pipeline; `ended_ms` is None while it goes on. Times are those of its machine."""

    name: str
    run: str
    host: str
    at_ms: int
    started_ms: int
    ended_ms: int | None
    spark: str
    checkpoints: str
    edges: tuple[tuple[Node, Node, str], ...]

    @property
    def flows(self) -> frozenset[str]:
        """Those that the file declares: others are of an older one."""
        ends = (one for edge in self.edges for one in edge[:2])
        return frozenset(name for kind, name in ends if kind == "flow")


@dataclass(frozen=True, slots=True)
class Batch:
    """The last batch of a flow."""

    number: int
    timestamp: str
    rows: int
    rows_per_s: float
    processed_per_s: float
    lag: int | None
    plan_ms: int
    run_ms: int
    log_ms: int
    total_ms: int
    locks_held: int | None
    watermark: str


@dataclass(frozen=True, slots=True)
class FlowState:
    """A flow as its run told it last."""

    pipeline: str
    name: str
    run: str
    host: str
    at_ms: int
    state: str
    batches: int
    rows: int
    restarts: int
    restarted_ms: tuple[int, ...]
    locks_lost: int
    error: str
    error_ms: int | None
    trigger_s: float | None
    rejects_to: str
    rejects_when: str
    batch: Batch | None


@dataclass(frozen=True, slots=True)
class Pipelines:
    """All of them; flows by pipeline and name."""

    pipelines: Mapping[str, PipelineState]
    flows: Mapping[tuple[str, str], FlowState]
    unreadable: int = 0
    """Keys whose last record says nothing."""
    not_read: int = 0
    """Older records of the topic that were passed over."""

    def of(self, pipeline: str) -> list[FlowState]:
        """The flows of a pipeline, by name; those that its file does not declare are left out."""
        known = self.pipelines.get(pipeline)
        return [
            flow
            for (owner, name), flow in sorted(self.flows.items())
            if owner == pipeline and (known is None or name in known.flows)
        ]

    @property
    def names(self) -> list[str]:
        return sorted({*self.pipelines, *(owner for owner, _ in self.flows)})


class Fold:
    """Reads on where it was; begins anew if the topic was recreated."""

    def __init__(self) -> None:
        self._topic_id = b""
        self._read_to: dict[int, int] = {}
        self._known: dict[bytes, PipelineState | FlowState | None] = {}
        self._new: dict[bytes, bytes | None] = {}
        self._not_read = 0

    def plan(
        self, topic_id: bytes, bounds: Mapping[int, tuple[int, int]]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """From where to where to read each partition that has something new."""
        is_same = topic_id == self._topic_id and all(
            end >= self._read_to.get(number, 0) for number, (_, end) in bounds.items()
        )
        if not is_same:
            self._topic_id, self._read_to, self._not_read = topic_id, {}, 0
            self._known.clear()
        starts, stops = {}, {}
        for number, (start, end) in bounds.items():
            at = max(start, self._read_to.get(number, 0))
            first = max(at, end - MOST_READ)
            self._not_read += first - at
            self._read_to[number] = end
            if first < end:
                starts[number], stops[number] = first, end
        return starts, stops

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """A record, in the order of its partition; the last one of a key counts."""
        if key is not None and len(key) <= 2 * NAME + 1:
            self._new.pop(key, None)
            self._new[key] = value
            if len(self._new) > MOST_KEYS:
                del self._new[next(iter(self._new))]

    def value(self) -> Pipelines:
        """All that is known now."""
        for key, value in self._new.items():
            self._known.pop(key, None)
            if value is not None:
                self._known[key] = _read(value)
        self._new.clear()
        while len(self._known) > MOST_KEYS:
            del self._known[next(iter(self._known))]
        told = self._known.values()
        return Pipelines(
            {one.name: one for one in told if isinstance(one, PipelineState)},
            {(one.pipeline, one.name): one for one in told if isinstance(one, FlowState)},
            sum(one is None for one in told),
            self._not_read,
        )

    def failed(self) -> None:
        """What was planned could not be read: begin anew with the next look."""
        self._topic_id = b""
        self._new.clear()


def _read(value: bytes) -> PipelineState | FlowState | None:
    try:
        return decode(value)
    except Unreadable:
        return None


def decode(value: bytes) -> PipelineState | FlowState:
    """A record of the topic; raises `Unreadable`."""
    if len(value) > MOST_BYTES:
        raise Unreadable("too long")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise Unreadable("not JSON") from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise Unreadable("of another version")
    said = _Said(found)
    if found.get("kind") == "pipeline":
        return _pipeline(said)
    if found.get("kind") == "flow":
        return _flow(said)
    raise Unreadable("of another kind")


def _pipeline(said: _Said) -> PipelineState:
    return PipelineState(
        name=said.name("pipeline"),
        run=said.text("run"),
        host=said.text("host"),
        at_ms=said.whole("at_ms") or 0,
        started_ms=said.whole("started_ms") or 0,
        ended_ms=said.whole("ended_ms"),
        spark=said.text("spark"),
        checkpoints=said.text("checkpoints"),
        edges=tuple(_edges(said.items("edges", MOST_EDGES))),
    )


def _edges(found: Iterable[object]) -> Iterable[tuple[Node, Node, str]]:
    for edge in found:
        match edge:
            case [[str(kind), str(name)], [str(other_kind), str(other)], str(word)]:
                if kind in KINDS and other_kind in KINDS:
                    yield (kind, name[:TEXT]), (other_kind, other[:TEXT]), word[:TEXT]


def _flow(said: _Said) -> FlowState:
    state = said.text("state")
    if state not in STATES:
        raise Unreadable("a state that nobody knows")
    progress = said.found.get("progress")
    return FlowState(
        pipeline=said.name("pipeline"),
        name=said.name("flow"),
        run=said.text("run"),
        host=said.text("host"),
        at_ms=said.whole("at_ms") or 0,
        state=state,
        batches=said.whole("batches") or 0,
        rows=said.whole("rows") or 0,
        restarts=said.whole("restarts") or 0,
        restarted_ms=tuple(
            one for one in said.items("restarted_ms", MOST_RESTARTS) if type(one) is int
        ),
        locks_lost=said.whole("locks_lost") or 0,
        error=said.text("error"),
        error_ms=said.whole("error_ms"),
        trigger_s=said.number("trigger_s"),
        rejects_to=said.text("rejects_to"),
        rejects_when=said.text("rejects_when"),
        batch=_batch(_Said(progress)) if isinstance(progress, dict) else None,
    )


def _batch(said: _Said) -> Batch:
    return Batch(
        number=said.whole("batch") or 0,
        timestamp=said.text("timestamp"),
        rows=said.whole("rows") or 0,
        rows_per_s=said.number("rows_per_second") or 0.0,
        processed_per_s=said.number("processed_per_second") or 0.0,
        lag=said.whole("lag"),
        plan_ms=said.whole("plan_ms") or 0,
        run_ms=said.whole("run_ms") or 0,
        log_ms=said.whole("log_ms") or 0,
        total_ms=said.whole("total_ms") or 0,
        locks_held=said.whole("locks_held"),
        watermark=said.text("watermark"),
    )


class _Said:
    """Fields of an object; what has another type counts as not said."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    def name(self, key: str) -> str:
        found = self.found.get(key)
        if not isinstance(found, str) or not 0 < len(found) <= NAME:
            raise Unreadable(f"without {key}")
        return found

    def text(self, key: str) -> str:
        found = self.found.get(key)
        return found[:TEXT] if isinstance(found, str) else ""

    def whole(self, key: str) -> int | None:
        found = self.found.get(key)
        return found if type(found) is int and 0 <= found <= LARGEST else None

    def number(self, key: str) -> float | None:
        found = self.found.get(key)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            return None
        return float(found) if 0 <= found <= LARGEST else None  # which NaN is not

    def items(self, key: str, most: int) -> list[object]:
        found = self.found.get(key)
        return found[:most] if isinstance(found, list) else []

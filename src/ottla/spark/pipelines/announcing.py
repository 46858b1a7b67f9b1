"""What a run tells the topic `ottla.pipelines`, as records. Pure: time comes in, records go out.

- The record of a pipeline (its name is the key) says where it runs, and its graph. The record of a
  flow (key `pipeline/flow`) has its whole state and its last batch, so a compacted topic has all.
- A flow is told when it has changed, and every `HEARTBEAT_MS` if it has not: one that is silent for
  longer has lost its process.
- What was not delivered counts as not told. The next round has it, in its newest form: nothing
  queues up while the brokers are away.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ottla.redaction import redact
from ottla.spark.pipelines.graph import topics_of
from ottla.spark.pipelines.model import ToConsole, ToTopic, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ottla.clock import Now
    from ottla.spark.pipelines.board import FlowView
    from ottla.spark.pipelines.model import Definition, Flow, Target

VERSION: Final = 1
HEARTBEAT_MS: Final = 30_000
MAX_BYTES: Final = 256 * 1024
"""Of a record: offsets of 10,000 partitions are left out, the rest is a few KiB."""
MAX_EDGES: Final = 1_000
MAX_RESTARTS: Final = 20
"""Times of restarts that are told, the newest."""
LONGEST: Final = 500
"""Characters of a condition or a place."""

Node: TypeAlias = tuple[str, str]
"""Its kind (`flow`, `topic`, `table`, `source` or `console`) and its name."""
PIPELINE: Final = ""
"""Stands for the pipeline among the names of its flows."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not change during a run."""

    pipeline: str
    run: str
    host: str
    started_ms: int
    spark: str
    checkpoints: str
    definition: Definition


class Due(NamedTuple):
    """A record that is to be sent; `state` is what it tells."""

    name: str
    state: object
    key: bytes
    value: bytes


class Announcer:
    """One run."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._told: dict[str, tuple[object, int]] = {}
        """What was delivered last, and when."""
        self._restarts: dict[str, deque[int]] = {}
        self._errors: dict[str, tuple[str, int]] = {}
        self._counted: dict[str, int] = {}

    def due(self, views: Sequence[FlowView], now: Now, *, ended: bool = False) -> list[Due]:
        """The records of what has changed, or was told long ago."""
        found = []
        if self._is_due(PIPELINE, ended, now):
            value = self._of_pipeline(now, ended=ended)
            found.append(Due(PIPELINE, ended, self._facts.pipeline.encode(), value))
        for view in views:
            self._note(view, now)
            if self._is_due(view.name, view, now):
                key = f"{self._facts.pipeline}/{view.name}".encode()
                found.append(Due(view.name, view, key, self._of_flow(view, now)))
        return found

    def delivered(self, due: Sequence[Due], now: Now) -> None:
        """These have arrived."""
        for one in due:
            self._told[one.name] = one.state, now.ms

    def _is_due(self, name: str, state: object, now: Now) -> bool:
        told = self._told.get(name)
        return told is None or told[0] != state or now.ms - told[1] >= HEARTBEAT_MS

    def _note(self, view: FlowView, now: Now) -> None:
        """When it was restarted, and when its last error came."""
        new = view.restarts - self._counted.get(view.name, 0)
        if new > 0:
            times = self._restarts.setdefault(view.name, deque(maxlen=MAX_RESTARTS))
            times.extend([now.wall_ms] * min(new, MAX_RESTARTS))
            self._counted[view.name] = view.restarts
        if view.error and self._errors.get(view.name, ("", 0))[0] != view.error:
            self._errors[view.name] = view.error, now.wall_ms

    def _of_pipeline(self, now: Now, *, ended: bool) -> bytes:
        facts = self._facts
        edges = list(edges_of(facts.definition))[:MAX_EDGES]
        return _encoded(
            {
                **self._head("pipeline", now),
                "started_ms": facts.started_ms,
                "ended_ms": now.wall_ms if ended else None,
                "spark": facts.spark,
                "checkpoints": redact(facts.checkpoints)[:LONGEST],
                "edges": [[list(one), list(other), word] for one, other, word in edges],
            }
        )

    def _of_flow(self, view: FlowView, now: Now) -> bytes:
        flow = self._facts.definition.flows[view.name]
        error, error_ms = self._errors.get(view.name, ("", None))
        value = {
            **self._head("flow", now),
            "flow": view.name,
            "state": view.state,
            "batches": view.batches,
            "rows": view.rows,
            "restarts": view.restarts,
            "restarted_ms": list(self._restarts.get(view.name, ())),
            "locks_lost": view.locks_lost,
            "error": redact(error)[:LONGEST],
            "error_ms": error_ms,
            "trigger_s": None if flow.trigger is None else seconds(flow.trigger, "trigger"),
            "rejects_to": "" if flow.reject is None else flow.reject.to.name,
            "rejects_when": "" if flow.reject is None else redact(flow.reject.when)[:LONGEST],
            "progress": None if view.progress is None else view.progress.as_json(),
        }
        text = _encoded(value)
        if len(text) > MAX_BYTES and view.progress is not None:
            text = _encoded({**value, "progress": {**view.progress.as_json(), "offsets": []}})
        return text

    def _head(self, kind: str, now: Now) -> dict[str, Any]:
        facts = self._facts
        return {
            "version": VERSION,
            "kind": kind,
            "pipeline": facts.pipeline,
            "run": facts.run,
            "host": facts.host,
            "at_ms": now.wall_ms,
        }


def edges_of(definition: Definition) -> Iterator[tuple[Node, Node, str]]:
    """The graph as people draw it: topics and tables are nodes, sources with topics are not."""
    for flow in definition.flows.values():
        here: Node = ("flow", flow.name)
        for name in flow.reads:
            for one, word in _inputs(definition, name):
                yield one, here, word
        if flow.writes is not None:
            yield here, _place(flow.writes), ""
        if flow.reject is not None:
            yield here, _place(flow.reject.to), "reject"


def _inputs(definition: Definition, name: str) -> Iterator[tuple[Node, str]]:
    source = definition.sources.get(name)
    if source is not None:
        word = f"queue {source.share_group}" if source.share_group else ""
        topics = topics_of(source)
        yield from ((("topic", topic), word) for topic in topics)
        if not topics:
            yield ("source", name), word
        return
    read: Flow = definition.flows[name]
    yield ("flow", name) if read.writes is None else _place(read.writes), ""


def _place(target: Target) -> Node:
    if isinstance(target, ToConsole):
        return "console", "console"
    return ("topic" if isinstance(target, ToTopic) else "table"), redact(target.name)[:LONGEST]


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace")

"""`ottla run --backfill`: one batch over a table's files, then the stream from where they end.

Rules:

- The cut, the first offset of each partition that the batch leaves to the stream, is noted in a
  file before the batch begins. A run that is killed finds the note and repeats the batch up to the
  same cut: the row of a record in a table depends on the record alone.
- The batch goes to the flow's sink under an id of the note. An Iceberg table that has it does not
  take it again; other sinks get it at least once, as their batches.
- The note says that the batch is done before the stream starts, which begins at the cut. From then
  on the checkpoint counts.
- The runner sees one query: while the batch runs it is in a batch, then it is the stream.
"""

from __future__ import annotations

import json
import os
import re
import threading
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from ottla.spark.pipelines.checkpoints import checkpoint_of, read_checkpoint
from ottla.spark.pipelines.errors import DefinitionError
from ottla.spark.pipelines.places import local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.spark.pipelines.load import Pipeline
    from ottla.spark.pipelines.model import Flow
    from ottla.spark.pipelines.places import Places

IN_A_BATCH: Final = {"message": "Processing new data"}
RELATIONS: Final = ("StreamingRelationV2", "StreamingRelation")
# Operators that treat each row by itself, or join it with rows that do not change.
STATELESS: Final = frozenset(
    {
        *("Project", "Filter", "TypedFilter", "SubqueryAlias", "View", "Generate", "ResolvedHint"),
        *("MapInArrow", "MapInPandas", "PythonMapInArrow", "Union", "Join"),
        *("Repartition", "RepartitionByExpression", *RELATIONS),
    }
)
# Spark marks what is a stream; other operators are over rows that do not change.
_OPERATOR: Final = re.compile(r"^[\s:+\-]*~(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Note:
    """Where a flow's batch ends, and whether it is in the sink."""

    id: str
    topic: str
    cut: Mapping[str, int]
    done: bool = False


def read_note(places: Places, flow: str) -> Note | None:
    """The note of a flow, None if it has none."""
    path = places.backfill_note(flow)
    return Note(**json.loads(path.read_text())) if path.is_file() else None


def new_note(places: Places, flow: str, topic: str, cut: Mapping[int, int]) -> Note:
    """Note where a batch ends, before it begins."""
    note = Note(uuid4().hex, topic, {str(one): cut[one] for one in sorted(cut)})
    _write(places.backfill_note(flow), note)
    return note


def is_new(pipeline: Pipeline, flow: Flow) -> bool:
    """Whether a flow has not run yet; only then there is something to fill."""
    if local_path(pipeline.places.checkpoint(flow)) is None:
        raise DefinitionError(
            f"--backfill: the checkpoint of flow {flow.name} is not on this machine, where it is "
            "looked at; the stream reads the table by itself without --backfill"
        )
    return read_checkpoint(checkpoint_of(pipeline, flow)).planned is None


def refuse_state(flow: Flow, frame: DataFrame) -> None:
    """Raise if the query of a flow may keep state: a batch of its own would not be part of it."""
    plan: Any = frame._jdf  # of classic sessions
    kept = keeping(plan.queryExecution().analyzed().toString())
    if kept:
        raise DefinitionError(
            f"--backfill: flow {flow.name} may keep state between batches ({', '.join(kept)}); "
            "run it without --backfill: the stream reads the table by itself"
        )


def keeping(plan: str) -> list[str]:
    """Operators of a plan that may keep state between batches."""
    found = _OPERATOR.findall(plan)
    streams = sum(one in RELATIONS for one in found)
    assert streams, f"no stream in the plan: {plan[:500]}"
    others = set(found) - STATELESS
    if streams > 1 and "Join" in found:
        others.add("Join")
    return sorted(others)


def mark_done(places: Places, flow: str, note: Note) -> None:
    """The batch is in the sink: the stream may start."""
    _write(places.backfill_note(flow), replace(note, done=True))


def _write(path: Path, note: Note) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_suffix(".new")
    with made.open("w") as file:
        json.dump(asdict(note), file)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class BackfillQuery:
    """The batch in a thread of its own, then the stream; one query to the runner."""

    def __init__(
        self,
        spark: SparkSession,
        group: str,
        fill: Callable[[], None],
        stream: Callable[[], StreamingQuery],
    ) -> None:
        from pyspark import InheritableThread

        self._spark = spark
        self._group = group
        self._fill = fill
        self._stream = stream
        self._error: Exception | None = None
        self._query: StreamingQuery | None = None
        self._lock = threading.Lock()
        self._is_stopped = False
        self._is_over = False
        self._thread = InheritableThread(target=self._run, name=f"ottla-backfill-{group}")
        self._thread.start()

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name
        query = self._query
        return not self._is_over if query is None else query.isActive

    @property
    def status(self) -> dict[str, Any]:
        query = self._query
        return IN_A_BATCH if query is None else query.status

    @property
    def recentProgress(self) -> Sequence[Any]:  # noqa: N802  # Spark's name
        query = self._query
        return [] if query is None else query.recentProgress

    def exception(self) -> Exception | None:
        query = self._query
        return self._error if query is None else query.exception()

    def stop(self) -> None:
        """Cancel the batch, or stop the stream."""
        with self._lock:
            self._is_stopped = True
        while self._thread.is_alive():
            # Again and again: a job may begin after it.
            self._spark.sparkContext.cancelJobGroup(self._group)
            self._thread.join(0.1)
        if self._query is not None:
            self._query.stop()

    def _run(self) -> None:
        try:
            self._spark.sparkContext.setJobGroup(self._group, "backfill", interruptOnCancel=True)
            self._fill()
            with self._lock:
                if not self._is_stopped:
                    self._query = self._stream()
        except Exception as error:  # noqa: BLE001  # the runner asks for it
            self._error = error
        finally:
            self._is_over = True

"""Read Spark's checkpoints, and reset flows. Works on files, without Spark.

A checkpoint has `offsets/N` (a version, a line of metadata, a line per source) written before batch
N runs, and `commits/N` written after it.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.spark.pipelines.errors import DefinitionError
from ottla.spark.pipelines.graph import reads_queue
from ottla.spark.pipelines.model import ToTable
from ottla.spark.pipelines.places import local_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ottla.spark.pipelines.load import Pipeline
    from ottla.spark.pipelines.model import Flow

_HEADER_LINES: Final = 2


class Checkpoint(NamedTuple):
    """Where a flow is. `planned` above `committed` is a batch that will be repeated."""

    planned: int | None
    committed: int | None
    offsets: tuple[Mapping[str, Any], ...]
    changed: float | None


def read_checkpoint(directory: Path) -> Checkpoint:
    """The content of a checkpoint; empty if the flow has not run."""
    planned = _numbers(directory / "offsets")
    committed = _numbers(directory / "commits")
    if not planned:
        return Checkpoint(None, None, (), None)
    done = max(committed, default=None)
    offsets: tuple[Mapping[str, Any], ...] = ()
    changed = (directory / "offsets" / str(max(planned))).stat().st_mtime
    if done is not None and done in planned:
        offsets = _offsets(directory / "offsets" / str(done))
        changed = max(changed, (directory / "commits" / str(done)).stat().st_mtime)
    return Checkpoint(max(planned), done, offsets, changed)


def checkpoint_of(pipeline: Pipeline, flow: Flow) -> Path:
    """The checkpoint's directory, if it is on this machine."""
    place = pipeline.places.checkpoint(flow)
    path = local_path(place)
    if path is None:
        raise DefinitionError(f"{place} is not on this machine: look at it with its own tools")
    return path


def start_options(to: str) -> dict[str, str]:
    """`earliest`, `latest`, a time or offsets as JSON, as options of the source."""
    if to in ("earliest", "latest"):
        return {"startingOffsets": to}
    if to.lstrip().startswith("{"):
        try:
            json.loads(to)
        except ValueError:
            raise DefinitionError(f"--to {to[:80]} is not JSON by topic and partition") from None
        return {"startingOffsets": to}
    try:
        time = datetime.fromisoformat(to)
    except ValueError:
        raise DefinitionError(
            f"--to is earliest, latest, a time such as 2026-01-31T09:00Z, or offsets as JSON, "
            f"not {to!r}"
        ) from None
    millis = int(time.astimezone().timestamp() * 1000)
    return {"startingTimestamp": str(millis), "startingOffsetsByTimestampStrategy": "latest"}


def reset(pipeline: Pipeline, flow: Flow, to: str) -> list[str]:
    """Reset a flow: rename its checkpoint and table. Returns the new names.

    A table is set aside too: Spark numbers the batches of a new checkpoint from 0, and would leave
    out those that the table's own log already has.
    """
    if reads_queue(pipeline.definition, flow):
        raise DefinitionError(f"flow {flow.name} reads a queue: use ottla share-group reset")
    options = start_options(to)
    places = [checkpoint_of(pipeline, flow)]
    aside: list[str] = []
    if isinstance(flow.writes, ToTable) and flow.writes.is_iceberg:
        aside += _iceberg_aside(pipeline, flow.writes)
    elif isinstance(flow.writes, ToTable):
        table = local_path(pipeline.places.table(flow.writes))
        if table is None:
            raise DefinitionError(
                f"flow {flow.name} writes a table that is not on this machine: move it away, and "
                "its checkpoint too"
            )
        places.append(table)
    aside += [str(_set_aside(place)) for place in places if place.exists()]
    pipeline.places.backfill_note(flow.name).unlink(missing_ok=True)
    note = pipeline.places.start_note(flow.name)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps(options))
    return aside


def _iceberg_aside(pipeline: Pipeline, target: ToTable) -> list[str]:
    from ottla.spark.pipelines.iceberg_sink import flow_table, has_catalog, open_sink

    where = flow_table(pipeline.places, target)
    if not has_catalog(where):
        return []
    with closing(open_sink(where)) as sink:
        name = sink.set_aside()
    return [] if name is None else [f"table {name}"]


def _set_aside(place: Path) -> Path:
    taken = [
        int(found[1])
        for one in place.parent.iterdir()
        if (found := re.fullmatch(re.escape(place.name) + r"\.before-(\d+)", one.name))
    ]
    return place.rename(place.with_name(f"{place.name}.before-{max(taken, default=0) + 1}"))


def _numbers(directory: Path) -> set[int]:
    if not directory.is_dir():
        return set()
    return {int(one.name) for one in directory.iterdir() if one.name.isdecimal()}


def _offsets(file: Path) -> tuple[Mapping[str, Any], ...]:
    found = [json.loads(line) for line in file.read_text().splitlines()[_HEADER_LINES:] if line]
    return tuple(one if isinstance(one, dict) else {} for one in found)

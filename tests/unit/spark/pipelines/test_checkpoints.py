"""What checkpoints say and how a flow starts anew, on files written here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.spark.pipelines.checkpoints import read_checkpoint, reset, start_options
from ottla.spark.pipelines.converting import batches, convert
from ottla.spark.pipelines.errors import DefinitionError
from ottla.spark.pipelines.load import load

if TYPE_CHECKING:
    from ottla.spark.pipelines.load import Pipeline

FILE = """
from ottla.spark.pipelines import flow, source, table, topic
source("s", topic="t")
source("q", topic="t", share_group="g")
@flow("plain", writes=topic("x"))
def plain(s): return s
@flow("filed", writes=table("filed"))
def filed(s): return s
@flow("queued", writes=topic("y"))
def queued(q): return q
"""


def write_checkpoint(directory: Path, planned: int, committed: int) -> None:
    for part, last in (("offsets", planned), ("commits", committed)):
        (directory / part).mkdir(parents=True, exist_ok=True)
        (directory / part / ".0.crc").write_text("")
        for batch in range(last + 1):
            lines = ["v1", "{}", json.dumps({"t": {"0": batch * 10}})]
            (directory / part / str(batch)).write_text("\n".join(lines))


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    (tmp_path / "p.py").write_text(FILE)
    return load(tmp_path / "p.py", state=str(tmp_path / "state"))


def test_a_checkpoint_tells_the_last_batch_that_is_done(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path).committed is None
    write_checkpoint(tmp_path, planned=12, committed=11)
    found = read_checkpoint(tmp_path)
    assert (found.planned, found.committed) == (12, 11)
    assert found.offsets == ({"t": {"0": 110}},)
    assert found.changed is not None


def test_a_batch_that_was_planned_and_never_done(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, planned=0, committed=-1)
    found = read_checkpoint(tmp_path)
    assert (found.planned, found.committed, found.offsets) == (0, None, ())


def test_a_reset_sets_aside_and_leaves_a_note(pipeline: Pipeline, tmp_path: Path) -> None:
    checkpoint = tmp_path / "state" / "checkpoints" / "plain"
    flow = pipeline.definition.flows["plain"]
    for number in (1, 2):
        write_checkpoint(checkpoint, 3, 3)
        aside = str(checkpoint.with_name(f"plain.before-{number}"))
        assert reset(pipeline, flow, "earliest") == [aside]
        assert not checkpoint.exists()
    note = pipeline.places.start_note("plain")
    assert json.loads(note.read_text()) == {"startingOffsets": "earliest"}
    assert reset(pipeline, flow, "latest") == []


def test_a_reset_sets_a_table_aside_too(pipeline: Pipeline, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "state" / "checkpoints" / "filed", 3, 3)
    (tmp_path / "state" / "tables" / "filed").mkdir(parents=True)
    aside = reset(pipeline, pipeline.definition.flows["filed"], "earliest")
    assert [Path(one).parent.name for one in aside] == ["checkpoints", "tables"]


def test_a_queue_is_reset_by_its_group(pipeline: Pipeline) -> None:
    with pytest.raises(DefinitionError, match="ottla share-group reset"):
        reset(pipeline, pipeline.definition.flows["queued"], "earliest")


def test_where_to_start() -> None:
    assert start_options('{"t": {"0": 5}}') == {"startingOffsets": '{"t": {"0": 5}}'}
    assert start_options("2026-01-31T09:00Z")["startingTimestamp"] == "1769850000000"
    for wrong in ("{", "yesterday", "12"):
        with pytest.raises(DefinitionError, match="--to"):
            start_options(wrong)


def write_first_batch(directory: Path, *offsets: object) -> None:
    write_checkpoint(directory, 0, 0)
    text = "\n".join(["v1", "{}", *map(json.dumps, offsets)])
    (directory / "offsets" / "0").write_text(text)


def test_case_21_a_checkpoint_of_one_batch_is_converted_and_back(tmp_path: Path) -> None:
    ours = {"t": {"0": 9}, "@initial": {"t": {"0": 4}}}
    write_first_batch(tmp_path, ours, "another source's")
    crc = tmp_path / "offsets" / ".0.crc"
    assert crc.exists()
    changed = convert(tmp_path, "kafka")
    start = tmp_path / "sources" / "0" / "0"
    assert changed == [start, tmp_path / "offsets" / "0"]
    assert start.read_bytes() == b'\0v1\n{"t":{"0":4}}'
    assert not crc.exists()
    assert [one.offsets for one in batches(tmp_path)] == [[{"t": {"0": 9}}, "another source's"]]
    assert convert(tmp_path, "kafka") == []
    assert convert(tmp_path, "ottla") == [tmp_path / "offsets" / "0"]
    [first] = batches(tmp_path)
    assert (first.number, first.is_committed) == (0, True)
    assert first.offsets == [ours, "another source's"]
    assert convert(tmp_path, "ottla") == []


def test_a_checkpoint_whose_first_batch_is_forgotten_moves_as_it_is(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 3, 2)
    (tmp_path / "offsets" / "0").unlink()
    assert [one.is_committed for one in batches(tmp_path)] == [True, True, False]
    assert convert(tmp_path, "kafka") == []


def test_what_is_no_checkpoint_to_convert(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="is not a checkpoint"):
        batches(tmp_path)
    write_first_batch(tmp_path, {"ranges": {}, "ghosts": {}})
    with pytest.raises(DefinitionError, match="on a share group"):
        convert(tmp_path, "kafka")
    with pytest.raises(DefinitionError, match="--to is kafka or ottla"):
        convert(tmp_path, "avro")
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n{torn")
    with pytest.raises(DefinitionError, match="is damaged"):
        batches(tmp_path)

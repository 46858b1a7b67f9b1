"""`ottla log journal` from the outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ottla.cli.whole import app
from ottla.log.journal.files import STATE_FILE
from tests.support.journal_room import Disk, Room, journal_files

if TYPE_CHECKING:
    from pathlib import Path


def run(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["log", "journal", *map(str, args)])
    return result.exit_code, result.output


def as_json(path: Path) -> Any:
    status, told = run(path, "--json")
    assert status == 0
    return json.loads(told)


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """A directory that a crash has left with two partitions in its journal."""
    room = Room(tmp_path / "data", Disk())
    one, other = room.open("one", "other")
    await room.ready(one, other)
    await room.write(one, other)
    await room.write(one)
    assert as_json(tmp_path / "data")["covered"], "also while it is in use"
    await room.close(clean=False)
    return tmp_path / "data"


def test_a_directory_without_a_journal(tmp_path: Path) -> None:
    assert run(tmp_path) == (0, f"{tmp_path} has no journal: every log is synced\n")
    assert as_json(tmp_path) is None
    status, told = run(tmp_path / "nowhere")
    assert status == 1
    assert "is not a directory" in told


def test_what_is_kept_for_a_crash(data: Path) -> None:
    before = {name: (data / name).read_bytes() for name in journal_files(data)}
    found = as_json(data)
    assert found["problem"] is None
    covered = {(one["topic"], one["partition"]): one for one in found["covered"]}
    assert (covered["one", 0]["first"], covered["one", 0]["end"]) == (1, 3)
    assert (covered["other", 0]["first"], covered["other", 0]["end"]) == (1, 2)
    assert [(one["state"], one["partitions"]) for one in found["slots"]] == [
        ("needed", 2),
        ("needed", 1),
    ]
    status, told = run(data, "--slots")
    assert status == 0
    assert told.startswith("1 files, 2 slots, 2 of them needed\n")
    assert f"{STATE_FILE}.0" in told
    assert {name: (data / name).read_bytes() for name in journal_files(data)} == before


def test_a_damaged_slot_and_a_missing_file(data: Path) -> None:
    file = data / f"{STATE_FILE}.0"
    content = bytearray(file.read_bytes())
    content[120] ^= 1
    file.write_bytes(content)
    status, told = run(data, "--slots")
    assert status == 1
    assert "torn" in told
    assert "ottla: slot 1 at 0 of" in told
    file.unlink()
    status, told = run(data)
    assert status == 1
    assert "is missing" in told

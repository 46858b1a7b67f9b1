"""`ottla doctor` from the outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from ottla.cli.whole import app

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from ottla.testing.embedded import EmbeddedBroker


def examine(*args: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["doctor", "--json", *args])
    return result.exit_code, {row["check"]: row for row in json.loads(result.stdout)}


def test_a_whole_installation_is_well(tmp_path: Path, ottla_broker: EmbeddedBroker) -> None:
    status, found = examine("--data-dir", str(tmp_path), "--bootstrap", ottla_broker.bootstrap)
    assert status == 0
    assert {row["verdict"] for name, row in found.items() if name.startswith("extra ")} == {"ok"}
    assert found["Java for Spark"]["verdict"] == "ok"
    assert found["disk sync"]["found"].endswith("ms (median)")
    assert found["journal write"]["found"].endswith("ms (median)")
    assert "1 node(s)" in found[f"broker {ottla_broker.bootstrap}"]["found"]
    assert list(tmp_path.iterdir()) == []


def test_what_is_broken_comes_with_advice(tmp_path: Path) -> None:
    status, found = examine(
        "--data-dir", str(tmp_path / "nowhere"), "--bootstrap", "127.0.0.1:1", "--timeout", "1"
    )
    assert status == 1
    directory, broker = found["data directory"], found["broker 127.0.0.1:1"]
    assert directory["verdict"] == broker["verdict"] == "broken"
    assert "No such file" in directory["found"]
    assert "refused" in broker["found"]
    assert directory["advice"]
    assert broker["advice"]


def test_a_slow_disk_comes_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.doctor.SLOW_WRITE_SECONDS", 0.0)
    status, found = examine("--data-dir", str(tmp_path))
    assert status == 0
    assert found["journal write"]["verdict"] == "note"
    assert "ottla.journal.dir" in found["journal write"]["advice"]


def test_people_read_a_table(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--data-dir", str(tmp_path)])
    assert result.exit_code == 0
    assert result.stdout.split()[:4] == ["check", "verdict", "found", "advice"]

"""What holds of every benchmark script: a part that fails is named, and costs its own rows only."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import _harness
from benchmarks.__main__ import results_page
from benchmarks._harness import Row, part, report, until_clear
from benchmarks.compare import __main__ as compare
from benchmarks.compare import loads

ROOT = Path(__file__).parents[2]
REACHED = Row("reading", "2 s", "3 s", 1.5, (1.4, 1.6), 1.0)
MISSED = Row("writing", "3 s", "2 s", 0.5, (0.4, 0.6), 1.0)


def test_a_part_that_fails_is_skipped_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> list[Row]:
        raise RuntimeError("the peer is not there\nand more")

    assert part("reading", lambda: [REACHED]) == [REACHED]
    assert part("writing", fails) == []
    said = capsys.readouterr()
    assert said.out == "skipped: writing: the peer is not there\n"
    assert "RuntimeError: the peer is not there" in said.err


def test_only_the_parts_asked_for_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_harness, "ONLY", ["read"])
    assert part("reading", lambda: [REACHED]) == [REACHED]
    assert part("writing", lambda: [MISSED]) == []


def test_rows_run_until_their_range_is_clear_of_their_claim() -> None:
    spreads = {2: (0.9, 1.2), 3: (0.9, 1.2), 4: (1.1, 1.2)}
    rounds: list[int] = []

    def rows() -> list[Row]:
        return [replace(REACHED, spread=spreads.get(len(rounds), (1.1, 1.2)))]

    until_clear(rounds.append, rows, 2, 9)
    assert rounds == [0, 1, 2, 3]
    rounds.clear()
    spreads[4] = (0.9, 1.2)
    until_clear(rounds.append, rows, 2, 4)
    assert rounds == [0, 1, 2, 3], "not for ever"


def test_the_page_names_what_was_missed_skipped_and_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCHMARKS_DIR", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["benchmarks/client.py"])
    report("client", [REACHED, MISSED], ())
    _harness.skipped("sharing", "no peer")
    runs = {
        "client": {"why": None, "quick": True, "minutes": 1.5},
        "tier": {"why": "no disk", "quick": False, "minutes": 0.1},
    }
    for name, run in runs.items():
        (tmp_path / f"{name}.run.json").write_text(json.dumps(run))
    page = results_page(tmp_path)
    assert "Missed targets: \n\n- writing: 0.50x, at least 1x wanted\n" in page
    assert "| reading | 2 s | 3 s | 1.50x | 1.40-1.60 | at least 1x | ok |" in page
    assert "Skipped: sharing: no peer" in page
    client, tier = page.split("\n## ")[1:]
    assert "A quick run" in client
    assert "A quick run" not in tier
    assert "This script ended with an error: `no disk`" in tier


def test_sections_of_scripts_that_were_not_run_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCHMARKS_DIR", str(tmp_path))
    for name, rows in (("client", [MISSED]), ("broker", [REACHED])):
        monkeypatch.setattr("sys.argv", [f"benchmarks/{name}.py"])
        report(name, rows, ())
        run = {"why": None, "quick": False, "minutes": 1.0}
        (tmp_path / f"{name}.run.json").write_text(json.dumps(run))
    both = results_page(tmp_path)
    for path in tmp_path.glob("client.*"):
        path.unlink()
    assert results_page(tmp_path, both) == both
    assert "- writing: 0.50x" not in results_page(tmp_path)


def test_two_trees_are_compared_by_processor_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compare.COUNTS.keys() == loads.LOADS.keys()
    monkeypatch.setitem(compare.COUNTS, "file_write", 100)
    found = compare._compare("file_write", str(tmp_path / "bench.ss"), ROOT, ROOT, 2)
    assert [len(found.old), len(found.new)] == [2, 2]
    assert min(found.old + found.new) > 0
    same = compare.Compared([2.0, 4.0, 4.0], [1.0, 3.0, 4.0]).line("file_write")
    assert same.split()[-3:] == ["0.50x", "0.75x", "0.50-1.00"]


def test_a_tree_without_what_a_load_needs_is_named(tmp_path: Path) -> None:
    package = tmp_path / "src" / "ottla"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    with pytest.raises(compare.Missing, match=r"does not have it: ImportError.*Consumer"):
        compare._run("consumer_arrow", "127.0.0.1:1", tmp_path)


def test_the_comparison_helps_with_an_example(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["compare", "--help"])
    with pytest.raises(SystemExit):
        compare.main()
    assert "python -m benchmarks.compare /tmp/before . --only=file" in capsys.readouterr().out


def test_every_script_helps_and_measures_nothing() -> None:
    scripts = sorted((ROOT / "benchmarks").glob("[a-z]*.py"))
    for script in scripts:
        assert "from benchmarks._harness import" in script.read_text(), script.name
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.streams", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("The streams room against its peers"), done.stdout
    assert "us CPU" not in done.stdout

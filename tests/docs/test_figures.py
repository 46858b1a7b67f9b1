"""README's figures are those of the results, and each names a script that is there."""

from __future__ import annotations

from scripts.docs_figures import FIGURES, README, RESULTS, ROOT, found, with_figures


def test_figures_are_those_of_the_results() -> None:
    readme = README.read_text()
    fresh = with_figures(readme, RESULTS.read_text())
    assert readme == fresh, "run python scripts/docs_figures.py"


def test_scripts_exist() -> None:
    scripts = {figure.script for figure in FIGURES}
    assert [name for name in scripts if not (ROOT / "benchmarks" / f"{name}.py").is_file()] == []


def test_the_results_name_every_missed_target() -> None:
    results = RESULTS.read_text()
    introduction = results.partition("\n## ")[0].replace("\n", " ")
    rows = [row for rows in found(results).values() for row in rows]
    assert rows
    missed = [row.what for row in rows if row.verdict == "MISSED"]
    assert [what for what in missed if what not in introduction] == []

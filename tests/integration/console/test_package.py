"""The wheel carries what the console reads beside its modules."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONSOLE = ROOT / "src/ottla/console"
FOLDERS = ("templates", "static", "dashboards")


def git(*arguments: str) -> set[str]:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return set(done.stdout.splitlines())


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="asks git which files are ignored")
def test_templates_styles_and_dashboards_are_in_the_wheel() -> None:
    """hatchling takes all files of a package that git does not ignore."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"] == {"packages": ["src/ottla", "src/pyspark_ottla.py"]}
    wanted = {
        str(one.relative_to(ROOT))
        for folder in FOLDERS
        for one in (CONSOLE / folder).rglob("*")
        if one.is_file()
    }
    for name in ("templates/base.html", "static/console.css", "dashboards/ottla.json"):
        assert f"src/ottla/console/{name}" in wanted
    assert not git("check-ignore", *wanted)
    assert wanted <= git("ls-files", "src/ottla/console")

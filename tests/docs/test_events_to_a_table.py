"""The tutorial "from events to a table" works as typed: its blocks, in order, in one directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.nodes_process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESS = "127.0.0.1:9092"
REGISTRY = "http://127.0.0.1:8081"
PAGE = (Path(__file__).parents[2] / "docs" / "tutorial" / "events-to-a-table.md").read_text()
TOLD = re.compile(r"schema registry at (\S+)\n")
STEPS = re.findall(r"^```(console|python|py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


class Reader:
    """Somebody who types what the page says."""

    def __init__(self, bootstrap: str, registry: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._registry = registry
        self._directory = directory

    def run(self, kind: str, text: str) -> str:
        """What the step prints; a file that is to be saved prints nothing."""
        text = text.replace(ADDRESS, self._bootstrap).replace(REGISTRY, self._registry)
        if kind == "py":
            (self._directory / "totals.py").write_text(text)
            return ""
        command = [sys.executable, "-c", text]
        if kind == "console":
            command = ["sh", "-ec", f'ottla() {{ "{sys.executable}" -m ottla.cli "$@"; }}\n{text}']
        done = subprocess.run(
            command,
            cwd=self._directory,
            env={**os.environ, "OTTLA_BOOTSTRAP": self._bootstrap},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """With a broker that was started by the command, on free ports."""
    command = [sys.executable, "-m", "ottla.cli", "broker", "--port", "0", "--data-dir", "data"]
    command += ["--set", "ottla.registry.listener=http://127.0.0.1:0"]
    log = tmp_path / "broker.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("ottla broker ready:").strip()
        wait_for(lambda: TOLD.search(log.read_text()) is not None, "the address of the registry")
        [url] = TOLD.findall(log.read_text())
        yield Reader(address, url, tmp_path)
        process.terminate()


@pytest.mark.jvm
def test_from_events_to_a_table(reader: Reader) -> None:
    create, orders, table, query, view, field, more, totals, run, shown = STEPS
    reader.run(*create)
    assert reader.run(*orders) == "1000 orders with schema 1\n"
    reader.run(*table)
    assert "334" in reader.run(*query)
    reader.run(*orders)
    assert "668" in reader.run(*query)
    assert "120" in reader.run(*view)
    assert reader.run(*field) == "version 2 of orders-value\n"
    found = reader.run(*more)
    assert "Ada" in found
    assert "2000" in found
    reader.run(*totals)
    assert "is well" in reader.run(*run)
    assert "shop-2" in reader.run(*shown)
    wrong = totals[1].replace('"amount"', '"amuont"', 1)
    reader.run("py", wrong)
    with pytest.raises(AssertionError, match="did you mean amount"):
        reader.run("console", "ottla pipeline check totals.py")

"""The tutorial works as typed: its commands and programs, in order, against `ottla broker`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.sync import Admin

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESS = "127.0.0.1:9092"
PAGE = (Path(__file__).parents[2] / "docs" / "tutorial" / "first-steps.md").read_text()
STEPS = re.findall(r"^```(console|python)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of a broker that was started by the command, on a free port."""
    command = [sys.executable, "-m", "ottla.cli", "broker", "--port", "0", "--data-dir", "data"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("ottla broker ready:").strip()
        process.terminate()


class Reader:
    """Somebody who types what the page says."""

    def __init__(self, address: str, directory: Path) -> None:
        self._address = address
        self._directory = directory

    def run(self, kind: str, text: str) -> str:
        """What the step prints."""
        environment = {**os.environ, "OTTLA_BOOTSTRAP": self._address}
        command = [sys.executable, "-c", text.replace(ADDRESS, self._address)]
        if kind == "console":
            command = ["sh", "-ec", f'ottla() {{ "{sys.executable}" -m ottla.cli "$@"; }}\n{text}']
        done = subprocess.run(
            command,
            cwd=self._directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run_until(self, text: str, *, lines: int) -> str:
        """What a program prints that is interrupted after so many lines."""
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-c", text.replace(ADDRESS, self._address)]
        with subprocess.Popen(
            command, cwd=self._directory, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            printed = [process.stdout.readline() for _ in range(lines)]
            process.send_signal(signal.SIGINT)
            printed += process.stdout.readlines()
        assert process.returncode == 0
        return "".join(printed)


@pytest.mark.long
def test_first_steps(broker: str, tmp_path: Path) -> None:
    reader = Reader(broker, tmp_path)
    create, order, consume, bill, more, group, pack, share_group = STEPS
    reader.run(*create)
    assert reader.run(*order).count("is in partition") == 12
    assert reader.run(*consume).count("coffee") == 12
    assert reader.run(*bill) == "30 kilos to bill\n"
    assert reader.run(*bill) == "0 kilos to bill\n"
    reader.run(*more)
    assert reader.run(*bill) == "1 kilos to bill\n"
    assert "billing" in reader.run(*group)
    assert reader.run_until(pack[1], lines=13).endswith("12 packed, 1 rejected\n")
    assert "packers" in reader.run(*share_group)
    with Admin(broker) as admin:
        assert {each.lag for each in admin.list_share_group_offsets("packers")} == {0}

"""The demo as a newcomer runs it, smaller: its checks hold, and whatever ends it, nothing is left.

Processes are found by a variable in their environment, which each child and grandchild inherits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

# Tests that run in the background are deaf to Ctrl-C, and so would be what they start.
LISTENING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from ottla.cli import main; main()"
)
DEMO = (sys.executable, "-c", LISTENING, "demo")
MARK = "OTTLA_TEST_OF_DEMO"
ORDERS = 1500
# What is tested is what comes out, on machines that may be busy; not how soon.
LIMIT_SECONDS = 280
STARTED = "crashed on purpose"  # said once workers work
LOOK = "look at it in a browser: "
KEPT = "the console, until then: "
PATIENCE_SECONDS = LIMIT_SECONDS + 60
GONE_WITHIN_SECONDS = 30.0

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"
)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with started(tmp_path) as process:
        yield process


@contextmanager
def started(tmp_path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*DEMO, "--orders", str(ORDERS), "--limit", str(LIMIT_SECONDS), "--json", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), MARK: str(tmp_path)},
    )
    with process:
        yield process
        process.kill()


def left_over(directory: Path) -> list[str]:
    """The command lines of processes that the demo has started and that are still there."""
    mark = f"{MARK}={directory}".encode()
    found = []
    for process in Path("/proc").iterdir():
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has gone, is nobody's, or is not ours to look at
            continue
    return found


def assert_gone(directory: Path) -> None:
    deadline = time.monotonic() + GONE_WITHIN_SECONDS
    while (found := left_over(directory)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found == []


def wait_until_it_works(demo: subprocess.Popen[str], directory: Path) -> None:
    assert demo.stderr is not None
    assert any(STARTED in line for line in demo.stderr)
    # Parent, supervisor, three nodes, Spark, four workers, and a ledger at most between two lives.
    assert len(left_over(directory)) >= 10


def test_every_check_holds_and_nothing_is_left(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    out, said = demo.communicate(timeout=PATIENCE_SECONDS)
    assert demo.returncode == 0, said
    summary = json.loads(out)
    assert summary["ok"]
    assert summary["orders"] == ORDERS
    assert len(summary["checks"]) == 18
    assert all(one["holds"] for one in summary["checks"])
    assert STARTED in said
    assert list(tmp_path.iterdir()) == []
    assert_gone(tmp_path)


def test_broker_and_console_stay_until_ctrl_c(tmp_path: Path) -> None:
    with started(tmp_path, "--keep", "--console") as demo:
        assert demo.stderr is not None
        said = [next(line for line in demo.stderr if LOOK in line)]
        said += [next(line for line in demo.stderr if KEPT in line)]
        early, late = (line.split()[-1] for line in said)
        assert early == late
        with urlopen(late) as page:
            assert "Overview" in page.read().decode()
        demo.send_signal(signal.SIGINT)
        out, rest = demo.communicate(timeout=PATIENCE_SECONDS)
    assert demo.returncode == 0, rest
    assert json.loads(out)["ok"]
    assert_gone(tmp_path)
    assert list(tmp_path.glob("ottla-demo-*/warehouse.db"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_a_signal_ends_it_clean(
    demo: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    wait_until_it_works(demo, tmp_path)
    demo.send_signal(number)
    out, said = demo.communicate(timeout=PATIENCE_SECONDS)
    assert (demo.returncode, out) == (130, "")
    assert said.splitlines()[-1] == "ottla: stopped; nothing is left running"
    assert list(tmp_path.iterdir()) == []
    assert_gone(tmp_path)


def test_children_go_when_the_parent_is_killed(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    wait_until_it_works(demo, tmp_path)
    demo.kill()
    demo.wait()
    assert_gone(tmp_path)

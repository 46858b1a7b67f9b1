"""The process that Spark's Python processes are copies of, without Spark."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.spark import zygote
from ottla.spark.zygote import Zygote, can_serve, is_wanted, search_path

if TYPE_CHECKING:
    from collections.abc import Iterator
PATIENCE_SECONDS = 60.0
# Tells what a program of its own sees, and does what it is told.
MODULE = """
import json, os, sys, random
import numpy

told = {
    "arguments": sys.argv[1:],
    "name": __name__,
    "variable": os.environ.get("VARIABLE"),
    "directory": os.getcwd(),
    "imported": "pyspark.worker" in sys.modules,
    "numbers": [random.random(), float(numpy.random.random())],
    "path": sys.path,
    "parent": os.getppid(),
    "pid": os.getpid(),
}
print(json.dumps(told), flush=True)
print("to the errors", file=sys.stderr)
if sys.stdin.readline() == "fail\\n":
    sys.exit(7)
"""
PROGRAM = """
from ottla.spark.zygote import Zygote
one = Zygote()
print(one.python)
print(one.pid, flush=True)
input()
"""


@pytest.fixture(scope="module")
def one() -> Iterator[Zygote]:
    if not is_wanted({}):
        pytest.skip("zygotes need Linux")
    one = Zygote()
    yield one
    one.end()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "told.py").write_text(MODULE)
    return tmp_path


def started(one: Zygote, place: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0", **more}
    return subprocess.Popen(
        [one.python, "-m", "told", *arguments],
        cwd=place,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(one: Zygote, place: Path, say: str = "", **more: str) -> tuple[dict[str, object], int]:
    with started(one, place, "a", "b", **more) as process:
        output, errors = process.communicate(say, PATIENCE_SECONDS)
    assert errors.endswith("to the errors\n")
    return json.loads(output), process.returncode


def test_a_copy_runs_a_module_as_python_would(one: Zygote, place: Path) -> None:
    told, status = ended(one, place, VARIABLE="x", PYTHONPATH=f"{place}/more")
    assert status == 0
    assert told["arguments"] == ["a", "b"]
    assert told["name"] == "__main__"
    assert told["variable"] == "x"
    assert told["directory"] == str(place)
    assert told["imported"] is True
    assert isinstance(told["path"], list)
    assert told["path"][:2] == [str(place), f"{place}/more"]


def test_what_a_copy_returns_is_returned(one: Zygote, place: Path) -> None:
    assert ended(one, place, "fail\n")[1] == 7


def test_copies_draw_different_numbers(one: Zygote, place: Path) -> None:
    numbers = [ended(one, place)[0]["numbers"] for _ in range(2)]
    assert isinstance(numbers[0], list)
    assert isinstance(numbers[1], list)
    assert not set(numbers[0]) & set(numbers[1])


def test_other_variables_of_libraries_need_a_process_of_their_own(one: Zygote, place: Path) -> None:
    told, status = ended(one, place, "fail\n", OMP_NUM_THREADS="3")
    assert status == 7
    assert told["imported"] is False


def test_a_copy_gets_sigterm_when_its_request_is_killed(one: Zygote, place: Path) -> None:
    with started(one, place) as process:
        assert process.stdout is not None
        pid = json.loads(process.stdout.readline())["pid"]
        copy = os.pidfd_open(pid)
        process.kill()
        ready, _, _ = select.select([copy], [], [], PATIENCE_SECONDS)
        os.close(copy)
        assert ready


def test_a_signal_for_all_processes_does_not_end_the_zygote(one: Zygote, place: Path) -> None:
    with started(one, place) as process:
        assert process.stdout is not None
        pid = json.loads(process.stdout.readline())["pid"]
        os.kill(one.pid, signal.SIGTERM)
        os.kill(pid, signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 256 - signal.SIGTERM
    assert ended(one, place)[0]["imported"] is True


def test_a_request_ends_when_its_copy_is_killed(one: Zygote, place: Path) -> None:
    with started(one, place) as process:
        assert process.stdout is not None
        os.kill(json.loads(process.stdout.readline())["pid"], signal.SIGKILL)
        assert process.wait(PATIENCE_SECONDS) == 256 - signal.SIGKILL


def test_several_copies_at_a_time(one: Zygote, place: Path) -> None:
    with ExitStack() as stack:
        several = [stack.enter_context(started(one, place)) for _ in range(5)]
        pids = set()
        for process in several:
            assert process.stdout is not None
            pids.add(json.loads(process.stdout.readline())["pid"])
        assert len(pids) == 5
        for process in reversed(several):
            process.communicate("fail\n", PATIENCE_SECONDS)
            assert process.returncode == 7


def test_without_a_zygote_spark_gets_the_python_it_asked_for(place: Path) -> None:
    if not is_wanted({}):
        pytest.skip("zygotes need Linux")
    one = Zygote()
    os.kill(one.pid, signal.SIGKILL)
    told, status = ended(one, place, "fail\n")
    assert (told["imported"], status) == (False, 7)
    done = subprocess.run([one.python, "-c", "print(1)"], capture_output=True, check=True)
    assert done.stdout == b"1\n"
    one.end()
    assert not one.python.parent.exists()


def test_it_ends_with_the_process_that_started_it_and_leaves_nothing() -> None:
    if not is_wanted({}):
        pytest.skip("zygotes need Linux")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        script, pid = Path(process.stdout.readline().strip()), int(process.stdout.readline())
        zygote_process = os.pidfd_open(pid)
        process.kill()
        ready, _, _ = select.select([zygote_process], [], [], PATIENCE_SECONDS)
        os.close(zygote_process)
    assert ready
    assert not script.parent.exists()


def test_the_setting_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote, "_OF_PROCESS", {})  # another test may have started one
    assert not is_wanted({zygote.SETTING: "False"})
    zygote.start_zygote({zygote.SETTING: "false"})
    assert zygote.worker_python() == sys.executable
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not is_wanted({})


def test_variables_that_count_at_the_start() -> None:
    here = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "HOME": "/a"}
    assert can_serve({"PYTHONHASHSEED": "0", "HOME": "/b"}, here)
    assert can_serve({**here, "OTHER": "1"}, here)
    assert not can_serve({**here, "OMP_NUM_THREADS": "2"}, here)
    assert not can_serve({**here, "PYTHONOPTIMIZE": "1"}, here)


def test_the_path_is_that_of_python_m() -> None:
    asked = {"PYTHONPATH": "/a:rel::/lib"}
    assert search_path(asked, "/desk", ["/lib", "/site"]) == [
        *("/desk", "/a", "/desk/rel", "/lib", "/site"),
    ]

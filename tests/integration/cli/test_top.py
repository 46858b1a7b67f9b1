"""`ottla top` against an embedded broker; without a terminal, and in one that is not ours."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ottla import EmbeddedBroker, sync
from ottla.cli.whole import app

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def broker() -> Any:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders", partitions=2)
        with sync.Producer(broker.bootstrap) as producer:
            for number in range(10):
                producer.send("orders", b"v", partition=number % 2)
        with sync.Admin(broker.bootstrap) as admin:
            admin.alter_group_offsets("billing", {("orders", 0): 2, ("orders", 1): 5})
            admin.alter_share_group_offsets("warehouse", {("orders", 0): 1})
        yield broker


def run(broker: EmbeddedBroker, *args: str) -> str:
    result = CliRunner().invoke(
        app, ["top", *args, "--once", "--interval", "0.1", "--bootstrap", broker.bootstrap]
    )
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def test_case_70_once_as_json_has_the_right_values(broker: EmbeddedBroker) -> None:
    found = json.loads(run(broker, "--json"))
    assert (found["topics"], found["partitions"], found["groups"], found["queues"]) == (1, 2, 1, 1)
    assert found["findings"] == []
    assert found["in_per_s"] == 0
    assert found["frame"]["cluster_id"]
    [topic] = found["busiest_topics"]
    assert (topic["name"], topic["records"], topic["groups"], topic["queues"]) == (
        "orders",
        10,
        1,
        1,
    )
    assert topic["size_bytes"] > 0
    [group] = found["latest_groups"]
    assert (group["name"], group["lag_records"], group["members"]) == ("billing", 3, 0)
    [queue] = found["latest_queues"]
    assert (queue["name"], queue["lag_records"]) == ("warehouse", 4)
    [node] = found["nodes"]
    assert (node["state"], node["is_controller"]) == ("active", True)
    assert node["free_bytes"] > 0


@pytest.mark.parametrize(
    ("view", "seen"),
    [
        ("topics", "orders"),
        ("groups", "billing"),
        ("queues", "warehouse"),
        ("transactions", "open 0"),
        ("overview", "topics 1 (2 partitions)"),
    ],
)
def test_case_70_once_without_a_terminal(broker: EmbeddedBroker, view: str, seen: str) -> None:
    said = run(broker, view)
    assert seen in said
    assert "\x1b" not in said


def test_a_wrong_view_and_no_broker_are_a_sentence(broker: EmbeddedBroker) -> None:
    wrong = CliRunner().invoke(app, ["top", "nonsense"])
    assert wrong.exit_code == 2
    assert "overview, topics" in wrong.stderr
    nobody = CliRunner().invoke(app, ["top", "--once", "--bootstrap", "127.0.0.1:1"])
    assert nobody.exit_code == 1
    assert "is a broker running there?" in nobody.stderr
    assert "Traceback" not in nobody.output


@pytest.mark.parametrize("leave", ["q", "ctrl-c"])
def test_case_70_the_terminal_is_restored(broker: EmbeddedBroker, leave: str) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", "top", "--interval", "0.2",
         "--bootstrap", broker.bootstrap],
        stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
    )  # fmt: skip
    try:
        seen = _read_until(ours, b"orders")
        assert b"\x1b[?1049h" in seen, "the alternate screen"
        if leave == "q":
            os.write(ours, b"3")
            _read_until(ours, b"[3 groups]")
            os.write(ours, b"q")
        else:
            process.send_signal(signal.SIGINT)
        left = _read_until(ours, b"\x1b[?1049l")
        assert b"Traceback" not in left
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
        os.close(theirs)


def _read_until(terminal: int, wanted: bytes) -> bytes:
    seen = b""
    deadline = time.monotonic() + 60
    while wanted not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, seen[-2000:]
        seen += os.read(terminal, 65_536)
    return seen


@pytest.mark.parametrize(
    ("topics", "partitions"), [(10, 1_000), pytest.param(1_000, 10, marks=pytest.mark.long)]
)
def test_case_11_looking_at_ten_thousand_partitions_makes_nothing(
    tmp_path: Path, topics: int, partitions: int
) -> None:
    """Never used: nothing is opened or made for them."""
    with EmbeddedBroker(tmp_path / "data") as broker:
        for number in range(topics):
            broker.create_topic(f"t{number:04}", partitions=partitions)
        before = sorted(path.name for path in (tmp_path / "data").iterdir())
        found = json.loads(run(broker, "topics", "--json"))
        assert found["topics"]["total"] == topics
        records = {row["records"] for row in found["topics"]["rows"]}
        assert 0 in records
        assert records <= {0, None}, "not all of them are asked for in one tick"
        assert sorted(path.name for path in (tmp_path / "data").iterdir()) == before

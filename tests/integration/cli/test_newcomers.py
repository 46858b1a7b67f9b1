"""The command line as a newcomer tries it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ottla.cli import COMMANDS
from ottla.cli.whole import app
from ottla.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[3]
run = CliRunner()


def started(args: list[str], **env: str) -> tuple[str, str]:
    """The first line of a broker, and what it says when it is told to end."""
    program = [sys.executable, "-m", "ottla.cli", "broker", "--ephemeral", *args]
    with subprocess.Popen(
        program,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        _, err = process.communicate(timeout=30)
    return line, err


def test_a_broker_takes_a_port() -> None:
    line, err = started(["--port", "0"])
    assert line.startswith("ottla broker ready: 127.0.0.1:"), err
    line, err = started(["--port", "0", "--listen", "127.0.0.1:0"])
    assert (line, err) == (
        "",
        "ottla broker: --port and --listen say the same; leave one of them out\n",
    )


def test_a_broker_takes_its_configuration_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:0\nnum.partitions=nonsense\n")
    line, err = started([], OTTLA_CONFIG=str(file))
    assert line == ""
    assert "num.partitions" in err
    file.write_text("listeners=PLAINTEXT://127.0.0.1:0\n")
    # Variables of other commands are none of its settings.
    reserved = {"OTTLA_BOOTSTRAP": "h:1", "OTTLA_COMMAND_CONFIG": "x", "OTTLA_SECRET_A": "x"}
    line, err = started([], OTTLA_CONFIG=str(file), **reserved)
    assert line.startswith("ottla broker ready: 127.0.0.1:"), err


@pytest.mark.parametrize(
    "args",
    [
        ("topic", "list"),
        ("group", "list"),
        ("share-group", "list"),
        ("transaction", "list"),
        ("consume", "there", "--until-end"),
    ],
)
def test_the_brokers_come_from_the_environment(
    args: tuple[str, ...], ottla_broker: EmbeddedBroker
) -> None:
    env: Mapping[str, str] = {"OTTLA_BOOTSTRAP": ottla_broker.bootstrap}
    run.invoke(app, ["topic", "create", "there"], env=env)
    done = run.invoke(app, list(args), env=env)
    assert done.exit_code == 0, done.output


def test_consume_prints_nothing_before_it_has_something(ottla_broker: EmbeddedBroker) -> None:
    at = ["--bootstrap", ottla_broker.bootstrap]
    failed = run.invoke(app, ["consume", "x", "--bootstrap", "127.0.0.1:1", "--timeout", "0.5"])
    assert (failed.exit_code, failed.stdout) == (1, "")
    run.invoke(app, ["topic", "create", "quiet", *at])
    assert run.invoke(app, ["consume", "quiet", "--until-end", *at]).stdout == ""
    run.invoke(app, ["produce", "quiet", *at], input="a\nb\n")
    shown = run.invoke(app, ["consume", "quiet", "--until-end", *at]).stdout.splitlines()
    assert len(shown) == 3
    assert shown[0].split() == ["partition", "offset", "timestamp", "value"]


def test_a_shell_completes_commands_and_their_options() -> None:
    def completed(words: str) -> set[str]:
        env = {"_OTTLA_COMPLETE": "complete_bash", "COMP_WORDS": words}
        env["COMP_CWORD"] = str(len(words.split(" ")) - 1)
        program = [sys.executable, "-m", "ottla.cli"]
        done = subprocess.run(
            program, env={**os.environ, **env}, capture_output=True, text=True, check=False
        )
        return set(done.stdout.split())

    assert completed("ottla ") >= set(COMMANDS)
    assert completed("ottla top") == {"top", "topic"}
    assert "--ephemeral" in completed("ottla broker --eph")


def test_an_embedded_broker_starts_once() -> None:
    def threads() -> int:
        return sum(one.name == "ottla-broker" for one in threading.enumerate())

    before = threads()
    broker = EmbeddedBroker()
    for _ in range(2):  # also again after its end
        with broker.start():
            at = broker.bootstrap
            assert broker.start() is broker
            assert broker.bootstrap == at
            assert threads() == before + 1
        assert threads() == before


def test_the_benchmarks_help_and_run_nothing() -> None:
    before = (ROOT / "benchmarks" / "RESULTS.md").stat().st_mtime_ns
    for args, status, said in (
        (["--help"], 0, "usage: python -m benchmarks"),
        (["nonsense"], 2, "unknown benchmark nonsense"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks", *args],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, said in done.stdout + done.stderr) == (status, True)
    assert (ROOT / "benchmarks" / "RESULTS.md").stat().st_mtime_ns == before

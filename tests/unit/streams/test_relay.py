"""`ottla relay`, `ottla clock`, `ottla file ...`, and what they are made of."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ottla.cli.whole import app
from ottla.offsets import MemoryOffsetStore
from ottla.streams import ConnectOptions, ConsumerOptions, FileOptions, Reset, connect
from ottla.streams.errors import ConfigError, Unsupported
from ottla.streams.relay import Tally, relay_streams, tick

if TYPE_CHECKING:
    from pathlib import Path

    from ottla import EmbeddedBroker
    from tests.services import RedisServer

run = CliRunner()


async def payloads(url: str) -> list[str]:
    options = ConnectOptions(file=FileOptions(follow=False))
    earliest = ConsumerOptions(reset=Reset.EARLIEST)
    async with connect(url, options) as streamer, streamer.consumer(options=earliest) as consumer:
        return [message.text() async for message in consumer]


async def test_t61_stdio_file_redis_kafka_file_keeps_payloads_and_order(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    redis_server: RedisServer,
    ottla_broker: EmbeddedBroker,
    ottla_topic: str,
) -> None:
    lines = [f"line {i}" for i in range(2500)]
    pipe = io.TextIOWrapper(io.BytesIO("\n".join(f"[a] {line}" for line in lines).encode()))
    monkeypatch.setattr(sys, "stdin", pipe)
    monkeypatch.setattr("ottla.streams.backends.stdio._process_hub", None)
    legs = [
        "stdio:///a",
        f"file://{tmp_path}/1.ss/a",
        f"{redis_server.url}/relayed-{tmp_path.name}",
        f"kafka://{ottla_broker.bootstrap}/{ottla_topic}",
        f"file://{tmp_path}/2.ss/b",
    ]
    for source, target in pairwise(legs):
        tally = Tally()
        await relay_streams(source, target, until_end=source != legs[0], tally=tally)
        assert tally.total == 2500
    assert await payloads(legs[-1]) == lines


async def test_a_relay_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first, second = f"file://{tmp_path}/1.ss/a", f"file://{tmp_path}/2.ss/b"
    store = MemoryOffsetStore()
    for _ in range(3):
        await tick(first, 0, 4)
        await relay_streams(first, second, until_end=True, offsets=store)
    assert await payloads(second) == ["tick-0", "tick-1", "tick-2", "tick-3"] * 3
    with pytest.raises(ConfigError, match="same stream"):
        await relay_streams(first, first)


async def test_keys_and_headers_are_refused_where_they_would_be_dropped(tmp_path: Path) -> None:
    await tick(f"file://{tmp_path}/1.ss/a", 0, 1)
    async with connect(f"file://{tmp_path}/1.ss/a") as streamer, streamer.producer() as producer:
        with pytest.raises(Unsupported, match="message keys"):
            await producer.send(b"x", key=b"k")
        with pytest.raises(Unsupported, match="message headers"):
            await producer.send(b"x", headers=(("h", b"v"),))


def test_ctrl_c_ends_a_relay_gracefully(tmp_path: Path) -> None:
    path = tmp_path / "1.ss"
    assert run.invoke(app, ["clock", "--output", f"file://{path}/a", "--count", "3"]).exit_code == 0
    words = ["relay", "--input", f"file://{path}/a", "--output", "stdio:///b", "--json"]
    program = "from ottla.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        for number in range(3):
            assert f"tick-{number}".encode() in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out)["messages"] == 3


def test_file_commands(tmp_path: Path) -> None:
    path = tmp_path / "1.ss"
    url = f"file://{path}/a"
    assert (
        run.invoke(app, ["clock", "--output", url, "--count", "3", "--interval", "1ms"]).exit_code
        == 0
    )
    shown = run.invoke(app, ["file", "inspect", str(path)])
    assert shown.exit_code == 0
    assert "not ended; whole" in shown.output
    found = json.loads(run.invoke(app, ["file", "inspect", str(path), "--json"]).output)
    assert (found["messages"], found["shards"][0]["last"]) == (3, 3)
    assert run.invoke(app, ["file", "verify", str(path)]).exit_code == 0
    os.truncate(path, path.stat().st_size - 1)
    torn = run.invoke(app, ["file", "verify", str(path)])
    assert torn.exit_code == 1
    assert "ottla file repair" in torn.output
    fixed = run.invoke(app, ["file", "repair", str(path), "--json"])
    assert json.loads(fixed.output)["cut_bytes"] == 38
    assert "3 messages" not in run.invoke(app, ["file", "verify", str(path)]).output
    assert "nothing to repair" in run.invoke(app, ["file", "repair", str(path)]).output


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["relay", "--input", "stdio:///a", "--output", "amqp://h/a"], 1, "unknown scheme"),
        (["relay", "--input", "file://./none.ss/a", "--output", "stdio:///a"], 1, "not there"),
        (["relay", "--input", "a", "--output", "b", "--from", "middle"], 2, "start or end"),
        (["clock", "--interval", "soon"], 2, "ms, s or m"),
        (["file", "verify", "none.ss"], 1, "cannot open"),
    ],
)
def test_failures_are_sentences(words: list[str], status: int, sentence: str) -> None:
    result = run.invoke(app, words)
    assert result.exit_code == status
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_a_store_that_cannot_be_opened_is_told_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "in.ss"
    assert run.invoke(app, ["clock", "--output", f"file://{path}/a", "--count", "1"]).exit_code == 0
    args = ["relay", "--input", f"file://{path}/a", "--output", f"file://{tmp_path}/out.ss/a"]
    done = run.invoke(app, [*args, "--until-end", "--offsets", "sqlite:////nonexistent/x.db"])
    assert done.exit_code == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(
        "ottla: SQLite database /nonexistent/x.db: unable to open database file;"
    )

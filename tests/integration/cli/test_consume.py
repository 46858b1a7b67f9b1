"""`ottla consume` from the outside, against an embedded broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from ottla.cli.whole import app

if TYPE_CHECKING:
    from typer.testing import Result

    from ottla.testing.embedded import EmbeddedBroker

NOW = 1_700_000_000_000


@pytest.fixture
def filled(ottla_broker: EmbeddedBroker, ottla_topic: str) -> str:
    """A topic with ten records, the last of them not text."""
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap, "log_level": 0})
    for number in range(10):
        producer.produce(
            ottla_topic,
            b"\xff\n" if number == 9 else b"value %d" % number,
            None if number == 9 else b"key",
            timestamp=NOW + number * 1000,
            headers=[("h", b"1")],
        )
    assert producer.flush(20) == 0
    return ottla_topic


def consume(broker: EmbeddedBroker, *args: str) -> Result:
    return CliRunner().invoke(app, ["consume", *args, "--bootstrap", broker.bootstrap])


def ok(broker: EmbeddedBroker, *args: str) -> bytes:
    result = consume(broker, *args, "--until-end")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout_bytes


def test_lines_for_people(ottla_broker: EmbeddedBroker, filled: str) -> None:
    lines = ok(ottla_broker, filled).decode().splitlines()
    assert lines[0].split() == ["partition", "offset", "timestamp", "value"]
    assert lines[1].split() == ["0", "0", "2023-11-14T22:13:20.000Z", "value", "0"]
    assert lines[10].endswith(r"Z  \xff\n")
    assert len(lines) == 11
    [title, line] = (
        ok(ottla_broker, filled, "--from", "8", "--key", "--headers").decode().splitlines()[:2]
    )
    assert title.split()[3:] == ["key", "headers", "value"]
    assert line.split()[3:] == ["key", "h=1", "value", "8"]


def test_json_lines(ottla_broker: EmbeddedBroker, filled: str) -> None:
    rows = [json.loads(line) for line in ok(ottla_broker, filled, "--json").splitlines()]
    assert rows[3] == {
        "topic": filled,
        "partition": 0,
        "offset": 3,
        "timestamp_ms": NOW + 3000,
        "key": "key",
        "value": "value 3",
        "headers": [{"key": "h", "value": "1"}],
    }
    assert rows[9]["value_base64"] == "/wo="
    assert rows[9]["key"] is None


def test_raw_values(ottla_broker: EmbeddedBroker, filled: str) -> None:
    assert ok(ottla_broker, filled, "--raw", "--from", "8") == b"value 8\n\xff\n\n"
    assert ok(ottla_broker, filled, "--raw", "--key", "--from", "8") == b"key\tvalue 8\n\t\xff\n\n"


def test_places_and_limits(ottla_broker: EmbeddedBroker, filled: str) -> None:
    url = f"kafka://{ottla_broker.bootstrap}/{filled}"
    for args, count in (
        (("--from", "2023-11-14T22:13:25+00:00"), 5),
        (("--from", "latest"), 0),
        (("--max-records", "4", "--partition", "0"), 4),
        (("--max-records", "40"), 10),
    ):
        result = CliRunner().invoke(app, ["consume", url, "--raw", "--until-end", *args])
        assert result.exit_code == 0
        assert result.stdout_bytes.count(b"value") + result.stdout_bytes.count(b"\xff") == count


def test_a_start_beyond_the_end_is_said(ottla_broker: EmbeddedBroker, filled: str) -> None:
    assert ok(ottla_broker, filled, "--from", "10", "--raw") == b""
    result = consume(ottla_broker, filled, "--from", "99999", "--until-end")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"read {filled}-0 at offset 99999: OFFSET_OUT_OF_RANGE" in result.stderr


def test_without_an_end_it_waits_until_interrupted(
    ottla_broker: EmbeddedBroker, filled: str
) -> None:
    # Tests that run in the background are deaf to Ctrl-C, and so would be what they start.
    listening = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from ottla.cli import main; main()"
    )
    command = [sys.executable, "-c", listening, "consume", filled, "--raw"]
    with subprocess.Popen(
        [*command, "--bootstrap", ottla_broker.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"value 0\n"
            process.send_signal(signal.SIGINT)
            _, complaint = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, complaint) == (0, b"")


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (("nowhere", "--until-end"), 1, "find topic 'nowhere': UNKNOWN_TOPIC_OR_PARTITION"),
        (("t", "--from", "yesterday"), 2, "is not earliest, latest"),
        (("t", "--json", "--raw"), 2, "choose one of --json and --raw"),
        (("t", "--raw", "--headers"), 2, "--headers cannot be used"),
        (("kafka://x",), 2, "kafka://HOST:PORT/TOPIC"),
        (("kafka://127.0.0.1:1/t",), 1, "is a broker running there?"),
    ],
)
def test_what_goes_wrong_is_said(
    ottla_broker: EmbeddedBroker, args: tuple[str, ...], status: int, said: str
) -> None:
    result = consume(ottla_broker, *args)
    assert result.exit_code == status
    assert said in " ".join(result.stderr.replace("│", " ").split())

"""`ottla produce` and `ottla share-consume` from the outside, against an embedded broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ottla import ProducerRecord
from ottla.cli.produce import Count, parse_json
from ottla.cli.whole import app
from ottla.sync import Admin, Producer

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from ottla.testing.embedded import EmbeddedBroker


# Tests that run in the background are deaf to Ctrl-C, and so would be what they start.
LISTENING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from ottla.cli import main; main()"
)


def run(broker: EmbeddedBroker, *args: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app, [*args, "--bootstrap", broker.bootstrap], input=stdin)


def ok(broker: EmbeddedBroker, *args: str, stdin: bytes = b"") -> bytes:
    result = run(broker, *args, stdin=stdin)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout_bytes


def written(broker: EmbeddedBroker, topic: str) -> list[dict[str, object]]:
    lines = ok(broker, "consume", topic, "--until-end", "--json").splitlines()
    return [json.loads(line) for line in lines]


def test_lines_are_values(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    said = ok(ottla_broker, "produce", ottla_topic, stdin=b"one\n\n\xff\nlast")
    assert said == f"4 record(s) written to {ottla_topic}\n".encode()
    found = ok(ottla_broker, "consume", ottla_topic, "--until-end", "--raw")
    assert found == b"one\n\n\xff\nlast\n"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_keys_from_a_file(
    codec: str, ottla_broker: EmbeddedBroker, ottla_topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"k::a::b\n" * 3000)
    args = ("--file", str(file), "--key-separator", "::", "--codec", codec, "--acks", "1")
    said = ok(ottla_broker, "produce", ottla_topic, *args, "--json")
    assert json.loads(said) == {"topic": ottla_topic, "records": 3000}
    found = ok(ottla_broker, "consume", ottla_topic, "--until-end", "--raw", "--key")
    assert found == b"k\ta::b\n" * 3000


def test_what_consume_prints_can_be_produced(
    ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    headers = (("h", b"\xfe"), ("h", None))
    with Producer(ottla_broker.bootstrap) as producer:
        producer.send(ottla_topic, b"\xff", key=b"k", headers=headers, timestamp_ms=5)
        producer.send(ottla_topic, None, timestamp_ms=6)
    lines = ok(ottla_broker, "consume", ottla_topic, "--until-end", "--json")
    url = f"kafka://{ottla_broker.bootstrap}/{ottla_topic}"
    ok(ottla_broker, "produce", url, "--format", "json", stdin=lines)
    first, second, *copies = written(ottla_broker, ottla_topic)
    assert copies == [first | {"offset": 2}, second | {"offset": 3}]


def test_json_values_need_not_be_text() -> None:
    record = parse_json(b'{"value": {"a": [1]}, "headers": {"n": 1, "x": null}, "partition": 2}')
    assert record == ProducerRecord(b'{"a":[1]}', None, (("n", b"1"), ("x", None)), None, 2)
    assert parse_json(b"  ") is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "not JSON: Expecting property name enclosed in double quotes at character 2"),
        (b"[" * 100_000, "nested too deeply"),
        (b"7", "expected an object"),
        (b'{"valeu": 1}', "got 'valeu'"),
        (b'{"value_base64": "?"}', "value_base64 is not valid base64"),
        (b'{"headers": ["h"]}', "headers: expected"),
        (b'{"partition": true}', "partition: expected a number"),
        (b'{"timestamp_ms": -1}', "timestamp_ms: expected a number of 0 or more, got -1"),
        (b'{"value": "\\ud800"}', "surrogates not allowed"),
    ],
)
def test_lines_that_are_no_records(line: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_json(line)


def test_what_comes_before_a_bad_line_is_written(
    ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    args = ("produce", ottla_topic, "--key-separator", ":")
    result = run(ottla_broker, *args, stdin=b"k:1\nk:2\nnothing\nk:4\n")
    assert result.exit_code == 1
    assert result.stderr == "ottla: line 3: expected KEY:VALUE, but the line has no ':'\n"
    assert result.stdout == f"2 record(s) written to {ottla_topic}\n"
    assert [one["value"] for one in written(ottla_broker, ottla_topic)] == ["1", "2"]


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (["produce", "t", "--key-separator", ""], 2, "--key-separator is empty"),
        (
            ["produce", "t", "--key-separator", ":", "--format", "json"],
            2,
            "each object has its own key",
        ),
        (["produce", "t", "--codec", "rar"], 2, "'rar' is not one of"),
        (["produce", "t", "--file", "/nowhere"], 2, "No such file"),
        (["produce", "a b", "--timeout", "1"], 1, "INVALID_TOPIC_EXCEPTION"),
        (["share-consume", "t", "--group", ""], 2, "--group is empty"),
        (["share-consume", "t", "--group", "g", "--ack", "release"], 2, "delivered again at once"),
        (["share-consume", "t", "--group", "g", "--raw", "--json"], 2, "choose one of"),
        (["share-consume", "t"], 2, "--group"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(
    args: list[str], status: int, said: str, ottla_broker: EmbeddedBroker
) -> None:
    result = run(ottla_broker, *args, stdin=b"x\n")
    assert result.exit_code == status
    assert said in result.stderr


@pytest.mark.parametrize("command", [["produce", "t"], ["share-consume", "t", "--group", "g"]])
def test_without_a_broker(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--bootstrap", "127.0.0.1:1"], input=b"x\n")
    assert result.exit_code == 1
    assert "is a broker running there?" in result.stderr


def test_records_are_sent_as_they_come_until_interrupted(
    ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    command = [sys.executable, "-c", LISTENING, "produce", ottla_topic]
    with subprocess.Popen(
        [*command, "--bootstrap", ottla_broker.bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(b"first\nunfinished")
            process.stdin.flush()
            found = ok(ottla_broker, "consume", ottla_topic, "--max-records", "1", "--raw")
            process.send_signal(signal.SIGINT)
            said, complaint = process.communicate(timeout=20)
        finally:
            process.kill()
    assert found == b"first\n"
    # The consumer may have it before the producer hears so.
    assert said.decode().removesuffix(f" record(s) written to {ottla_topic}\n") in (
        "1",
        "at least 0",
    )
    assert (complaint, process.returncode) == (b"", 130)


@pytest.fixture
def filled(ottla_broker: EmbeddedBroker, ottla_topic: str) -> str:
    with Producer(ottla_broker.bootstrap) as producer:
        producer.send_many(ottla_topic, [ProducerRecord(b"%d" % n, b"k") for n in range(5)])
    return ottla_topic


# A group that has just changed is not assigned anew for a second.
PATIENCE = "3"


def share(broker: EmbeddedBroker, topic: str, *args: str) -> bytes:
    group = ("--group", f"of-{topic}", "--from", "earliest")
    return ok(broker, "share-consume", topic, *group, "--timeout", PATIENCE, *args)


def lag(broker: EmbeddedBroker, topic: str) -> int | None:
    with Admin(broker.bootstrap) as admin:
        [offset] = admin.list_share_group_offsets(f"of-{topic}")
    return offset.lag


def test_records_are_taken_once(ottla_broker: EmbeddedBroker, filled: str) -> None:
    assert share(ottla_broker, filled, "--raw", "--max-records", "2") == b"0\n1\n"
    title, *lines = share(ottla_broker, filled, "--key").decode().splitlines()
    assert title.split() == ["partition", "offset", "timestamp", "delivery_count", "key", "value"]
    assert [line.split()[3:] for line in lines] == [["1", "k", str(n)] for n in (2, 3, 4)]
    assert lag(ottla_broker, filled) == 0


def test_released_records_come_again_and_rejected_ones_do_not(
    ottla_broker: EmbeddedBroker, filled: str
) -> None:
    for delivery in (1, 2):
        line = share(ottla_broker, filled, "--json", "--max-records", "1", "--ack", "release")
        found = json.loads(line)
        assert (found["value"], found["delivery_count"]) == ("0", delivery)
    assert share(ottla_broker, filled, "--raw", "--max-records", "1", "--ack", "reject") == b"0\n"
    assert lag(ottla_broker, filled) == 4


def test_what_was_printed_is_acknowledged_also_when_interrupted(
    ottla_broker: EmbeddedBroker, filled: str
) -> None:
    group = ("--group", f"of-{filled}", "--from", "earliest")
    command = [sys.executable, "-c", LISTENING, "share-consume", filled, *group]
    with subprocess.Popen(
        [*command, "--follow", "--raw", "--bootstrap", ottla_broker.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(5)] == [b"%d\n" % n for n in range(5)]
            process.send_signal(signal.SIGINT)
            _, complaint = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (complaint, process.returncode) == (b"", 0)
    assert lag(ottla_broker, filled) == 0


def test_progress_is_for_those_who_look(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for looks in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda looks=looks: looks)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
        monkeypatch.setattr("ottla.cli.produce.PROGRESS_SECONDS", 0)
        count = Count()
        with count.adding(1500):
            pass
        count.clear()
        shown = "\r1,500 records\r\x1b[K" if looks else ""
        assert (count.records, capsys.readouterr().err) == (1500, shown)

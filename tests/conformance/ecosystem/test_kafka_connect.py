"""Kafka Connect in distributed mode works over Ottla and survives SIGKILL of its worker.

The worker keeps its configuration, offsets and states in topics of the broker. Connectors are
created over REST: one reads lines of a file into a topic in transactions, one writes the topic to
another file. The worker is killed in the middle and started again, with nothing but the broker to
tell it what it was doing.

- Each line is in the topic once and in order (`exactly.once.source.support`).
- Each line is in the other file, in order; those after the last commit may be there again.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Final

from tests.support.ecosystem import JavaProcess
from tests.support.ports import free_port
from tests.support.topics import create_topic

if TYPE_CHECKING:
    from pathlib import Path

FIRST: Final = [f"line {n}" for n in range(200)]
SECOND: Final = [f"line {n}" for n in range(200, 1_000)]
# For one request; a worker that starts or rebalances answers late or refuses, and is asked again.
REST_SECONDS: Final = 30.0


def worker(bootstrap: str, directory: Path, port: int, classpath: str) -> JavaProcess:
    converter = "org.apache.kafka.connect.storage.StringConverter"
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "connect",
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
        "key.converter": converter,
        "value.converter": converter,
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "200",
        # The broker's least: so long a dead worker keeps its tasks, its sink the partitions.
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "consumer.session.timeout.ms": "6000",
        "consumer.heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "0",
    }
    for kind in ("config", "offset", "status"):
        settings[f"{kind}.storage.topic"] = f"connect-{kind}"
        settings[f"{kind}.storage.replication.factor"] = "1"
    file = directory / "worker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return JavaProcess(
        directory / "worker.log",
        "org.apache.kafka.connect.cli.ConnectDistributed",
        str(file),
        classpath=classpath,
    )


def create_connector(port: int, name: str, config: dict[str, str]) -> bool:
    """Whether the worker took it; the same again changes nothing."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/connectors/{name}/config",
        json.dumps(config).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=REST_SECONDS) as answer:
            return answer.status in (200, 201)
    except urllib.error.HTTPError as refused:
        if refused.code in (404, 409, 500, 503):
            return False
        raise
    except OSError:
        return False


def append(file: Path, lines: list[str]) -> None:
    with file.open("a") as stream:
        stream.writelines(f"{line}\n" for line in lines)


def without_repetitions(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def test_lines_survive_a_kill(bootstrap: str, tmp_path: Path, jvm: str) -> None:
    source, sink, port = tmp_path / "in.txt", tmp_path / "out.txt", free_port()
    create_topic(bootstrap, "lines")
    append(source, FIRST)
    package = "org.apache.kafka.connect.file"
    reading = {
        "connector.class": f"{package}.FileStreamSourceConnector",
        "file": str(source),
        "topic": "lines",
    }
    writing = {
        "connector.class": f"{package}.FileStreamSinkConnector",
        "file": str(sink),
        "topics": "lines",
    }

    def written() -> list[str]:
        return sink.read_text().splitlines() if sink.exists() else []

    with worker(bootstrap, tmp_path, port, jvm) as connect:
        connect.wait_for(lambda: create_connector(port, "reading", reading), "a source")
        connect.wait_for(lambda: create_connector(port, "writing", writing), "a sink")
        connect.wait_for(lambda: bool(written()), "a line")
        append(source, SECOND)
        connect.kill()
        connect.start()
        everything = FIRST + SECOND
        connect.wait_for(lambda: everything[-1] in written(), "the last line")
        messages = connect.read_until(
            bootstrap, "lines", lambda found: len(found) >= len(everything)
        )
        connect.kill()
    assert without_repetitions(written()) == everything
    values = [message.value() for message in messages]
    assert values == [line.encode() for line in everything]

"""Kafka Streams, Kafka Connect and MirrorMaker 2 beside an `ottla broker`, each a process.

Rules:

- Their jars come through Maven as those of Apache Kafka do (`tests.support.jvm`), into a directory
  of their own.
- A process is killed when its context ends. Nothing here waits for a time: `wait_for` and
  `read_until` wait for a state, and fail with the process's log after PATIENCE_SECONDS.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.jvm import (
    QUICK_START,
    SOURCES,
    cached,
    check_java,
    download,
    java_command,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    from confluent_kafka import Message

ECOSYSTEM: Final = SOURCES / "ecosystem"
READY: Final = "ottla broker ready: "
# Long for any machine under load; a process that needs it is stuck.
PATIENCE_SECONDS: Final = 240.0
LOG_CHARACTERS: Final = 6_000


def ecosystem_classpath() -> str:
    """The jars and our programs for them, fetched and compiled at the first call; or NoJvm."""
    check_java()
    with cached("ecosystem-jars") as (jars, filling):
        if filling is not None:
            download(ECOSYSTEM / "pom.xml", filling)
    sources = sorted(ECOSYSTEM.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    with cached(f"ecosystem-classes-{digest[:12]}") as (classes, filling):
        if filling is not None:
            subprocess.run(["javac", "-d", filling, "-cp", f"{jars}/*", *sources], check=True)
    return f"{classes}:{jars}/*"


class JavaProcess:
    """A program that runs until it is killed; the log file grows over all its lives."""

    def __init__(self, log: Path, main: str, *args: str, classpath: str) -> None:
        self.log = log
        self._command = java_command(main, *args, classpath=classpath, options=QUICK_START)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """By SIGKILL. It must still be running."""
        assert self._process is not None, "not started"
        assert self._process.poll() is None, self.said()
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        assert self._process is not None, "not started"
        status = self._process.poll()
        state = "runs" if status is None else f"ended with {status}"
        return f"it {state} and said: {self.log.read_text(errors='replace')[-LOG_CHARACTERS:]}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _alive_until(self, deadline: float) -> bool:
        running = self._process is not None and self._process.poll() is None
        return running and time.monotonic() < deadline

    def wait_for(self, done: Callable[[], bool], what: str) -> None:
        """Ask again and again until it is done."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done():
            assert self._alive_until(deadline), f"{what} did not come; {self.said()}"
            time.sleep(0.2)

    def read_until(
        self, bootstrap: str, topic: str, done: Callable[[list[Message]], bool]
    ) -> list[Message]:
        """The committed records of a topic from its beginning until they are enough."""
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "not joined",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        found: list[Message] = []
        try:
            partitions = consumer.list_topics(topic, PATIENCE_SECONDS).topics[topic].partitions
            consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not done(found):
                said = f"{len(found)} records of {topic} are not enough; "
                assert self._alive_until(deadline), said + self.said()
                for message in consumer.consume(1_000, 0.5):
                    if (failed := message.error()) is not None:
                        raise KafkaException(failed)
                    found.append(message)
        finally:
            consumer.close()
        return found


@contextmanager
def ottla_process(directory: Path) -> Iterator[str]:
    """`ottla broker` with its defaults, durable in `directory`; gives its address."""
    command: list[Any] = [sys.executable, "-m", "ottla.cli", "broker", "--port", "0"]
    log = directory / "broker.log"
    directory.mkdir(exist_ok=True)
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [*command, "--data-dir", directory / "data"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith(READY), log.read_text()
            yield line.removeprefix(READY).strip()
        finally:
            process.kill()

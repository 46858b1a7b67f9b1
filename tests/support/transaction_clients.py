"""A process with several transactional clients, which work at random and record what they do.

Run as a module: BOOTSTRAP TOPIC FILE NAME SEED KIND:ROLE:ID ...; kinds are those of
`transaction_sessions`. It works until its standard input ends, and appends to FILE.

Writers send to all partitions. Transformers read partition 0 as a group of the name of their id,
committed records only, and send a record to another partition for each one read, offsets and all.
Transactions are committed, aborted or abandoned, in sessions with short and long timeouts. Who is
refused begins another session, and so takes the id from any other process that has it.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.transaction_histories import (
    Answer,
    Consumed,
    Position,
    Scan,
    Seen,
    Write,
)
from tests.support.transaction_recording import Recorder
from tests.support.transaction_sessions import LIBRDKAFKA, PATIENCE, Over, Port, Trouble
from tests.support.transaction_sessions import open_session as open_port

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Message

PARTITIONS: Final = 3
LARGEST: Final = 6  # records of a transaction
POLL_SECONDS: Final = 0.1
ABORTS, ABANDONS, GOODBYES = 0.15, 0.08, 0.05
TIMEOUTS_MS: Final = (400, 1500, 60_000, 60_000)
PAUSE_SECONDS: Final = 0.03


class Input:
    """What a transformer reads: committed records, from where its group is."""

    def __init__(self, bootstrap: str, topic: str, group: str, recorder: Recorder) -> None:
        self._topic, self._group, self._recorder = topic, group, recorder
        self._at = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
                **LIBRDKAFKA,
            }
        )

    def rewind(self) -> None:
        """`Over` if nobody says where the group is."""
        asked_at = time.monotonic_ns()
        try:
            (found,) = self._consumer.committed([TopicPartition(self._topic, 0)], PATIENCE)
        except KafkaException as error:
            raise Over(error) from error
        if found.error is not None:
            raise Over(found.error)
        self._at = max(0, found.offset)
        self._recorder.position(Position(self._group, 0, self._at, asked_at, time.monotonic_ns()))
        self._consumer.assign([TopicPartition(self._topic, 0, self._at)])

    def read(self, count: int) -> Consumed | None:
        begun_at = time.monotonic_ns()
        messages = self._consumer.consume(count, POLL_SECONDS)
        seen = seen_of(messages)
        if not seen:
            return None
        start, self._at = self._at, seen[-1].offset + 1
        self._recorder.scan(Scan(self._group, True, 0, begun_at, start, self._at, tuple(seen)))
        return Consumed(self._group, 0, start, self._at)


def seen_of(messages: Iterable[Message]) -> list[Seen]:
    """Those that are records."""
    return [
        Seen(message.offset() or 0, (message.value() or b"").decode())
        for message in messages
        if message.error() is None
    ]


class Client:
    """One transactional id, one session after another."""

    def __init__(
        self, bootstrap: str, topic: str, name: str, task: str, recorder: Recorder, seed: str
    ) -> None:
        self._kind, role, self._id = task.split(":")
        self._bootstrap, self._topic = bootstrap, topic
        self._name = f"{name}-{self._kind}-{self._id}"
        self._recorder = recorder
        self._chance = random.Random(f"{seed} {task}")
        self._sessions = self._transactions = self._values = 0
        self._session = ""
        self._input = Input(bootstrap, topic, self._id, recorder) if role == "transformer" else None

    def work(self, done: threading.Event) -> None:
        port: Port | None = None
        while not done.is_set():
            try:
                if port is None:
                    port = self._open()
                if not self._transaction(port):
                    port = None
                elif self._chance.random() < GOODBYES:
                    port.close()
                    port = None
            except (Trouble, Over):
                # Abandoned, as are its transactions.
                port = None
                done.wait(self._chance.uniform(0, 4 * PAUSE_SECONDS))
            done.wait(self._chance.uniform(0, PAUSE_SECONDS))

    def _open(self) -> Port:
        asked_at = time.monotonic_ns()
        timeout_ms = self._chance.choice(TIMEOUTS_MS)
        port = open_port(self._kind, self._bootstrap, self._id, timeout_ms)
        self._sessions += 1
        self._session = f"{self._name}/{self._sessions}"
        self._recorder.session(self._session, self._id, asked_at)
        if self._input is not None:
            self._input.rewind()
        return port

    def _transaction(self, port: Port) -> bool:
        """Whether the session goes on."""
        consumed = None
        if self._input is not None:
            consumed = self._input.read(self._chance.randint(1, LARGEST))
            if consumed is None:
                return True
        port.begin()
        self._transactions += 1
        name = f"{self._name}.{self._transactions}"
        self._recorder.begin(name, self._session)
        try:
            self._fill(port, name, consumed)
            chance = self._chance.random()
            if chance < ABANDONS:
                return False
            commit = chance > ABANDONS + ABORTS
        except Trouble:
            commit = False
        return self._end(port, name, commit=commit)

    def _fill(self, port: Port, name: str, consumed: Consumed | None) -> None:
        for _ in range(self._chance.randint(1, 2)):
            writes = self._writes(is_output=consumed is not None)
            self._recorder.writes(name, writes)
            port.send(self._topic, writes)
        if consumed is not None:
            self._recorder.consumed(name, consumed)
            port.send_offsets(self._topic, consumed)

    def _writes(self, *, is_output: bool) -> list[Write]:
        first = self._values
        self._values += self._chance.randint(1, LARGEST)
        return [
            Write(self._chance.randrange(is_output, PARTITIONS), f"{self._name}#{number}")
            for number in range(first, self._values)
        ]

    def _end(self, port: Port, name: str, *, commit: bool) -> bool:
        self._recorder.end(name, commit=commit)
        answer = port.end(commit=commit)
        self._recorder.answer(name, answer)
        if commit and answer is Answer.FAILED:
            answer = port.end(commit=False)
            commit = False
        if not commit and self._input is not None:
            self._input.rewind()
        return answer is Answer.OK


def main(bootstrap: str, topic: str, path: str, name: str, seed: str, *tasks: str) -> None:
    recorder = Recorder(Path(path))
    done = threading.Event()
    failed = threading.Event()

    def work(task: str) -> None:
        try:
            Client(bootstrap, topic, name, task, recorder, f"{seed} {name}").work(done)
        except BaseException:
            failed.set()
            raise

    threads = [threading.Thread(target=work, args=[task], daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    done.set()
    for thread in threads:
        thread.join(2 * PATIENCE)
        if thread.is_alive():
            failed.set()
            print(f"{thread} does not end", file=sys.stderr, flush=True)
    # Not sys.exit: librdkafka may wait for ever for what a producer has not done yet.
    os._exit(failed.is_set())


if __name__ == "__main__":
    main(*sys.argv[1:])

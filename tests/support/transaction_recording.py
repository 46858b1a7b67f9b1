"""Histories of transactions on disk: one line of JSON for each step, written before it is taken.

So a client that is killed leaves behind what it may have done. Times are those of the machine's
monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from tests.support.transaction_histories import (
    Answer,
    Consumed,
    History,
    Position,
    Scan,
    Seen,
    Session,
    Transaction,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Recorder:
    """Appends to a file, from any thread."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def _say(self, *step: object) -> None:
        os.write(self._file, json.dumps(step).encode() + b"\n")

    def session(self, name: str, transactional_id: str, asked_at: int) -> None:
        self._say("session", name, transactional_id, asked_at, time.monotonic_ns())

    def begin(self, transaction: str, session: str) -> None:
        self._say("begin", transaction, session)

    def writes(self, transaction: str, writes: Iterable[Write]) -> None:
        self._say("writes", transaction, list(writes))

    def consumed(self, transaction: str, consumed: Consumed) -> None:
        self._say("consumed", transaction, consumed)

    def end(self, transaction: str, *, commit: bool) -> None:
        self._say("end", transaction, commit, time.monotonic_ns())

    def answer(self, transaction: str, answer: Answer) -> None:
        self._say("answer", transaction, answer.value, time.monotonic_ns())

    def scan(self, scan: Scan) -> None:
        self._say("scan", scan)

    def position(self, position: Position) -> None:
        self._say("position", position)


def answers(path: Path) -> int:
    """How many transactions have ended so far."""
    return path.read_bytes().count(b'["answer"') if path.exists() else 0


def read_history(path: Path) -> History:
    history = History()
    sessions: dict[str, Session] = {}
    transactions: dict[str, Transaction] = {}
    # Whoever is killed while it writes leaves part of a line, of a step that it did not take.
    for line in path.read_bytes().split(b"\n")[:-1]:
        match json.loads(line):
            case ["session", name, transactional_id, asked_at, answered_at]:
                sessions[name] = Session(name, transactional_id, asked_at, answered_at)
            case ["begin", name, session]:
                transactions[name] = Transaction(name, sessions[session])
            case ["writes", name, writes]:
                transactions[name].writes += [Write(*write) for write in writes]
            case ["consumed", name, consumed]:
                transactions[name].consumed.append(Consumed(*consumed))
            case ["end", name, commit, at]:
                transactions[name].commit, transactions[name].asked_at = commit, at
            case ["answer", name, answer, at]:
                transactions[name].answer = Answer(answer)
                transactions[name].answered_at = at
            case ["scan", scan]:
                records = tuple(Seen(*record) for record in scan[-1])
                history.scans.append(Scan(*scan)._replace(records=records))
            case ["position", position]:
                history.positions.append(Position(*position))
            case other:
                raise AssertionError(other)
    history.sessions = list(sessions.values())
    history.transactions = list(transactions.values())
    return history

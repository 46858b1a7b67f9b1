"""Processes that use offset stores and are killed at a chosen step, or fight over a key.

They come from a fork server that has imported this module, so that one costs milliseconds and
inherits neither threads nor event loops of the test. A killed process leaves to the system what it
wrote, so those that are only killed do without fsync: a power cut is not what they are about.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import random
import signal
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg

from ottla.offsets import (
    Durability,
    Lance,
    OffsetConflict,
    OffsetKey,
    SyncLockFileOffsetStore,
    SyncPostgresOffsetStore,
    SyncSqliteOffsetStore,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.process import BaseProcess

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])
PATIENCE_SECONDS: Final = 120
MIN_SUCCESSES: Final = 20
SYSTEM_CALLS: Final = (
    *("open", "write", "pwrite", "fsync", "stat", "link", "replace", "unlink", "close", "mkdir"),
)
KEY: Final = OffsetKey("1", "1")


def start(function: Callable[..., None], *arguments: object) -> BaseProcess:
    process = _context.Process(target=function, args=arguments)
    process.start()
    return process


def finish(process: BaseProcess) -> int:
    """How it ended: 0 is well, -9 killed."""
    process.join(PATIENCE_SECONDS)
    assert process.exitcode is not None, "the process hangs"
    code = process.exitcode
    process.close()
    return code


def run(function: Callable[..., None], *arguments: object) -> int:
    return finish(start(function, *arguments))


def open_files(
    directory: str, kind: str, durability: Durability = Durability.FSYNC
) -> SyncLockFileOffsetStore:
    layout = Lance("x") if kind == "lance" else None
    return SyncLockFileOffsetStore(directory, layout, durability=durability)


def save(directory: str, kind: str, items: Mapping[OffsetKey, int]) -> None:
    open_files(directory, kind).save_many(items)


def delete(directory: str, kind: str, key: OffsetKey) -> None:
    assert open_files(directory, kind).delete(key)


def die_at_call(number: int) -> None:
    """Kill this process instead of its `number`th call of the file system."""
    calls = 0

    def wrapped(function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return call

    for name in SYSTEM_CALLS:
        setattr(os, name, wrapped(getattr(os, name)))
    fcntl.flock = wrapped(fcntl.flock)  # type: ignore[assignment]  # the same function, counted


def save_and_die(directory: str, kind: str, items: Mapping[OffsetKey, int], number: int) -> None:
    store = open_files(directory, kind)
    die_at_call(number)
    store.save_many(items)


def race(directory: str, kind: str, rounds: int, log: str) -> None:
    """Try to win each position by compare-and-set; note those that were won."""
    store = open_files(directory, kind)
    with Path(log).open("w") as won:
        for position in range(rounds):
            with contextlib.suppress(OffsetConflict):
                store.save(KEY, position, expected=position - 1 if position else None)
                won.write(f"{position}\n")


def count_up(directory: str, kind: str, seconds: float, log: str) -> None:
    """Add one again and again under compare-and-set; note how often that succeeded.

    Whoever has been unlucky goes on beyond its time, to some successes.
    """
    store = open_files(directory, kind)
    deadline = time.monotonic() + seconds
    successes = 0
    highest = -1
    while time.monotonic() < deadline or successes < MIN_SUCCESSES:
        value = store.load(KEY)
        assert value is None or value >= highest, "a stale value was read"
        try:
            store.save(KEY, 0 if value is None else value + 1, expected=value)
        except OffsetConflict:
            continue
        successes += 1
        highest = 0 if value is None else value + 1
        assert (store.load(KEY) or 0) >= highest, "an own save is not seen"
    Path(log).write_text(str(successes))


def count_up_together(directory: str, keys: list[OffsetKey], seconds: float, log: str) -> None:
    """The same for keys that are saved together."""
    store = open_files(directory, "v1")
    deadline = time.monotonic() + seconds
    successes = 0
    highest = dict.fromkeys(keys, -1)
    while time.monotonic() < deadline or successes < MIN_SUCCESSES:
        values = {key: store.load(key) for key in keys}
        found = {key: -1 if value is None else value for key, value in values.items()}
        assert all(found[key] >= highest[key] for key in keys), "a stale value was read"
        following = {key: value + 1 for key, value in found.items()}
        try:
            store.save_many(following, expected=values)
        except OffsetConflict:
            continue
        successes += 1
        highest = following
    Path(log).write_text(str(successes))


def save_pairs(directory: str, kind: str, keys: list[OffsetKey], rounds: int) -> None:
    store = open_files(directory, kind)
    for _ in range(rounds):
        store.save_many(dict.fromkeys(keys, random.getrandbits(64)), rewind=True)


class Steps:
    """Counts the steps of a worker and kills it at the chosen one."""

    def __init__(self, fatal: int | None) -> None:
        self._left = fatal

    def __call__(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def work_with_files(
    directory: str, kind: str, records: int, fatal: int | None, save_first: bool
) -> None:
    """Append each record to a file and save the position, in the one order or the other."""
    store = open_files(directory, kind, Durability.RENAME)
    step = Steps(fatal)
    with (Path(directory) / "applied").open("ab", buffering=0) as applied:
        for record in range(store.load(KEY) or 0, records):
            step()
            for what in ("save", "apply") if save_first else ("apply", "save"):
                if what == "save":
                    store.save(KEY, record + 1)
                else:
                    applied.write(b"%d\n" % record)
                step()


def work_with_sqlite(database: str, records: int, fatal: int | None) -> None:
    """Insert each record and save the position, in one transaction."""
    store = SyncSqliteOffsetStore()
    step = Steps(fatal)
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        store.create_table(connection)
        connection.execute("CREATE TABLE IF NOT EXISTS applied (record INTEGER)")
        position = store.bind(connection).load(KEY)
        for record in range(position or 0, records):
            with store.transaction(connection) as transaction:
                step()
                connection.execute("INSERT INTO applied VALUES (?)", (record,))
                step()
                position = transaction.save(KEY, record + 1, expected=position).position
                step()
            step()


def work_with_postgres(conninfo: str, table: str, records: int, fatal: int | None) -> None:
    store = SyncPostgresOffsetStore(table=f"{table}_offsets")
    step = Steps(fatal)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        position = store.bind(connection).load(KEY)
        for record in range(position or 0, records):
            with store.transaction(connection) as transaction:
                step()
                connection.execute(f"INSERT INTO {table} VALUES (%s)".encode(), (record,))
                step()
                position = transaction.save(KEY, record + 1, expected=position).position
                step()
            step()


@contextlib.contextmanager
def held_lock(path: Path) -> Iterator[None]:
    """Hold a lock file as another process would."""
    with path.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield

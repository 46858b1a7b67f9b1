"""kill -9 around the save of a position, and processes that fight over one.

T64, T67 and T76 of the specification, and the promise of docs/how-to/offsets.md: with an SQL store
no record is lost and none is applied twice; with the others it depends on the order, exactly as the
table there says.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from ottla.offsets import Durability, OffsetKey, SyncPostgresOffsetStore
from ottla.offsets.layouts import MAX_GROWN_BYTES
from tests.support import offsets_workers as workers
from tests.support.faults_broker import soak
from tests.support.offsets_workers import KEY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services import PostgresServer

KILLS: Final = 200
MAX_STEPS: Final = 12
RECORDS: Final = 500
ENDLESS: Final = 10**9
RANDOM_KILLS: Final = 500 if soak() else 50
HAMMER_SECONDS: Final = 30.0 if soak() else 1.5  # for each layout
FULL: Final = 1 + (MAX_GROWN_BYTES - len("v1 1 - 1 0 12345678 ")) // len("+v1 1 - 1 0 12345678 ")
KILLED: Final = -signal.SIGKILL


@pytest.mark.parametrize(
    ("kind", "keys", "lines"),
    [
        *(("v1", 1, 1), ("v1", 1, 2), ("v1", 1, FULL)),
        *(("v1", 3, 0), ("v1", 3, 1), ("v1", 3, 2)),
        *(("lance", 1, 1), ("lance", 3, 1)),
    ],
)
def test_t67_killed_at_every_call_of_a_save(
    tmp_path: Path, kind: str, keys: int, lines: int
) -> None:
    """Whatever call is the last one: each key has its old value or its new one, and goes on.

    The save adds the first line or block to a file, adds another, finds no room for one, or finds
    keys that were not saved together before and makes new files.
    """
    old = {OffsetKey("1", str(stream)): 1 for stream in range(keys)}
    new = dict.fromkeys(old, 2)
    seen: set[tuple[int, ...]] = set()
    number = 0
    while True:
        number += 1
        directory = tmp_path / str(number)
        store = workers.open_files(str(directory), kind, Durability.RENAME)
        for line in reversed(range(lines)):
            store.save_many(dict.fromkeys(old, 1 - line % 2), rewind=True)
        for key in old if lines == 0 else ():
            store.save(key, 1)
        ended = workers.run(workers.save_and_die, str(directory), kind, new, number)
        found = store.list_all()
        assert found.keys() == old.keys()
        assert set(found.values()) <= {1, 2}
        seen.add(tuple(found.values()))
        store.save_many(dict.fromkeys(old, 3))
        assert store.list_all() == dict.fromkeys(old, 3)
        assert not list(directory.rglob("*.tmp"))
        if ended == 0:
            break
        assert ended == KILLED
    assert number > 8
    assert {(1,) * keys, (2,) * keys} <= seen


@pytest.mark.parametrize("kind", ["v1", "lance"])
def test_t64_of_racing_processes_one_wins_each_round(tmp_path: Path, kind: str) -> None:
    logs = [tmp_path / f"won-{number}" for number in range(2)]
    processes = [
        workers.start(workers.race, str(tmp_path / "store"), kind, 50, str(log)) for log in logs
    ]
    assert [workers.finish(process) for process in processes] == [0, 0]
    won = sorted(int(line) for log in logs for line in log.read_text().split())
    assert won == sorted(set(won))
    assert workers.open_files(str(tmp_path / "store"), kind).load(KEY) == won[-1]


@pytest.mark.parametrize("kind", ["v1", "lance"])
def test_two_processes_hammer_one_key(tmp_path: Path, kind: str) -> None:
    """Both count up under compare-and-set: no update is lost, no value torn, no read stale."""
    logs = [tmp_path / f"successes-{number}" for number in range(2)]
    directory = str(tmp_path / "store")
    processes = [
        workers.start(workers.count_up, directory, kind, HAMMER_SECONDS, str(log)) for log in logs
    ]
    assert [workers.finish(process) for process in processes] == [0, 0]
    successes = [int(log.read_text()) for log in logs]
    assert min(successes) >= workers.MIN_SUCCESSES
    assert workers.open_files(directory, kind).load(KEY) == sum(successes) - 1


def test_two_processes_hammer_groups_that_overlap(tmp_path: Path) -> None:
    """Both count up two keys at once, one of them in common, so files are shared and parted."""
    keys = [OffsetKey("1", str(stream)) for stream in range(3)]
    logs = [tmp_path / f"successes-{number}" for number in range(2)]
    directory = str(tmp_path / "store")
    groups = [keys[:2], keys[1:]]
    processes = [
        workers.start(workers.count_up_together, directory, group, HAMMER_SECONDS, str(log))
        for group, log in zip(groups, logs, strict=True)
    ]
    assert [workers.finish(process) for process in processes] == [0, 0]
    first, second = (int(log.read_text()) for log in logs)
    assert min(first, second) >= workers.MIN_SUCCESSES
    counts = dict(zip(keys, (first, first + second, second), strict=True))
    stored = workers.open_files(directory, "v1").list_all()
    assert stored == {key: count - 1 for key, count in counts.items()}


@pytest.mark.parametrize("kind", ["v1", "lance"])
def test_at_least_once_with_files(tmp_path: Path, kind: str) -> None:
    """Apply, then save: none is lost, and one record at most is applied again by each kill."""
    kills = _kill_and_finish_files(tmp_path, kind, save_first=False)
    applied = Counter((tmp_path / "applied").read_text().split())
    assert applied.keys() == {str(record) for record in range(RECORDS)}
    repeated = sum(applied.values()) - RECORDS
    assert 0 < repeated <= kills


def test_at_most_once_with_files(tmp_path: Path) -> None:
    """Save, then apply: none is applied twice, and one record at most is lost by each kill."""
    kills = _kill_and_finish_files(tmp_path, "v1", save_first=True)
    applied = Counter((tmp_path / "applied").read_text().split())
    assert set(applied.values()) == {1}
    assert 0 < RECORDS - len(applied) <= kills


def _kill_and_finish_files(directory: Path, kind: str, *, save_first: bool) -> int:
    dice = random.Random(f"files {kind} {save_first}")
    for _ in range(KILLS):
        fatal = dice.randint(1, MAX_STEPS)
        work = (str(directory), kind, RECORDS, fatal, save_first)
        assert workers.run(workers.work_with_files, *work) == KILLED
    last = (str(directory), kind, RECORDS, None, save_first)
    assert workers.run(workers.work_with_files, *last) == 0
    return KILLS


def test_exactly_once_with_sqlite(tmp_path: Path) -> None:
    database = str(tmp_path / "business.db")
    dice = random.Random("sqlite")
    for _ in range(KILLS):
        fatal = dice.randint(1, MAX_STEPS)
        assert workers.run(workers.work_with_sqlite, database, RECORDS, fatal) == KILLED
    assert workers.run(workers.work_with_sqlite, database, RECORDS, None) == 0
    assert _applied(database) == list(range(RECORDS))


def test_exactly_once_with_postgres(postgres_server: PostgresServer) -> None:
    table = "kills"
    with psycopg.connect(postgres_server.url) as connection:
        connection.execute("CREATE TABLE kills (record int)")
        SyncPostgresOffsetStore(table="kills_offsets").create_table(connection)
    dice = random.Random("postgres")
    work = workers.work_with_postgres
    for _ in range(KILLS):
        fatal = dice.randint(1, MAX_STEPS)
        assert workers.run(work, postgres_server.url, table, RECORDS, fatal) == KILLED
    assert workers.run(work, postgres_server.url, table, RECORDS, None) == 0
    with psycopg.connect(postgres_server.url) as connection:
        rows = connection.execute("SELECT record FROM kills ORDER BY record").fetchall()
    assert [record for (record,) in rows] == list(range(RECORDS))


def test_t76_killed_at_any_moment_with_sqlite(tmp_path: Path) -> None:
    """The moment is the clock's choice, so it can be inside SQLite's own commit."""
    database = str(tmp_path / "business.db")
    dice = random.Random("t76")
    for _ in range(RANDOM_KILLS):
        process = workers.start(workers.work_with_sqlite, database, ENDLESS, None)
        time.sleep(dice.uniform(0.005, 0.03))
        process.kill()
        assert workers.finish(process) == KILLED
    records = len(_applied(database)) + 20
    assert workers.run(workers.work_with_sqlite, database, records, None) == 0
    assert sum(_applied(database)) == sum(range(records))
    assert len(_applied(database)) == records


def _applied(database: str) -> list[int]:
    connection = sqlite3.connect(database)
    try:
        rows = connection.execute("SELECT record FROM applied ORDER BY rowid").fetchall()
    finally:
        connection.close()
    return [record for (record,) in rows]

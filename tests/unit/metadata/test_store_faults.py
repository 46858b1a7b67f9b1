"""The store against crashes, other processes, foreign files and damage."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import stat
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ottla.metadata.changes.apply import apply
from ottla.metadata.changes.configs import SetFeature
from ottla.metadata.changes.nodes import SetClusterId
from ottla.metadata.changes.topics import CreateTopic
from ottla.metadata.errors import (
    CorruptStore,
    StoreBusy,
    StoreUnavailable,
    UnsupportedSchema,
)
from ottla.metadata.image import MetadataImage, random_topic_id
from ottla.metadata.stores.memory import MemoryMetadataStore
from ottla.metadata.stores.sqlite import SCHEMA_VERSION, SqliteMetadataStore

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.metadata.changes.apply import Change
    from ottla.metadata.stores.store import MetadataStore


BAD_ENUM = '{"change":"SetConfigs","resource_type":3,"name":"n","configs":{}}'


def test_a_copy_taken_at_any_time_opens_to_a_prefix(tmp_path: Path) -> None:
    seed = random.Random(7)
    database, wal = tmp_path / "m.db", tmp_path / "m.db-wal"
    store = SqliteMetadataStore(database, cluster_id="c", snapshot_interval=5)
    history = {0: apply(MetadataImage(), SetClusterId("c"))}
    for number in range(40):
        store.propose(CreateTopic(f"t{number}", random_topic_id(), ((1,),)))
        history[len(history)] = store.snapshot()
        copy = tmp_path / f"copy{number}.db"
        shutil.copy(database, copy)
        log = wal.read_bytes()
        torn = log[: seed.randrange(len(log) // 2, len(log))] if number % 2 else log
        copy.with_name(copy.name + "-wal").write_bytes(torn)
        reopened = SqliteMetadataStore(copy, cluster_id="c")
        if torn is log:
            assert reopened.snapshot() == store.snapshot()
        else:
            assert reopened.snapshot() == history[reopened.snapshot().version - 1]
        reopened.close()
    store.close()


def test_decisions_of_two_nodes_lose_no_update(tmp_path: Path) -> None:
    def one_more(image: MetadataImage) -> list[Change]:
        return [SetFeature("counter", image.features.get("counter", 0) + 1)]

    def count() -> None:
        store = SqliteMetadataStore(tmp_path / "m.db")
        for _ in range(25):
            store.propose(one_more)
        store.close()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = SqliteMetadataStore(tmp_path / "m.db")
    assert store.snapshot().features["counter"] == 100
    store.close()


def test_a_decision_for_nothing_writes_nothing(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    before = store.snapshot()
    assert store.propose(lambda image: []) is before
    store.close()


def test_a_decision_that_raises_changes_nothing_and_sees_the_other_nodes(tmp_path: Path) -> None:
    one, other = (SqliteMetadataStore(tmp_path / "m.db") for _ in range(2))
    other.propose(SetFeature("f", 1))

    def refuse(image: MetadataImage) -> list[Change]:
        raise LookupError(f"f is {image.features['f']}")

    with pytest.raises(LookupError, match="f is 1"):
        one.propose(SetFeature("g", 1), refuse)
    assert one.snapshot() == other.snapshot() == other.poll()
    one.close()
    other.close()


def test_old_changes_go_when_the_snapshot_has_them(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db", snapshot_interval=5)
    for level in range(1, 50):
        store.propose(SetFeature("f", level))
        rows = store._connection.execute("SELECT count(*) FROM changes").fetchone()[0]
        assert rows < 10
    store.close()


def test_every_proposal_is_synced(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    full = 2
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (full,)
    store.close()


def test_ephemeral_stores_share_nothing() -> None:
    one: MetadataStore = MemoryMetadataStore()
    other: MetadataStore = MemoryMetadataStore()
    one.propose(SetFeature("f", 1), wait=1.0)
    assert other.poll().features == {}
    assert one.snapshot().cluster_id != other.snapshot().cluster_id
    one.close()
    other.close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("milk, bread, butter\n" * 100)
    with pytest.raises(CorruptStore, match=r"notes\.txt"):
        SqliteMetadataStore(path)


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE changes (version INTEGER PRIMARY KEY)")
    other.close()
    with pytest.raises(CorruptStore, match="another database"):
        SqliteMetadataStore(path)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    SqliteMetadataStore(path).close()
    _execute(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(UnsupportedSchema, match=str(SCHEMA_VERSION + 1)):
        SqliteMetadataStore(path)


def test_a_store_of_the_release_before_is_raised_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    store = SqliteMetadataStore(path, cluster_id="c")
    store.propose(SetFeature("f", 3))
    before = store.snapshot()
    store.close()
    _execute(path, "DROP TABLE secrets")
    _execute(path, "PRAGMA user_version = 1")
    path.chmod(0o644)
    raised = SqliteMetadataStore(path)
    assert raised.snapshot() == before
    assert raised.secret("s", lambda: b"one") == b"one"
    raised.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


def test_the_first_to_ask_makes_a_secret_and_all_get_the_same(tmp_path: Path) -> None:
    one, other = (SqliteMetadataStore(tmp_path / "m.db") for _ in range(2))
    assert one.secret("a", lambda: b"first") == b"first"
    assert other.secret("a", lambda: b"second") == b"first"
    assert other.secret("b", lambda: b"second") == b"second"
    one.close()
    other.close()
    again = SqliteMetadataStore(tmp_path / "m.db")
    assert again.secret("b", lambda: b"third") == b"second"
    again.close()


def test_files_are_the_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteMetadataStore(tmp_path / "m.db")
        store.propose(SetFeature("f", 1))
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("m.db", "m.db-wal", "m.db-shm"), 0o600)


def test_what_is_deleted_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    store = SqliteMetadataStore(path, snapshot_interval=2)
    store.propose(SetFeature("canary-in-a-change", 1))
    store.propose(SetFeature("canary-in-a-change", 0))
    for level in range(1, 9):
        store.propose(SetFeature("f", level))
    store.close()  # folds the write-ahead log into the file
    assert b"canary-in-a-change" not in path.read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        'UPDATE changes SET change = \'{"change":"SetFeature"}\' WHERE version = 3',
        'UPDATE changes SET change = \'{"change":"SetAlight"}\' WHERE version = 3',
        "UPDATE changes SET change = '[]' WHERE version = 3",
        "UPDATE changes SET change = 'f' WHERE version = 3",
        "UPDATE changes SET change = (SELECT min(change) FROM changes) WHERE version = 3",
        "UPDATE changes SET change = '" + BAD_ENUM + "' WHERE version = 3",
        "DELETE FROM changes WHERE version = 3",
        "DELETE FROM changes WHERE version = 1",
        "INSERT INTO snapshot VALUES (1, '{}[')",
        'INSERT INTO snapshot VALUES (1, \'{"version":"1"}\')',
        'INSERT INTO snapshot VALUES (1, \'{"topic_names":{"1":"t"}}\')',
        'INSERT INTO snapshot VALUES (1, \'{"brokers":{"one":{}}}\')',
        "DROP TABLE snapshot",
    ],
)
def test_content_that_contradicts_itself_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "m.db"
    store = SqliteMetadataStore(path)
    for level in range(1, 4):
        store.propose(SetFeature("f", level))
    store.close()
    _execute(path, damage)
    with pytest.raises(CorruptStore, match=r"m\.db"):
        SqliteMetadataStore(path)


def test_damaged_pages_are_found_when_opening(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    store = SqliteMetadataStore(path)
    store.propose(*(CreateTopic(f"t{n}", random_topic_id(), ((1,),) * 20) for n in range(50)))
    store.close()
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 4] = b"\xa5" * 4096
    path.write_bytes(content)
    with pytest.raises(CorruptStore, match=r"m\.db"):
        SqliteMetadataStore(path)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="missing"):
        SqliteMetadataStore(tmp_path / "missing" / "m.db")


def test_a_full_disk_changes_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    before = store.snapshot()
    many = [CreateTopic(f"t{n}", random_topic_id(), ((1,),) * 100) for n in range(20)]
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailable, match="full"):
        store.propose(*many)
    assert store.snapshot() is before
    assert store.poll() == before
    store._connection.execute("PRAGMA max_page_count = 1000000")
    assert len(store.propose(*many).topics_by_name) == 20
    store.close()


def test_a_lock_that_does_not_go_is_not_waited_for_without_end(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    stuck = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
    stuck.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match=r"m\.db.*locked \(`fuser -v`"):
        store.propose(SetFeature("f", 1), wait=0.001)
    stuck.execute("ROLLBACK")
    stuck.close()
    assert store.propose(SetFeature("f", 1)).features == {"f": 1}
    store.close()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.propose(SetFeature("f", 1))


def _execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()

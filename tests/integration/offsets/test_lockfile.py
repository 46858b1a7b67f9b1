"""The lock-file store shared by processes: T66, T68 and T71 of the specification."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ottla.offsets import (
    Lance,
    OffsetKey,
    SyncLockFileOffsetStore,
)
from tests.support import offsets_workers as workers
from tests.support.offsets_workers import KEY

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", ["v1", "lance"])
def test_t66_what_another_process_does_is_seen_at_once(tmp_path: Path, kind: str) -> None:
    store = SyncLockFileOffsetStore(tmp_path, Lance("x") if kind == "lance" else None)
    other = OffsetKey("1", "2")
    store.save(KEY, 1)
    assert workers.run(workers.save, str(tmp_path), kind, {KEY: 2, other: 7}) == 0
    assert (store.load(KEY), store.load(other)) == (2, 7)
    assert store.list_all() == {KEY: 2, other: 7}
    assert store.save(KEY, 3).previous == 2
    assert workers.run(workers.delete, str(tmp_path), kind, KEY) == 0
    assert store.load(KEY) is None
    assert store.list_all() == {other: 7}


def test_t68_a_delete_leaves_the_lock_file_to_those_who_wait(tmp_path: Path) -> None:
    store = SyncLockFileOffsetStore(tmp_path)
    store.save(KEY, 1)
    lock = tmp_path / "1" / "1.0.lock"
    inode = lock.stat().st_ino
    with workers.held_lock(lock):
        process = workers.start(workers.delete, str(tmp_path), "v1", KEY)
        time.sleep(0.1)
        assert process.is_alive()
        assert store.load(KEY) == 1
    assert workers.finish(process) == 0
    assert store.load(KEY) is None
    assert lock.stat().st_ino == inode


def test_t71_opposite_orders_do_not_deadlock(tmp_path: Path) -> None:
    keys = [OffsetKey(str(consumer), str(stream)) for consumer in (1, 2) for stream in (1, 2)]
    processes = [
        workers.start(workers.save_pairs, str(tmp_path), "v1", order, 30)
        for order in (keys, keys[::-1])
    ]
    assert [workers.finish(process) for process in processes] == [0, 0]
    assert len(set(SyncLockFileOffsetStore(tmp_path).list_all().values())) == 1

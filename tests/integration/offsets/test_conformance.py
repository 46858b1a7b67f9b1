"""What every store does, synchronous and asynchronous: T62, T63 and T64 of the specification."""

from __future__ import annotations

import pickle
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.offsets import (
    MAX_POSITION,
    Lance,
    NotInTransaction,
    OffsetConflict,
    OffsetCorrupt,
    OffsetError,
    OffsetLockTimeout,
    OffsetRegression,
    StaleOffset,
)
from tests.support.offsets_stores import KINDS, key_of, make_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.offsets.protocol import SyncOffsetStore
    from ottla.offsets.threaded import ThreadedOffsetStore
    from ottla.offsets.types import OffsetKey

RACERS = 8


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def astore(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[ThreadedOffsetStore[SyncOffsetStore]]:
    store = make_store(kind, tmp_path, request)
    yield store
    store.sync.close()


@pytest.fixture
def store(astore: ThreadedOffsetStore[SyncOffsetStore]) -> SyncOffsetStore:
    return astore.sync


@pytest.fixture
def key(kind: str) -> OffsetKey:
    return key_of(kind)


def test_t62_absent_save_load_update_delete_list(store: SyncOffsetStore, kind: str) -> None:
    one, two = key_of(kind, 1, 1), key_of(kind, 2, 2)
    assert store.load(one) is None
    assert store.list_all() == {}
    assert store.delete(one) is False
    store.save(one, 42)
    assert store.load(one) == 42
    store.save(one, 100)
    store.save(two, 999)
    assert (store.load(one), store.load(two)) == (100, 999)
    assert store.list_all() == {one: 100, two: 999}
    assert store.list_all(one.consumer) == {one: 100}
    assert store.list_all("77") == {}
    assert store.delete(one) is True
    assert store.load(one) is None
    assert store.list_all() == {two: 999}


def test_t62_zero_is_not_none(store: SyncOffsetStore, key: OffsetKey) -> None:
    info = store.save(key, 0)
    assert (info.previous, info.changed) == (None, True)
    assert store.load(key) == 0
    assert store.save(key, 1).previous == 0


def test_t62_the_largest_position(store: SyncOffsetStore, key: OffsetKey) -> None:
    is_lance = isinstance(getattr(store, "layout", None), Lance)
    largest = 2**64 - 1 if is_lance else MAX_POSITION
    store.save(key, largest - 1)
    assert store.save(key, largest).previous == largest - 1
    assert store.load(key) == largest
    assert store.list_all() == {key: largest}
    for wrong in (-1, MAX_POSITION + 1):
        with pytest.raises(ValueError, match=r"between 0 and 2\^128-1"):
            store.save(key, wrong, rewind=True)


async def test_t62_the_asynchronous_form_is_the_same_store(
    astore: ThreadedOffsetStore[SyncOffsetStore], key: OffsetKey
) -> None:
    async with astore as store:
        assert await store.load(key) is None
        info = await store.save(key, 5, expected=None)
        assert (info.key, info.position, info.previous) == (key, 5, None)
        assert astore.sync.load(key) == 5
        [info] = await store.save_many({key: 7}, expected={key: 5})
        assert info.previous == 5
        with pytest.raises(OffsetConflict):
            await store.save(key, 8, expected=5)
        assert await store.list_all() == {key: 7}
        assert await store.delete(key) is True


def test_t63_lower_is_a_regression_unless_rewound(store: SyncOffsetStore, key: OffsetKey) -> None:
    store.save(key, 10)
    with pytest.raises(OffsetRegression, match="rewind=True"):
        store.save(key, 9)
    assert store.load(key) == 10
    info = store.save(key, 3, rewind=True)
    assert (info.previous, info.changed) == (10, True)
    assert store.load(key) == 3


def test_t63_equal_changes_nothing(store: SyncOffsetStore, key: OffsetKey) -> None:
    before = datetime.now(UTC)
    first = store.save(key, 10)
    assert before <= first.timestamp <= datetime.now(UTC)
    again = store.save(key, 10)
    assert (again.position, again.previous, again.changed) == (10, 10, False)


def test_t64_expected_must_be_what_is_stored(store: SyncOffsetStore, key: OffsetKey) -> None:
    with pytest.raises(OffsetConflict):
        store.save(key, 1, expected=0)
    assert store.load(key) is None
    store.save(key, 1, expected=None)
    with pytest.raises(OffsetConflict, match="another worker"):
        store.save(key, 2, expected=None)
    store.save(key, 2, expected=1)
    with pytest.raises(OffsetConflict):  # a zombie hears of it even when it would go back
        store.save(key, 1, expected=1, rewind=True)
    assert store.load(key) == 2


def test_t64_of_racing_threads_one_wins_each_round(store: SyncOffsetStore, key: OffsetKey) -> None:
    rounds = 10
    wins: list[int] = []
    barrier = threading.Barrier(RACERS)

    def race() -> None:
        for position in range(rounds):
            barrier.wait()
            try:
                store.save(key, position, expected=position - 1 if position else None)
            except OffsetConflict:
                continue
            wins.append(position)

    threads = [threading.Thread(target=race) for _ in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(wins) == list(range(rounds))


def test_save_many_tells_of_each_key(store: SyncOffsetStore, kind: str) -> None:
    keys = [key_of(kind, stream=stream) for stream in range(1, 100)]
    store.save(keys[3], 5)
    infos = store.save_many({key: number for number, key in enumerate(keys, 5)}, rewind=False)
    assert [info.key for info in infos] == keys
    assert [info.previous for info in infos] == [None] * 3 + [5] + [None] * 95
    assert store.list_all() == {key: number for number, key in enumerate(keys, 5)}
    again = store.save_many({keys[0]: 5, keys[1]: 7})
    assert [info.changed for info in again] == [False, True]
    assert store.save_many({}) == []


def test_save_many_writes_nothing_if_one_key_is_refused(store: SyncOffsetStore, kind: str) -> None:
    keys = [key_of(kind, stream=stream) for stream in range(1, 5)]
    store.save_many(dict.fromkeys(keys, 10))
    with pytest.raises(OffsetRegression):
        store.save_many({keys[0]: 11, keys[1]: 12, keys[2]: 9, keys[3]: 13})
    with pytest.raises(OffsetConflict):
        store.save_many(dict.fromkeys(keys, 20), expected={keys[2]: 11})
    with pytest.raises(ValueError, match="not among the items"):
        store.save_many({keys[0]: 11}, expected={keys[1]: 10})
    assert store.list_all() == dict.fromkeys(keys, 10)


def test_an_epoch_guards_the_position(store: SyncOffsetStore, kind: str, key: OffsetKey) -> None:
    store.save(key, 10, epoch="first")
    assert store.load(key) == 10
    if kind == "lance":  # it has no room for epochs
        assert store.load(key, epoch="second") == 10
        return
    assert store.load(key, epoch="first") == 10
    with pytest.raises(StaleOffset, match="first"):
        store.load(key, epoch="second")
    with pytest.raises(StaleOffset):
        store.save(key, 11, epoch="second")
    store.save(key, 12)  # who knows no epoch keeps the one that is known
    with pytest.raises(StaleOffset):
        store.load(key, epoch="second")
    store.save(key, 1, epoch="second", rewind=True)
    assert store.load(key, epoch="second") == 1


@pytest.mark.parametrize("epoch", ["", "-", "two words", "new\nline", "Ž", "x" * 129])
def test_an_epoch_is_one_word(store: SyncOffsetStore, key: OffsetKey, epoch: str) -> None:
    with pytest.raises(ValueError, match="one word"):
        store.save(key, 1, epoch=epoch)


def test_shards_are_64_bits_wide(store: SyncOffsetStore, kind: str) -> None:
    if kind == "lance":
        with pytest.raises(ValueError, match="LANCE layout"):
            store.save(key_of("v1", shard=1), 1)
        return
    keys = [key_of(kind, shard=shard) for shard in (0, 2**63 - 1, 2**63, 2**64 - 1)]
    for position, key in enumerate(keys):
        store.save(key, position)
    assert store.list_all() == {key: position for position, key in enumerate(keys)}


def test_every_failure_of_a_save_is_an_offset_error(store: SyncOffsetStore, key: OffsetKey) -> None:
    store.save(key, 5)
    with pytest.raises(OffsetError):
        store.save(key, 4)
    with pytest.raises(OffsetError):
        store.save(key, 6, expected=4)


def test_errors_survive_pickling() -> None:
    key = key_of("v1")
    for error in (
        OffsetRegression(key, 5, 4),
        OffsetConflict(key, None, 4),
        StaleOffset(key, "a", "b"),
        OffsetCorrupt(Path("x"), "it is empty"),
        OffsetLockTimeout(Path("x"), 1.5),
        NotInTransaction("begin first"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))

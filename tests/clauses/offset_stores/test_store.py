"""The store: load, save, delete, list_all; in memory, files, SQLite and PostgreSQL alike"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from ottla.errors import OttlaError
from ottla.offsets import (
    MAX_POSITION,
    CommitInfo,
    MemoryOffsetStore,
    OffsetConflict,
    OffsetError,
    OffsetKey,
    OffsetRegression,
    SyncMemoryOffsetStore,
)

if TYPE_CHECKING:
    from ottla.offsets import SyncOffsetStore

U64: Final = 2**64 - 1
THREADS: Final = 4


def test_load_returns_none_on_the_first_run(store: SyncOffsetStore, key: OffsetKey) -> None:
    """`load` returns `None` if no offset has been stored."""
    assert store.load(key) is None


def test_load_with_a_default_starts_at_zero(store: SyncOffsetStore, key: OffsetKey) -> None:
    """A program that has nothing stored begins at 0: `load(key) or 0`."""
    assert (store.load(key) or 0) == 0


def test_what_was_saved_is_loaded(store: SyncOffsetStore, key: OffsetKey) -> None:
    """`save` stores the offset, `load` returns it."""
    store.save(key, 42)
    assert store.load(key) == 42


def test_a_later_save_replaces_the_earlier(store: SyncOffsetStore, key: OffsetKey) -> None:
    """`save` again updates the offset."""
    store.save(key, 42)
    store.save(key, 100)
    assert store.load(key) == 100


def test_zero_is_a_position_and_not_nothing(store: SyncOffsetStore, key: OffsetKey) -> None:
    """`Some(0)` is not `None`: a consumer that is at the start has been there."""
    store.save(key, 0)
    assert store.load(key) == 0
    assert store.load(key) is not None


def test_the_largest_offset_is_stored(store: SyncOffsetStore, key: OffsetKey) -> None:
    """An offset is a `u64`: its largest value is stored and loaded."""
    store.save(key, U64)
    assert store.load(key) == U64


def test_positions_have_128_bits(store: SyncOffsetStore, kind: str, key: OffsetKey) -> None:
    """Offsets are numbers without sign; what is out of range is refused.

    Differs: positions have 128 bits, because ids of Redis have; with the files of LANCE 64, since
    its own client could not read more.
    """
    if kind == "lance":
        with pytest.raises(ValueError, match="2\\^64-1"):
            store.save(key, U64 + 1)
    else:
        store.save(key, MAX_POSITION)
        assert store.load(key) == MAX_POSITION
    for wrong in (-1, MAX_POSITION + 1):
        with pytest.raises(ValueError, match="position is"):
            store.save(key, wrong)


def test_topics_and_consumers_are_independent(
    store: SyncOffsetStore, key: OffsetKey, other: OffsetKey
) -> None:
    """Offsets of another topic or consumer are stored apart."""
    store.save(key, 100)
    store.save(other, 999)
    assert (store.load(key), store.load(other)) == (100, 999)


def test_a_key_is_consumer_stream_and_shard() -> None:
    """An offset belongs to a topic id and a consumer id.

    Differs: names in place of numbers, and a shard. The consumer is the group and not one of its
    workers, so that another worker can continue.
    """
    key = OffsetKey("billing", "orders", 3)
    assert (key.consumer, key.stream, key.shard) == ("billing", "orders", 3)
    assert OffsetKey("billing", "orders").shard == 0
    with pytest.raises(ValueError, match="consumer is empty"):
        OffsetKey("", "orders")


def test_delete_removes_one_offset_and_no_other(
    store: SyncOffsetStore, key: OffsetKey, other: OffsetKey
) -> None:
    """`delete` removes the offset of one topic and consumer: it is `None` again."""
    store.save(key, 100)
    store.save(other, 999)
    store.delete(key)
    assert (store.load(key), store.load(other)) == (None, 999)


def test_delete_of_nothing_is_no_error(store: SyncOffsetStore, key: OffsetKey) -> None:
    """`delete` of an offset that is not there succeeds.

    Differs: it returns whether there was one.
    """
    assert store.delete(key) is False
    store.save(key, 1)
    assert store.delete(key) is True


def test_after_a_delete_a_consumer_starts_anew(store: SyncOffsetStore, key: OffsetKey) -> None:
    """`delete` is for resetting a position: any offset can be saved afterwards."""
    store.save(key, 100)
    store.delete(key)
    assert store.save(key, 3).previous is None
    assert store.load(key) == 3


def test_list_all_maps_keys_to_offsets(
    store: SyncOffsetStore, key: OffsetKey, other: OffsetKey
) -> None:
    """`list_all` returns all stored offsets by topic and consumer."""
    assert store.list_all() == {}
    store.save(key, 100)
    store.save(other, 999)
    assert store.list_all() == {key: 100, other: 999}


def test_list_all_of_one_consumer(store: SyncOffsetStore, key: OffsetKey, other: OffsetKey) -> None:
    """`list_all` lists everything.

    Differs: it takes a consumer, and then lists its offsets only.
    """
    store.save(key, 100)
    store.save(other, 999)
    assert store.list_all(other.consumer) == {other: 999}


def test_list_all_is_a_copy(store: SyncOffsetStore, key: OffsetKey) -> None:
    """The map is the caller's own: changing it changes nothing that is stored."""
    store.save(key, 1)
    store.list_all().clear()
    assert store.list_all() == {key: 1}


def test_a_save_says_what_it_replaced(store: SyncOffsetStore, key: OffsetKey) -> None:
    """`save` returns when the offset is stored.

    Differs: it returns a `CommitInfo`, which LANCE makes for hooks only.
    """
    first, second = store.save(key, 1), store.save(key, 5)
    assert isinstance(second, CommitInfo)
    assert (first.previous, second.previous, second.position) == (None, 1, 5)


def test_a_lower_position_is_refused_unless_it_is_meant(
    store: SyncOffsetStore, key: OffsetKey
) -> None:
    """`save` stores any offset.

    Differs: a lower one is an `OffsetRegression`, because going back is nearly always a mistake;
    `rewind=True` says that it is meant.
    """
    store.save(key, 100)
    with pytest.raises(OffsetRegression, match="rewind=True"):
        store.save(key, 42)
    assert store.load(key) == 100
    store.save(key, 42, rewind=True)
    assert store.load(key) == 42


def test_the_same_position_again_writes_nothing(store: SyncOffsetStore, key: OffsetKey) -> None:
    """`save` of what is stored already succeeds.

    Differs: nothing is written, and `changed` is false.
    """
    assert store.save(key, 7).changed
    assert not store.save(key, 7).changed


def test_a_worker_that_was_replaced_cannot_save(store: SyncOffsetStore, key: OffsetKey) -> None:
    """The last save wins.

    Differs: with `expected` a save is refused if another worker has saved since, with an
    `OffsetConflict`; so only one of two workers goes on.
    """
    store.save(key, 10)
    store.save(key, 20, expected=10)
    with pytest.raises(OffsetConflict):
        store.save(key, 15, expected=10)
    assert store.load(key) == 20


def test_several_offsets_are_saved_together(
    store: SyncOffsetStore, key: OffsetKey, other: OffsetKey
) -> None:
    """Offsets are saved one by one.

    Differs: `save_many` saves several with few syncs; if one of them is refused, none is written.
    """
    store.save_many({key: 5, other: 6})
    with pytest.raises(OffsetRegression):
        store.save_many({key: 7, other: 1})
    assert store.list_all() == {key: 5, other: 6}


def test_a_store_is_shared_by_threads(store: SyncOffsetStore, key: OffsetKey) -> None:
    """A store is `Send` and `Sync`: threads use one at the same time, and no save is lost."""

    def work(_: int) -> int:
        while True:
            stored = store.load(key)
            try:
                return store.save(key, (stored or 0) + 1, expected=stored).position
            except OffsetConflict:
                continue

    with ThreadPoolExecutor(THREADS) as pool:
        counted = sorted(pool.map(work, range(10)))
    assert counted == list(range(1, 11))


def test_errors_have_one_root() -> None:
    """Every method returns the client's error type."""
    assert issubclass(OffsetConflict, OffsetError)
    assert issubclass(OffsetError, OttlaError)


def test_memory_is_empty_at_first_and_lost_with_the_store() -> None:
    """`MemoryOffsetStore::new` has no offsets, and keeps none beyond the process."""
    store = SyncMemoryOffsetStore()
    store.save(OffsetKey("billing", "orders"), 1)
    assert SyncMemoryOffsetStore().list_all() == {}


async def test_memory_is_shared_by_passing_it_on() -> None:
    """Clones of a `MemoryOffsetStore` share their offsets.

    Differs: there are no clones in Python; the same object is passed on. Its `sync` is the same
    store for blocking code.
    """
    store = MemoryOffsetStore()
    key = OffsetKey("billing", "orders")
    await store.save(key, 9)
    assert store.sync.load(key) == 9

"""Wrong arguments are refused before anything is stored, and the store goes on working."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.offsets import (
    CollectingCommitHook,
    HookedOffsetStore,
    InvalidOffsetArgument,
    InvalidOffsetType,
    Lance,
    MemoryOffsetStore,
    OffsetKey,
    SyncLockFileOffsetStore,
    SyncMemoryOffsetStore,
    SyncSqliteOffsetStore,
)
from tests.support.sizes import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.offsets import SyncOffsetStore

KEY = OffsetKey("group", "orders")
WRONG: st.SearchStrategy[Any] = st.one_of(
    st.floats(), st.booleans(), st.text(), st.binary(), st.integers(max_value=-1), st.just([1])
)


@pytest.mark.parametrize("kind", ["memory", "files", "sqlite"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(position=WRONG, expected=st.one_of(WRONG, st.just(5)), epoch=st.one_of(WRONG, st.none()))
def test_a_wrong_argument_leaves_the_store_as_it_was(
    kind: str, tmp_path: Path, position: Any, expected: Any, epoch: Any
) -> None:
    store: SyncOffsetStore = SyncMemoryOffsetStore()
    if kind == "files":
        store = SyncLockFileOffsetStore(tmp_path / "offsets", durability="rename")
    elif kind == "sqlite":
        store = SyncSqliteOffsetStore(tmp_path / "x.db")
    store.save(KEY, 5, rewind=True)
    for call in (
        lambda: store.save(KEY, position),
        lambda: store.save(KEY, position, expected=5),
        lambda: store.save(KEY, position, expected=expected, epoch=epoch, rewind=True),
        lambda: store.save_many({KEY: position}),
    ):
        with pytest.raises(InvalidOffsetArgument, match=r"position|epoch|expected"):
            call()
        assert store.load(KEY) == 5
    assert store.save(KEY, 6, expected=5).previous == 5
    store.close()


def test_a_position_that_is_no_int_does_not_wedge_its_key() -> None:
    connection = sqlite3.connect(":memory:")
    store = SyncSqliteOffsetStore()
    store.create_table(connection)
    bound = store.bind(connection)
    bound.save(KEY, 1)
    wrong: Any = 2.5
    for expected in (1, None):
        with pytest.raises(TypeError, match=r"position is 2.5 of type float, it must be an int"):
            bound.save(KEY, wrong, expected=expected)
    assert bound.load(KEY) == 1
    connection.close()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ((1, "b"), "consumer is 1 of type int"),
        (("a", b"b"), "stream is b'b' of type bytes"),
        (("a", "b", "0"), "shard is '0' of type str"),
        (("a", "b", True), "shard is True of type bool"),
    ],
)
def test_keys_say_what_is_wrong_with_them(fields: tuple[Any, ...], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        OffsetKey(*fields)


def test_words_mean_what_members_mean_and_others_are_refused(tmp_path: Path) -> None:
    """A word used to be neither member: "fsync" did not sync, and "raise" did not raise."""
    store = SyncLockFileOffsetStore(tmp_path, durability="fsync", on_corrupt="raise")
    store.save(KEY, 1)
    [file] = tmp_path.rglob("*.offset")
    file.write_bytes(b"nonsense")
    with pytest.raises(Exception, match="does not hold a position"):
        store.load(KEY)
    with pytest.raises(ValueError, match="durability is 'fast', it must be one of 'fsync'"):
        SyncLockFileOffsetStore(tmp_path, durability="fast")
    with pytest.raises(ValueError, match="on_error is 'ignore', it must be one of 'log', 'raise'"):
        HookedOffsetStore(MemoryOffsetStore(), on_error="ignore")


NOT_KEYS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.integers(), st.text(), st.tuples(st.text(), st.text()), st.just([]), st.just({})
)


@pytest.mark.parametrize("kind", ["memory", "files", "sqlite", "bound"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
@given(wrong=NOT_KEYS)
def test_what_is_no_key_is_refused_by_every_call(kind: str, tmp_path: Path, wrong: Any) -> None:
    store: Any = SyncMemoryOffsetStore()
    if kind == "files":
        store = SyncLockFileOffsetStore(tmp_path / "offsets", durability="rename")
    elif kind != "memory":
        store = SyncSqliteOffsetStore(tmp_path / "x.db")
    store.save(KEY, 5, rewind=True)
    used = store
    if kind == "bound":
        connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
        connection.execute("BEGIN")
        used = store.bind(connection)
    calls: list[Callable[[], object]] = [
        lambda: used.load(wrong),
        lambda: used.save(wrong, 1),
        lambda: used.save(wrong, 6, expected=5),
        lambda: used.delete(wrong),
        lambda: used.save(KEY, 6, rewind="no"),
    ]
    if wrong != {}:  # a mapping, if an empty one
        calls += [lambda: used.save_many(wrong)]
    if wrong is not None and wrong != {}:
        calls += [lambda: used.save_many({KEY: 6}, expected=wrong)]
    if kind != "bound" and wrong is not None and not isinstance(wrong, str):
        calls += [lambda: used.list_all(wrong)]
    for call in calls:
        with pytest.raises(InvalidOffsetType, match="it must be"):
            call()
        assert used.load(KEY) == 5
    if kind == "bound":
        connection.close()
    store.close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SyncLockFileOffsetStore(None), "base_dir is None of type NoneType"),  # type: ignore[arg-type]
        (lambda: SyncLockFileOffsetStore(""), "base_dir is '', it must be the path"),
        (lambda: SyncLockFileOffsetStore("x", "lance"), "layout is 'lance' of type str"),  # type: ignore[arg-type]
        (lambda: SyncLockFileOffsetStore("x", lock_timeout="1"), "lock_timeout is '1'"),  # type: ignore[arg-type]
        (lambda: SyncLockFileOffsetStore("x", lock_timeout=-1), "lock_timeout is -1"),
        (lambda: SyncLockFileOffsetStore("x", exclusive=1), "exclusive is 1 of type int"),  # type: ignore[arg-type]
        (lambda: SyncLockFileOffsetStore("x", durability=[]), "durability is \\[\\], it must be"),  # type: ignore[arg-type]
        (lambda: SyncSqliteOffsetStore(7), "database is 7 of type int"),  # type: ignore[arg-type]
        (lambda: SyncSqliteOffsetStore("x", table=None), "table is None"),  # type: ignore[arg-type]
        (lambda: SyncSqliteOffsetStore("x", table="a b"), "'a b' is not a valid table name"),
        (lambda: Lance("a/b"), "is not a valid directory name"),
        (lambda: HookedOffsetStore(MemoryOffsetStore(), timeout="1"), "timeout is '1'"),  # type: ignore[arg-type]
        (lambda: HookedOffsetStore(MemoryOffsetStore(), print), "must have on_commit"),  # type: ignore[arg-type]
    ],
)
def test_a_store_that_cannot_be_is_refused_when_it_is_made(make: Any, said: str) -> None:
    with pytest.raises(InvalidOffsetArgument, match=said):
        make()


async def test_a_hook_can_be_added_later() -> None:
    store, told = HookedOffsetStore(MemoryOffsetStore()), CollectingCommitHook()
    await store.save(KEY, 1)
    store.add_hook(told)
    await store.save(KEY, 2)
    assert [info.position for info in told.commits()] == [2]

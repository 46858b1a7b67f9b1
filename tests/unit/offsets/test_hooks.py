"""Hooks: T72 and T73 of the specification, and the hooks of the room."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

import prometheus_client
import pytest

from ottla.offsets import (
    CollectingCommitHook,
    HookedOffsetStore,
    LockFileOffsetStore,
    LoggingCommitHook,
    MemoryOffsetStore,
    OffsetKey,
    OffsetRegression,
    OnHookError,
    PostCommitHookError,
    PrometheusCommitHook,
    SyncHookedOffsetStore,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.offsets import CommitInfo

KEY = OffsetKey("group", "orders")


class Failing:
    def on_commit(self, info: CommitInfo) -> None:
        raise RuntimeError(f"no hook for {info.position}")


class Coroutine:
    def __init__(self) -> None:
        self.seen: list[tuple[int, asyncio.AbstractEventLoop]] = []

    async def on_commit(self, info: CommitInfo) -> None:
        await asyncio.sleep(0)
        self.seen.append((info.position, asyncio.get_running_loop()))


class Stuck:
    """Waits in a thread until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def on_commit(self, _info: CommitInfo) -> None:
        self.go.wait(10)


class StuckCoroutine:
    async def on_commit(self, _info: CommitInfo) -> None:
        await asyncio.sleep(10)


async def test_t72_previous_is_what_was_stored_also_before_a_restart(tmp_path: Path) -> None:
    hook = CollectingCommitHook()
    store = HookedOffsetStore(LockFileOffsetStore(tmp_path), hook)
    await store.save(KEY, 42)
    await store.save(KEY, 100)
    reopened = HookedOffsetStore(LockFileOffsetStore(tmp_path), hook)
    await reopened.save(KEY, 101)
    assert [(info.position, info.previous) for info in hook.commits()] == [
        (42, None),
        (100, 42),
        (101, 100),
    ]
    assert {info.key for info in hook.commits()} == {KEY}
    assert (await reopened.load(KEY), await reopened.list_all()) == (101, {KEY: 101})


def test_t72_commits_is_a_copy_and_clear_empties() -> None:
    hook = CollectingCommitHook()
    store = SyncHookedOffsetStore(MemoryOffsetStore().sync, hook)
    store.save(KEY, 1)
    hook.commits().clear()
    assert len(hook.commits()) == 1
    hook.clear()
    assert hook.commits() == []


async def test_t72_hooks_run_in_order() -> None:
    order: list[str] = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_commit(self, info: CommitInfo) -> None:
            order.append(f"{self.name}{info.position}")

    hooks = [Named(name) for name in "abc"]
    other = OffsetKey("group", "other")
    await HookedOffsetStore(MemoryOffsetStore(), *hooks).save_many({KEY: 1, other: 2})
    SyncHookedOffsetStore(MemoryOffsetStore().sync, *hooks).save_many({KEY: 3, other: 4})
    assert order == ["a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3", "c3", "a4", "b4", "c4"]


async def test_t73_a_failure_stops_no_other_hook_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hook = CollectingCommitHook()
    await HookedOffsetStore(MemoryOffsetStore(), Failing(), hook).save(KEY, 1)
    SyncHookedOffsetStore(MemoryOffsetStore().sync, Failing(), hook).save(KEY, 2)
    assert [info.position for info in hook.commits()] == [1, 2]
    assert "no hook for 1" in caplog.text
    assert "no hook for 2" in caplog.text
    # Not the text: PySpark, if tests before this one ran it, has every handler write JSON.
    assert all(record.exc_info for record in caplog.records)


async def test_t73_raise_says_that_the_save_has_happened() -> None:
    hook = CollectingCommitHook()
    store = HookedOffsetStore(
        MemoryOffsetStore(), Failing(), hook, Failing(), on_error=OnHookError.RAISE
    )
    with pytest.raises(PostCommitHookError) as raised:
        await store.save(KEY, 1)
    assert raised.value.committed is True
    assert raised.value.info == hook.commits()[0]
    assert [str(error) for error in raised.value.exceptions] == ["no hook for 1"] * 2
    assert await store.load(KEY) == 1
    caught = None
    try:
        raise raised.value
    except* RuntimeError as part:
        caught = part
    assert isinstance(caught, PostCommitHookError)
    assert caught.infos == raised.value.infos
    sync = SyncHookedOffsetStore(MemoryOffsetStore().sync, Failing(), on_error=OnHookError.RAISE)
    with pytest.raises(PostCommitHookError):
        sync.save(KEY, 1)
    assert sync.load(KEY) == 1


async def test_t73_a_slow_hook_is_left_behind() -> None:
    stuck = Stuck()
    for slow in (stuck, StuckCoroutine()):
        hook = CollectingCommitHook()
        store = HookedOffsetStore(
            MemoryOffsetStore(), slow, hook, on_error=OnHookError.RAISE, timeout=0.5
        )
        with pytest.raises(PostCommitHookError) as raised:
            await store.save(KEY, 1)
        assert [type(error) for error in raised.value.exceptions] == [TimeoutError]
        sync = SyncHookedOffsetStore(
            MemoryOffsetStore().sync, slow, hook, on_error=OnHookError.RAISE, timeout=0.5
        )
        with pytest.raises(PostCommitHookError):
            await asyncio.to_thread(sync.save, KEY, 2)
        assert [info.position for info in hook.commits()] == [1, 2]
    stuck.go.set()


async def test_t73_what_changes_nothing_is_told_to_nobody() -> None:
    hook = CollectingCommitHook()
    store = HookedOffsetStore(MemoryOffsetStore(), hook)
    await store.save(KEY, 5)
    hook.clear()
    with pytest.raises(OffsetRegression):
        await store.save(KEY, 4)
    await store.save(KEY, 5)
    await store.delete(KEY)
    assert hook.commits() == []
    assert isinstance(store.inner, MemoryOffsetStore)


async def test_a_coroutine_runs_on_the_loop_of_the_saver() -> None:
    hook = Coroutine()
    await HookedOffsetStore(MemoryOffsetStore(), hook).save(KEY, 1)
    assert hook.seen == [(1, asyncio.get_running_loop())]


def test_a_coroutine_runs_for_a_synchronous_saver_too() -> None:
    hook = Coroutine()
    with SyncHookedOffsetStore(MemoryOffsetStore().sync, hook) as store:
        store.save(KEY, 1)
    assert [position for position, _ in hook.seen] == [1]


def test_the_logging_hook(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    logger = logging.getLogger("commits")
    store = SyncHookedOffsetStore(
        MemoryOffsetStore().sync, LoggingCommitHook(logger, logging.INFO), LoggingCommitHook()
    )
    store.save(KEY, 1)
    store.save(KEY, 2)
    assert [record.getMessage() for record in caplog.records] == [
        "'group' in 'orders' shard 0 saved at 1, before None",
        "'group' in 'orders' shard 0 saved at 2, before 1",
    ]


def test_the_prometheus_hook() -> None:
    registry = prometheus_client.CollectorRegistry()
    store = SyncHookedOffsetStore(MemoryOffsetStore().sync, PrometheusCommitHook(registry))
    store.save(KEY, 7)
    store.save(KEY, 9)
    text = prometheus_client.generate_latest(registry).decode()
    labels = '{consumer="group",shard="0",stream="orders"}'
    assert f"ottla_offsets_position{labels} 9.0" in text
    assert f"ottla_offsets_saves_total{labels} 2.0" in text

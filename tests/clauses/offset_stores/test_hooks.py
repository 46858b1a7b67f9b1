"""Hooks: what runs after an offset was committed"""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest

from ottla.offsets import (
    CollectingCommitHook,
    CommitInfo,
    HookedOffsetStore,
    LoggingCommitHook,
    MemoryOffsetStore,
    OffsetKey,
    OffsetRegression,
    PostCommitHookError,
    PrometheusCommitHook,
    SyncHookedOffsetStore,
    SyncLockFileOffsetStore,
    SyncMemoryOffsetStore,
)

if TYPE_CHECKING:
    from pathlib import Path

KEY: Final = OffsetKey("100", "1")
OTHER: Final = OffsetKey("200", "2")


class Failing:
    """A hook that fails."""

    def on_commit(self, info: CommitInfo) -> None:
        raise ArithmeticError(info.position)


class Slow:
    """A hook that does not return."""

    def __init__(self) -> None:
        self.leave = threading.Event()

    def on_commit(self, _info: CommitInfo) -> None:
        self.leave.wait()


def test_a_commit_info_has_what_a_hook_needs() -> None:
    """`CommitInfo` has topic, consumer, offset, previous offset and the time of the commit."""
    before = datetime.now(UTC)
    info = SyncMemoryOffsetStore().save(KEY, 42)
    assert (info.key.stream, info.key.consumer, info.position) == ("1", "100", 42)
    assert info.previous is None
    assert before <= info.timestamp <= datetime.now(UTC)


def test_a_save_calls_the_hook() -> None:
    """`on_commit` is called after an offset was committed, with its `CommitInfo`."""
    hook = CollectingCommitHook()
    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), hook)
    returned = store.save(KEY, 42)
    assert hook.commits() == [returned]


def test_any_object_with_on_commit_is_a_hook() -> None:
    """`PostCommitHook` is a trait with one method; whatever has it is a hook."""
    seen: list[int] = []

    class Mine:
        def on_commit(self, info: CommitInfo) -> None:
            seen.append(info.position)

    SyncHookedOffsetStore(SyncMemoryOffsetStore(), Mine()).save(KEY, 1)
    assert seen == [1]


async def test_a_hook_may_be_asynchronous() -> None:
    """A hook is a plain method; what takes long is to be handed to a task.

    Differs: `on_commit` may be a coroutine, which is awaited.
    """
    seen: list[int] = []

    class Mine:
        async def on_commit(self, info: CommitInfo) -> None:
            await asyncio.sleep(0)
            seen.append(info.position)

    await HookedOffsetStore(MemoryOffsetStore(), Mine()).save(KEY, 1)
    assert seen == [1]


def test_a_hook_runs_when_the_offset_is_stored(tmp_path: Path) -> None:
    """Hooks run after the inner store has saved: the hook can load the new offset."""
    store = SyncLockFileOffsetStore(tmp_path)
    seen: list[int | None] = []

    class Mine:
        def on_commit(self, info: CommitInfo) -> None:
            seen.append(store.load(info.key))

    SyncHookedOffsetStore(store, Mine()).save(KEY, 7)
    assert seen == [7]


def test_all_hooks_run_in_their_order() -> None:
    """Several hooks are called one after the other, as they were added."""
    order: list[str] = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_commit(self, _info: CommitInfo) -> None:
            order.append(self.name)

    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), Named("a"), Named("b"), Named("c"))
    store.save(KEY, 1)
    assert order == ["a", "b", "c"]


def test_hooks_are_added_to_a_store() -> None:
    """`add_hook` adds a hook, `with_hooks` several.

    Differs: the constructor takes any number of them; `add_hook` adds one to a store that is in
    use, and returns nothing.
    """
    first, second, third = (CollectingCommitHook() for _ in range(3))
    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), first, second)
    store.save(KEY, 1)
    store.add_hook(third)
    store.save(KEY, 2)
    assert [len(hook.commits()) for hook in (first, second, third)] == [2, 2, 1]


def test_the_first_commit_has_no_previous_offset() -> None:
    """`previous_offset` is `None` at the first commit, then the offset before."""
    hook = CollectingCommitHook()
    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), hook)
    store.save(KEY, 42)
    store.save(KEY, 100)
    assert [(one.position, one.previous) for one in hook.commits()] == [(42, None), (100, 42)]


def test_previous_offsets_are_kept_for_each_key() -> None:
    """The previous offset is that of the same topic and consumer."""
    hook = CollectingCommitHook()
    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), hook)
    store.save(KEY, 42)
    store.save(OTHER, 500)
    store.save(KEY, 43)
    assert [one.previous for one in hook.commits()] == [None, None, 42]


def test_the_previous_offset_is_what_was_stored(tmp_path: Path) -> None:
    """The previous offset is what the store object loaded or saved last.

    Differs: it is what is stored, also by another process, and without a load before.
    """
    SyncLockFileOffsetStore(tmp_path).save(KEY, 10)
    hook = CollectingCommitHook()
    store = SyncHookedOffsetStore(SyncLockFileOffsetStore(tmp_path), hook)
    store.save(KEY, 11)
    SyncLockFileOffsetStore(tmp_path).save(KEY, 20)
    store.save(KEY, 21)
    assert [one.previous for one in hook.commits()] == [10, 20]


def test_a_delete_forgets_the_previous_offset() -> None:
    """After `delete` the next commit has no previous offset; `delete` itself calls no hook."""
    hook = CollectingCommitHook()
    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), hook)
    store.save(KEY, 5)
    store.delete(KEY)
    store.save(KEY, 3)
    assert [one.previous for one in hook.commits()] == [None, None]


def test_a_failed_save_calls_no_hook() -> None:
    """Hooks are called after a successful commit only."""
    hook = CollectingCommitHook()
    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), hook)
    store.save(KEY, 5)
    with pytest.raises(OffsetRegression):
        store.save(KEY, 1)
    assert len(hook.commits()) == 1


def test_a_save_that_changes_nothing_calls_no_hook() -> None:
    """Every successful `save` calls the hooks.

    Differs: not one that stores the offset that is stored already, since nothing was committed.
    """
    hook = CollectingCommitHook()
    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), hook)
    store.save(KEY, 5)
    assert not store.save(KEY, 5).changed
    assert len(hook.commits()) == 1


def test_each_of_several_saves_calls_the_hooks() -> None:
    """Each commit is one call.

    Differs: so it is for each offset of a `save_many`.
    """
    hook = CollectingCommitHook()
    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), hook)
    store.save_many({KEY: 1, OTHER: 2})
    assert [(one.key, one.position) for one in hook.commits()] == [(KEY, 1), (OTHER, 2)]


def test_a_hook_that_fails_is_logged_and_the_others_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A hook that fails makes `save` fail, and the hooks after it are not called.

    Differs: the offset is stored already, so that `save` succeeds; the failure is logged, and all
    hooks run.
    """
    hook = CollectingCommitHook()
    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), Failing(), hook)
    assert store.save(KEY, 5).position == 5
    assert (store.load(KEY), len(hook.commits())) == (5, 1)
    assert "Failing failed after '100' in '1' shard 0 was saved at 5" in caplog.text


def test_a_hook_that_fails_can_be_raised() -> None:
    """The error of a hook is returned by `save`.

    Differs: only with `on_error="raise"`, after all hooks ran; the error says that the offset is
    committed.
    """
    hook = CollectingCommitHook()
    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), Failing(), hook, on_error="raise")
    with pytest.raises(PostCommitHookError) as failed:
        store.save(KEY, 5)
    assert failed.value.committed
    assert isinstance(failed.value.exceptions[0], ArithmeticError)
    assert (store.load(KEY), len(hook.commits())) == (5, 1)


def test_a_hook_that_blocks_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    """A hook should not block for long.

    Differs: after `timeout`, 5 seconds by default, it counts as failed and the next one runs.
    """
    slow, hook = Slow(), CollectingCommitHook()
    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), slow, hook, timeout=0.05)
    store.save(KEY, 5)
    slow.leave.set()
    assert len(hook.commits()) == 1
    assert "took more than 0.05 s" in caplog.text


def test_the_inner_store_can_be_asked_for() -> None:
    """`inner` returns the store that is wrapped."""
    inner = SyncMemoryOffsetStore()
    assert SyncHookedOffsetStore(inner).inner is inner


def test_all_else_is_done_by_the_inner_store() -> None:
    """`load`, `delete` and `list_all` are those of the inner store."""
    inner = SyncMemoryOffsetStore()
    inner.save(KEY, 5)
    store = SyncHookedOffsetStore(inner, CollectingCommitHook())
    assert (store.load(KEY), store.list_all()) == (5, {KEY: 5})
    store.delete(KEY)
    assert inner.list_all() == {}


def test_logging_commits(caplog: pytest.LogCaptureFixture) -> None:
    """`LoggingCommitHook` logs each commit at debug level: topic, consumer, offset and previous."""
    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), LoggingCommitHook())
    with caplog.at_level(logging.DEBUG):
        store.save(KEY, 42)
        store.save(KEY, 43)
    assert [one.levelname for one in caplog.records] == ["DEBUG", "DEBUG"]
    assert caplog.messages[1] == "'100' in '1' shard 0 saved at 43, before 42"


def test_logging_elsewhere_and_louder() -> None:
    """Commits are logged by the crate's own logger.

    Differs: a logger and a level can be given.
    """
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger = logging.getLogger("mine")
    handler = Keep()
    logger.addHandler(handler)
    hook = LoggingCommitHook(logger, logging.WARNING)
    SyncHookedOffsetStore(SyncMemoryOffsetStore(), hook).save(KEY, 1)
    logger.removeHandler(handler)
    assert [(one.name, one.levelname) for one in records] == [("mine", "WARNING")]


def test_collecting_commits() -> None:
    """`CollectingCommitHook` keeps all commits for tests; `commits` returns a copy."""
    hook = CollectingCommitHook()
    info = CommitInfo(KEY, 42, None, datetime.now(UTC), changed=True)
    hook.on_commit(info)
    hook.commits().clear()
    assert hook.commits() == [info]


def test_collected_commits_are_cleared() -> None:
    """`clear` forgets what was collected."""
    hook = CollectingCommitHook()
    SyncHookedOffsetStore(SyncMemoryOffsetStore(), hook).save(KEY, 1)
    hook.clear()
    assert hook.commits() == []


def test_one_collector_serves_several_stores() -> None:
    """A hook is shared by stores and threads."""
    hook = CollectingCommitHook()
    for _ in range(2):
        SyncHookedOffsetStore(SyncMemoryOffsetStore(), hook).save(KEY, 1)
    assert len(hook.commits()) == 2


def test_commits_as_metrics() -> None:
    """Hooks are for metrics, among others.

    Differs: `PrometheusCommitHook` comes with the library.
    """
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    store = SyncHookedOffsetStore(SyncMemoryOffsetStore(), PrometheusCommitHook(registry))
    store.save(KEY, 41)
    store.save(KEY, 42)
    labels = {"consumer": "100", "stream": "1", "shard": "0"}
    assert registry.get_sample_value("ottla_offsets_position", labels) == 42
    assert registry.get_sample_value("ottla_offsets_saves_total", labels) == 2

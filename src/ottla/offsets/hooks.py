"""Run hooks after each save that changed something: in order, and after the save is durable.

A hook that fails or takes too long does not affect other hooks or the save. A plain hook runs in a
thread, which can be abandoned when it takes too long; a coroutine runs in the event loop and is
cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.offsets.errors import PostCommitHookError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from prometheus_client import CollectorRegistry

    from ottla.offsets.protocol import PostCommitHook
    from ottla.offsets.types import CommitInfo

DEFAULT_HOOK_TIMEOUT: Final = 5.0

_logger = logging.getLogger(__name__)


class OnHookError(Enum):
    """What happens when a hook fails: log it, or raise it after all hooks have run."""

    LOG = "log"
    RAISE = "raise"
    """Raise `PostCommitHookError`."""


class LoggingCommitHook:
    """Logs each save."""

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.DEBUG) -> None:
        self._logger = logger or _logger
        self._level = level

    def on_commit(self, info: CommitInfo) -> None:
        self._logger.log(
            self._level, "%s saved at %d, before %s", info.key, info.position, info.previous
        )


class CollectingCommitHook:
    """Collects all saves, for tests. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commits: list[CommitInfo] = []

    def on_commit(self, info: CommitInfo) -> None:
        with self._lock:
            self._commits.append(info)

    def commits(self) -> list[CommitInfo]:
        """A copy of all saves, oldest first."""
        with self._lock:
            return self._commits.copy()

    def clear(self) -> None:
        with self._lock:
            self._commits.clear()


class PrometheusCommitHook:
    """Position and number of saves per key, as Prometheus metrics."""

    def __init__(
        self, registry: CollectorRegistry | None = None, prefix: str = "ottla_offsets"
    ) -> None:
        """Into the default registry unless another is given. Needs `ottla[metrics]`."""
        import prometheus_client

        labels = ("consumer", "stream", "shard")
        into = registry or prometheus_client.REGISTRY
        self._position = prometheus_client.Gauge(
            f"{prefix}_position", "The stored position.", labels, registry=into
        )
        self._saves = prometheus_client.Counter(
            f"{prefix}_saves", "Saves that changed the position.", labels, registry=into
        )

    def on_commit(self, info: CommitInfo) -> None:
        labels = (info.key.consumer, info.key.stream, str(info.key.shard))
        self._position.labels(*labels).set(info.position)
        self._saves.labels(*labels).inc()


class HookRunner:
    """Runs hooks for saves that are durable."""

    def __init__(
        self, hooks: Sequence[PostCommitHook], on_error: OnHookError, timeout: float
    ) -> None:
        self._hooks = tuple(hooks)
        self._on_error = on_error
        self._timeout = timeout

    def add(self, hook: PostCommitHook) -> None:
        """One more, after the others."""
        self._hooks = (*self._hooks, hook)

    def run(self, infos: Iterable[CommitInfo]) -> None:
        """Run hooks for a blocking save; coroutines run in a new event loop."""
        failed = _Failures()
        for info in _changed(infos):
            for hook in self._hooks:
                try:
                    self._run_one(hook, info)
                except Exception as error:  # noqa: BLE001  # a hook may fail in any way
                    failed.add(hook, info, error)
        failed.settle(self._on_error)

    async def arun(self, infos: Iterable[CommitInfo]) -> None:
        """For a saver on an event loop."""
        failed = _Failures()
        for info in _changed(infos):
            for hook in self._hooks:
                try:
                    async with asyncio.timeout(self._timeout):
                        await _call(hook, info)
                except Exception as error:  # noqa: BLE001  # a hook may fail in any way
                    failed.add(hook, info, error)
        failed.settle(self._on_error)

    def _run_one(self, hook: PostCommitHook, info: CommitInfo) -> None:
        failures: list[Exception] = []

        def work() -> None:
            try:
                outcome = hook.on_commit(info)
                if outcome is not None:
                    asyncio.run(_wait(outcome, self._timeout))
            except Exception as error:  # noqa: BLE001  # it is raised again by the saver
                failures.append(error)

        thread = threading.Thread(target=work, name="ottla-commit-hook", daemon=True)
        thread.start()
        thread.join(self._timeout)
        if thread.is_alive():
            raise TimeoutError(f"the hook took more than {self._timeout:g} s")
        if failures:
            raise failures[0]


class _Failures:
    def __init__(self) -> None:
        self._errors: list[Exception] = []
        self._infos: dict[CommitInfo, None] = {}

    def add(self, hook: PostCommitHook, info: CommitInfo, error: Exception) -> None:
        _logger.error(
            "%s failed after %s was saved at %d",
            type(hook).__name__,
            info.key,
            info.position,
            exc_info=error,
        )
        self._errors.append(error)
        self._infos[info] = None

    def settle(self, on_error: OnHookError) -> None:
        if self._errors and on_error is OnHookError.RAISE:
            raise PostCommitHookError.of(self._errors, list(self._infos))


def _changed(infos: Iterable[CommitInfo]) -> list[CommitInfo]:
    return [info for info in infos if info.changed]


async def _call(hook: PostCommitHook, info: CommitInfo) -> None:
    if inspect.iscoroutinefunction(hook.on_commit):
        outcome: Awaitable[None] | None = hook.on_commit(info)
    else:
        outcome = await asyncio.to_thread(hook.on_commit, info)
    if outcome is not None:
        await outcome


async def _wait(outcome: Awaitable[None], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await outcome

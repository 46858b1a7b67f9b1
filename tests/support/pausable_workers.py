"""Worker threads whose jobs can be held, so that a test decides what happens meanwhile."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.workers import BLOCKING_THREADS, Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Hold:
    """Jobs of one name, held before they begin or after they have ended."""

    def __init__(self, *, done: bool) -> None:
        self.done = done
        self.is_over = False
        self.reached = asyncio.Event()
        self.jobs: list[Callable[[], object]] = []

    def release(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()


class PausableExecutor(ThreadPoolExecutor):
    """Everything is submitted from the event loop's thread, and held there."""

    def __init__(self) -> None:
        super().__init__(BLOCKING_THREADS, thread_name_prefix="held")
        self.holds: dict[str, Hold] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        named = fn.func if isinstance(fn, partial) else fn
        hold = self.holds.get(named.__name__)
        if hold is None:
            return super().submit(fn, *args, **kwargs)
        answer: Future[Any] = Future()
        if hold.done:
            loop = asyncio.get_running_loop()
            job = super().submit(fn, *args, **kwargs)

            def ended(_: object) -> None:
                hold.jobs.append(partial(_settle, job, answer))
                hold.reached.set()
                if hold.is_over:  # it was still running when the others were released
                    hold.release()

            job.add_done_callback(lambda done: loop.call_soon_threadsafe(ended, done))
        else:
            begin = super().submit

            def go() -> None:
                begin(fn, *args, **kwargs).add_done_callback(partial(_settle, answer=answer))

            hold.jobs.append(go)
            hold.reached.set()
        return answer


def _settle(job: Future[Any], answer: Future[Any]) -> None:
    if (error := job.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(job.result())


class PausableWorkers(Workers):
    """To be put in the place of `Workers` before a node is made."""

    executor: PausableExecutor

    def __init__(self) -> None:
        super().__init__()
        self.executor = PausableExecutor()

    @contextmanager
    def held(self, name: str, *, done: bool = False) -> Iterator[Hold]:
        """Hold the jobs that run the function of this name; `done`: their results."""
        hold = self.executor.holds[name] = Hold(done=done)
        try:
            yield hold
        finally:
            del self.executor.holds[name]
            hold.is_over = True
            hold.release()

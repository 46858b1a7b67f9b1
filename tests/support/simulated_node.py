"""A real node whose time, workers and end are in the hands of a test.

Node, services, handlers, logs and files are the real ones, in a real directory. Different are

- the event loop: its time stands still until `pass_time`, and it runs until nothing is left to do
  but to wait (`settle`);
- the worker threads: see `pausable`;
- the metadata store, which answers at once;
- clients: a request goes to the dispatcher without a socket.

`kill` abandons the node as SIGKILL does: what the operating system has of its files stays.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from unittest.mock import patch

from ottla.broker.running.node import Node
from ottla.broker.serving.context import Ack, Peer
from ottla.metadata.config.broker import load_broker_config
from ottla.wire.messages import read_response, request_parts
from ottla.wire.schema import API_NAMES
from tests.support.acks import durable
from tests.support.clocks import ManualClock
from tests.support.pausable import (
    InlineExecutor,
    Job,
    PausableExecutor,
    PausableLock,
    PausableStorage,
    PausableThread,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from pathlib import Path
    from random import Random

    from ottla.broker.workers import Workers

API_KEYS: Final = {name: key for key, name in API_NAMES.items()}
BEGINNING_MS: Final = 1_700_000_000_000
ENDLESS: Final = 100_000  # turns of the loop, or jobs, without an end

T = TypeVar("T")


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Its time is the test's."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__()

    def time(self) -> float:
        return self.now

    def settle(self) -> None:
        """Run until there is nothing to do but to wait."""
        for _ in range(ENDLESS):
            self.call_soon(self.stop)
            self.run_forever()
            if not self._ready:  # type: ignore[attr-defined]
                return
        raise AssertionError("the event loop never comes to rest")


class Errors(logging.Handler):
    """What the broker logs as errors; on a healthy disk there are none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


async def _end_at_once(workers: Workers) -> None:
    """`Workers.ended` without a thread."""
    workers.close()


class SimulatedNode:
    """`start`, then `ask` and `begin`, then `stop` or `kill`; as often as wanted."""

    def __init__(self, path: Path, sets: Sequence[str] = ()) -> None:
        self.path = path
        self.config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0", *sets])
        self.loop = SimulatedLoop()
        self.clock = ManualClock(BEGINNING_MS)
        self.errors = Errors()
        logging.getLogger("ottla").addHandler(self.errors)
        self.storage = PausableStorage()
        self.executor = PausableExecutor()
        self._node: Node | None = None
        self._patches = ExitStack()
        self._patches.enter_context(
            patch("ottla.metadata.metadata.ThreadPoolExecutor", InlineExecutor)
        )
        self._patches.enter_context(
            patch("ottla.broker.workers.ThreadPoolExecutor", self._make_executor)
        )
        self._patches.enter_context(patch("ottla.broker.workers.Workers.ended", _end_at_once))
        self._patches.enter_context(
            patch("ottla.broker.hosting.data.OsStorage", self._make_storage)
        )
        self._patches.enter_context(
            patch(
                "ottla.broker.hosting.journal._Thread",
                lambda loop: PausableThread(loop, self.executor),
            )
        )
        locks = SimpleNamespace(Lock=PausableLock)
        self._patches.enter_context(patch("ottla.log.partition.threading", locks))

    def _make_executor(self, *args: object, **options: object) -> PausableExecutor:
        if options.get("thread_name_prefix") == "ottla-read":
            return self.executor  # one order for all jobs of a node, whatever threads they have
        self.executor = PausableExecutor()
        return self.executor

    def _make_storage(self) -> PausableStorage:
        self.storage = PausableStorage()
        return self.storage

    # -- the node ---------------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        assert self._node is not None, "not running"
        return self._node

    def start(self, order: Random | None = None) -> None:
        self._node = self.complete(
            Node.start(self.config, self.path, clock=self.clock), order=order
        )

    def stop(self, order: Random | None = None) -> None:
        """A clean stop; jobs that it waits for go, in the order that is given."""
        self.complete(self.node.stop(), order=order)
        self._node = None

    def kill(self) -> None:
        node = self.node
        self.storage.killed = True
        self._end_tasks()
        for server in node.servers:
            server.close()
        for hosted in node.partitions:
            hosted.log._segments.close()
        node.data.close()
        node.metadata._store.close()
        self.errors.found.clear()
        self._node = None

    def _end_tasks(self) -> None:
        self.executor.kill()
        with warnings.catch_warnings():
            # Of coroutines that a task was about to await.
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.settle()

    def close(self) -> None:
        """Leave nothing behind."""
        if self._node is not None:
            self.kill()
        self._end_tasks()
        self.loop.close()
        self._patches.close()
        logging.getLogger("ottla").removeHandler(self.errors)

    # -- time and jobs ----------------------------------------------------------------------------

    @property
    def jobs(self) -> list[Job]:
        return self.executor.jobs

    def settle(self) -> None:
        self.loop.settle()

    def pass_time(self, ms: int) -> None:
        """On all clocks; timers that are due run."""
        self.clock.advance(ms)
        self.loop.now += ms / 1000
        self.settle()

    def go(self, job: Job, calls: int | None = None) -> None:
        self.executor.go(job, calls)
        self.settle()

    def go_all(self, order: Random | None = None) -> None:
        """Let all jobs end, and those that follow from them."""
        for _ in range(ENDLESS):
            self.settle()
            if not self.jobs:
                return
            self._go_one(order, self.jobs)
        raise AssertionError("there is always another job")

    def _go_one(self, order: Random | None, jobs: Sequence[Job]) -> None:
        ready = [job for job in jobs if not job.blocked] or list(jobs)
        self.go(ready[0] if order is None else order.choice(ready))

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a coroutine and run it until it waits."""
        task = self.loop.create_task(work)
        self.settle()
        return task

    def complete(self, work: Coroutine[Any, Any, T], *, order: Random | None = None) -> T:
        """Run a coroutine to its end: first the jobs that come from it go, if they can."""
        older = set(self.jobs)
        task = self.begin(work)
        for _ in range(ENDLESS):
            if task.done():
                return task.result()
            jobs = [job for job in self.jobs if job not in older and not job.blocked]
            if jobs or self.jobs:
                # An older job may hold the lock that all the new ones wait for.
                self._go_one(order, jobs or self.jobs)
            else:
                self.pass_time(100)
        raise AssertionError("it never ends")

    # -- clients ----------------------------------------------------------------------------------

    async def ask(self, api: str, version: int, body: Any) -> Any:
        """One request of a client of its own."""
        node = self.node
        parts = request_parts(API_KEYS[api], version, 1, "simulated", body)
        frame = memoryview(b"".join(parts))[4:]
        answer: Any = node.dispatcher.dispatch(frame, Peer("127.0.0.1", "PLAINTEXT"))
        while not isinstance(answer, list):
            if isinstance(answer, Ack):
                await durable(answer)
                answer = answer.parts
            else:
                answer = await answer
        return read_response(API_KEYS[api], version, memoryview(b"".join(answer))[4:])[1]

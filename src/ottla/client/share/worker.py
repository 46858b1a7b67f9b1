"""A work queue: a function is called with each record of a share group, so many at a time.

    def handle(record):
        ...

    ottla.share_worker(handle, "127.0.0.1:9092", group="g", topics=["orders"], concurrency=8)

Rules:

- A record whose call returns is accepted; the function can say "release" or "reject" by returning
  that. One whose call raises is released, or rejected, as `on_error` says.
- At most `concurrency` calls run at once. Async functions run in the event loop, others in threads.
- Locks are renewed for as long as a call takes.
- SIGTERM, SIGINT or `stop` end it gracefully: nothing more is taken, calls that run are waited for
  (`drain_timeout` seconds; then their records are released), decisions are sent, the group is left.
  A second signal does not wait.
- It outlives a cluster that is away and topics that do not exist yet, with a warning each time.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ottla.client import arguments
from ottla.client.errors import BadArgument, BrokerUnreachable, UnknownTopic, WrongProtocol
from ottla.client.share.consumer import ShareConsumer
from ottla.client.share.types import RecordNotHeld, ShareRecord, UndecodableRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.client.share.types import AckKind, Acknowledged

    Decision: TypeAlias = Literal["accept", "release", "reject"]
    Handler: TypeAlias = Callable[[ShareRecord], object]

CONCURRENCY: Final = 8
DRAIN_TIMEOUT: Final = 30.0
TAKE_TIMEOUT: Final = 1.0  # how long to wait for records before looking at the clock again

_DECISIONS: Final[dict[object, Decision]] = {
    "accept": "accept",
    "release": "release",
    "reject": "reject",
}

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class WorkerCounts:
    """What a worker has done: calls, and what became of the decisions about their records.

    `failed` calls raised. `unconfirmed` decisions did not reach the broker in time: their records
    are delivered again.
    """

    handled: int = 0
    failed: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    unconfirmed: int = 0

    def note(self, result: Acknowledged) -> None:
        """Count the outcome of a decision."""
        records = result.last_offset - result.first_offset + 1
        if result.error is not None:
            self.unconfirmed += records
        elif result.kind == "accept":
            self.accepted += records
        elif result.kind == "release":
            self.released += records
        elif result.kind == "reject":
            self.rejected += records


class ShareWorker:
    """A worker in an event loop that runs already: `counts = await ShareWorker(...).run()`.

    Further options are those of `ShareConsumer`. By default no more records are locked than are
    worked on; `max_poll_records` and `acquire_mode` change that. With `idle_timeout` the worker
    ends after so many seconds without a record.
    """

    def __init__(
        self,
        fn: Handler,
        bootstrap: str | Sequence[str],
        *,
        group: str,
        topics: Sequence[str],
        concurrency: int = CONCURRENCY,
        on_error: Literal["release", "reject"] = "release",
        drain_timeout: float = DRAIN_TIMEOUT,
        idle_timeout: float | None = None,
        **options: Any,
    ) -> None:
        arguments.function("fn", fn)
        arguments.choice("on_error", on_error, ("release", "reject"))
        concurrency = arguments.whole("concurrency", concurrency, 1)
        if not arguments.texts("topics", topics):
            raise BadArgument('topics: a worker needs some, such as topics=["orders"]')
        arguments.seconds("drain_timeout", drain_timeout)
        arguments.optional_seconds("idle_timeout", idle_timeout)
        self.counts = WorkerCounts()
        self._fn = fn
        self._concurrency = concurrency
        self._on_error: Decision = on_error
        self._drain_timeout = drain_timeout
        self._idle_timeout = idle_timeout
        self._consumer = ShareConsumer(
            bootstrap,
            group=group,
            topics=topics,
            **{
                "acquire_mode": "record_limit",
                "max_poll_records": concurrency,
                "on_acknowledge": self.counts.note,
                **options,
                "ack_mode": "explicit",
                "auto_renew": True,
            },
        )
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._pool: ThreadPoolExecutor | None = None

    def stop(self) -> None:
        """End gracefully; the second time, without waiting for calls that run."""
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()

    async def run(self, *, signals: bool = False) -> WorkerCounts:
        """Work until stopped. `signals`: SIGTERM and SIGINT stop it, in the main thread alone."""
        self._pool = ThreadPoolExecutor(self._concurrency, "ottla-share-worker")
        try:
            with self._signals() if signals else nullcontext():
                async with self._consumer:
                    try:
                        await self._work()
                    finally:
                        await self._drain()
                        await self._consumer.commit()
        finally:
            # A call in a thread cannot be stopped; it is not waited for twice.
            self._pool.shutdown(wait=False, cancel_futures=True)
        return self.counts

    async def _work(self) -> None:
        now = asyncio.get_running_loop().time
        busy_at = now()
        while not self._stopping.is_set():
            free = self._concurrency - len(self._running)
            if not free:
                await self._until_stopping(*self._running)
                continue
            records = await self._take(free)
            for record in records:
                task = asyncio.create_task(self._handle(record), name="ottla share handler")
                self._running.add(task)
                task.add_done_callback(self._done)
            if records or self._running:
                busy_at = now()
            elif self._idle_timeout is not None and now() - busy_at >= self._idle_timeout:
                return

    async def _take(self, most: int) -> list[ShareRecord]:
        taking = asyncio.create_task(self._consumer.take(most, TAKE_TIMEOUT))
        try:
            await self._until_stopping(taking)
            if not taking.done():
                return []
            return taking.result()
        except WrongProtocol:
            raise
        except (UndecodableRecords, UnknownTopic, BrokerUnreachable) as error:
            logger.warning("%s", error)
            return []
        finally:
            # Cancelling loses nothing: what comes late goes back when the consumer closes.
            taking.cancel()

    async def _handle(self, record: ShareRecord) -> None:
        decision: AckKind = "release"
        try:
            decision = await self._call(record)
            self.counts.handled += 1
        except Exception:
            self.counts.failed += 1
            decision = self._on_error
            where = f"{record.topic}-{record.partition} at {record.offset}"
            logger.exception("the handler of %s failed: %s it", where, decision)
        finally:
            try:
                self._consumer.acknowledge(record, decision)
            except RecordNotHeld:
                # The broker has taken it back: it is somebody else's by now.
                self.counts.unconfirmed += 1

    async def _call(self, record: ShareRecord) -> Decision:
        if inspect.iscoroutinefunction(self._fn):
            said = await self._fn(record)
        else:
            loop = asyncio.get_running_loop()
            said = await loop.run_in_executor(self._pool, self._fn, record)
            if inspect.isawaitable(said):
                said = await said
        return _DECISIONS.get(said, "accept") if isinstance(said, str) else "accept"

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)

    async def _drain(self) -> None:
        """Wait for the calls that run; those that take too long are given up."""
        hurrying = asyncio.create_task(self._hurrying.wait())
        deadline = asyncio.get_running_loop().time() + self._drain_timeout
        try:
            while self._running and not hurrying.done():
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0:
                    break
                await asyncio.wait(
                    [*self._running, hurrying], timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            hurrying.cancel()
            given_up = list(self._running)
            for task in given_up:
                task.cancel()
            if given_up:
                await asyncio.wait(given_up)

    async def _until_stopping(self, *tasks: asyncio.Task[Any]) -> None:
        """Return when one of these is done, or nothing more is wanted."""
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        caught = (signal.SIGTERM, signal.SIGINT)
        for number in caught:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)


def share_worker(
    fn: Handler,
    bootstrap: str | Sequence[str],
    *,
    group: str,
    topics: Sequence[str],
    concurrency: int = CONCURRENCY,
    on_error: Literal["release", "reject"] = "release",
    **options: Any,
) -> WorkerCounts:
    """Call a function with each record until SIGTERM or SIGINT; what was done.

    Blocks, and runs an event loop of its own; within one use `ShareWorker`, which has the options.
    """

    async def run() -> WorkerCounts:
        worker = ShareWorker(
            fn,
            bootstrap,
            group=group,
            topics=topics,
            concurrency=concurrency,
            on_error=on_error,
            **options,
        )
        return await worker.run(signals=True)

    return asyncio.run(run())

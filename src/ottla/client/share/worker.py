"""A work queue: a function is called with each record of a share group, so many at a time.

    def handle(record):
        ...

    ottla.share_worker(handle, "127.0.0.1:9092", group="g", topics=["orders"], concurrency=8)

Rules:

- A record whose call returns None or "accept" is accepted; the function can return "release" or
  "reject", too. One whose call raises, or returns anything else, is released or rejected, as
  `on_error` says.
- A released record is delivered again after `retry_delay` seconds, twice as long after each further
  delivery, LONGEST_RETRY at most. Until then it stays locked, and takes no part of `concurrency`.
- A record that is released at its last delivery (share.delivery.count.limit of the group) is given
  up by the broker: that is counted and logged.
- At most `concurrency` calls run at once. Async functions run in the event loop, others in threads.
- Locks are renewed for as long as a call takes.
- SIGTERM, SIGINT or `stop` end it gracefully: nothing more is taken, calls that run are waited for
  (`drain_timeout` seconds; then their records are released), decisions are sent, the group is left.
  A second signal does not wait. A thread that is still in a call does not keep the process alive.
- It outlives a cluster that is away and topics that do not exist yet, with a warning each time.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ottla.client import arguments
from ottla.client.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientError,
    UnknownTopic,
    WrongPlace,
    WrongProtocol,
)
from ottla.client.share.calls import Threads, awaited
from ottla.client.share.consumer import ShareConsumer
from ottla.client.share.types import (
    RecordNotHeld,
    ShareRecord,
    UndecodableRecords,
    UnknownVerdict,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.client.share.types import AckKind, Acknowledged

    Decision: TypeAlias = Literal["accept", "release", "reject"]
    Handler: TypeAlias = Callable[[ShareRecord], object]

CONCURRENCY: Final = 8
DRAIN_TIMEOUT: Final = 30.0
TAKE_TIMEOUT: Final = 1.0  # how long to wait for records before looking at the clock again
RETRY_DELAY: Final = 1.0
LONGEST_RETRY: Final = 60.0
MAX_WAITING: Final = 1000
"""Records that wait for their next delivery; a broker locks 2,000 of a partition by default."""
LEARN_TIMEOUT: Final = 5.0  # for information that is only logged and counted

_DECISIONS: Final = ("accept", "release", "reject")

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class WorkerCounts:
    """Counts of a worker: calls, and the outcomes of their acknowledgements.

    `failed` calls raised, or returned something that is no verdict. `unconfirmed` acknowledgements
    did not reach the broker in time: their records are delivered again. `given_up` records were
    released at their last delivery, and are not delivered again.
    """

    handled: int = 0
    failed: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    unconfirmed: int = 0
    given_up: int = 0

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

    Further options are those of `ShareConsumer`, except `ack_mode` and `auto_renew`. By default no
    more records are locked than are worked on or wait for their next delivery; `max_poll_records`
    and `acquire_mode` change that. With `idle_timeout` the worker ends after so many seconds
    without a record.
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
        retry_delay: float = RETRY_DELAY,
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
        arguments.seconds("retry_delay", retry_delay)
        for name in ("ack_mode", "auto_renew"):
            if name in options:
                raise BadArgument(
                    f"{name}: a worker decides about each record and renews its lock; leave it out"
                )
        self._also_told = arguments.optional_function(
            "on_acknowledge", options.pop("on_acknowledge", None)
        )
        self.counts = WorkerCounts()
        self._fn = fn
        self._concurrency = concurrency
        self._on_error: Decision = on_error
        self._drain_timeout = drain_timeout
        self._idle_timeout = idle_timeout
        self._retry_delay = retry_delay
        self._names_start = options.get("auto_offset_reset") is not None
        self._consumer = ShareConsumer(
            bootstrap,
            group=group,
            topics=topics,
            **{
                "acquire_mode": "record_limit",
                "max_poll_records": concurrency,
                "on_acknowledge": self._note,
                **options,
                "ack_mode": "explicit",
                "auto_renew": True,
            },
        )
        self._running: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        self._delivery_limit = 0
        self._busy_at = 0.0
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._threads = Threads(concurrency)

    def stop(self) -> None:
        """End gracefully; the second time, without waiting for calls that run."""
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()

    async def run(self, *, signals: bool = False) -> WorkerCounts:
        """Work until stopped. `signals`: SIGTERM and SIGINT stop it, in the main thread alone."""
        try:
            with self._signals() if signals else nullcontext():
                await self._learn()
                async with self._consumer:
                    try:
                        await self._work()
                    finally:
                        # Acknowledgements made by then are sent when the consumer closes.
                        await self._drain()
        finally:
            self._threads.stop()
        return self.counts

    async def _learn(self) -> None:
        """Ask how often records are delivered, and say where a new group starts."""
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(LEARN_TIMEOUT):
                found = await self._consumer._group_settings()
                self._delivery_limit = found.delivery_limit
                if found.is_new and not self._names_start:
                    logger.warning(
                        "share group %r is new and starts at %s: pass auto_offset_reset="
                        '"earliest" to get the records that are there already',
                        self._consumer.group,
                        found.offset_reset,
                    )

    def _note(self, result: Acknowledged) -> None:
        self.counts.note(result)
        if self._also_told is not None:
            self._also_told(result)

    async def _work(self) -> None:
        now = asyncio.get_running_loop().time
        self._busy_at = now()
        while not self._stopping.is_set():
            free = self._concurrency - len(self._running)
            if not free or len(self._waiting) >= MAX_WAITING:
                await self._until_stopping(*self._running, *self._waiting)
                continue
            records = await self._take(free)
            for record in records:
                task = asyncio.create_task(self._handle(record), name="ottla share handler")
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            if records or self._running or self._waiting:
                self._busy_at = now()
            elif self._idle_timeout is not None and now() - self._busy_at >= self._idle_timeout:
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
            # Cancelling loses nothing: late records are released when the consumer closes.
            taking.cancel()

    async def _handle(self, record: ShareRecord) -> None:
        decision: Decision = "release"
        called = False
        try:
            decision = await self._call(record)
            called = True
            self.counts.handled += 1
        except Exception:
            called = True
            self.counts.failed += 1
            decision = self._on_error
            done = "released for redelivery" if decision == "release" else "rejected"
            logger.exception("handler failed for %s; %s", _place(record), done)
        finally:
            # A call that was cancelled is not called again here, so nothing is won by waiting.
            if decision == "release" and called and not self._is_last(record):
                self._wait(record)
            else:
                self._decide(record, decision)

    def _wait(self, record: ShareRecord) -> None:
        """Release the record later, and keep its lock until then."""
        task = asyncio.create_task(self._release_later(record), name="ottla share retry")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _release_later(self, record: ShareRecord) -> None:
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(retry_after(self._retry_delay, record.delivery_count)):
                    await self._stopping.wait()
        finally:
            self._decide(record, "release")

    def _decide(self, record: ShareRecord, decision: AckKind) -> None:
        self._busy_at = asyncio.get_running_loop().time()  # a released record is still to come
        if decision == "release" and self._is_last(record):
            self.counts.given_up += 1
            logger.error("gave up %s after %d deliveries", _place(record), record.delivery_count)
        try:
            self._consumer.acknowledge(record, decision)
        except RecordNotHeld:
            # The broker has taken the record back: another member may have it now.
            self.counts.unconfirmed += 1

    def _is_last(self, record: ShareRecord) -> bool:
        return 0 < self._delivery_limit <= record.delivery_count

    async def _call(self, record: ShareRecord) -> Decision:
        if inspect.iscoroutinefunction(self._fn):
            said = await awaited(self._fn(record))
        else:
            said = await self._threads.call(self._fn, record)
            if inspect.isawaitable(said):
                said = await awaited(said)
        if said is None:
            return "accept"
        if isinstance(said, str) and said in _DECISIONS:
            return said  # type: ignore[return-value]  # one of them
        raise UnknownVerdict(
            f'the handler returned {said!r:.80}; return None, "accept", "release" or "reject"'
        )

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
            given_up += self._waiting
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


def retry_after(first: float, deliveries: int) -> float:
    """Seconds until the next delivery of a record that was delivered so often."""
    return min(LONGEST_RETRY, first * 2.0 ** min(deliveries - 1, 32))


def _place(record: ShareRecord) -> str:
    return f"{record.topic}-{record.partition} offset {record.offset}"


def share_worker(
    fn: Handler,
    bootstrap: str | Sequence[str],
    *,
    group: str,
    topics: Sequence[str],
    concurrency: int = CONCURRENCY,
    on_error: Literal["release", "reject"] = "release",
    retry_delay: float = RETRY_DELAY,
    drain_timeout: float = DRAIN_TIMEOUT,
    idle_timeout: float | None = None,
    **options: Any,
) -> WorkerCounts:
    """Call a function with each record until SIGTERM or SIGINT; returns the counts.

    Blocks, and runs an event loop of its own; within one use `ShareWorker`. Further options are
    those of `ShareConsumer`.
    """

    async def run() -> WorkerCounts:
        worker = ShareWorker(
            fn,
            bootstrap,
            group=group,
            topics=topics,
            concurrency=concurrency,
            on_error=on_error,
            retry_delay=retry_delay,
            drain_timeout=drain_timeout,
            idle_timeout=idle_timeout,
            **options,
        )
        return await worker.run(signals=True)

    if _is_in_a_loop():
        raise WrongPlace(
            "share_worker runs an event loop of its own, and there is one here (a notebook has "
            "one, too); use ShareWorker: "
            "await ShareWorker(fn, bootstrap, group=..., topics=[...]).run()"
        )
    return asyncio.run(run())


def _is_in_a_loop() -> bool:
    """Whether an event loop runs here; the error by which asyncio says no ends with this call."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

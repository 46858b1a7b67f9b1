"""The thread that owns a confluent-kafka consumer.

librdkafka fetches in the background; what costs is to cross from its queue into an event loop. So
one thread per consumer takes as many messages as there are in two calls, makes them Messages and
hands the batch over in one hop. Rules:

- Every call to the consumer runs in this thread between two reads, by `run`: confluent-kafka lets
  one thread in at a time, and a loop of reads would block all other threads.
- Rebalance callbacks are called in this thread, inside a read. They wait for the event loop by
  `wait_for`, which continues to serve `run`, so that finished messages are committed meanwhile.
- `list_topics` must not be called inside a callback, so it needs `run(..., between_reads=True)`.
  confluent-kafka notes such a call in a variable of the thread and clears that at its end. A second
  callback of the same read would miss it and abort the process (`CallState_get: cs != NULL`).
  `poll`, `consume` and `close` are of the same kind; calls about offsets and assignments are not.
- After `close` the calls of `run` raise `ThreadEnded`.
- With `MAX_AHEAD` batches or enough bytes not taken the thread stops reading, but still serves
  callbacks, so that a slow program is not removed from its group before `max.poll.interval.ms`.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException

from ottla.clock import SYSTEM
from ottla.streams.errors import NoStoredPosition, StreamError
from ottla.streams.types import Message, ShardKey, payload_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from ottla.streams.backends.kafka_config import Config

T = TypeVar("T")

BATCH: Final = 1000
MAX_AHEAD: Final = 3
POLL: Final = 0.05  # seconds a read waits at most: how long `run` may have to wait for its turn
PATIENCE: Final = 1.0  # seconds without room before partitions are paused, which costs a refetch
NS_PER_MS: Final = 1_000_000

# Errors that librdkafka reports and recovers from.
_PASSING: Final = frozenset(
    (
        KafkaError._PARTITION_EOF,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    )
)


class ThreadEnded(Exception):
    """The thread was closed before it came to this call."""


class ConsumerThread:
    """`wait` and `take` give the next batch; `run` a turn with the consumer itself."""

    def __init__(
        self, config: Config, loop: asyncio.AbstractEventLoop, ahead: int, ahead_bytes: int
    ) -> None:
        self.consumer = Consumer(config)
        self._loop = loop
        self._batch = min(ahead, BATCH)
        self._ahead_bytes = ahead_bytes
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._between: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._has_ended = False
        self._batches: deque[list[Message]] = deque()
        self._lock = threading.Lock()
        self._ready = asyncio.Event()
        self._room = threading.Event()
        self._failure: Exception | None = None
        self._is_closing = False
        self._thread = threading.Thread(target=self._main, name="ottla-kafka", daemon=True)
        self._thread.start()

    # -- in the event loop ------------------------------------------------------------------------

    async def wait(self, seconds: float) -> None:
        """Until there is a batch, or `wake`, or the time is up; raises what stopped the thread."""
        if not self._batches:
            self.check()
            self._ready.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ready.wait()

    def take(self) -> list[Message]:
        """The next batch that was read, or nothing."""
        with self._lock:
            batch = self._batches.popleft() if self._batches else []
        self._room.set()
        return batch

    def wake(self) -> None:
        """Let a waiting `wait` return."""
        self._ready.set()

    def check(self) -> None:
        """Raise what stopped the thread, if anything did."""
        if self._failure is not None:
            raise self._failure

    async def run(self, job: Callable[[Consumer], T], *, between_reads: bool = False) -> T:
        """Run `job` in the thread: between two reads, or while a callback of a read waits."""
        turn: Future[T] = Future()

        def take_turn() -> None:
            if not turn.set_running_or_notify_cancel():
                return
            try:
                if self._has_ended:
                    raise ThreadEnded
                turn.set_result(job(self.consumer))
            except BaseException as error:  # noqa: BLE001  # raised below
                turn.set_exception(error)

        with self._lock:
            if self._has_ended:
                raise ThreadEnded
            (self._between if between_reads else self._jobs).put(take_turn)
        self._room.set()
        return await asyncio.wrap_future(turn)

    def discard(self, shards: Iterable[ShardKey] | None = None) -> None:
        """Drop messages that were not fetched, of these shards or all. Thread-safe."""
        with self._lock:
            if shards is None:
                self._batches.clear()
            else:
                gone = set(shards)
                kept = [
                    [m for m in batch if (m.stream, m.shard) not in gone] for batch in self._batches
                ]
                self._batches = deque(batch for batch in kept if batch)
        self._room.set()

    async def close(self) -> None:
        """Leave the group and end the thread; the rebalance callbacks are called once more."""
        self._is_closing = True
        self._room.set()
        await asyncio.to_thread(self._thread.join)

    # -- in the thread ----------------------------------------------------------------------------

    def wait_for(self, work: Coroutine[object, object, T]) -> T:
        """From a callback: let the event loop do this, and serve it until it is done."""
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.add_done_callback(lambda _: self._jobs.put(_nothing))
        while not done.done():
            self._jobs.get()()
        return done.result()

    def _main(self) -> None:
        try:
            while not self._is_closing:
                self._run_jobs()
                if self._has_room():
                    self._read()
                else:
                    self._wait_for_room()
        except Exception as error:  # noqa: BLE001  # raised by the next `wait`
            self._failure = error
            self.tell(self._ready.set)
            while not self._is_closing:
                self._room.wait()
                self._room.clear()
                self._run_jobs()
        finally:
            self.consumer.close()
            with self._lock:
                self._has_ended = True
            self._run_jobs()

    def _run_jobs(self) -> None:
        for jobs in (self._jobs, self._between):
            while not jobs.empty():
                jobs.get()()

    def _read(self) -> None:
        # A batch read waits until it is full: read one message first, then those available.
        first = self.consumer.consume(1, POLL)
        if not first:
            return
        more = self.consumer.consume(self._batch - 1, 0) if self._batch > 1 else []
        self._hand_over(messages(first + more))

    def _has_room(self) -> bool:
        with self._lock:
            held = sum(map(payload_bytes, self._batches))
            return len(self._batches) < MAX_AHEAD and held < self._ahead_bytes

    def _wait_for_room(self) -> None:
        self._room.clear()
        if self._has_room() or self._room.wait(PATIENCE):
            return
        paused = self.consumer.assignment()
        self.consumer.pause(paused)
        try:
            while not self._has_room() and not self._is_closing:
                # Nothing comes from paused partitions, but callbacks are served; a rebalance
                # meanwhile brings partitions that are not paused.
                self._hand_over(messages(self.consumer.consume(1, POLL)))
                self._run_jobs()
        finally:
            owned = {(p.topic, p.partition) for p in self.consumer.assignment()}
            self.consumer.resume([p for p in paused if (p.topic, p.partition) in owned])

    def _hand_over(self, batch: list[Message]) -> None:
        if batch:
            with self._lock:
                self._batches.append(batch)
            self.tell(self._ready.set)

    def tell(self, what: Callable[[], None]) -> None:
        """Let the event loop call this, in the order of telling."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what)


def _nothing() -> None:
    """A job that only wakes the thread."""


def messages(raw: list[Any]) -> list[Message]:
    """Convert to messages; raises errors that are not temporary.

    Typed loosely: confluent-kafka says that topic and offset may be None, which they never are in
    a message without an error.
    """
    batch = []
    for one in raw:
        error = one.error()
        if error is not None:
            raise_if_lasting(error)
            continue
        value = one.value()
        kind, milliseconds = one.timestamp()
        headers = one.headers()
        batch.append(
            Message(
                one.topic(),
                one.partition(),
                one.offset(),
                milliseconds * NS_PER_MS if kind else SYSTEM.wall_ns(),
                b"" if value is None else value,
                one.key(),
                () if headers is None else tuple(headers),
                is_null=value is None,
            )
        )
    return batch


def raise_if_lasting(error: KafkaError) -> None:
    if error.code() in _PASSING and not error.fatal():
        return
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise NoStoredPosition(
            f"there is no stored position and reset=NONE forbids to choose one ({error.str()}); "
            "choose Reset.EARLIEST or Reset.LATEST"
        )
    raise StreamError(f"Kafka refuses: {error.str()}") from KafkaException(error)

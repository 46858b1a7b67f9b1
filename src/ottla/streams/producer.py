"""The producer: a bounded queue in front of a sink, written in batches by one task.

`send` returns when the message is queued; it waits only while `max_pending` messages are queued.
Await the `Delivery` it returns for the receipt. If a delivery fails and is not awaited, `flush`,
`end` or `close` raises its error. A cancelled `send` may or may not have queued its message.
"""

from __future__ import annotations

import asyncio
import json as json_module
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Self

from ottla.streams import arguments
from ottla.streams.base import Operation
from ottla.streams.delivery import Batch, held_back
from ottla.streams.errors import (
    AlreadyAnchored,
    ConfigError,
    DeliveryError,
    InvalidArgument,
    InvalidType,
    NotAnchored,
    ProducerEnded,
    StreamError,
)
from ottla.streams.home import Home
from ottla.streams.modes import refuse
from ottla.streams.types import AutoCommit, Outgoing, ProducerOptions, to_ns
from ottla.streams.url import validate_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime
    from types import TracebackType

    from ottla.streams.base import Driver, Sink
    from ottla.streams.consumer import Consumer
    from ottla.streams.delivery import Delivery
    from ottla.streams.types import Headers

Payload = bytes | bytearray | memoryview | str

_ABSENT: Final = object()
"""`json=` was not given; JSON's null is None."""
_log = logging.getLogger("ottla.streams")


class Pipe:
    """Shared by clones of a producer: sink, queue and writing task."""

    def __init__(self, sink: Sink, options: ProducerOptions):
        self.sink = sink
        self.users = 0
        self.failures: dict[tuple[Batch, int], StreamError] = {}
        self.stopped_by: StreamError | None = None
        self._stop_at_failure = options.stop_at_failure
        self.full = False
        self._max_pending = options.max_pending
        self._max_pending_bytes = options.max_pending_bytes
        self._batch: Batch | None = None
        self._outstanding = 0
        self._outstanding_bytes = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._task: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self.home = Home("producer")
        self.closed = False

    async def open(self) -> None:
        """The first user opens the sink."""
        self.home.check()
        async with self._opening:
            if self._task is None:
                self.home.enter()
                await self.sink.open()
                self._task = asyncio.get_running_loop().create_task(self._write())
        self.users += 1

    async def room(self) -> None:
        """Wait until the queue takes another message."""
        self.home.check()
        while self.full:
            self._room.clear()
            await self._room.wait()

    def put(
        self,
        stream: str,
        payload: bytes,
        shard: int | None,
        timestamp_ns: int | None,
        whole: Outgoing | None = None,
    ) -> Delivery:
        """Queue one message; `whole` if it has more than this."""
        batch = self._batch
        if batch is None:
            self.home.check()
            batch = self._batch = Batch(self, stream, shard, timestamp_ns)
            self._wake.set()
            self._empty.clear()
        self._outstanding += 1
        self._outstanding_bytes += len(payload)
        if (
            self._outstanding >= self._max_pending
            or self._outstanding_bytes >= self._max_pending_bytes
        ):
            self.full = True
        return batch.add(stream, payload, shard, timestamp_ns, whole)

    def failed(self, batch: Batch, number: int, error: StreamError) -> None:
        """A message was not taken in."""
        self.failures[batch, number] = error
        if self._stop_at_failure and self.stopped_by is None:
            self.stopped_by = error

    def settled(self, count: int, size: int) -> None:
        """Count deliveries that succeeded or failed, and the size of their payloads."""
        self._outstanding -= count
        self._outstanding_bytes -= size
        self.full = (
            self._outstanding >= self._max_pending
            or self._outstanding_bytes >= self._max_pending_bytes
        )
        if not self.full and not self._room.is_set():
            self._room.set()
        if not self._outstanding:
            self._empty.set()

    async def flush(self) -> None:
        """Wait for every delivery, then raise the first failure not raised before."""
        self.home.check()
        while self._outstanding:
            self._empty.clear()
            await self._empty.wait()
        await self.sink.flush()
        self.raise_unseen()

    def raise_unseen(self) -> None:
        """Raise the first failure that was not awaited; all count as seen then."""
        if self.failures:
            first = next(iter(self.failures.values()))
            self.failures.clear()
            raise first

    async def close(self, *, end: bool) -> None:
        """One user leaves; the last one waits for deliveries and closes the sink."""
        self.users -= 1
        if self.users:
            await self.flush()
            return
        try:
            await self.flush()
        finally:
            self.closed = True
            self._wake.set()
            if self._task is not None:
                await asyncio.wait([self._task])
            await self.sink.close(end=end)

    async def _write(self) -> None:
        while not self.closed:
            await self._wake.wait()
            self._wake.clear()
            batch, self._batch = self._batch, None
            if batch is None:
                continue
            if self.stopped_by is not None:
                batch.reject_rest(held_back(self.stopped_by))
                continue
            try:
                await self.sink.write(batch)
            except StreamError as error:
                batch.reject_rest(error)
            except OSError as error:
                batch.reject_rest(DeliveryError(f"the store failed: {error}"))
            except Exception as error:  # noqa: BLE001  # fails its batch and nothing else
                _log.exception("a batch of %d messages was not written", len(batch))
                batch.reject_rest(DeliveryError(f"the store failed: {error!r}"))


class Producer:
    """Sends messages to one anchored stream, or to the stream named with each message."""

    def __init__(
        self, pipe: Callable[[], Pipe], stream: str | None = None, driver: Driver | None = None
    ) -> None:
        self._make_pipe = pipe
        self._driver = driver
        self._pipe_: Pipe | None = None
        self._stream = None if stream is None else validate_key(stream)
        self._ended = False

    @property
    def stream(self) -> str | None:
        """The stream that messages go to unless they name another."""
        return self._stream

    def anchor(self, stream: str) -> None:
        """Set the stream for messages that name none; can be called once."""
        if self._stream is not None:
            raise AlreadyAnchored(f"this producer is anchored to {self._stream}; clone it instead")
        self._stream = validate_key(stream)

    async def send(
        self,
        payload: Payload | None = None,
        *,
        json: object = _ABSENT,
        stream: str | None = None,
        shard: int | None = None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: datetime | None = None,
    ) -> Delivery:
        """Queue a message; await the returned `Delivery` for the receipt.

        Waits only if too many messages are unsent. `json=` takes a value instead of a payload. A
        payload of None writes a null, in Kafka a tombstone.
        """
        if stream is None:
            stream = self._stream
            if stream is None:
                raise NotAnchored("name a stream: send(..., stream=...) or producer(stream)")
        elif stream != self._stream:
            validate_key(stream)
        is_null, at = False, None
        if type(payload) is not bytes:
            is_null = payload is None and json is _ABSENT
            payload = _payload_bytes(payload, json)
        elif json is not _ABSENT:
            raise InvalidArgument("give a payload or json=, not both")
        if shard is not None:
            arguments.whole("shard", shard, 0)
        if timestamp is not None:
            arguments.moment("timestamp", timestamp)
            at = to_ns(timestamp)
        if key is not None or headers != ():
            arguments.key_and_headers(key, headers)
            headers = arguments.pairs(headers)
        whole = None
        if key is not None or headers or is_null:
            whole = Outgoing(stream, payload, shard, key, headers, at, is_null)
            self._check_extras(whole)
        pipe = self._pipe_
        if pipe is None or self._ended or pipe.full or pipe.closed:
            pipe = await self._with_room()
        return pipe.put(stream, payload, shard, at, whole)

    async def post(self, message: Outgoing) -> Delivery:
        """Internal: queue a prepared message; see `send`."""
        self._check_extras(message)
        pipe = await self._with_room()
        return pipe.put(
            message.stream, message.payload, message.shard, message.timestamp_ns, message
        )

    async def _with_room(self) -> Pipe:
        await self._pipe().room()
        return self._pipe()

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until the store has every message sent so far; raises the first unseen failure."""
        arguments.optional_seconds("timeout", timeout)
        async with asyncio.timeout(timeout):
            await self._pipe().flush()

    @asynccontextmanager
    async def transaction(self, consumer: Consumer | None = None) -> AsyncIterator[None]:
        """Write messages and the consumer's positions together or not at all.

        The consumer must have auto_commit=DISABLED. After a failed transaction it refuses to
        commit, because its acknowledgements took no effect: rewind it, or open a new consumer,
        which starts at the last committed position.
        """
        pipe = self._pipe()
        if self._driver is not None:
            refuse(self._driver.backend, self._driver.unsupported, Operation.TRANSACTIONS)
        if consumer is not None:
            if consumer.options.auto_commit is not AutoCommit.DISABLED:
                raise ConfigError("in a transaction it commits: open the consumer with DISABLED")
            consumer.check_committing()
        await pipe.flush()
        await pipe.sink.begin_transaction()
        try:
            yield
            await pipe.flush()
            if consumer is None:
                await pipe.sink.commit_transaction(None, {})
            else:
                await pipe.sink.commit_transaction(consumer.source, consumer.positions())
        except BaseException:
            if consumer is not None:
                consumer.transaction_failed()
            await asyncio.shield(self._abort(pipe))
            raise

    @staticmethod
    async def _abort(pipe: Pipe) -> None:
        # Queued messages belong to this transaction too; whether they were written does not matter.
        with suppress(StreamError):
            await pipe.flush()
        await pipe.sink.abort_transaction()

    async def end(self) -> None:
        """Flush and close; the last producer writes an end mark if the store has one."""
        if not self._ended:
            if self._pipe_ is not None:
                self._pipe_.home.check()
            self._ended = True
            if self._pipe_ is not None:
                await asyncio.shield(self._pipe_.close(end=True))

    async def close(self) -> None:
        """The same as `end`."""
        await self.end()

    def clone(self) -> Producer:
        """Another producer with the same connection; use `async with`, end it separately."""
        return Producer(self._make_pipe, self._stream, self._driver)

    @property
    def closed(self) -> bool:
        """Internal: whether it was ended or closed."""
        return self._ended

    async def __aenter__(self) -> Self:
        if self._ended:
            raise ProducerEnded("this producer has ended; open another one")
        if self._pipe_ is not None:
            raise StreamError("the producer is open already; use clone() for another one")
        pipe = self._make_pipe()
        await pipe.open()
        self._pipe_ = pipe
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _check_extras(self, message: Outgoing) -> None:
        """Raise if the store cannot hold a key, header or null."""
        if self._driver is not None:
            backend, unsupported = self._driver.backend, self._driver.unsupported
            if message.key is not None:
                refuse(backend, unsupported, Operation.MESSAGE_KEYS)
            if message.headers:
                refuse(backend, unsupported, Operation.HEADERS)
            if message.is_null or any(value is None for _, value in message.headers):
                refuse(backend, unsupported, Operation.NULLS)

    def _pipe(self) -> Pipe:
        if self._ended:
            raise ProducerEnded("this producer has ended; open another one")
        if self._pipe_ is None:
            raise ProducerEnded("enter the producer first: async with streamer.producer(...) as p")
        return self._pipe_


def make_pipe(sink: Sink, options: ProducerOptions) -> Pipe:
    """A pipe for a sink."""
    return Pipe(sink, options)


def _payload_bytes(payload: Payload | None, json: object) -> bytes:
    if payload is None:
        if json is _ABSENT:
            return b""
        try:
            return json_module.dumps(json, separators=(",", ":"), ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"json= cannot be written as JSON: {error}") from error
    if json is not _ABSENT:
        raise InvalidArgument("give a payload or json=, not both")
    if isinstance(payload, str):
        try:
            return payload.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"payload is not valid Unicode text: {error}") from error
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise InvalidType(
            f"payload is of type {type(payload).__name__}, it must be bytes, str or None; "
            "json= takes other values"
        )
    return bytes(payload)

"""Batches of messages to a sink, and the outcome of each message.

A batch keeps payloads, not objects: most messages of a batch differ in nothing else, and their
receipts are rarely read. A message with a key, headers or another stream than the first is kept
whole. A `Delivery` is a batch and a number; its receipt is made on request.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import TYPE_CHECKING

from ottla.streams.errors import DeliveryError, StreamError
from ottla.streams.types import Outgoing, Receipt, Receipts

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from typing import Protocol

    class Counter(Protocol):
        """The producer: it counts outstanding messages and keeps failures not seen yet."""

        failures: dict[tuple[Batch, int], StreamError]
        stopped_by: StreamError | None

        def failed(self, batch: Batch, number: int, error: StreamError) -> None:
            """Keep a failure that the program has not seen yet."""

        def settled(self, count: int, size: int) -> None:
            """That many deliveries, with payloads of that size, have met their fate."""


class Batch:
    """Messages that a sink takes in together. It settles each of them once, in any order."""

    __slots__ = (
        "_counter",
        "_fates",
        "_left",
        "_messages",
        "_runs",
        "_starts",
        "_waiters",
        "payloads",
        "shard",
        "stream",
        "timestamp_ns",
    )

    def __init__(self, counter: Counter, stream: str, shard: int | None, timestamp_ns: int | None):
        self.stream = stream
        self.shard = shard
        self.timestamp_ns = timestamp_ns
        self.payloads: list[bytes] = []
        self._messages: dict[int, Outgoing] = {}  # those that are more than a payload
        self._counter = counter
        self._left: int | None = None
        self._fates: dict[int, Receipt | StreamError] = {}
        self._starts: list[int] = []
        self._runs: list[Receipts] = []
        self._waiters: dict[int, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def is_plain(self) -> bool:
        """Whether all messages are a payload for `stream`, `shard` and `timestamp_ns`."""
        return not self._messages

    def add(
        self,
        stream: str,
        payload: bytes,
        shard: int | None,
        timestamp_ns: int | None,
        whole: Outgoing | None = None,
    ) -> Delivery:
        """One more message; `whole` if it has more than this."""
        payloads = self.payloads
        number = len(payloads)
        payloads.append(payload)
        if whole is not None:
            self._messages[number] = whole
        elif stream != self.stream or shard != self.shard or timestamp_ns != self.timestamp_ns:
            self._messages[number] = Outgoing(stream, payload, shard, timestamp_ns=timestamp_ns)
        return Delivery(self, number)

    def deliveries(self) -> Iterator[tuple[Outgoing, Delivery]]:
        """Internal: every message with the object that settles it.

        A sink takes them one by one: those after a failure fail too if the producer stops at one.
        """
        stream, shard, time_ns, others = self.stream, self.shard, self.timestamp_ns, self._messages
        for number, payload in enumerate(self.payloads):
            if (first := self._counter.stopped_by) is not None:
                self.settle(number, held_back(first))
                continue
            message = others.get(number)
            if message is None:
                message = Outgoing(stream, payload, shard, timestamp_ns=time_ns)
            yield message, Delivery(self, number)

    def fate(self, number: int) -> Receipt | StreamError | None:
        """The outcome of a message; None while it is unknown."""
        found = self._fates.get(number)
        if found is None and self._starts and self._starts[0] <= number:
            run = bisect_right(self._starts, number) - 1
            if number - self._starts[run] < self._runs[run].messages:
                return self._runs[run].nth(number - self._starts[run])
        return found

    def settle(self, number: int, fate: Receipt | StreamError) -> None:
        """Internal: settle one message."""
        self._fates[number] = fate
        if isinstance(fate, StreamError):
            self._counter.failed(self, number, fate)
        self._settled(number, 1)

    def settle_all(self, results: Iterable[Receipts | StreamError]) -> None:
        """Internal: settle all messages in order; none was settled before."""
        at = 0
        for result in results:
            if isinstance(result, StreamError):
                self.settle(at, result)
                at += 1
                continue
            self._starts.append(at)
            self._runs.append(result)
            self._settled(at, result.messages)
            at += result.messages

    def reject_rest(self, error: StreamError) -> None:
        """Fail all messages without an outcome."""
        for number in range(len(self)):
            if self.fate(number) is None:
                self.settle(number, error)

    def seen(self, number: int) -> None:
        """Someone has been told of a failure."""
        self._counter.failures.pop((self, number), None)

    def waiter(self, number: int) -> asyncio.Future[None]:
        """A future that is done when the message is settled."""
        found = self._waiters.get(number)
        if found is None:
            found = self._waiters[number] = asyncio.get_running_loop().create_future()
        return found

    def _settled(self, first: int, count: int) -> None:
        self._counter.settled(count, sum(map(len, self.payloads[first : first + count])))
        self._left = (len(self.payloads) if self._left is None else self._left) - count
        if not self._left:  # a delivery that is kept must not keep the payloads
            self.payloads, self._messages = [], {}
        if self._waiters:
            for number in range(first, first + count):
                waiter = self._waiters.pop(number, None)
                if waiter is not None and not waiter.done():
                    waiter.set_result(None)


def held_back(first: StreamError) -> DeliveryError:
    """Why a message after the first one that failed is not written."""
    return DeliveryError(f"not sent, because an earlier message failed: {first}")


class Delivery:
    """A sent message: its receipt, or the error, when the store has answered."""

    __slots__ = ("_batch", "_number")

    def __init__(self, batch: Batch, number: int) -> None:
        self._batch = batch
        self._number = number

    @property
    def done(self) -> bool:
        """Whether the store has answered."""
        return self._batch.fate(self._number) is not None

    def resolve(self, receipt: Receipt) -> None:
        """Internal: the store accepted the message."""
        self._batch.settle(self._number, receipt)

    def reject(self, error: StreamError) -> None:
        """Internal: the store did not accept the message."""
        self._batch.settle(self._number, error)

    def result(self) -> Receipt:
        """The receipt, or raises the error; only when `done`."""
        fate = self._batch.fate(self._number)
        if fate is None:
            raise DeliveryError("the delivery is not done yet; await it")
        if isinstance(fate, StreamError):
            self._batch.seen(self._number)
            raise fate
        return fate

    def __await__(self) -> Generator[object, None, Receipt]:
        """Wait for the receipt; raises the error."""
        if not self.done:
            # Shielded: two may wait for one delivery, and one of them may be cancelled.
            yield from asyncio.shield(self._batch.waiter(self._number)).__await__()
        return self.result()

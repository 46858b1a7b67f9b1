"""Messages that were given back: delivered again after a while, or sent to the dead letters."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ottla.streams.base import Operation
from ottla.streams.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ottla.streams.producer import Producer
    from ottla.streams.tracker import Tracker
    from ottla.streams.types import ConsumerOptions, Message, MessageId, ShardKey


class Redelivery:
    """What waits to be delivered again is in `ready`; `notify` is called when that, or more, is."""

    def __init__(
        self,
        tracker: Tracker,
        options: ConsumerOptions,
        unsupported: Mapping[Operation, str],
        open_dead_letters: Callable[[], Producer] | None,
        notify: Callable[[Exception | None], None],
    ):
        self.ready: deque[Message] = deque()
        self._tracker = tracker
        self._options = options
        self._headers = Operation.HEADERS not in unsupported
        self._open = open_dead_letters
        self._notify = notify
        self._dead_letters: Producer | None = None
        self._delayed: dict[MessageId, asyncio.TimerHandle] = {}
        self._burying: set[asyncio.Task[None]] = set()

    @property
    def pending(self) -> bool:
        """Whether something may still become ready, or dead."""
        return bool(self.ready or self._delayed or self._burying)

    def exhausted(self, message: Message) -> bool:
        """Whether this message has been delivered as often as it may be."""
        limit = self._options.max_deliveries
        return limit is not None and message.delivery >= limit

    def again(self, message: Message, delay: float) -> None:
        """Deliver once more, after a while."""
        loop = asyncio.get_running_loop()
        next_time = message._replace(delivery=message.delivery + 1)
        self._delayed[message.id] = loop.call_later(delay, self._ripe, next_time)

    def bury(self, message: Message) -> None:
        """Send to the dead letters; acknowledged when they have given a receipt."""
        task = asyncio.get_running_loop().create_task(self._bury(message))
        self._burying.add(task)
        task.add_done_callback(self._buried)

    def discard(self, shards: Collection[ShardKey] | None) -> None:
        """Drop the waiting messages of these shards (None: all)."""
        for id_, timer in list(self._delayed.items()):
            if shards is None or (id_.stream, id_.shard) in shards:
                timer.cancel()
                del self._delayed[id_]
        kept = [m for m in self.ready if shards is not None and (m.stream, m.shard) not in shards]
        self.ready = deque(kept)

    async def settle(self) -> None:
        """Wait until pending dead letters have arrived or failed."""
        if self._burying:
            await asyncio.wait(self._burying)

    async def close(self) -> None:
        """Close the producer of dead letters."""
        if self._dead_letters is not None:
            await self._dead_letters.close()

    def _ripe(self, message: Message) -> None:
        if self._delayed.pop(message.id, None) is not None:
            self.ready.append(message)
            self._notify(None)

    async def _bury(self, message: Message) -> None:
        if self._dead_letters is None and self._open is not None:
            self._dead_letters = await self._open().__aenter__()
        if self._dead_letters is None:
            raise ConfigError("this consumer has no way to send dead letters")
        origin = (
            ("ottla-stream", message.stream.encode()),
            ("ottla-shard", str(message.shard).encode()),
            ("ottla-seq", str(message.seq).encode()),
            ("ottla-deliveries", str(message.delivery).encode()),
        )
        delivery = await self._dead_letters.send(
            None if message.is_null else message.payload,
            stream=self._options.dead_letter,
            headers=message.headers + origin if self._headers else (),
        )
        await delivery
        self._tracker.ack(message.id)

    def _buried(self, task: asyncio.Task[None]) -> None:
        self._burying.discard(task)
        error = None if task.cancelled() else task.exception()
        self._notify(error if isinstance(error, Exception) else None)

"""Consumer without async. Made by scripts/generate_sync.py; do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.consumer import Consumer as AsyncConsumer
from ottla.sync.twin import Twin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from ottla.streams.base import Driver, Source
    from ottla.streams.life import ConsumerState
    from ottla.streams.positions import StoredPositions
    from ottla.streams.producer import Producer
    from ottla.streams.types import Backend, ConsumerOptions, Message, MessageId, SeqPos, ShardKey


class Consumer(Twin[AsyncConsumer]):
    """Receives messages of one or more streams. `Streamer.consumer` makes it; use `with`."""

    def __init__(
        self,
        driver: Driver,
        source: Source,
        streams: Sequence[str],
        options: ConsumerOptions,
        *,
        stored: StoredPositions | None = None,
        dead_letters: Callable[[], Producer] | None = None,
    ) -> None:
        super().__init__(
            lambda: AsyncConsumer(
                driver, source, streams, options, stored=stored, dead_letters=dead_letters
            )
        )

    @property
    def backend(self) -> Backend:
        """As given."""
        return self._async.backend

    @property
    def streams(self) -> tuple[str, ...]:
        """As given."""
        return self._async.streams

    @property
    def options(self) -> ConsumerOptions:
        """As given."""
        return self._async.options

    @property
    def state(self) -> ConsumerState:
        """The state of the consumer: new, reading, iterating, closed and so on."""
        return self._call(lambda: self._async.state)

    @property
    def native(self) -> object:
        """The client object of the store's own library, such as librdkafka's consumer."""
        return self._call(lambda: self._async.native)

    @property
    def group(self) -> str | None:
        """The group this consumer belongs to; None without one, and after a seek."""
        return self._call(lambda: self._async.group)

    @property
    def dropped_acks(self) -> int:
        """How many acknowledgements were ignored: repeated, unknown, or of a revoked shard."""
        return self._call(lambda: self._async.dropped_acks)

    def close(self, *, drain: bool = True) -> None:
        """Stop reading, wait for acknowledgements, save positions (not with DISABLED), close."""
        self._run(self._async.close(drain=drain))

    def __iter__(self) -> Iterator[Message]:
        return self._each(self._call(self._async.__aiter__))

    def next(self, timeout: float | None = None) -> Message:
        """The next message; `TimeoutError` after `timeout` seconds, `StreamEnded` at the end."""
        return self._run(self._async.next(timeout))

    def batch(self, max_messages: int, timeout: float) -> list[Message]:
        """Up to `max_messages` that have arrived; waits for the first, else the list is empty."""
        return self._run(self._async.batch(max_messages, timeout))

    def ack(self, message: Message | MessageId) -> None:
        """Mark a message as done. Does no I/O; repeated acknowledgements are ignored."""
        self._call(lambda: self._async.ack(message))

    def nack(self, message: Message | MessageId, *, delay: float = 0) -> None:
        """Deliver this message again after `delay` seconds; the position does not pass it."""
        self._call(lambda: self._async.nack(message, delay=delay))

    def positions(self) -> dict[ShardKey, int]:
        """The positions that `commit` would save: never past a message that is not done."""
        return self._call(self._async.positions)

    def commit(self) -> dict[ShardKey, int]:
        """Save the positions of done messages; returns the saved positions.

        With NEXT, messages that were delivered to the calling task count as done.
        """
        return self._run(self._async.commit())

    def assign(self, stream: str, shard: int) -> None:
        """Read this shard after the next seek or rewind."""
        self._call(lambda: self._async.assign(stream, shard))

    def unassign(self, stream: str, shard: int) -> None:
        """Stop reading this shard after the next seek or rewind."""
        self._call(lambda: self._async.unassign(stream, shard))

    def seek(self, to: datetime) -> None:
        """Continue with the first message after this time. Commits nothing."""
        self._run(self._async.seek(to))

    def rewind(self, to: SeqPos) -> None:
        """Continue at `BEGINNING`, `END` or `At(n)`, the first sequence >= n. Commits nothing."""
        self._run(self._async.rewind(to))

    def lag(self) -> dict[ShardKey, int | None]:
        """How many messages each shard is behind its end; None if the store cannot tell."""
        return self._run(self._async.lag())

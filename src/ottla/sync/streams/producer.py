"""Producer without async. Made by scripts/generate_sync.py; do not edit."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.streams.producer import _ABSENT
from ottla.streams.producer import Producer as AsyncProducer
from ottla.sync.streams.delivery import Delivery
from ottla.sync.twin import Twin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from ottla.streams.base import Driver
    from ottla.streams.producer import Payload, Pipe
    from ottla.streams.types import Headers
    from ottla.sync.streams.consumer import Consumer


class Producer(Twin[AsyncProducer]):
    """Sends messages to one anchored stream, or to the stream named with each message."""

    def __init__(
        self, pipe: Callable[[], Pipe], stream: str | None = None, driver: Driver | None = None
    ) -> None:
        super().__init__(lambda: AsyncProducer(pipe, stream, driver))

    @property
    def stream(self) -> str | None:
        """The stream that messages go to unless they name another."""
        return self._call(lambda: self._async.stream)

    def anchor(self, stream: str) -> None:
        """Set the stream for messages that name none; can be called once."""
        self._call(lambda: self._async.anchor(stream))

    def send(
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
        """Queue a message; the returned `Delivery` for the receipt.

        Waits only if too many messages are unsent. `json=` takes a value instead of a payload. A
        payload of None writes a null, in Kafka a tombstone.
        """
        return Delivery._of(
            self._run(
                self._async.send(
                    payload,
                    json=json,
                    stream=stream,
                    shard=shard,
                    key=key,
                    headers=headers,
                    timestamp=timestamp,
                )
            )
        )

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the store has every message sent so far; raises the first unseen failure."""
        self._run(self._async.flush(timeout))

    @contextmanager
    def transaction(self, consumer: Consumer | None = None) -> Iterator[None]:
        """Write messages and the consumer's positions together or not at all.

        The consumer must have auto_commit=DISABLED. After a failed transaction it refuses to
        commit, because its acknowledgements took no effect: rewind it, or open a new consumer,
        which starts at the last committed position.
        """
        with self._within(
            lambda: self._async.transaction(None if consumer is None else consumer._async)
        ):
            yield

    def end(self) -> None:
        """Flush and close; the last producer writes an end mark if the store has one."""
        self._run(self._async.end())

    def close(self) -> None:
        """The same as `end`."""
        self._run(self._async.close())

    def clone(self) -> Producer:
        """Another producer with the same connection; use `with`, end it separately."""
        return Producer._of(self._call(self._async.clone))

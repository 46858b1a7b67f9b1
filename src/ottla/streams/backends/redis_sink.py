"""A producer's way into Redis Streams: XADD in pipelines, each answer a receipt.

Nothing is sent twice: when a connection breaks, its messages are reported as failed although the
server may have stored them. The caller decides whether to send again.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from redis.exceptions import RedisError, ResponseError

from ottla.clock import SYSTEM
from ottla.streams.backends.redis_keys import base_key, sharder
from ottla.streams.backends.redis_replies import text
from ottla.streams.base import Sink
from ottla.streams.errors import DeliveryError, StreamError
from ottla.streams.types import Receipt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.streams.backends.redis_entries import EntryFormat
    from ottla.streams.backends.redis_link import Link
    from ottla.streams.delivery import Batch, Delivery
    from ottla.streams.types import Outgoing, RedisOptions

PER_PIPELINE: Final = 500  # limits the messages in doubt after a broken connection


class RedisSink(Sink):
    """Adds entries; the id is the server's clock, or the timestamp of the message."""

    def __init__(
        self, link: Link, entries: EntryFormat, options: RedisOptions, per_pipeline: int
    ) -> None:
        self._per_pipeline = per_pipeline
        self._link = link
        self._entries = entries
        self._options = options
        self._sharder = sharder(options.sharder)

    async def open(self) -> None:
        """The driver is connected already."""

    async def write(self, batch: Batch) -> None:
        deliveries = batch.deliveries()
        while part := [*islice(deliveries, self._per_pipeline)]:
            await self._write(part)

    async def _write(self, part: Sequence[tuple[Outgoing, Delivery]]) -> None:
        sent: list[tuple[Outgoing, Delivery, int]] = []
        async with self._link.client.pipeline(transaction=False) as pipe:
            for message, delivery in part:
                try:
                    shard, key = self._place(message)
                    fields = self._entries.fields(message)
                except StreamError as error:
                    delivery.reject(error)
                    continue
                pipe.execute_command("XADD", key, self._id(message), *fields)
                sent.append((message, delivery, shard))
            try:
                answers = await pipe.execute(raise_on_error=False)
            except (RedisError, OSError) as error:
                raise DeliveryError(
                    f"the connection to Redis broke ({error}); these messages may or may not "
                    "have been taken in"
                ) from error
        for (message, delivery, shard), answer in zip(sent, answers, strict=True):
            if isinstance(answer, Exception):
                delivery.reject(_refused(message, answer))
            else:
                delivery.resolve(self._receipt(message, shard, text(answer)))

    def _place(self, message: Outgoing) -> tuple[int, str]:
        base = base_key(message.stream, hash_tag=self._options.hash_tag)
        shard = message.shard
        if shard is None and self._options.shards is not None:
            shard = self._sharder(message, self._options.shards)
        return (0, base) if shard is None else (shard, f"{base}:{shard}")

    def _id(self, message: Outgoing) -> str:
        if message.timestamp_ns is not None:
            return f"{self._entries.ids.left_of(message.timestamp_ns)}-*"
        return f"{SYSTEM.wall_ns()}-*" if self._entries.ids.is_ns else "*"

    def _receipt(self, message: Outgoing, shard: int, native: str) -> Receipt:
        seq = self._entries.ids.to_seq(native)
        return Receipt(message.stream, shard, seq, self._entries.ids.timestamp_ns(seq))

    async def close(self, *, end: bool) -> None:
        """The driver closes the connection."""


def _refused(message: Outgoing, answer: Exception) -> DeliveryError:
    hint = ""
    if isinstance(answer, ResponseError) and "equal or smaller" in str(answer):
        hint = "; ids only grow, so a timestamp cannot be older than the last entry"
    return DeliveryError(f"Redis refuses the message: {answer}{hint}", stream=message.stream)

"""The Kafka sink: librdkafka queues and batches; delivery reports arrive in batches.

A thread per producer serves delivery reports. All that arrive in one turn of it cross into the
event loop together, and resolve their deliveries there.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial as bound
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException, Producer

from ottla.clock import SYSTEM
from ottla.streams.backends.kafka_places import partition
from ottla.streams.backends.kafka_source import KafkaSource
from ottla.streams.backends.kafka_thread import NS_PER_MS
from ottla.streams.base import Sink
from ottla.streams.errors import ConfigError, ConnectError, DeliveryError, StreamError
from ottla.streams.types import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import KafkaError

    from ottla.streams.backends.kafka_config import Config
    from ottla.streams.base import Source
    from ottla.streams.delivery import Batch, Delivery
    from ottla.streams.types import Outgoing, ShardKey

POLL: Final = 0.1  # seconds the thread waits for reports: how long closing may take


class KafkaSink(Sink):
    """One confluent-kafka producer."""

    def __init__(self, config: Config, timeout: float) -> None:
        self._config = config
        self._timeout = timeout
        self._reports: list[tuple[KafkaError | None, Any, Delivery]] = []
        self._room = asyncio.Event()
        self._is_closing = False
        self._producer_: Producer | None = None
        self._thread: threading.Thread | None = None

    @property
    def producer(self) -> Producer:
        assert self._producer_ is not None
        return self._producer_

    async def open(self) -> None:
        try:
            self._producer_ = Producer(self._config)
            if "transactional.id" in self._config:
                await asyncio.to_thread(self.producer.init_transactions, self._timeout)
        except KafkaException as error:
            raise ConnectError(f"librdkafka refuses: {error}") from error
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._serve, args=(loop,), name="ottla-kafka-producer", daemon=True
        )
        self._thread.start()

    async def write(self, batch: Batch) -> None:
        for message, delivery in batch.deliveries():
            while not self._produce(message, delivery):
                self._room.clear()
                await self._room.wait()

    def _produce(self, message: Outgoing, delivery: Delivery) -> bool:
        """False if librdkafka's queue is full."""
        options: dict[str, Any] = {}
        if message.shard is not None:
            options["partition"] = message.shard
        if message.timestamp_ns is not None:
            options["timestamp"] = message.timestamp_ns // NS_PER_MS
            if not options["timestamp"]:
                delivery.reject(
                    DeliveryError(
                        "librdkafka cannot write the time 0 (1970-01-01), it would become now; "
                        "give another time or none",
                        stream=message.stream,
                    )
                )
                return True
        try:
            self.producer.produce(
                message.stream,
                None if message.is_null else message.payload,
                message.key,
                on_delivery=bound(self._reported, delivery),
                headers=list(message.headers) or None,
                **options,
            )
        except BufferError:
            return False
        except KafkaException as error:
            delivery.reject(_refused(error.args[0], message.stream))
        except (TypeError, ValueError, OverflowError) as error:
            # One message that librdkafka cannot take is no reason to reject the rest of its batch.
            delivery.reject(
                DeliveryError(f"Kafka cannot take such a message: {error}", stream=message.stream)
            )
        return True

    def _reported(self, delivery: Delivery, error: KafkaError | None, message: Any) -> None:
        self._reports.append((error, message, delivery))

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._is_closing or self._reports or len(self.producer):
            with suppress(KafkaException):  # fatal; the delivery reports have the reason
                self.producer.poll(POLL)
            if self._reports:
                reports, self._reports = self._reports, []
                loop.call_soon_threadsafe(self._settle, reports)

    def _settle(self, reports: list[tuple[KafkaError | None, Any, Delivery]]) -> None:
        self._room.set()
        for error, message, delivery in reports:
            if error is not None:
                delivery.reject(_refused(error, message.topic()))
                continue
            kind, milliseconds = message.timestamp()
            delivery.resolve(
                Receipt(
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    milliseconds * NS_PER_MS if kind else SYSTEM.wall_ns(),
                )
            )

    async def begin_transaction(self) -> None:
        if "transactional.id" not in self._config:
            raise ConfigError(
                "a transaction needs a name that lasts: KafkaOptions(transactional_id=...)"
            )
        await self._transact(self.producer.begin_transaction)

    async def commit_transaction(
        self, source: Source | None, positions: Mapping[ShardKey, int]
    ) -> None:
        if source is not None:
            if not isinstance(source, KafkaSource):
                raise ConfigError("a transaction commits positions of a Kafka group")
            offsets = [partition(shard, at) for shard, at in positions.items()]
            member = await source.group_metadata()
            await self._transact(
                self.producer.send_offsets_to_transaction, offsets, member, self._timeout
            )
        await self._transact(self.producer.commit_transaction, self._timeout)

    async def abort_transaction(self) -> None:
        await self._transact(self.producer.abort_transaction, self._timeout)

    async def _transact(self, call: Callable[..., object], *args: object) -> None:
        try:
            await asyncio.to_thread(call, *args)
        except KafkaException as error:
            raise StreamError(f"the transaction failed: {error.args[0].str()}") from error

    async def close(self, *, end: bool) -> None:
        self._is_closing = True
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        self._producer_ = None


def _refused(error: KafkaError, stream: str) -> DeliveryError:
    return DeliveryError(f"Kafka did not take the message: {error.str()}", stream=stream)

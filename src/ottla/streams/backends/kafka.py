"""Kafka: `kafka://`, any cluster, by librdkafka (confluent-kafka); share groups by Ottla's client.

A stream is a topic, a shard a partition, a sequence an offset.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ottla.streams.backends.kafka_config import client_config, producer_config, with_extra
from ottla.streams.backends.kafka_shared import SharedSource
from ottla.streams.backends.kafka_sink import KafkaSink
from ottla.streams.backends.kafka_source import KafkaSource
from ottla.streams.base import Driver, Operation
from ottla.streams.errors import ConnectError, Unsupported
from ottla.streams.modes import consumer_name, has_wildcard
from ottla.streams.types import Backend, KafkaOptions, Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.streams.base import Sink, Source
    from ottla.streams.positions import StoredPositions
    from ottla.streams.types import ConnectOptions, ConsumerOptions, ProducerOptions
    from ottla.streams.url import StreamUrl


class KafkaDriver(Driver):
    """One cluster. Every consumer and producer has connections of its own."""

    backend: ClassVar[Backend] = Backend.KAFKA
    unsupported: ClassVar[Mapping[Operation, str]] = {}

    def __init__(self, url: StreamUrl, options: ConnectOptions) -> None:
        super().__init__(url, options)
        self._kafka = options.kafka or KafkaOptions()

    async def open(self) -> None:
        """Ask for the cluster's metadata."""
        base = client_config(self.url.nodes, self._kafka, self.options.timeout)
        try:
            admin = AdminClient(with_extra({**base, "log_level": 0}, self._kafka))
            await asyncio.to_thread(admin.list_topics, "", timeout=self.options.timeout)
        except KafkaException as error:
            nodes = ", ".join(self.url.nodes)
            raise ConnectError(
                f"no Kafka cluster at {nodes}: {error.args[0].str()}; check the address and that "
                "it is up"
            ) from error

    def source(
        self, streams: Sequence[str], options: ConsumerOptions, stored: StoredPositions | None
    ) -> Source:
        kafka = options.kafka or self._kafka
        if has_wildcard(streams):
            raise Unsupported("a Kafka consumer reads the topics it names; list them")
        if options.mode is Mode.SHARED:
            return SharedSource(self.url.nodes, streams, options, kafka)
        return KafkaSource(
            client_config(self.url.nodes, kafka, self.options.timeout),
            streams,
            options,
            kafka,
            group=None if options.mode is Mode.REAL_TIME else consumer_name(options),
            timeout=self.options.timeout,
            stored=stored,
        )

    def sink(self, options: ProducerOptions) -> Sink:
        kafka = options.kafka or self._kafka
        base = client_config(self.url.nodes, kafka, self.options.timeout)
        return KafkaSink(producer_config(base, kafka), self.options.timeout)

    async def close(self) -> None:
        """Nothing is held between consumers and producers."""

"""Kafka: `kafka://`, any cluster, by librdkafka (confluent-kafka); share groups by Ottla's client.

A stream is a topic, a shard a partition, a sequence an offset.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, ClassVar, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from ottla.clock import SYSTEM
from ottla.streams.backends.kafka_config import (
    client_config,
    producer_config,
    with_extra,
    with_port,
)
from ottla.streams.backends.kafka_shared import SharedSource
from ottla.streams.backends.kafka_sink import KafkaSink
from ottla.streams.backends.kafka_source import KafkaSource
from ottla.streams.base import Driver, Operation
from ottla.streams.errors import ConnectError, Unsupported, UrlError
from ottla.streams.modes import consumer_name, has_wildcard
from ottla.streams.types import Backend, KafkaOptions, Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.streams.base import Sink, Source
    from ottla.streams.positions import StoredPositions
    from ottla.streams.types import ConnectOptions, ConsumerOptions, ProducerOptions
    from ottla.streams.url import StreamUrl

LOGGER: Final = logging.getLogger(__name__)
STAMPED_BY: Final = "message.timestamp.type"
REFUSALS: Final = frozenset((KafkaError._AUTHENTICATION, KafkaError._SSL))
FIRST_TURN: Final = 0.25  # seconds


class KafkaDriver(Driver):
    """One cluster. Each consumer and producer has its own connections."""

    backend: ClassVar[Backend] = Backend.KAFKA
    unsupported: ClassVar[Mapping[Operation, str]] = {}

    def __init__(self, url: StreamUrl, options: ConnectOptions) -> None:
        super().__init__(url, options)
        for node in url.nodes:
            port = with_port(node).rpartition(":")[2]
            if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                raise UrlError(f"the port of {node} in a Kafka URL is not a number from 1 to 65535")
        self._kafka = options.kafka or KafkaOptions()

    async def open(self) -> None:
        """Ask for the cluster's metadata."""
        try:
            await asyncio.to_thread(self._reach)
        except KafkaException as error:
            nodes = ", ".join(self.url.nodes)
            raise ConnectError(
                f"no Kafka cluster at {nodes}: {error.args[0].str()}; check the address and that "
                "it is up"
            ) from error

    def _reach(self) -> None:
        """Ask until there is an answer, in longer and longer turns.

        librdkafka reconnects for ever after a failed login or handshake, and only its error
        callback, which is called between the turns, tells of it.
        """
        told: list[KafkaError] = []
        admin = self._admin({"error_cb": told.append})
        deadline = SYSTEM.monotonic() + self.options.timeout
        turn = FIRST_TURN
        while True:
            left = deadline - SYSTEM.monotonic()
            try:
                admin.list_topics("", timeout=min(turn, max(left, 0)))
            except KafkaException:
                admin.poll(0)
                for error in told:
                    if error.code() in REFUSALS:
                        raise self._refused(error) from None
                if left <= turn:
                    raise
                turn *= 2
            else:
                return

    def _refused(self, error: KafkaError) -> ConnectError:
        # Without the address that librdkafka puts before it and the time it puts behind it.
        why = error.str().split("/bootstrap: ", 1)[-1].rpartition(" (after ")[0] or error.str()
        if error.code() == KafkaError._SSL:
            return ConnectError(
                f"no TLS connection to {', '.join(self.url.nodes)}: {why}; check the address and "
                "the trusted certificates"
            )
        security = self._kafka.security
        who = ""
        if security is not None and security.sasl_username:
            who = f" as {security.sasl_username!r} with {security.sasl_mechanism}"
        return ConnectError(
            f"cannot log in{who}: {why}; check the user name, the password and the mechanism"
        )

    def _admin(self, callbacks: Mapping[str, Any] | None = None) -> AdminClient:
        base = client_config(self.url.nodes, self._kafka, self.options.timeout)
        config = with_extra({**base, "log_level": 0}, self._kafka)
        return AdminClient({**config, **(callbacks or {})})

    async def stamped_by_store(self, streams: Sequence[str]) -> frozenset[str]:
        """Topics with message.timestamp.type=LogAppendTime; missing topics are left out."""

        def ask() -> frozenset[str]:
            admin = self._admin()  # keep a reference: answers arrive only while it lives
            topics = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in streams]
            stamped = set()
            for topic, answer in admin.describe_configs(
                topics, request_timeout=self.options.timeout
            ).items():
                try:
                    if answer.result()[STAMPED_BY].value == "LogAppendTime":
                        stamped.add(topic.name)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        LOGGER.warning("cannot tell the %s of %s: %s", STAMPED_BY, topic, error)
            return frozenset(stamped)

        return await asyncio.to_thread(ask)

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
        config = producer_config(base, kafka, stop_at_failure=options.stop_at_failure)
        return KafkaSink(config, self.options.timeout)

    async def close(self) -> None:
        """Nothing is held between consumers and producers."""

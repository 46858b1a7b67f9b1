"""Ottla: Kafka's little sister, a Kafka-compatible broker, queues and pipelines in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.cluster.view import TopicPartition
    from ottla.client.consumer.consumer import Consumer
    from ottla.client.producer.producer import Producer
    from ottla.client.producer.types import ProducerRecord, RecordMetadata
    from ottla.client.reader.reader import Reader
    from ottla.client.share.consumer import ShareConsumer
    from ottla.client.share.worker import ShareWorker, share_worker
    from ottla.client.transactions.types import ConsumerGroupMetadata, OffsetAndMetadata
    from ottla.streams.streamer import connect
    from ottla.streams.types import ConsumerOptions
    from ottla.testing.embedded import EmbeddedBroker

__version__ = "0.1.0.dev0"
__all__ = [
    "Admin",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerOptions",
    "EmbeddedBroker",
    "OffsetAndMetadata",
    "Producer",
    "ProducerRecord",
    "Reader",
    "RecordMetadata",
    "ShareConsumer",
    "ShareWorker",
    "TopicPartition",
    "connect",
    "share_worker",
]

_HOMES = {
    "Admin": "ottla.client.admin.admin",
    "Consumer": "ottla.client.consumer.consumer",
    "ConsumerGroupMetadata": "ottla.client.transactions.types",
    "ConsumerOptions": "ottla.streams.types",
    "EmbeddedBroker": "ottla.testing.embedded",
    "OffsetAndMetadata": "ottla.client.transactions.types",
    "Producer": "ottla.client.producer.producer",
    "ProducerRecord": "ottla.client.producer.types",
    "Reader": "ottla.client.reader.reader",
    "RecordMetadata": "ottla.client.producer.types",
    "ShareConsumer": "ottla.client.share.consumer",
    "ShareWorker": "ottla.client.share.worker",
    "TopicPartition": "ottla.client.cluster.view",
    "share_worker": "ottla.client.share.worker",
    "connect": "ottla.streams.streamer",
}


def __getattr__(name: str) -> object:
    """Names are imported when they are first used: `import ottla` alone costs nothing."""
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}") from None
    return getattr(import_module(home), name)

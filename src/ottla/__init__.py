"""Ottla: Kafka's little sister, a Kafka-compatible broker, queues and pipelines in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.cluster_view import TopicPartition
    from ottla.client.producer import Producer
    from ottla.client.producer_types import ProducerRecord, RecordMetadata
    from ottla.client.reader import Reader
    from ottla.client.share_consumer import ShareConsumer
    from ottla.client.share_worker import ShareWorker, share_worker
    from ottla.client.transaction_types import ConsumerGroupMetadata, OffsetAndMetadata
    from ottla.streams.streamer import connect
    from ottla.streams.types import ConsumerOptions
    from ottla.testing.embedded import EmbeddedBroker

__version__ = "0.1.0.dev0"
__all__ = [
    "Admin",
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
    "Admin": "ottla.client.admin",
    "ConsumerGroupMetadata": "ottla.client.transaction_types",
    "ConsumerOptions": "ottla.streams.types",
    "EmbeddedBroker": "ottla.testing.embedded",
    "OffsetAndMetadata": "ottla.client.transaction_types",
    "Producer": "ottla.client.producer",
    "ProducerRecord": "ottla.client.producer_types",
    "Reader": "ottla.client.reader",
    "RecordMetadata": "ottla.client.producer_types",
    "ShareConsumer": "ottla.client.share_consumer",
    "ShareWorker": "ottla.client.share_worker",
    "TopicPartition": "ottla.client.cluster_view",
    "share_worker": "ottla.client.share_worker",
    "connect": "ottla.streams.streamer",
}


def __getattr__(name: str) -> object:
    """Names are imported when they are first used: `import ottla` alone costs nothing."""
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}") from None
    return getattr(import_module(home), name)

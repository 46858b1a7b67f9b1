"""Ottla: Kafka's little sister, a Kafka-compatible broker, queues and pipelines in Python.

All names are here: clients, the types that they take and give, and the modules `errors`, `offsets`,
`spark`, `streams`, `sync` (blocking clients) and `testing`. Each is imported when it is first used,
so that `import ottla` alone costs a few milliseconds.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from ottla import errors, offsets, spark, streams, sync, testing
    from ottla.client.admin.admin import (
        Admin,
    )
    from ottla.client.admin.resets import (
        OffsetMove,
        ShiftBy,
        ToOffset,
    )
    from ottla.client.admin.types import (
        Acl,
        ClusterDescription,
        ConfigEntry,
        ConfigSource,
        CreatedTopic,
        GroupDescription,
        GroupListing,
        GroupMember,
        GroupOffset,
        HangingTransaction,
        ListedOffset,
        LogDirDescription,
        NodeDescription,
        NodeState,
        ProducerState,
        QuotaDescription,
        Reassignment,
        ShareGroupDescription,
        ShareGroupMember,
        ShareGroupOffset,
        ShareWindow,
        ShareWindowRun,
        TopicDescription,
        TopicListing,
        TransactionDescription,
        TransactionListing,
        UserDescription,
    )
    from ottla.client.cluster.view import (
        TopicPartition,
    )
    from ottla.client.consumer.consumer import (
        Consumer,
    )
    from ottla.client.producer.producer import (
        Producer,
    )
    from ottla.client.producer.types import (
        DeliveredRange,
        ProducerRecord,
        RecordMetadata,
    )
    from ottla.client.reader.reader import (
        Reader,
    )
    from ottla.client.reader.types import (
        Record,
        Timestamp,
    )
    from ottla.client.security import (
        Security,
        Token,
    )
    from ottla.client.share.consumer import (
        ShareConsumer,
    )
    from ottla.client.share.types import (
        Acknowledged,
        ShareRecord,
    )
    from ottla.client.share.worker import (
        ShareWorker,
        WorkerCounts,
        share_worker,
    )
    from ottla.client.transactions.transaction import (
        Transaction,
    )
    from ottla.client.transactions.types import (
        ConsumerGroupMetadata,
        OffsetAndMetadata,
    )
    from ottla.schemas.registry_client import (
        Compatibility,
        RegisteredSchema,
        SchemaRegistry,
    )
    from ottla.streams.streamer import (
        Streamer,
        connect,
    )
    from ottla.tables.topic_table import (
        TopicTable,
        table,
    )
    from ottla.testing.embedded import (
        EmbeddedBroker,
    )
    from ottla.testing.secured import (
        Secured,
    )

__version__ = "0.2.0"
__all__ = [
    "Acknowledged",
    "Acl",
    "Admin",
    "ClusterDescription",
    "Compatibility",
    "ConfigEntry",
    "ConfigSource",
    "Consumer",
    "ConsumerGroupMetadata",
    "CreatedTopic",
    "DeliveredRange",
    "EmbeddedBroker",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupOffset",
    "HangingTransaction",
    "ListedOffset",
    "LogDirDescription",
    "NodeDescription",
    "NodeState",
    "OffsetAndMetadata",
    "OffsetMove",
    "Producer",
    "ProducerRecord",
    "ProducerState",
    "QuotaDescription",
    "Reader",
    "Reassignment",
    "Record",
    "RecordMetadata",
    "RegisteredSchema",
    "SchemaRegistry",
    "Secured",
    "Security",
    "ShareConsumer",
    "ShareGroupDescription",
    "ShareGroupMember",
    "ShareGroupOffset",
    "ShareRecord",
    "ShareWindow",
    "ShareWindowRun",
    "ShareWorker",
    "ShiftBy",
    "Streamer",
    "Timestamp",
    "ToOffset",
    "Token",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TopicTable",
    "Transaction",
    "TransactionDescription",
    "TransactionListing",
    "UserDescription",
    "WorkerCounts",
    "connect",
    "errors",
    "offsets",
    "share_worker",
    "spark",
    "streams",
    "sync",
    "table",
    "testing",
]

_MODULES = ("errors", "offsets", "spark", "streams", "sync", "testing")
_HOMES = {
    "Acknowledged": "ottla.client.share.types",
    "Acl": "ottla.client.admin.types",
    "Admin": "ottla.client.admin.admin",
    "ClusterDescription": "ottla.client.admin.types",
    "Compatibility": "ottla.schemas.registry_client",
    "ConfigEntry": "ottla.client.admin.types",
    "ConfigSource": "ottla.client.admin.types",
    "Consumer": "ottla.client.consumer.consumer",
    "ConsumerGroupMetadata": "ottla.client.transactions.types",
    "CreatedTopic": "ottla.client.admin.types",
    "DeliveredRange": "ottla.client.producer.types",
    "EmbeddedBroker": "ottla.testing.embedded",
    "GroupDescription": "ottla.client.admin.types",
    "GroupListing": "ottla.client.admin.types",
    "GroupMember": "ottla.client.admin.types",
    "GroupOffset": "ottla.client.admin.types",
    "HangingTransaction": "ottla.client.admin.types",
    "ListedOffset": "ottla.client.admin.types",
    "LogDirDescription": "ottla.client.admin.types",
    "OffsetAndMetadata": "ottla.client.transactions.types",
    "OffsetMove": "ottla.client.admin.resets",
    "Producer": "ottla.client.producer.producer",
    "ProducerRecord": "ottla.client.producer.types",
    "ProducerState": "ottla.client.admin.types",
    "NodeDescription": "ottla.client.admin.types",
    "NodeState": "ottla.client.admin.types",
    "QuotaDescription": "ottla.client.admin.types",
    "Reassignment": "ottla.client.admin.types",
    "Reader": "ottla.client.reader.reader",
    "Record": "ottla.client.reader.types",
    "RecordMetadata": "ottla.client.producer.types",
    "RegisteredSchema": "ottla.schemas.registry_client",
    "SchemaRegistry": "ottla.schemas.registry_client",
    "Secured": "ottla.testing.secured",
    "Security": "ottla.client.security",
    "ShareConsumer": "ottla.client.share.consumer",
    "ShareGroupDescription": "ottla.client.admin.types",
    "ShareGroupMember": "ottla.client.admin.types",
    "ShareGroupOffset": "ottla.client.admin.types",
    "ShareRecord": "ottla.client.share.types",
    "ShareWindow": "ottla.client.admin.types",
    "ShareWindowRun": "ottla.client.admin.types",
    "ShareWorker": "ottla.client.share.worker",
    "ShiftBy": "ottla.client.admin.resets",
    "Streamer": "ottla.streams.streamer",
    "Timestamp": "ottla.client.reader.types",
    "ToOffset": "ottla.client.admin.resets",
    "Token": "ottla.client.security",
    "TopicDescription": "ottla.client.admin.types",
    "TopicListing": "ottla.client.admin.types",
    "TopicPartition": "ottla.client.cluster.view",
    "TopicTable": "ottla.tables.topic_table",
    "Transaction": "ottla.client.transactions.transaction",
    "TransactionDescription": "ottla.client.admin.types",
    "TransactionListing": "ottla.client.admin.types",
    "UserDescription": "ottla.client.admin.types",
    "WorkerCounts": "ottla.client.share.worker",
    "connect": "ottla.streams.streamer",
    "share_worker": "ottla.client.share.worker",
    "table": "ottla.tables.topic_table",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"ottla.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ottla' has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["__version__", *__all__]

"""One consumer and producer API for Kafka, Redis, files and pipes; the URL selects the store."""

from __future__ import annotations

from ottla.streams.consumer import Consumer
from ottla.streams.delivery import Delivery
from ottla.streams.errors import StreamError, Unsupported
from ottla.streams.life import ConsumerState
from ottla.streams.producer import Producer
from ottla.streams.streamer import Streamer, connect
from ottla.streams.types import (
    BEGINNING,
    END,
    WILDCARD,
    At,
    AutoCommit,
    Backend,
    ConnectOptions,
    ConsumerOptions,
    Create,
    FileOptions,
    KafkaOptions,
    Message,
    MessageId,
    Mode,
    ProducerOptions,
    Receipt,
    RedisOptions,
    Reset,
    SeqPos,
    ShardKey,
    StdioOptions,
)

__all__ = [
    "BEGINNING",
    "END",
    "WILDCARD",
    "At",
    "AutoCommit",
    "Backend",
    "ConnectOptions",
    "Consumer",
    "ConsumerOptions",
    "ConsumerState",
    "Create",
    "Delivery",
    "FileOptions",
    "KafkaOptions",
    "Message",
    "MessageId",
    "Mode",
    "Producer",
    "ProducerOptions",
    "Receipt",
    "RedisOptions",
    "Reset",
    "SeqPos",
    "ShardKey",
    "StdioOptions",
    "StreamError",
    "Streamer",
    "Unsupported",
    "connect",
]

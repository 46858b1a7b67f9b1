"""The settings that librdkafka gets."""

from __future__ import annotations

from ottla.streams.backends.kafka_config import client_config, consumer_config
from ottla.streams.types import ConsumerOptions, KafkaOptions


def test_a_full_read_ahead_is_a_short_pause() -> None:
    """Fault: librdkafka's own pause is a second, in which it read nothing."""
    options = KafkaOptions()
    base = client_config(["127.0.0.1"], options, 5.0)
    config = consumer_config(base, options, ConsumerOptions(prefetch_bytes=1 << 20), "g")
    assert config["queued.max.messages.kbytes"] == 1024
    pause = config["fetch.queue.backoff.ms"]
    assert isinstance(pause, int)
    assert pause <= 50

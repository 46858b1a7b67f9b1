"""Options as librdkafka's properties.

`extra` is passed on unchanged and overrides the typed options. Settings that this library depends
on (it commits itself, and only acknowledged messages) cannot be overridden.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.streams.errors import ConfigError
from ottla.streams.types import Mode, Reset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.streams.types import ConsumerOptions, KafkaOptions

Config: TypeAlias = "dict[str, str | int | float | bool]"

LOGGER: Final = logging.getLogger(__name__)
DEFAULT_PORT: Final = 9092
FULL_PAUSE_MS: Final = 10
LEAST_FETCH: Final = 1024 * 1024  # librdkafka takes no less than its message.max.bytes
RESUMABLE_SESSION: Final = 6.0  # seconds; short, since there is no other member to disturb

FORCED: Final[Config] = {"enable.auto.commit": False, "enable.auto.offset.store": False}
RESETS: Final = {Reset.LATEST: "latest", Reset.EARLIEST: "earliest", Reset.NONE: "error"}


def client_config(nodes: Sequence[str], options: KafkaOptions, timeout: float) -> Config:
    """What consumers and producers have in common."""
    return {
        "bootstrap.servers": ",".join(with_port(node) for node in nodes),
        "socket.timeout.ms": int(timeout * 1000),
        **({} if options.security is None else options.security.librdkafka()),
    }


def consumer_config(
    base: Config, options: KafkaOptions, consumer: ConsumerOptions, group: str
) -> Config:
    config: Config = {
        **base,
        "group.id": group,
        "auto.offset.reset": RESETS[consumer.reset],
        # librdkafka may hold as much as was handed on, and one more response.
        "queued.max.messages.kbytes": max(consumer.prefetch_bytes // 1024, 1),
        "fetch.max.bytes": max(
            consumer.prefetch_bytes, int(options.extra.get("message.max.bytes", LEAST_FETCH))
        ),
        # How long it pauses when it holds so much; its own second would be a gap in every reading.
        "fetch.queue.backoff.ms": FULL_PAUSE_MS,
        **FORCED,
    }
    if options.extra.get("group.protocol") == "consumer":  # the broker assigns and sets the times
        return with_extra(config, options)
    # What stays with a member keeps its state while others come and go.
    config["partition.assignment.strategy"] = "cooperative-sticky"
    session = options.session_timeout
    if session is None and consumer.mode is Mode.RESUMABLE:
        session = RESUMABLE_SESSION
    if session is not None:
        config["session.timeout.ms"] = int(session * 1000)
        config["heartbeat.interval.ms"] = max(int(session * 1000) // 3, 1)
    return with_extra(config, options)


def producer_config(base: Config, options: KafkaOptions, *, stop_at_failure: bool) -> Config:
    config = dict(base)
    if stop_at_failure:
        # Batches in flight behind one that the broker refuses are refused as well. librdkafka warns
        # that this property is experimental; from level 3 on it logs errors only.
        config |= {"enable.idempotence": True, "enable.gapless.guarantee": True, "log_level": 3}
    if options.compression is not None:
        config["compression.type"] = options.compression
    if options.transactional_id is not None:
        config["transactional.id"] = options.transactional_id
    return with_extra(config, options)


def with_extra(config: Config, options: KafkaOptions) -> Config:
    """The properties with those the user gave verbatim."""
    for name, value in options.extra.items():
        if name in FORCED and FORCED[name] != value:
            raise ConfigError(
                f"{name} is {FORCED[name]} here, because commits follow acknowledgements; "
                "choose ConsumerOptions(auto_commit=...) instead"
            )
        if name in config and config[name] != value:
            LOGGER.info("%s is %r as given in extra, not %r", name, value, config[name])
    return {**config, **options.extra}


def is_cooperative(config: Config) -> bool:
    return "cooperative" in str(config.get("partition.assignment.strategy", "")) or (
        config.get("group.protocol") == "consumer"
    )


def with_port(node: str) -> str:
    """host:port, with Kafka's usual port where none is given."""
    return node if ":" in node.rpartition("]")[2] else f"{node}:{DEFAULT_PORT}"

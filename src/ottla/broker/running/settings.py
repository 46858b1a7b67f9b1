"""The configuration values that are looked at on every request or round, parsed once.

Those marked live can be altered while the broker runs: they follow the metadata image, and services
that must react to a change watch it. Every other live key is a topic's default (applied by
`Partitions`) or belongs to the remote tier (applied by `Tiering`).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.broker.access.listeners import (
    advertised_of,
    console_listener_of,
    inter_broker_listener_of,
    listeners_of,
    metrics_listener_of,
    registry_asks,
    registry_listener_of,
)
from ottla.metadata.config.values import EffectiveConfig, resolve_broker_config
from ottla.metadata.errors import InvalidConfig
from ottla.metadata.security.acls import canonical_host

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.broker.access.listeners import Listener
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

LIVE: Final = frozenset(
    {
        "max.connections",
        "max.connections.per.ip",
        "max.connection.creation.rate",
        "producer.id.expiration.ms",
        "log.cleaner.backoff.ms",
    }
)
"""The keys that are read again here when they are altered."""


class Settings:
    """Attributes are plain values; only those set in `_read_live` ever change."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._watchers: list[Callable[[], None]] = []
        self.listeners = listeners_of(config)
        self.advertised = advertised_of(config, self.listeners)
        self.metrics_listener = metrics_listener_of(config)
        self.console_listener = console_listener_of(config)
        self.registry_listener = registry_listener_of(config)
        self.registry_asks = self.registry_listener is not None and registry_asks(config)
        self.auto_create_topics = config.get_bool("auto.create.topics.enable")
        self.fetch_max_bytes = config.get_int("fetch.max.bytes")
        self.fetch_mapped = config.get_bool("ottla.fetch.mapped")
        self.max_request_bytes = config.get_int("socket.request.max.bytes")
        self.queued_max_request_bytes = config.get_int("queued.max.request.bytes")
        self.queued_max_response_bytes = config.get_int("ottla.queued.max.response.bytes")
        self.idle_ms = config.get_int("connections.max.idle.ms")
        self.tail_cache_bytes = config.get_int("ottla.tail.cache.bytes")
        self.flush_mode = config.get_str("ottla.flush.mode")
        journal = config.parsed("ottla.journal.dir")
        self.journal_dir = None if journal is None else Path(str(journal))
        self.journal_bytes = config.get_int("ottla.journal.bytes")
        self.journal_extent_max_bytes = config.get_int("ottla.journal.extent.max.bytes")
        self.accepts_lost_journal = config.get_str("ottla.journal.lost") == "accept"
        self.verify_transactions = config.get_bool("transaction.partition.verification.enable")
        self.inter_broker_listener = inter_broker_listener_of(config, self.listeners)
        named = config.parsed("inter.broker.listener.name") is not None
        self.protected_listener = (
            self.inter_broker_listener if named and len(self.listeners) > 1 else None
        )
        """The listener that nodes alone use; None where clients share it with them."""
        self.address_limits = _address_limits(config.get_str("max.connections.per.ip.overrides"))
        """Limits that some addresses have of their own."""
        self._read_live(config)

    def _read_live(self, config: BrokerConfig | EffectiveConfig) -> None:
        self.max_connections = _at_least_one(config, "max.connections")
        self.max_connections_per_ip = _at_least_one(config, "max.connections.per.ip")
        self.connection_rate = config.get_int("max.connection.creation.rate")
        self.listener_connections = self._of_listeners(config, "max.connections")
        """Limits that some listeners have of their own."""
        self.listener_rates = self._of_listeners(config, "max.connection.creation.rate")
        self.registry_connections, self.registry_rate = self._of_registry(config)
        """Of its listener; None where it has no limit of its own."""
        self.producer_expiration_ms = config.get_int("producer.id.expiration.ms")
        self.cleaner_backoff = config.get_int("log.cleaner.backoff.ms") / 1000

    def _of_registry(self, config: BrokerConfig | EffectiveConfig) -> tuple[int | None, int | None]:
        listener = self.registry_listener
        if listener is None:
            return None, None
        most = self._of_listeners(config, "max.connections", (listener,))
        rates = self._of_listeners(config, "max.connection.creation.rate", (listener,))
        return most.get(listener.name), rates.get(listener.name)

    def _of_listeners(
        self,
        config: BrokerConfig | EffectiveConfig,
        key: str,
        listeners: Sequence[Listener] | None = None,
    ) -> dict[str, int]:
        found = {}
        for listener in self.listeners if listeners is None else listeners:
            own = f"listener.name.{listener.name.lower()}.{key}"
            if isinstance(config, EffectiveConfig) and own not in config:
                continue
            if config.parsed(own) is not None:
                found[listener.name] = config.get_int(own)
        return found

    def watch(self, changed: Callable[[], None]) -> None:
        """Have `changed` called whenever live values may have changed."""
        self._watchers.append(changed)

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        if before.broker_configs is not after.broker_configs:
            self.adopt(after)

    def adopt(self, image: MetadataImage) -> None:
        """Take the live values as they are altered in this image."""
        self._read_live(resolve_broker_config(image, self._config))
        for changed in self._watchers:
            changed()


def _address_limits(text: str) -> dict[str, int]:
    limits: dict[str, int] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        host, _, limit = item.rpartition(":")
        limits[canonical_host(host.strip("[]"))] = int(limit)
    return limits


def _at_least_one(config: BrokerConfig | EffectiveConfig, key: str) -> int:
    """An old stored 0 counts as 1: otherwise no client could connect to change it."""
    try:
        return config.get_int(key)
    except InvalidConfig as error:
        logger.warning("%s; counts as 1 until it is altered", error)
        return 1

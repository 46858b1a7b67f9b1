"""The configuration values that are looked at on every request, parsed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.metadata.config.broker import BrokerConfig


class Listener(NamedTuple):
    """Where to listen; port 0 takes a free one."""

    name: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listener:
        name, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        return cls(name, host.strip("[]"), int(port))


class Settings(NamedTuple):
    auto_create_topics: bool
    fetch_max_bytes: int
    max_request_bytes: int
    queued_max_request_bytes: int
    max_connections: int
    max_connections_per_ip: int
    idle_ms: int
    group_flush: bool
    verify_transactions: bool
    listeners: tuple[Listener, ...]
    advertised: dict[str, Listener]

    @classmethod
    def of(cls, config: BrokerConfig) -> Settings:
        told = config.parsed("advertised.listeners")
        advertised = [Listener.parse(text) for text in told] if isinstance(told, tuple) else []
        return cls(
            auto_create_topics=config.get_bool("auto.create.topics.enable"),
            fetch_max_bytes=config.get_int("fetch.max.bytes"),
            max_request_bytes=config.get_int("socket.request.max.bytes"),
            queued_max_request_bytes=config.get_int("queued.max.request.bytes"),
            max_connections=config.get_int("max.connections"),
            max_connections_per_ip=config.get_int("max.connections.per.ip"),
            idle_ms=config.get_int("connections.max.idle.ms"),
            group_flush=config.get_str("ottla.flush.mode") == "group",
            verify_transactions=config.get_bool("transaction.partition.verification.enable"),
            listeners=tuple(map(Listener.parse, config.get_list("listeners"))),
            advertised={listener.name: listener for listener in advertised},
        )

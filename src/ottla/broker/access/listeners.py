"""The listeners of a node: what their settings must fulfil, and which of them are dangerous.

Everything here is pure: it looks at the configuration alone. Errors name the key.

- Names are taken in upper case. A name is one of the four protocols, or has one in
  `listener.security.protocol.map`. Names are unique, and so are addresses, but for port 0.
- `advertised.listeners` names known listeners with addresses that a client can use. A listener it
  leaves out is advertised with the address it is bound to.
- Settings for one listener (`listener.name.<name>.`) name a known one.
- With several listeners and an authorizer, `inter.broker.listener.name` says which one nodes use.
- A listener with TLS has a key store.
- A listener that lets anyone on the network in is refused, unless the configuration says that this
  is meant (`dangers`).
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.errors import ExposedListener
from ottla.metadata.config.security_keys import FILE_SUFFIX, ListenerKey
from ottla.metadata.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import Endpoint

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LOOPBACKS: Final = (
    (socket.AF_INET, bytes([127])),
    (socket.AF_INET6, bytes(15) + bytes([1])),
)
METRICS: Final = "METRICS"
CONSOLE: Final = "CONSOLE"
REGISTRY: Final = "REGISTRY"
WILDCARDS: Final = ("", "0.0.0.0", "::")  # compared with, not bound to


class Listener(NamedTuple):
    """Where to listen, and how clients speak there; port 0 takes a free one."""

    name: str
    host: str
    port: int
    protocol: str = PLAINTEXT

    @classmethod
    def parse(cls, text: str, protocols: Mapping[str, str] | None = None) -> Listener:
        name, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        protocol = (protocols or {}).get(name.upper(), PLAINTEXT)
        return cls(name.upper(), host.strip("[]"), int(port), protocol)

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL", "HTTPS")

    @property
    def has_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class Danger(NamedTuple):
    """What somebody on the network could do with a listener."""

    text: str
    refused: bool
    """Whether a broker must not start with it, unless it is told that this is meant."""


def listeners_of(config: BrokerConfig) -> tuple[Listener, ...]:
    """Those that clients use. Kafka's configuration also names those of its controllers."""
    protocols = dict(
        item.upper().split(":", 1) for item in config.get_list("listener.security.protocol.map")
    )
    protocols = {**{name: name for name in PROTOCOLS}, **protocols}
    controllers = {name.upper() for name in config.get_list("controller.listener.names")}
    found = tuple(
        listener
        for text in config.get_list("listeners")
        if (listener := Listener.parse(text, protocols)).name not in controllers
    )
    if not found:
        raise InvalidConfig(
            "a listener that is not in controller.listener.names",
            config.get_list("listeners"),
            "listeners",
        )
    for listener in found:
        if listener.name not in protocols:
            raise InvalidConfig(
                f"an entry {listener.name}:PROTOCOL, as this is no protocol's name",
                ",".join(config.get_list("listener.security.protocol.map")),
                "listener.security.protocol.map",
            )
    _check_unique(found)
    _check_settings(config, found)
    return found


def metrics_listener_of(config: BrokerConfig) -> Listener | None:
    """Where metrics are served, if they are."""
    found = _http_listener(config, "ottla.metrics.listener", METRICS)
    if found is None:
        return None
    key = "ottla.metrics.token"
    token = config.parsed(key)
    if token is not None and not str(token).strip():
        file = key + FILE_SUFFIX
        raise InvalidConfig("a token", "an empty one", file if file in config.static else key)
    return found


def console_listener_of(config: BrokerConfig) -> Listener | None:
    """Where the console is served, if it is."""
    told = config.parsed("ottla.console.listener")
    if told is None:
        return None
    return Listener.parse(str(told))._replace(name=CONSOLE, protocol="HTTP")


def registry_listener_of(config: BrokerConfig) -> Listener | None:
    """Where the schema registry is served, if it is."""
    return _http_listener(config, "ottla.registry.listener", REGISTRY)


def registry_asks(config: BrokerConfig) -> bool:
    """Whether clients of the registry must say who they are."""
    told = config.get_str("ottla.registry.authentication")
    return told == "required" or (
        told == "auto" and (has_authorizer(config) or _registry_is_certified(config))
    )


def _registry_is_certified(config: BrokerConfig) -> bool:
    """Whether nobody reaches the registry without a client certificate."""
    listener = registry_listener_of(config)
    required = config.listener(REGISTRY).get_str("ssl.client.auth") == "required"
    return listener is not None and listener.has_tls and required


def endpoint_url(endpoint: Endpoint) -> str:
    """Where an HTTP listener of a node is."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.protocol.lower()}://{host}:{endpoint.port}"


def _http_listener(config: BrokerConfig, key: str, name: str) -> Listener | None:
    told = config.parsed(key)
    if told is None:
        return None
    protocol = str(told).partition(":")[0]
    found = Listener.parse(str(told))._replace(name=name, protocol=protocol.upper())
    _check_key_store(config, found)
    return found


def _check_unique(listeners: Sequence[Listener]) -> None:
    names: set[str] = set()
    addresses: set[tuple[str, int]] = set()
    for listener in listeners:
        if listener.name in names:
            raise InvalidConfig("names that differ", f"{listener.name} twice", "listeners")
        names.add(listener.name)
        address = (listener.host, listener.port)
        if listener.port and address in addresses:
            shown = f"{listener.host}:{listener.port} twice"
            raise InvalidConfig("addresses that differ", shown, "listeners")
        addresses.add(address)


def _check_settings(config: BrokerConfig, listeners: Sequence[Listener]) -> None:
    known = {listener.name for listener in listeners}
    named = known | {
        name
        for name, key in (
            (METRICS, "ottla.metrics.listener"),
            (REGISTRY, "ottla.registry.listener"),
        )
        if config.parsed(key) is not None
    }
    for key in config.static:
        of_listener = ListenerKey.parse(key.removesuffix(FILE_SUFFIX))
        if of_listener is not None and of_listener.listener.upper() not in named:
            raise InvalidConfig(
                f"a listener of {', '.join(sorted(named))}", of_listener.listener, key
            )
    inter_broker = config.parsed("inter.broker.listener.name")
    if inter_broker is not None and str(inter_broker).upper() not in known:
        raise InvalidConfig(
            f"one of {', '.join(sorted(known))}", inter_broker, "inter.broker.listener.name"
        )
    if inter_broker is None and len(known) > 1 and has_authorizer(config):
        raise InvalidConfig(
            "the listener that nodes use, as there are several and an authorizer",
            "nothing",
            "inter.broker.listener.name",
        )
    for listener in listeners:
        _check_key_store(config, listener)


def _check_key_store(config: BrokerConfig, listener: Listener) -> None:
    own = config.listener(listener.name)
    stores = ("ssl.keystore.location", "ssl.keystore.key")
    if listener.has_tls and all(own.parsed(key) is None for key in stores):
        raise InvalidConfig(
            f"a key store, as {listener} speaks TLS", "nothing", "ssl.keystore.location"
        )


def has_authorizer(config: BrokerConfig) -> bool:
    return config.get_str("authorizer.class.name") != ""


def runs_table_worker(config: BrokerConfig) -> bool:
    """Whether this node, or one beside it, starts the table worker."""
    return config.get_str("ottla.table.worker") == "child"


def advertised_of(
    config: BrokerConfig, listeners: Sequence[Listener]
) -> Mapping[str, tuple[str, int]]:
    """Host and port that clients are told, by the listener's name."""
    told = config.parsed("advertised.listeners")
    key = "advertised.listeners"
    known = {listener.name for listener in listeners}
    controllers = {name.upper() for name in config.get_list("controller.listener.names")}
    found: dict[str, tuple[str, int]] = {}
    for text in told if isinstance(told, tuple) else ():
        advertised = Listener.parse(text)
        if advertised.name in controllers:
            continue
        if advertised.name not in known:
            raise InvalidConfig(f"a listener of {', '.join(sorted(known))}", advertised.name, key)
        if advertised.host in WILDCARDS:
            raise InvalidConfig("an address that clients can connect to", str(advertised), key)
        if advertised.name in found:
            raise InvalidConfig("each listener once", f"{advertised.name} twice", key)
        found[advertised.name] = advertised.host, advertised.port
    return found


def inter_broker_listener_of(config: BrokerConfig, listeners: Sequence[Listener]) -> str:
    """The listener that nodes use for each other."""
    name = config.parsed("inter.broker.listener.name")
    return listeners[0].name if name is None else str(name).upper()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on this host."""
    if host.lower() == "localhost":
        return True
    for family, loopback in LOOPBACKS:
        try:
            return socket.inet_pton(family, host).startswith(loopback)
        except OSError:
            continue  # not an address of this family
    return False  # a name, or none, which means every address


def dangers(config: BrokerConfig, listeners: Sequence[Listener]) -> Iterator[Danger]:
    """What is dangerous about each listener that other machines can reach."""
    authorizes = has_authorizer(config)
    metrics = metrics_listener_of(config)
    if metrics is not None and not is_loopback(metrics.host):
        if config.parsed("ottla.metrics.token") is None:
            yield Danger(
                f"{metrics}: anyone on the network can read the names of topics and groups; "
                "set ottla.metrics.token.file",
                refused=False,
            )
        elif not metrics.has_tls:
            yield Danger(
                f"{metrics}: the token travels unencrypted; use https:// in ottla.metrics.listener",
                refused=False,
            )
    console = console_listener_of(config)
    if console is not None and not is_loopback(console.host):
        yield Danger(
            f"{console} would let anyone on the network read every topic, as the console asks for "
            "no login; bind 127.0.0.1, or pass --insecure if the network is yours",
            refused=True,
        )
    yield from _registry_dangers(config)
    for listener in listeners:
        if is_loopback(listener.host):
            continue
        client_auth = config.listener(listener.name).get_str("ssl.client.auth")
        if listener.protocol == PLAINTEXT:
            yield _open(listener, "would let anyone on the network read and write")
        elif listener.protocol == "SASL_PLAINTEXT":
            yield _open(listener, "would send passwords and records unencrypted")
        elif listener.protocol == "SSL" and client_auth == "none":
            yield _open(listener, "is encrypted, but would let anyone on the network in")
        elif listener.protocol == "SSL" and client_auth == "requested" and not authorizes:
            yield _open(listener, "would let anyone in who shows no certificate")
        elif not authorizes:
            text = f"{listener}: every user may do everything; set authorizer.class.name=standard"
            yield Danger(text, refused=False)


def _registry_dangers(config: BrokerConfig) -> Iterator[Danger]:
    registry = registry_listener_of(config)
    if registry is None or is_loopback(registry.host):
        return
    if not registry.has_tls:
        yield _open(registry, "would let anyone on the network read and change schemas")
    elif not registry_asks(config) and not _registry_is_certified(config):
        yield _open(registry, "is encrypted, but would let anyone on the network in")


def unused_security(config: BrokerConfig, listeners: Sequence[Listener]) -> str | None:
    """What to tell where users and ACLs are stored; None if this configuration looks at them."""
    asks = has_authorizer(config) or any(
        one.has_sasl
        or (one.has_tls and config.listener(one.name).get_str("ssl.client.auth") != "none")
        for one in listeners
    )
    if asks:
        return None
    return (
        "users and ACLs in this directory are not looked at, anyone who connects may do "
        "everything; use --secure, or set listeners=SASL_SSL://HOST:PORT and "
        "authorizer.class.name=standard"
    )


def _open(listener: Listener, what: str) -> Danger:
    text = (
        f"{listener} {what}; use --secure, bind 127.0.0.1, "
        "or pass --insecure if the network is yours"
    )
    return Danger(text, refused=True)


def check_exposure(config: BrokerConfig, listeners: Sequence[Listener]) -> list[str]:
    """Warnings, one for each danger; `ExposedListener` if one of them is not allowed."""
    allowed = config.get_bool("ottla.allow.insecure.listeners")
    warnings = []
    for danger in dangers(config, listeners):
        if danger.refused and not allowed:
            raise ExposedListener(danger.text)
        warnings.append(danger.text)
    return warnings

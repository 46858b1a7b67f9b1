"""`kafka.*` options as settings of Ottla's client: the same names, parsed once, checked early.

Settings that only tune the internals of Kafka's own client are ignored.

Spark sends the options of a query to its tasks, so secrets can be given in three ways:

- `kafka.sasl.password.file` and the like name a file, `kafka.sasl.password.env` a variable. Each
  process reads it for itself, within the limits of `ottla.security.secrets`.
- Plain options work. Spark redacts those whose key says that they are secret; a private key in
  an option would be shown, so it is refused: name a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from ottla.client.errors import ClientError
from ottla.client.security import Security
from ottla.client.security_keys import KNOWN, PREFIXES, SECRET_KEYS
from ottla.security.secrets import TWINS, Fence, SecretRefused, with_secrets
from ottla.spark.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "kafka."

Isolation = Literal["read_uncommitted", "read_committed"]

_REFUSED_BY_READERS: Final = {
    "auto.offset.reset": "use startingOffsets to say where a query starts",
    "key.deserializer": "keys are bytes; decode them with DataFrame operations",
    "value.deserializer": "values are bytes; decode them with DataFrame operations",
    "enable.auto.commit": "Spark keeps the offsets; use offsetsGroup to have them committed",
    "interceptor.classes": "there is no Java in the reader to run them",
}
_REFUSED_BY_WRITERS: Final = {
    "key.serializer": "keys are bytes or text; encode them with DataFrame operations",
    "value.serializer": "values are bytes or text; encode them with DataFrame operations",
    "interceptor.classes": "there is no Java in the writer to run them",
    "transactional.id": "set delivery=exactly-once, and sinkId to name it",
}
_SHOWN_BY_SPARK: Final = {
    "ssl.keystore.key": "ssl.keystore.location",
    "ssl.key.pem": "ssl.key.location",
}
"""Secrets that Spark would show, and what to set instead."""

# Settings of Kafka's Java clients that have no effect here.
_NO_MATTER: Final = frozenset(
    {
        *("group.id", "max.poll.records", "max.poll.interval.ms", "session.timeout.ms"),
        *("heartbeat.interval.ms", "receive.buffer.bytes", "send.buffer.bytes"),
        *("connections.max.idle.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms"),
        *("retry.backoff.ms", "retry.backoff.max.ms", "retries", "fetch.min.bytes"),
        *("partition.assignment.strategy", "client.dns.lookup", "metric.reporters"),
        *("allow.auto.create.topics", "exclude.internal.topics", "client.rack", "batch.size"),
        *("max.in.flight.requests.per.connection", "metadata.recovery.strategy"),
        *("auto.include.jmx.reporter", "enable.metrics.push", "group.protocol"),
        *("fetch.max.bytes", "max.partition.fetch.bytes", "metadata.max.age.ms", "max.block.ms"),
    }
)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a connection to the cluster. Times are in seconds."""

    bootstrap: str
    client_id: str = "ottla-spark"
    request_timeout: float = 30.0
    api_timeout: float = 60.0
    isolation: Isolation = "read_uncommitted"
    fetch_wait: float = 0.5
    verify_crc: bool = True
    protection: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The options for TLS and login, unparsed."""

    @property
    def security(self) -> Security:
        """The security settings of this process; reads secrets from files and variables now."""
        try:
            return Security.from_properties(
                with_secrets(dict(self.protection), SECRET_KEYS, Fence.of())
            )
        except (ClientError, SecretRefused) as error:
            said = str(error)
            where = PREFIX if said.startswith(PREFIXES) else "security of kafka.* options: "
            raise BadOption(where + said) from None


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Settings of the producer, by the names of its arguments."""

    compression_type: str = "none"
    linger_ms: float = 0
    acks: str = "all"
    enable_idempotence: bool = True
    buffer_memory: int = 32 * 1024 * 1024
    max_request_size: int = 1024 * 1024
    delivery_timeout_ms: float = 120_000


def client_settings(
    options: Mapping[str, str], *, writes: bool, has_brokers: bool = True
) -> ClientSettings:
    """The settings of all `kafka.*` options; refuses the options that a query may not set."""
    given = _kafka(options)
    refused = _REFUSED_BY_WRITERS if writes else _REFUSED_BY_READERS
    for name, why in refused.items():
        if name in given:
            raise BadOption(f"kafka.{name} is not supported: {why}")
    for name, instead in _SHOWN_BY_SPARK.items():
        if name in given:
            raise BadOption(
                f"kafka.{name} is not supported: Spark would show it; put the key in a file and "
                f"set kafka.{instead}"
            )
    if has_brokers and not given.get("bootstrap.servers"):
        raise BadOption("kafka.bootstrap.servers is missing: give host:port,host:port")
    isolation = given.get("isolation.level", "read_uncommitted")
    if isolation not in ("read_uncommitted", "read_committed"):
        raise BadOption(
            f"kafka.isolation.level is read_uncommitted or read_committed, not {isolation!r}"
        )
    request_timeout = _millis(given, "request.timeout.ms", 30_000)
    settings = ClientSettings(
        given.get("bootstrap.servers", ""),
        given.get("client.id", "ottla-spark"),
        request_timeout,
        max(_millis(given, "default.api.timeout.ms", 60_000), request_timeout),
        isolation,  # type: ignore[arg-type]  # checked above
        _millis(given, "fetch.max.wait.ms", 500),
        given.get("check.crcs", "true").lower() != "false",
        tuple((name, value) for name, value in given.items() if _is_security(name)),
    )
    settings.security  # noqa: B018  # raises for settings that cannot work
    return settings


def producer_options(options: Mapping[str, str]) -> ProducerOptions:
    """The `kafka.*` options that a producer has."""
    given = _kafka(options)
    idempotent = given.get("enable.idempotence", "true").lower() != "false"
    acks = given.get("acks", "all")
    return ProducerOptions(
        options.get("compression", given.get("compression.type", "none")),
        _number(given, "linger.ms", 0),
        "all" if acks == "-1" else acks,
        idempotent,
        int(_number(given, "buffer.memory", 32 * 1024 * 1024)),
        int(_number(given, "max.request.size", 1024 * 1024)),
        _number(given, "delivery.timeout.ms", 120_000),
    )


_KNOWN: Final = frozenset(
    {
        *_NO_MATTER,
        *("bootstrap.servers", "client.id", "request.timeout.ms", "default.api.timeout.ms"),
        *("isolation.level", "fetch.max.wait.ms", "check.crcs", "compression.type", "linger.ms"),
        *("acks", "enable.idempotence", "buffer.memory", "max.request.size"),
        "delivery.timeout.ms",
    }
)


def _known() -> frozenset[str]:
    return _KNOWN | KNOWN | {f"{key}{twin}" for key in SECRET_KEYS for twin in TWINS}


def unknown_settings(options: Mapping[str, str]) -> list[str]:
    """The `kafka.*` options that are not known."""
    return [f"{PREFIX}{name}" for name in _kafka(options) if name not in _known()]


def known_settings() -> list[str]:
    """All known `kafka.*` options, for suggestions of similar names."""
    return [f"{PREFIX}{name}" for name in sorted(_known())]


def _kafka(options: Mapping[str, str]) -> dict[str, str]:
    return {
        name[len(PREFIX) :]: value for name, value in options.items() if name.startswith(PREFIX)
    }


def _is_security(name: str) -> bool:
    return name.startswith(PREFIXES) or name == "enable.ssl.certificate.verification"


def _millis(given: Mapping[str, str], name: str, default: int) -> float:
    return _number(given, name, default) / 1000


def _number(given: Mapping[str, str], name: str, default: int) -> float:
    text = given.get(name, str(default))
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if number < 0:
        raise BadOption(f"kafka.{name} is a number of 0 or more, not {text!r}")
    return number

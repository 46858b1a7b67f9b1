"""A broker's static configuration, merged from its sources.

Later sources win: built-in defaults, then the file, then `OTTLA_` environment variables, then
`--set key=value`. Keys are Kafka's own. Unknown keys are errors: one message lists all of them,
each with the nearest known key. Kafka's keys without an effect here are accepted with a warning.

* A file ending in `.toml` may nest keys or write them with dots; where one key is the beginning
  of another (`max.connections`, `max.connections.per.ip`) TOML wants the longer one in quotes.
  Arrays become lists.
* A file ending in `.properties` is read as Java reads it.
* `<key>.file` beside a sensitive key names a file whose text is the value; it is read here, once.
* `OTTLA_LOG_SEGMENT_BYTES` sets `log.segment.bytes`; Ottla's own `ottla.flush.mode` does not
  repeat the name: `OTTLA_FLUSH_MODE`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from ottla.metadata.config.broker_keys import BROKER_CONFIGS, RSM_PREFIX, broker_config_def
from ottla.metadata.config.checks import check_heartbeat
from ottla.metadata.config.kafka_keys import SYNONYMS, has_no_effect
from ottla.metadata.config.security_keys import FILE_SUFFIX, MAX_SECRET_BYTES
from ottla.metadata.config.types import ConfigValue, TypedConfig
from ottla.metadata.config.values import definition_of
from ottla.metadata.errors import ConfigError, InvalidConfig, UnknownConfig
from ottla.properties import parse_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

ENV_PREFIX: Final = "OTTLA_"
# Variables with our prefix that are not keys: those of commands, secrets and tests.
OTHER_VARIABLES: Final = (
    "OTTLA_BOOTSTRAP",
    "OTTLA_CONFIG",
    "OTTLA_COMMAND_CONFIG",
    "OTTLA_SECRET_",
    "OTTLA_TEST_",
)
CONSOLE_VARIABLES: Final = "OTTLA_CONSOLE_"
OF_CONSOLE_LISTENER: Final = frozenset(
    {"OTTLA_CONSOLE_LISTENER", "OTTLA_CONSOLE_WRITE", "OTTLA_CONSOLE_IDLE_EXIT_MS"}
)
OWN_PREFIX: Final = "ottla."
# A configuration is a page of text; a data file named by mistake must not fill the memory.
MAX_FILE_BYTES: Final = 1024 * 1024

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BrokerConfig(TypedConfig):
    """Checked values by key. `static` has only what was set; typed access adds the defaults."""

    static: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, value in self.static.items():
            definition_of(BROKER_CONFIGS, key).parse(value)
        _check_together(self)

    @property
    def node_id(self) -> int:
        return self.get_int("node.id")

    def parsed(self, key: str) -> ConfigValue | None:
        text = self.static.get(key)
        return _default(key) if text is None else definition_of(BROKER_CONFIGS, key).parse(text)

    def __repr__(self) -> str:
        shown = {
            key: "(hidden)" if definition_of(BROKER_CONFIGS, key).sensitive else value
            for key, value in self.static.items()
        }
        return f"BrokerConfig({shown})"

    def listener(self, name: str, mechanism: str | None = None) -> ListenerConfig:
        """The values that hold for one listener, or for one SASL mechanism of it."""
        return ListenerConfig(self, name, mechanism)

    def store_options(self) -> dict[str, str]:
        """The keys below `rsm.config.`, without the prefix, for the object store."""
        return {
            key.removeprefix(RSM_PREFIX): value
            for key, value in self.static.items()
            if key.startswith(RSM_PREFIX) and not key.endswith(FILE_SUFFIX)
        }


@cache
def _default(key: str) -> ConfigValue | None:
    """Parsed once for all brokers of a process."""
    definition = definition_of(BROKER_CONFIGS, key)
    return None if definition.default is None else definition.parse(definition.default)


@dataclass(eq=False, repr=False)
class ListenerConfig(TypedConfig):
    """A key is looked up for the mechanism, for the listener, and for the broker, in this order."""

    broker: BrokerConfig
    name: str
    mechanism: str | None = None

    def parsed(self, key: str) -> ConfigValue | None:
        for prefix in self._prefixes():
            if prefix + key in self.broker.static:
                return self.broker.parsed(prefix + key)
        return self.broker.parsed(key)

    def where(self, key: str) -> str:
        """The name under which a key is set; for messages."""
        for prefix in self._prefixes():
            if prefix + key in self.broker.static:
                return prefix + key
        return key

    def _prefixes(self) -> Iterator[str]:
        prefix = f"listener.name.{self.name.lower()}."
        if self.mechanism is not None:
            yield f"{prefix}{self.mechanism.lower()}."
        yield prefix


def _is_other(variable: str) -> bool:
    """The console has settings of its own, beside those that the broker starts it with."""
    if variable.startswith(CONSOLE_VARIABLES):
        return variable not in OF_CONSOLE_LISTENER
    return variable.startswith(OTHER_VARIABLES)


def load_broker_config(
    file: Path | None = None,
    sets: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    *,
    sets_from: str = "--set",
) -> BrokerConfig:
    """Read all sources; `ConfigError` says which one is wrong and how."""
    sources: list[tuple[str, Mapping[str, str]]] = []
    if file is not None:
        sources.append((str(file), _read_file(file)))
    for variable, value in (env or {}).items():
        if variable.startswith(ENV_PREFIX) and not _is_other(variable):
            sources.append((variable, {key_of_variable(variable): value}))
    for item in sets:
        key, equals, value = item.partition("=")
        if not equals:
            raise ConfigError("key=value", repr(item), sets_from)
        sources.append((sets_from, {key.strip(): value}))
    _check_keys(sources)
    values: dict[str, str] = {}
    for _, source in sources:
        values |= {key: value.strip() for key, value in source.items()}
    for old, new in SYNONYMS.items():
        if old in values:
            values = {new: values.pop(old), **values}
    config = BrokerConfig(_with_secrets(values))
    warn_without_effect(values)
    return config


def _with_secrets(values: Mapping[str, str]) -> dict[str, str]:
    """The values of `<key>.file` added as those of `<key>`."""
    found = dict(values)
    for key, path in values.items():
        secret = key.removesuffix(FILE_SUFFIX)
        definition = broker_config_def(secret) if key.endswith(FILE_SUFFIX) else None
        if definition is None or not definition.sensitive:
            continue
        if secret in values:
            raise ConfigError(f"only one of {secret} and {key}", "both", "the configuration")
        found[secret] = _read_secret(path, key)
    return found


def _read_secret(path: str, key: str) -> str:
    try:
        with open(path, "rb") as stream:  # noqa: PTH123  # pathlib is not loaded for this
            content = stream.read(MAX_SECRET_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise ConfigError("a file that can be read", f"{path}: {error.strerror}", key) from error
    except UnicodeDecodeError as error:
        raise ConfigError("UTF-8 text", error.reason, key) from error
    if len(content) > MAX_SECRET_BYTES:
        raise ConfigError(f"a file of at most {MAX_SECRET_BYTES} bytes", "more", key)
    return text.removesuffix("\n").removesuffix("\r")


def warn_without_effect(keys: Iterable[str]) -> None:
    """One line that names Kafka's keys that change nothing here."""
    found = sorted(filter(has_no_effect, keys))
    if found:
        logger.warning("these settings of Kafka change nothing in Ottla: %s", ", ".join(found))


def key_of_variable(variable: str) -> str:
    """The key an environment variable sets; known or not."""
    key = variable.removeprefix(ENV_PREFIX).lower().replace("_", ".")
    own = OWN_PREFIX + key
    return own if own in BROKER_CONFIGS else key


def _check_keys(sources: Iterable[tuple[str, Mapping[str, str]]]) -> None:
    wrong: list[UnknownConfig] = []
    for where, values in sources:
        for key in values:
            if key not in SYNONYMS:
                try:
                    definition_of(BROKER_CONFIGS, key, where)
                except UnknownConfig as error:
                    wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        found = "; ".join(f"{one.got} in {one.where}: expected {one.expected}" for one in wrong)
        raise UnknownConfig("known keys", f"{len(wrong)} others: {found}", "the configuration")


def _check_together(config: BrokerConfig) -> None:
    for definition in BROKER_CONFIGS.values():
        if definition.bounds is not None:
            low, high = (config.get_int(key) for key in definition.bounds)
            value = config.get_int(definition.name)
            if not low <= value <= high:
                between = f"{low} to {high} ({definition.bounds[0]}, {definition.bounds[1]})"
                raise InvalidConfig(between, value, definition.name)
    for protocol in ("group.consumer", "group.share"):
        check_heartbeat(
            config, f"{protocol}.heartbeat.interval.ms", f"{protocol}.session.timeout.ms"
        )
    if config.get_int("group.share.max.share.sessions") < config.get_int("group.share.max.size"):
        raise InvalidConfig(
            "at least group.share.max.size",
            config.get_int("group.share.max.share.sessions"),
            "group.share.max.share.sessions",
        )


def _read_file(file: Path) -> dict[str, str]:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise ConfigError("a file that can be read", error.strerror, str(file)) from error
    except UnicodeDecodeError as error:
        raise ConfigError("UTF-8 text", error.reason, str(file)) from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"at most {MAX_FILE_BYTES} bytes", "more", str(file))
    match file.suffix:
        case ".toml":
            return _read_toml(text, str(file))
        case ".properties":
            return parse_properties(text)
        case other:
            raise ConfigError("a .toml or .properties file", repr(other), str(file))


def _read_toml(text: str, where: str) -> dict[str, str]:
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("TOML", error, where) from error
    return dict(_flatten(document, "", where))


def _flatten(table: Mapping[str, object], prefix: str, where: str) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        key = prefix + name
        match value:
            case dict():
                yield from _flatten(value, key + ".", where)
            case list():
                yield key, ",".join(_toml_text(item, key, where) for item in value)
            case _:
                yield key, _toml_text(value, key, where)


def _toml_text(value: object, key: str, where: str) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            raise InvalidConfig("text, a number, true or false", value, f"{where}, {key}")

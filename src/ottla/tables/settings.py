"""Settings of tables: those of a topic, and those of the worker. Parsed once, frozen.

A topic's settings are its `ottla.table.*` keys. For brokers that do not know them the same keys
stand in a file, below the topic's name, beside those of the worker:

    ottla.table.warehouse = "file:///data/tables"

    [topics.orders]
    ottla.table.enable = true
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ottla.metadata.config.table_keys import PREFIX, TABLE_CONFIGS
from ottla.metadata.config.types import TypedConfig
from ottla.metadata.names import table_name
from ottla.objects.location import BadLocation, StoreLocation, parse_location
from ottla.tables.errors import BadTableSetting

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ottla.metadata.config.types import ConfigValue

WORKER_KEYS: Final = ("warehouse", "catalog", "namespace", "registry.url", "tier.url")
CONVERSION: Final = (
    "headers",
    "keep.value",
    "key.format",
    "on.conflict",
    "value.format",
    "value.message",
    "value.schema",
    "value.subject",
)
"""Keys that say how a record becomes a row."""
MAX_FILE_BYTES: Final = 1024 * 1024
"""Of a file with settings; 1,000 topics have 100 KB."""

_DEFINITIONS: Final = {one.name: one for one in TABLE_CONFIGS}


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How one topic is kept as a table."""

    topic: str
    table: str
    partition: str
    headers: bool
    commit_interval: float
    target_file_bytes: int
    start: str
    snapshot_retention_ms: int
    delete_grace_ms: int
    retention_ms: int = -1
    value_format: str = "raw"
    value_schema: str = ""
    keep_value: bool = False
    invalid: str = "dlq"
    value_subject: str = ""
    value_message: str = ""
    key_format: str = "binary"
    on_conflict: str = "dlq"
    conversion: str = "{}"
    """How records become rows, for readers: the keys of CONVERSION that are not at their defaults,
    as JSON."""
    hold_bytes: int = 0
    """What the broker keeps for the table beyond the topic's retention; 0 if it does not do so."""

    @property
    def has_letters(self) -> bool:
        """Whether a record may not fit."""
        return self.value_format != "raw" or self.key_format != "binary"

    @property
    def subject(self) -> str:
        """The subject of the topic's values."""
        return self.value_subject or f"{self.topic}-value"

    @property
    def start_time(self) -> datetime | None:
        """The time at which a new table begins, None for the ends of the log."""
        if self.start in ("earliest", "latest"):
            return None
        time = datetime.fromisoformat(self.start)
        return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Where tables are: a store for their files, and a catalogue that names them."""

    warehouse: StoreLocation
    catalog: str
    namespace: str = "ottla"
    registry_url: str | None = None
    """Where schemas are, if the brokers do not say."""
    tier: StoreLocation | None = None
    """Where the brokers' tiered segments are, for records that only that store has."""


@dataclass(frozen=True, slots=True)
class TablesFile:
    """What a file with settings says: keys of the worker, and keys of topics."""

    worker: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class _Values(TypedConfig):
    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def parsed(self, key: str) -> ConfigValue | None:
        definition = _DEFINITIONS[key]
        value = self._values.get(key, definition.default)
        return None if value is None else definition.parse(value)


def topic_settings(topic: str, values: Mapping[str, str]) -> TopicSettings | None:
    """The settings of a topic by its keys; None if it is not kept as a table."""
    config = _Values(values)
    if not config.get_bool("ottla.table.enable"):
        return None
    settings = TopicSettings(
        topic,
        config.get_str("ottla.table.name") or table_name(topic),
        config.get_str("ottla.table.partition"),
        config.get_bool("ottla.table.headers"),
        config.get_int("ottla.table.commit.interval.ms") / 1000,
        config.get_int("ottla.table.target.file.bytes"),
        config.get_str("ottla.table.start"),
        config.get_int("ottla.table.snapshot.retention.ms"),
        config.get_int("ottla.table.delete.grace.ms"),
        config.get_int("ottla.table.retention.ms"),
        config.get_str("ottla.table.value.format"),
        config.get_str("ottla.table.value.schema"),
        config.get_bool("ottla.table.keep.value"),
        config.get_str("ottla.table.invalid"),
        config.get_str("ottla.table.value.subject"),
        config.get_str("ottla.table.value.message"),
        config.get_str("ottla.table.key.format"),
        config.get_str("ottla.table.on.conflict"),
        _conversion(values),
        # A broker that does not name the key does not know it.
        config.get_int("ottla.table.hold.bytes") if "ottla.table.hold.bytes" in values else 0,
    )
    if settings.value_format == "json" and not settings.value_schema:
        raise BadTableSetting(
            f"topic {topic!r}: ottla.table.value.format=json needs ottla.table.value.schema, such "
            "as 'shop string, amount double'"
        )
    has_schema = bool(settings.value_schema or settings.value_subject)
    if settings.value_format in ("avro", "protobuf") and not has_schema:
        raise BadTableSetting(
            f"topic {topic!r}: ottla.table.value.format={settings.value_format} needs "
            "ottla.table.value.schema, or ottla.table.value.subject of a registry"
        )
    try:
        settings.start_time  # noqa: B018  # raises if there is no such day
    except ValueError as error:
        raise BadTableSetting(f"{PREFIX}start of topic {topic!r}: {error}") from None
    return settings


def converted_by(topic: str, conversion: str) -> TopicSettings | None:
    """The settings that the property of a table tells."""
    try:
        keys = {f"{PREFIX}{key}": str(value) for key, value in json.loads(conversion).items()}
    except (ValueError, AttributeError, RecursionError):
        raise BadTableSetting(
            f"the table of {topic!r} does not say how its rows are made"
        ) from None
    return topic_settings(topic, {f"{PREFIX}enable": "true", **keys})


def _conversion(values: Mapping[str, str]) -> str:
    told = {}
    for key in CONVERSION:
        value = values.get(PREFIX + key)
        if value is not None and value != _DEFINITIONS[PREFIX + key].default:
            told[key] = value
    return json.dumps(told, separators=(",", ":"))


def worker_settings(
    warehouse: str,
    catalog: str,
    namespace: str,
    options: Mapping[str, str],
    registry_url: str | None = None,
    tier_url: str | None = None,
) -> WorkerSettings:
    """The worker's settings; `options` are `rsm.config.*` keys of stores, such as `endpoint`."""
    location = _location("warehouse", warehouse, options)
    if location.kind == "memory":
        raise BadTableSetting(f"{PREFIX}warehouse: memory: is not seen by readers")
    tier = None if tier_url is None else _location("tier.url", tier_url, options)
    return WorkerSettings(location, catalog, namespace, registry_url, tier)


def _location(key: str, url: str, options: Mapping[str, str]) -> StoreLocation:
    try:
        return parse_location({"rsm.config.url": url, **options})
    except BadLocation as error:
        raise BadTableSetting(str(error).replace("rsm.config.url", PREFIX + key)) from None


def read_tables_file(path: Path) -> TablesFile:
    """Read a file with settings; `BadTableSetting` names what is wrong with it."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BadTableSetting(f"{path} has more than {MAX_FILE_BYTES} bytes")
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadTableSetting(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadTableSetting(f"{path} is not TOML: {error}") from None
    topics = found.pop("topics", {})
    if not isinstance(topics, dict) or not all(isinstance(one, dict) for one in topics.values()):
        raise BadTableSetting(f'{path}: expected [topics."NAME"] with keys of that topic')
    worker = _flat(found)
    for key in worker:
        if key not in {PREFIX + one for one in WORKER_KEYS}:
            known = ", ".join(PREFIX + one for one in WORKER_KEYS)
            raise BadTableSetting(f"{path}: {key} is not a key of the worker ({known})")
    by_topic = {name: _flat(one) for name, one in topics.items()}
    for name, values in by_topic.items():
        for key in values:
            if key not in _DEFINITIONS:
                raise BadTableSetting(
                    f"{path}: {key} of topic {name!r} is not one of {', '.join(_DEFINITIONS)}"
                )
    return TablesFile(worker, by_topic)


def _flat(found: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Dotted keys, whether they were written as such or as tables."""
    flat: dict[str, str] = {}
    for key, value in found.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{above}{key}.")
        elif isinstance(value, bool):
            flat[above + key] = str(value).lower()
        else:
            flat[above + key] = str(value)
    return flat

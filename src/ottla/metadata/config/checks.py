"""Check overrides: each value, and rules between several keys.

Call with the whole set of overrides a resource would have after the change. All of them raise
`InvalidConfig` or `UnknownConfig` and return nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.metadata.config.values import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    definition_of,
    resolve_group_overrides,
    resolve_topic_config,
    resolve_topic_overrides,
    validate,
)
from ottla.metadata.errors import InvalidConfig, InvalidTopicName
from ottla.metadata.names import (
    REMOTE_LOG_METADATA_TOPIC,
    check_topic_name,
    is_internal,
    table_name,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.config.types import TypedConfig
    from ottla.metadata.image import MetadataImage

_UNLIMITED: Final = -1
_LIKE_RETENTION: Final = -2
# Written by tools of our own; a table of them would have no reader.
_NEVER_TABLES: Final = frozenset({"_schemas", "ottla.pipelines", "ottla.redrive", "ottla.tables"})
_LETTERS: Final = "__dlq"
"""Ends the name of the table for a table's dead letters."""


def check_topic_configs(
    image: MetadataImage, topic: str, overrides: Mapping[str, str], broker: BrokerConfig
) -> None:
    for key, value in overrides.items():
        validate(TOPIC_CONFIGS, key, value)
    after = resolve_topic_overrides(image, overrides, broker)
    if after.get_int("min.compaction.lag.ms") > after.get_int("max.compaction.lag.ms"):
        raise InvalidConfig(
            "at most max.compaction.lag.ms",
            after["min.compaction.lag.ms"].value,
            "min.compaction.lag.ms",
        )
    if after.get_bool("ottla.table.enable"):
        _check_table(image, topic, after)
    if after.get_bool("remote.storage.enable"):
        _check_tiered(topic, after, broker)
    elif resolve_topic_config(image, topic, broker).get_bool(
        "remote.storage.enable"
    ) and not after.get_bool("remote.log.delete.on.disable"):
        raise InvalidConfig(
            "remote.log.delete.on.disable=true with it, as what the tier holds is deleted",
            "false alone",
            "remote.storage.enable",
        )


def _check_table(image: MetadataImage, topic: str, after: TypedConfig) -> None:
    if topic.startswith("__") or topic in _NEVER_TABLES:
        raise InvalidConfig("false for an internal topic", "true", "ottla.table.enable")
    kind = after.get_str("ottla.table.value.format")
    named = "ottla.table.value.schema", "ottla.table.value.subject"
    needed = {"json": named[:1], "avro": named, "protobuf": named}.get(kind, ())
    if needed and not any(after.get_str(one) for one in needed):
        raise InvalidConfig(
            f"the schema of values of format {kind}; for json such as 'shop string, amount double'",
            "none",
            "ottla.table.value.schema",
        )
    key = "ottla.table.name"
    name = after.get_str(key) or table_name(topic)
    before = image.topic_configs.get(topic, {})
    if _has_table(before) and _table_of(topic, before) != name:
        raise InvalidConfig(
            f"{_table_of(topic, before)!r} while ottla.table.enable is true", repr(name), key
        )
    keys = "ottla.table.key.format"
    if _has_table(before) and before.get(keys, "binary").strip() != after.get_str(keys):
        raise InvalidConfig("no other value while ottla.table.enable is true", "another", keys)
    was = before.get("ottla.table.value.format", "raw").strip()
    if _has_table(before) and was not in ("raw", kind):
        raise InvalidConfig(
            f"{was} while ottla.table.enable is true", kind, "ottla.table.value.format"
        )
    for other, overrides in image.topic_configs.items():
        if other == topic or not _has_table(overrides):
            continue
        theirs = _table_of(other, overrides)
        if name in {theirs, theirs + _LETTERS} or theirs == name + _LETTERS:
            raise InvalidConfig(
                f"a name that the table of topic {other!r} leaves free", repr(name), key
            )


def _has_table(overrides: Mapping[str, str]) -> bool:
    return overrides.get("ottla.table.enable", "false").strip().lower() == "true"


def _table_of(topic: str, overrides: Mapping[str, str]) -> str:
    return overrides.get("ottla.table.name", "").strip() or table_name(topic)


def check_group_configs(
    image: MetadataImage, overrides: Mapping[str, str], broker: BrokerConfig
) -> None:
    for key, value in overrides.items():
        parsed = validate(GROUP_CONFIGS, key, value)
        bounds = GROUP_CONFIGS[key].bounds
        if bounds is not None:
            low, high = (broker.get_int(bound) for bound in bounds)
            if not low <= int(value) <= high:
                raise InvalidConfig(f"{low} to {high} ({bounds[0]}, {bounds[1]})", parsed, key)
    after = resolve_group_overrides(image, overrides, broker)
    for protocol in ("consumer", "share"):
        check_heartbeat(
            after, f"{protocol}.heartbeat.interval.ms", f"{protocol}.session.timeout.ms"
        )
    _check_dead_letter_topic(after, broker)


def _check_dead_letter_topic(after: TypedConfig, broker: BrokerConfig) -> None:
    """A group must not be a way to write where its owner may not: hence the prefix."""
    key = "errors.deadletterqueue.topic.name"
    name = after.get_str(key)
    if not name:
        return
    prefix = broker.get_str("errors.deadletterqueue.topic.name.prefix")
    if not name.startswith(prefix) or name.startswith("__"):
        raise InvalidConfig(
            f"a name that begins with {prefix!r} (errors.deadletterqueue.topic.name.prefix) "
            "and not with '__'",
            name,
            key,
        )
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise InvalidConfig("a legal topic name", name, key) from error


def check_broker_configs(overrides: Mapping[str, str]) -> None:
    """For dynamic overrides: a key that is read once at start cannot be altered."""
    for key, value in overrides.items():
        definition = definition_of(BROKER_CONFIGS, key)
        if not definition.dynamic:
            raise InvalidConfig("a key that can change while the broker runs", "this one", key)
        definition.parse(value)


def check_heartbeat(config: TypedConfig, heartbeat: str, session: str) -> None:
    if config.get_int(heartbeat) >= config.get_int(session):
        raise InvalidConfig(
            f"less than {session} ({config.get_int(session)})", config.get_int(heartbeat), heartbeat
        )


def _check_tiered(topic: str, after: TypedConfig, broker: BrokerConfig) -> None:
    key = "remote.storage.enable"
    if not broker.get_bool("remote.log.storage.system.enable"):
        raise InvalidConfig(
            "false, unless the broker has remote.log.storage.system.enable=true", "true", key
        )
    if is_internal(topic) or topic == REMOTE_LOG_METADATA_TOPIC:
        raise InvalidConfig("false for an internal topic", "true", key)
    if "compact" in after.get_list("cleanup.policy"):
        raise InvalidConfig("false while cleanup.policy contains compact", "true", key)
    for unit in ("ms", "bytes"):
        _check_local_retention(
            after.get_int(f"retention.{unit}"),
            after.get_int(f"local.retention.{unit}"),
            after.get_bool("remote.log.copy.disable"),
            unit,
        )


def _check_local_retention(retention: int, local: int, copy_disabled: bool, unit: str) -> None:
    key = f"local.retention.{unit}"
    if local in {_LIKE_RETENTION, retention}:
        return
    if copy_disabled:
        raise InvalidConfig(
            f"-2 or retention.{unit} while remote.log.copy.disable is true", local, key
        )
    if retention != _UNLIMITED and (local == _UNLIMITED or local > retention):
        raise InvalidConfig(f"-2, or 0 to retention.{unit} ({retention})", local, key)

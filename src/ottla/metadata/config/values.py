"""Resolve the value of a key and its source, and check new values.

A topic's value is the first that is set of: its own override, then for each source in turn (this
broker's dynamic config, the cluster's dynamic default, the static configuration, the built-in
default) the broker keys that are its synonyms. Groups likewise; brokers have no first step. That
chain is what DescribeConfigs calls synonyms.

`validate` looks at one value alone; `ottla.metadata.config.checks` at a resource's overrides
together.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metadata.config.broker_keys import BROKER_CONFIGS, broker_config_def
from ottla.metadata.config.keys import GROUP_CONFIGS, TOPIC_CONFIGS
from ottla.metadata.config.types import (
    BrokerSynonym,
    ConfigDef,
    ConfigType,
    ConfigValue,
    TypedConfig,
    split_list,
)
from ottla.metadata.errors import InvalidConfig, UnknownConfig
from ottla.metadata.image import CLUSTER_DEFAULT

if TYPE_CHECKING:
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import MetadataImage

__all__ = ["BROKER_CONFIGS", "GROUP_CONFIGS", "TOPIC_CONFIGS"]


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are the protocol's."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """One link of the chain, under the name and in the unit it was set."""

    name: str
    value: str
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A key's value in effect. `synonyms` is the whole chain, the first of which won."""

    definition: ConfigDef
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]


class EffectiveConfig(TypedConfig, Mapping[str, ConfigEntry]):
    """Every key of one resource. Typed access parses at each call: keep what is hot."""

    def __init__(self, entries: Mapping[str, ConfigEntry]) -> None:
        self._entries = entries

    def __getitem__(self, key: str) -> ConfigEntry:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def parsed(self, key: str) -> ConfigValue | None:
        entry = self._entries[key]
        return None if entry.value is None else entry.definition.parse(entry.value)


def definition_of(
    defs: Mapping[str, ConfigDef], key: str, where: str = "configuration"
) -> ConfigDef:
    """The definition, or `UnknownConfig` that names the nearest key there is."""
    found = broker_config_def(key) if defs is BROKER_CONFIGS else defs.get(key)
    if found is None:
        raise _unknown(defs, key, where)
    return found


def _unknown(defs: Mapping[str, ConfigDef], key: str, where: str) -> UnknownConfig:
    shown = key[:_LONGEST_GUESS]
    if defs is not BROKER_CONFIGS:
        near = difflib.get_close_matches(shown, defs, n=1)
    else:
        from ottla.metadata.config.kafka_keys import WITHOUT_EFFECT
        from ottla.metadata.config.security_keys import refusal

        refused = refusal(key)
        if refused is not None:
            return UnknownConfig(refused, repr(shown), where)
        near = difflib.get_close_matches(shown, [*defs, *WITHOUT_EFFECT], n=1)
    expected = f"{near[0]} (the nearest known key)" if near else "a known key"
    return UnknownConfig(expected, repr(shown), where)


def validate(defs: Mapping[str, ConfigDef], key: str, value: str) -> ConfigValue:
    """The parsed value, or `UnknownConfig`, or `InvalidConfig`."""
    return definition_of(defs, key).parse(value)


def append_to_list(definition: ConfigDef, current: str, items: str) -> str:
    """`current` (the value in effect) with the items it lacks added at the end."""
    have, more = _lists(definition, current, items)
    return ",".join(dict.fromkeys(have + more))


def subtract_from_list(definition: ConfigDef, current: str, items: str) -> str:
    """`current` (the value in effect) without the items."""
    have, less = _lists(definition, current, items)
    return ",".join(item for item in have if item not in less)


def resolve_topic_config(image: MetadataImage, topic: str, broker: BrokerConfig) -> EffectiveConfig:
    """The effective configuration of a topic on this broker, whether the topic exists or not."""
    return resolve_topic_overrides(image, image.topic_configs.get(topic, {}), broker)


def resolve_topic_overrides(
    image: MetadataImage, overrides: Mapping[str, str], broker: BrokerConfig
) -> EffectiveConfig:
    """The same for overrides that are not in the image (yet)."""
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG
    layers = _broker_layers(image, broker)
    return EffectiveConfig(
        {
            name: _entry(definition, overrides, source, layers)
            for name, definition in TOPIC_CONFIGS.items()
        }
    )


def topic_values(image: MetadataImage, topic: str, broker: BrokerConfig) -> dict[str, str]:
    """The values of `resolve_topic_config` alone, without where they come from."""
    overrides = image.topic_configs.get(topic, {})
    layers = [values for _, values in _broker_layers(image, broker) if values]
    found = {}
    for name, definition in TOPIC_CONFIGS.items():
        value = overrides.get(name)
        if value is None:
            value = _default_value(definition, layers)
        if value is not None:
            found[name] = value
    return found


def resolve_group_config(image: MetadataImage, group: str, broker: BrokerConfig) -> EffectiveConfig:
    """The effective configuration of a group; values outside the broker's bounds are clamped."""
    return resolve_group_overrides(image, image.group_configs.get(group, {}), broker)


def resolve_group_overrides(
    image: MetadataImage, overrides: Mapping[str, str], broker: BrokerConfig
) -> EffectiveConfig:
    """The same for overrides that are not in the image (yet)."""
    source = ConfigSource.DYNAMIC_GROUP_CONFIG
    layers = _broker_layers(image, broker)
    entries = {
        name: _entry(definition, overrides, source, layers)
        for name, definition in GROUP_CONFIGS.items()
    }
    return EffectiveConfig({name: _clamped(entry, broker) for name, entry in entries.items()})


def resolve_broker_config(image: MetadataImage, broker: BrokerConfig) -> EffectiveConfig:
    """The effective configuration of this broker, its object store's keys included."""
    layers = _broker_layers(image, broker)
    entries = {}
    for name in dict.fromkeys([*BROKER_CONFIGS, *(key for _, values in layers for key in values)]):
        definition = definition_of(BROKER_CONFIGS, name)
        synonym = (BrokerSynonym(name),)
        entries[name] = _winner(definition, _links(synonym, layers))
    return EffectiveConfig(entries)


# A longer name than any key: difflib's cost grows with the square of it.
_LONGEST_GUESS: Final = 100

_Layers = tuple[tuple[ConfigSource, "Mapping[str, str]"], ...]
_Link = tuple[ConfigSynonym, int]


def _broker_layers(image: MetadataImage, broker: BrokerConfig) -> _Layers:
    dynamic = image.broker_configs
    return (
        (ConfigSource.DYNAMIC_BROKER_CONFIG, dynamic.get(str(broker.node_id), {})),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, dynamic.get(CLUSTER_DEFAULT, {})),
        (ConfigSource.STATIC_BROKER_CONFIG, broker.static),
        (ConfigSource.DEFAULT_CONFIG, _BROKER_DEFAULTS),
    )


_BROKER_DEFAULTS: Final = {
    name: definition.default
    for name, definition in BROKER_CONFIGS.items()
    if definition.default is not None
}


def _entry(
    definition: ConfigDef, overrides: Mapping[str, str], source: ConfigSource, layers: _Layers
) -> ConfigEntry:
    name = definition.name
    chain: list[_Link] = []
    if name in overrides:
        chain.append((ConfigSynonym(name, overrides[name], source), 1))
    chain += _links(definition.synonyms, layers)
    if not definition.synonyms and definition.default is not None:
        default = ConfigSynonym(name, definition.default, ConfigSource.DEFAULT_CONFIG)
        chain.append((default, 1))
    return _winner(definition, chain)


def _links(synonyms: tuple[BrokerSynonym, ...], layers: _Layers) -> list[_Link]:
    return [
        (ConfigSynonym(synonym.key, values[synonym.key], source), synonym.factor)
        for source, values in layers
        for synonym in synonyms
        if synonym.key in values
    ]


def _default_value(definition: ConfigDef, layers: Iterable[Mapping[str, str]]) -> str | None:
    """What holds where nothing is set for a topic itself: the first link of its chain."""
    for values in layers:
        for key, factor in definition.synonyms:
            if key in values:
                return _in_unit(values[key], factor)
    return definition.default


def _in_unit(value: str, factor: int) -> str:
    if factor == 1:
        return value
    number = int(value)
    return str(number * factor if number >= 0 else -1)  # below zero means "none", in any unit


def _winner(definition: ConfigDef, chain: list[_Link]) -> ConfigEntry:
    if not chain:
        return ConfigEntry(definition, definition.default, ConfigSource.DEFAULT_CONFIG, ())
    first, factor = chain[0]
    links = tuple(link for link, _ in chain)
    return ConfigEntry(definition, _in_unit(first.value, factor), first.source, links)


def _clamped(entry: ConfigEntry, broker: BrokerConfig) -> ConfigEntry:
    if entry.definition.bounds is None or entry.value is None:
        return entry
    low, high = (broker.get_int(key) for key in entry.definition.bounds)
    value = str(min(max(int(entry.value), low), high))
    if value == entry.value:
        return entry
    return ConfigEntry(entry.definition, value, entry.source, entry.synonyms)


def _lists(
    definition: ConfigDef, current: str, items: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if definition.type is not ConfigType.LIST:
        raise InvalidConfig(
            "a list to append to or subtract from", "a single value", definition.name
        )
    return split_list(current), split_list(items)

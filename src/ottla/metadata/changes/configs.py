"""Overrides of configuration, and feature levels.

Configuration values are not checked here: the rules change between versions, but stored changes
must always give the same image. Check with `ottla.metadata.config.checks` before proposing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla.metadata.changes.mappings import with_entry, without_entry
from ottla.metadata.errors import InvalidFeatureLevel, UnknownTopic
from ottla.metadata.image import MetadataImage, ResourceType

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class SetConfigs:
    """Sets overrides of one resource; None removes one. Broker "" is the default of all."""

    resource_type: ResourceType
    name: str
    configs: Mapping[str, str | None]

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        if self.resource_type is ResourceType.TOPIC and self.name not in image.topics_by_name:
            raise UnknownTopic("a topic", repr(self.name), "SetConfigs")
        by_name = image.configs_by_type(self.resource_type)
        merged = {
            key: value
            for key, value in {**by_name.get(self.name, {}), **self.configs}.items()
            if value is not None
        }
        updated = (
            with_entry(by_name, self.name, merged) if merged else without_entry(by_name, self.name)
        )
        match self.resource_type:
            case ResourceType.TOPIC:
                return replace(image, topic_configs=updated)
            case ResourceType.BROKER:
                return replace(image, broker_configs=updated)
            case ResourceType.GROUP:
                return replace(image, group_configs=updated)


@dataclass(frozen=True, slots=True)
class SetFeature:
    """Finalises a feature; level 0 removes it."""

    name: str
    level: int

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        if self.level < 0:
            raise InvalidFeatureLevel("0 or above", self.level, f"SetFeature {self.name!r}")
        features = image.features
        updated = (
            with_entry(features, self.name, self.level)
            if self.level
            else without_entry(features, self.name)
        )
        return replace(image, features=updated)

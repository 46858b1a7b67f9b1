"""Compute the difference between two images.

Images share what did not change, so the comparison is mostly of identities and costs a pass over
the topics' names. A topic deleted and created again under its name is in both `deleted` and
`created`: the ids differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.metadata.image import MetadataImage, ResourceType, Topic

if TYPE_CHECKING:
    from collections.abc import Iterator


class ImageDelta(NamedTuple):
    """`changed` pairs are the same topic before and after: partitions, leaders or epochs moved."""

    created: tuple[Topic, ...]
    deleted: tuple[Topic, ...]
    changed: tuple[tuple[Topic, Topic], ...]
    configs: tuple[tuple[ResourceType, str], ...]


def delta(before: MetadataImage, after: MetadataImage) -> ImageDelta:
    created: list[Topic] = []
    deleted: list[Topic] = []
    changed: list[tuple[Topic, Topic]] = []
    if before.topics_by_name is not after.topics_by_name:
        for name, new in after.topics_by_name.items():
            old = before.topics_by_name.get(name)
            if old is new:
                continue
            if old is None or old.topic_id != new.topic_id:
                created.append(new)
            elif old != new:
                changed.append((old, new))
        deleted.extend(
            old for old in before.topics_by_name.values() if old.topic_id not in after.topic_names
        )
    return ImageDelta(
        tuple(created), tuple(deleted), tuple(changed), tuple(_configs(before, after))
    )


def _configs(before: MetadataImage, after: MetadataImage) -> Iterator[tuple[ResourceType, str]]:
    for resource_type in ResourceType:
        old, new = before.configs_by_type(resource_type), after.configs_by_type(resource_type)
        if old is not new:
            for name in {**old, **new}:
                if old.get(name) != new.get(name):
                    yield resource_type, name

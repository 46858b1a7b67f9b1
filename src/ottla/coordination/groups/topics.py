"""The topics for the group coordinator: an immutable snapshot in each request."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID


class Topic(NamedTuple):
    topic_id: UUID
    name: str
    partitions: int


@dataclass(frozen=True)
class TopicsImage:
    """`version` grows with every change of topics."""

    topics_by_name: Mapping[str, Topic] = field(default_factory=dict)
    version: int = 0

    @cached_property
    def topics_by_id(self) -> dict[UUID, Topic]:
        return {topic.topic_id: topic for topic in self.topics_by_name.values()}


def metadata_hash(image: TopicsImage, names: Iterable[str]) -> int:
    """A hash of these topics; 0 if none exists.

    Stored with the group epoch, so that a restart does not look like a change of topics.
    """
    digest = hashlib.blake2b(digest_size=8)
    known = sorted(name for name in names if name in image.topics_by_name)
    for name in known:
        topic = image.topics_by_name[name]
        digest.update(topic.topic_id.bytes + topic.partitions.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if known else 0

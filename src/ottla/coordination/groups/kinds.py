"""The kinds of groups that share a partition of `__consumer_offsets`, and what they all can say."""

from __future__ import annotations

from typing import Final, TypeAlias

from ottla.coordination.groups import classic
from ottla.coordination.groups.classic_state import ClassicGroup
from ottla.coordination.groups.consumer_state import ConsumerGroup
from ottla.coordination.groups.share_group import ShareGroup

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup

KIND_NAMES: Final[dict[type[Group], str]] = {
    ClassicGroup: "classic",
    ConsumerGroup: "consumer",
    ShareGroup: "share",
}


def is_idle(group: Group | None) -> bool:
    """No members, and none on the way."""
    return group is not None and group.timers.next_deadline() is None


def read_topics(group: ClassicGroup | ConsumerGroup | None) -> frozenset[str] | None:
    """Topics the group reads now; None when its members do not say."""
    if isinstance(group, ConsumerGroup):
        return group.subscribed_topics()
    return frozenset() if group is None else classic.subscribed_topics(group)

"""The server-side assignors of KIP-848: pure functions from subscriptions to a target.

`range` gives each member, topic by topic, one contiguous run of partitions, in the order of
instance ids (or member ids), so that topics with equal counts and equal readers are co-partitioned.

`uniform` keeps what members have and spreads the rest evenly. With equal subscriptions loads differ
by one at most. With unequal ones it keeps moving partitions, if need be along a chain of members
(A gives one to B, who gives another to C), while that makes the most and the least loaded end of
the chain more alike; when no chain is left the spread is as even as the subscriptions allow.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from ottla.coordination.groups.partitions import Partitions, TopicPartition


class Subscriber(NamedTuple):
    """What an assignor knows of a member; `current` is its target so far."""

    topics: frozenset[UUID]
    current: Partitions = frozenset()
    instance_id: str | None = None


Assignment: TypeAlias = "dict[str, Partitions]"
_Loads: TypeAlias = "dict[str, set[TopicPartition]]"


def assign_range(members: Mapping[str, Subscriber], counts: Mapping[UUID, int]) -> Assignment:
    ordered = sorted(members, key=lambda member_id: members[member_id].instance_id or member_id)
    shares: _Loads = {member_id: set() for member_id in members}
    for topic_id, count in counts.items():
        readers = [member_id for member_id in ordered if topic_id in members[member_id].topics]
        start = 0
        for position, member_id in enumerate(readers):
            size = count // len(readers) + (position < count % len(readers))
            shares[member_id].update((topic_id, index) for index in range(start, start + size))
            start += size
    return _frozen(shares)


def assign_uniform(members: Mapping[str, Subscriber], counts: Mapping[UUID, int]) -> Assignment:
    shares, free = _kept(members, counts)
    if len({member.topics for member in members.values()}) == 1:
        _fill_evenly(shares, free)
    else:
        _fill_least_loaded(members, shares, free)
        while (chain := _improving_chain(members, shares)) is not None:
            for giver, partition, taker in chain:
                shares[giver].remove(partition)
                shares[taker].add(partition)
    return _frozen(shares)


def _frozen(shares: _Loads) -> Assignment:
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _kept(
    members: Mapping[str, Subscriber], counts: Mapping[UUID, int]
) -> tuple[_Loads, list[TopicPartition]]:
    """What members may keep, and the partitions that someone reads and nobody has."""
    taken: set[TopicPartition] = set()
    shares: _Loads = {}
    for member_id in sorted(members):
        topics, current, _ = members[member_id]
        share = {
            (topic_id, index)
            for topic_id, index in current
            if topic_id in topics and index < counts.get(topic_id, 0)
        } - taken
        taken |= share
        shares[member_id] = share
    read = frozenset().union(*(member.topics for member in members.values()))
    free = [
        (topic_id, index)
        for topic_id in sorted(read & counts.keys())
        for index in range(counts[topic_id])
        if (topic_id, index) not in taken
    ]
    return shares, free


def _fill_evenly(shares: _Loads, free: list[TopicPartition]) -> None:
    """Equal subscriptions: everyone gets the quota, and as many as needed one more."""
    quota, extras = divmod(sum(map(len, shares.values())) + len(free), len(shares))
    # The extra ones stay with those who have most already, which moves the fewest partitions.
    by_load = sorted(shares, key=lambda member_id: (-len(shares[member_id]), member_id))
    limits = {m: quota + (position < extras) for position, m in enumerate(by_load)}
    for member_id, share in shares.items():
        for partition in sorted(share)[limits[member_id] :]:
            share.remove(partition)
            free.append(partition)
    free.sort(reverse=True)
    for member_id, share in shares.items():
        while len(share) < limits[member_id]:
            share.add(free.pop())


def _fill_least_loaded(
    members: Mapping[str, Subscriber], shares: _Loads, free: list[TopicPartition]
) -> None:
    for partition in free:
        readers = (m for m in shares if partition[0] in members[m].topics)
        shares[min(readers, key=lambda member_id: (len(shares[member_id]), member_id))].add(
            partition
        )


def _improving_chain(
    members: Mapping[str, Subscriber], shares: _Loads
) -> list[tuple[str, TopicPartition, str]] | None:
    """The shortest chain of moves from a loaded member to one with at least two less."""
    for start in sorted(shares, key=lambda member_id: (-len(shares[member_id]), member_id)):
        reached: dict[str, tuple[str, TopicPartition]] = {}
        queue = deque([start])
        while queue:
            giver = queue.popleft()
            for partition in _one_per_topic(shares[giver]):
                for taker in shares:
                    if taker == start or taker in reached:
                        continue
                    if partition[0] not in members[taker].topics:
                        continue
                    reached[taker] = (giver, partition)
                    if len(shares[taker]) + 2 <= len(shares[start]):
                        return _unwind(reached, start, taker)
                    queue.append(taker)
    return None


def _one_per_topic(share: set[TopicPartition]) -> list[TopicPartition]:
    """Any partition of a topic can be given away as well as another; the last one is."""
    return list({partition[0]: partition for partition in sorted(share)}.values())


def _unwind(
    reached: dict[str, tuple[str, TopicPartition]], start: str, taker: str
) -> list[tuple[str, TopicPartition, str]]:
    chain = []
    while taker != start:
        giver, partition = reached[taker]
        chain.append((giver, partition, taker))
        taker = giver
    return chain


DEFAULT_ASSIGNOR = "uniform"

ASSIGNORS: dict[str, Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], Assignment]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
"""By the names members ask for."""

"""Assignors of classic groups, run by the group's leader. Pure.

Each takes the members' subscriptions and the number of partitions of each topic. `range` and
`roundrobin` are eager: members revoke everything before a rebalance. `cooperative-sticky` moves as
few partitions as balance allows; a partition that moves stays unassigned until its owner has
revoked it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.client.cluster.view import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.client.consumer.protocol import Subscription

    Assignments: TypeAlias = dict[str, list[TopicPartition]]
    Assign: TypeAlias = Callable[[Mapping[str, Subscription], Mapping[str, int]], Assignments]


class Assignor(NamedTuple):
    assign: Assign
    is_cooperative: bool = False


def assign_range(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> Assignments:
    """Of each topic a run of neighbouring partitions for each member, in the order of their ids."""
    found: Assignments = {member: [] for member in members}
    for topic, count in sorted(counts.items()):
        takers = sorted(member for member, one in members.items() if topic in one.topics)
        if not takers:
            continue
        share, extra = divmod(count, len(takers))
        start = 0
        for position, member in enumerate(takers):
            end = start + share + (position < extra)
            found[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return found


def assign_round_robin(
    members: Mapping[str, Subscription], counts: Mapping[str, int]
) -> Assignments:
    """All partitions of all topics dealt out one by one."""
    found: Assignments = {member: [] for member in members}
    order = sorted(members)
    position = 0
    for partition in _all_partitions(counts):
        for step in range(len(order)):
            member = order[(position + step) % len(order)]
            if partition.topic in members[member].topics:
                found[member].append(partition)
                position = (position + step + 1) % len(order)
                break
    return found


def assign_cooperative_sticky(
    members: Mapping[str, Subscription], counts: Mapping[str, int]
) -> Assignments:
    """Balanced, with few moves; partitions that have to move stay unassigned for now."""
    owners = _owners(members, counts)
    target = _balanced(members, counts, owners)
    return {
        member: [one for one in partitions if owners.get(one, member) == member]
        for member, partitions in target.items()
    }


def _owners(
    members: Mapping[str, Subscription], counts: Mapping[str, int]
) -> dict[TopicPartition, str]:
    """Who owns what; of two that claim a partition the one of the later generation does."""
    owners: dict[TopicPartition, str] = {}
    for member, one in sorted(members.items(), key=lambda item: (item[1].generation, item[0])):
        for partition in one.owned:
            if partition.topic in one.topics and partition.partition < counts.get(
                partition.topic, 0
            ):
                owners[partition] = member
    return owners


def _balanced(
    members: Mapping[str, Subscription],
    counts: Mapping[str, int],
    owners: Mapping[TopicPartition, str],
) -> Assignments:
    found: Assignments = {member: [] for member in members}
    free: list[TopicPartition] = []
    for partition in _all_partitions(counts):
        owner = owners.get(partition)
        if owner is None:
            free.append(partition)
        else:
            found[owner].append(partition)
    # The partitions that few may read first, so that the others can make up for them.
    takers = {topic: [m for m in sorted(members) if topic in members[m].topics] for topic in counts}
    for partition in sorted(free, key=lambda one: (len(takers[one.topic]), one)):
        able = takers[partition.topic]
        if able:
            found[min(able, key=lambda member: (len(found[member]), member))].append(partition)
    _level(found, takers)
    return found


def _level(found: Assignments, takers: Mapping[str, list[str]]) -> None:
    """Move partitions from members that have at least two more than another subscribed member."""
    moved = True
    while moved:
        moved = False
        for giver in sorted(found, key=lambda member: (-len(found[member]), member)):
            for partition in reversed(found[giver]):
                able = takers[partition.topic]
                taker = min(able, key=lambda member: (len(found[member]), member))
                if len(found[giver]) - len(found[taker]) >= 2:  # one moves, both agree
                    found[giver].remove(partition)
                    found[taker].append(partition)
                    moved = True
                    break
            if moved:
                break


def _all_partitions(counts: Mapping[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number)
        for topic, count in sorted(counts.items())
        for number in range(count)
    ]


ASSIGNORS: Final[dict[str, Assignor]] = {
    "range": Assignor(assign_range),
    "roundrobin": Assignor(assign_round_robin),
    "cooperative-sticky": Assignor(assign_cooperative_sticky, is_cooperative=True),
}

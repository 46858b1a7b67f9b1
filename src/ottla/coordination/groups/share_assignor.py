"""The assignor of share groups, `simple`: reads every partition, uses every member, moves little.

A partition may have several members, as it must if there are more members than partitions. With M
members and P partitions each partition wants S = ceil(M / P) members, and the S * P places are
spread over the members as evenly as whole numbers allow. With unequal subscriptions each topic is
divided among the members that read it.

Members keep their partitions unless they have too many of them or a partition has too many members.
The last places stay free if every member with room already has the partition.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from ottla.coordination.groups.partitions import Partitions, TopicPartition

NAME = "simple"


class ShareReader(NamedTuple):
    """A member as input of the assignor; `current` is its previous target."""

    topics: frozenset[UUID]
    current: Partitions = frozenset()


_Shares: TypeAlias = "dict[str, set[TopicPartition]]"


def assign_simple(
    members: Mapping[str, ShareReader], assignable: Partitions
) -> dict[str, Partitions]:
    """`assignable` may have any partitions; unsubscribed ones are ignored."""
    if len({member.topics for member in members.values()}) == 1:
        topics = next(iter(members.values())).topics
        read = sorted(partition for partition in assignable if partition[0] in topics)
        shares = _assign(members, sorted(members), read)
    else:
        shares = {member_id: set() for member_id in members}
        for topic_id in sorted({topic_id for topic_id, _ in assignable}):
            readers = [m for m in sorted(members) if topic_id in members[m].topics]
            read = sorted(partition for partition in assignable if partition[0] == topic_id)
            for member_id, share in _assign(members, readers, read).items():
                shares[member_id] |= share
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _assign(
    members: Mapping[str, ShareReader], readers: Sequence[str], read: Sequence[TopicPartition]
) -> _Shares:
    """Equal readers of some partitions."""
    known = frozenset(read)
    shares: _Shares = {m: set(members[m].current & known) for m in readers}
    if not readers or not read:
        return shares
    sharing = -(-len(readers) // len(read))
    room = _wanted(readers, sharing * len(read))
    holders: dict[TopicPartition, set[str]] = {partition: set() for partition in read}
    for member_id, share in shares.items():
        for partition in share:
            holders[partition].add(member_id)
    _trim_members(shares, holders, room)
    _trim_partitions(shares, holders, sharing)
    _fill(shares, holders, room, sharing)
    return shares


def _wanted(readers: Sequence[str], places: int) -> dict[str, int]:
    """The number of places of each reader: the sum is exact, and they differ by one at most."""
    count = len(readers)
    ends = [-(-places * position // count) for position in range(count + 1)]
    return {m: ends[position + 1] - ends[position] for position, m in enumerate(readers)}


def _trim_members(
    shares: _Shares, holders: dict[TopicPartition, set[str]], room: Mapping[str, int]
) -> None:
    """Members with too many partitions give up those that most others also have."""
    for member_id, share in shares.items():
        if (excess := len(share) - room[member_id]) > 0:
            for partition in sorted(share, key=lambda p: (-len(holders[p]), p))[:excess]:
                share.remove(partition)
                holders[partition].remove(member_id)


def _trim_partitions(
    shares: _Shares, holders: dict[TopicPartition, set[str]], sharing: int
) -> None:
    """Partitions with too many members lose the members with the most partitions."""
    for partition, held_by in holders.items():
        if (excess := len(held_by) - sharing) > 0:
            for member_id in sorted(held_by, key=lambda m: (-len(shares[m]), m))[:excess]:
                held_by.remove(member_id)
                shares[member_id].remove(partition)


def _fill(
    shares: _Shares,
    holders: dict[TopicPartition, set[str]],
    room: Mapping[str, int],
    sharing: int,
) -> None:
    """Give free places in turn to the members with room."""
    waiting = deque(m for m in shares if len(shares[m]) < room[m])
    for partition, held_by in holders.items():
        for _ in range(len(waiting)):
            if len(held_by) >= sharing:
                break
            member_id = waiting.popleft()
            if member_id not in held_by:
                held_by.add(member_id)
                shares[member_id].add(partition)
            if len(shares[member_id]) < room[member_id]:
                waiting.append(member_id)

"""The server-side assignors of KIP-848: pure functions from subscriptions to a target.

`range` gives each member, topic by topic, one contiguous run of partitions, in the order of
instance ids (or member ids), so that topics with equal counts and equal readers are co-partitioned.

`uniform` keeps the partitions of members and spreads the rest evenly. With equal subscriptions
loads differ by one at most. With unequal ones it moves partitions, if necessary along a chain of
members (A gives one to B, B gives another to C), as long as a move balances the most and the least
loaded end of the chain; without such a chain the spread is as even as the subscriptions allow.
Members with equal subscriptions count as one class, and many partitions move at once: for 300
members and 5,000 partitions this takes milliseconds with a few subscriptions, some hundred
milliseconds with 300 different ones.
"""

from __future__ import annotations

from collections import Counter, deque
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from ottla.coordination.groups.partitions import Partitions, TopicPartition


class Subscriber(NamedTuple):
    """A member as input of an assignor; `current` is its previous target."""

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
    by_topics: dict[frozenset[UUID], _Loads] = {}
    for member_id, member in members.items():
        by_topics.setdefault(member.topics, {})[member_id] = shares[member_id]
    if len(by_topics) == 1:
        _fill_evenly(shares, free)
    elif by_topics:
        classes = [_Class(topics, of) for topics, of in by_topics.items()]
        readers: dict[UUID, list[_Class]] = {}
        for one in classes:
            for topic_id in one.topics:
                readers.setdefault(topic_id, []).append(one)
        _hand_out(readers, free)
        while (chain := _improving_chain(classes, readers)) is not None:
            _move(chain)
        _carry_out(classes, free)
    return _frozen(shares)


class _Class:
    """Members with equal subscriptions; each can take any partition of the class.

    So loads within a class differ by one at most, and between classes only numbers matter.
    """

    def __init__(self, topics: frozenset[UUID], shares: _Loads) -> None:
        self.topics = topics
        self.shares = shares
        self.has = Counter(topic_id for share in shares.values() for topic_id, _ in share)
        self.wants = self.has.copy()
        self.load = self.wants.total()

    @property
    def highest(self) -> int:
        return -(-self.load // len(self.shares))

    @property
    def lowest(self) -> int:
        return self.load // len(self.shares)

    @property
    def mean(self) -> float:
        return self.load / len(self.shares)

    def change(self, topic_id: UUID, count: int) -> None:
        self.wants[topic_id] += count
        self.load += count


class _Step(NamedTuple):
    giver: _Class
    topic_id: UUID
    taker: _Class


def _frozen(shares: _Loads) -> Assignment:
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _kept(
    members: Mapping[str, Subscriber], counts: Mapping[UUID, int]
) -> tuple[_Loads, list[TopicPartition]]:
    """The partitions that members keep, and the subscribed ones without an owner."""
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
    """Equal subscriptions: each member gets the quota, and some get one more."""
    quota, extras = divmod(sum(map(len, shares.values())) + len(free), len(shares))
    # Members with the most partitions keep the extra ones, which moves the fewest partitions.
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


def _hand_out(readers: Mapping[UUID, list[_Class]], free: list[TopicPartition]) -> None:
    """Give free partitions, one by one, to the class whose members have the fewest."""
    for topic_id, count in Counter(topic_id for topic_id, _ in free).items():
        queue = [(one.mean, at, one) for at, one in enumerate(readers[topic_id])]
        heapify(queue)
        for _ in range(count):
            _, at, least = queue[0]
            least.change(topic_id, 1)
            heapreplace(queue, (least.mean, at, least))


def _improving_chain(
    classes: list[_Class], readers: Mapping[UUID, list[_Class]]
) -> list[_Step] | None:
    """The shortest chain of moves from a loaded class to a class whose members have two fewer."""
    hopeless: set[int] = set()
    # If the search from a class finds no such class, the visited classes need not be searched
    # again: later classes have less to give.
    for start in sorted(classes, key=lambda one: -one.highest):
        if id(start) in hopeless:
            continue
        enough = start.highest - 2
        reached: dict[int, _Step] = {}
        opened: set[UUID] = set()
        queue = deque([start])
        while queue:
            giver = queue.popleft()
            topics = sorted(t for t, count in giver.wants.items() if count and t not in opened)
            opened.update(topics)
            for topic_id in topics:
                for taker in readers[topic_id]:
                    if taker is start or id(taker) in reached:
                        continue
                    reached[id(taker)] = _Step(giver, topic_id, taker)
                    if taker.lowest <= enough:
                        return _unwind(reached, start, taker)
                    if id(taker) not in hopeless:
                        queue.append(taker)
        hopeless |= reached.keys()
    return None


def _unwind(reached: dict[int, _Step], start: _Class, taker: _Class) -> list[_Step]:
    chain = []
    while taker is not start:
        step = reached[id(taker)]
        chain.append(step)
        taker = step.giver
    return chain


def _move(chain: list[_Step]) -> None:
    """Move as many partitions at once as are available and make both ends more equal."""
    last, first = chain[0].taker, chain[-1].giver
    gap = first.mean - last.mean - 2
    useful = 1 + int(gap / (1 / len(first.shares) + 1 / len(last.shares))) if gap > 0 else 1
    count = min(useful, *(step.giver.wants[step.topic_id] for step in chain))
    for step in chain:
        step.giver.change(step.topic_id, -count)
        step.taker.change(step.topic_id, count)


def _carry_out(classes: list[_Class], free: list[TopicPartition]) -> None:
    """Move partitions along the chain; the most loaded members give first."""
    pools: dict[UUID, list[TopicPartition]] = {}
    for partition in free:
        pools.setdefault(partition[0], []).append(partition)
    for one in classes:
        for topic_id, count in one.has.items():
            if count > one.wants[topic_id]:
                surplus = _released(one.shares, topic_id, count - one.wants[topic_id])
                pools.setdefault(topic_id, []).extend(surplus)
    for one in classes:
        taken: list[TopicPartition] = []
        for topic_id, count in one.wants.items():
            missing = count - one.has[topic_id]
            if missing > 0:
                pool = pools[topic_id]
                taken += pool[-missing:]
                del pool[-missing:]
        _fill_evenly(one.shares, taken)


def _released(shares: _Loads, topic_id: UUID, count: int) -> list[TopicPartition]:
    givers = [
        (
            -len(share),
            member_id,
            sorted(partition for partition in share if partition[0] == topic_id),
        )
        for member_id, share in shares.items()
    ]
    givers = [giver for giver in givers if giver[2]]
    heapify(givers)
    released = []
    for _ in range(count):
        load, member_id, partitions = givers[0]
        released.append(partitions.pop())
        shares[member_id].remove(released[-1])
        if partitions:
            heapreplace(givers, (load + 1, member_id, partitions))
        else:
            heappop(givers)
    return released


DEFAULT_ASSIGNOR = "uniform"

ASSIGNORS: dict[str, Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], Assignment]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
"""The assignors by the names that members request."""

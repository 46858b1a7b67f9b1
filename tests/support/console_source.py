"""A cluster that answers the console from values, at a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.client.admin.types import (
    GroupDescription,
    GroupListing,
    GroupMember,
    NodeDescription,
    NodeState,
    ShareGroupDescription,
    ShareGroupOffset,
    ShareWindow,
    TransactionDescription,
)
from ottla.client.cluster.connection import Address
from ottla.client.cluster.view import Broker, Partition, Topic, TopicPartition
from ottla.console.clusters import Cluster, ClusterSettings
from ottla.console.data import ClusterAnswer, LogDir, TopicSettings
from ottla.console.pipelines import Pipelines
from tests.support.clocks import ManualClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.client.errors import ClientError
    from ottla.console.data import Committed
    from ottla.console.missing import Missing
    from ottla.tables.pointer import Pointer

BROKER = Broker(1, Address("127.0.0.1", 9092))
APIS = {2: (1, 11), 29: (1, 3), 35: (1, 5), 66: (0, 2), 77: (0, 1)}
START_MS = 1_000_000_000


def topic_of(name: str, partitions: int, *, leader: int = 1, internal: bool = False) -> Topic:
    made = tuple(Partition(index, leader, 0, (1,), (1,), ()) for index in range(partitions))
    return Topic(name, name.encode().ljust(16, b"-")[:16], internal, made)


@dataclass
class FakeSource:
    """Answers what the test has put here; each call takes `slow_ms`, or raises `fails`."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(START_MS))
    id: str = "cluster-a"
    topics_by_name: dict[str, Topic] = field(default_factory=dict)
    listed: list[GroupListing] = field(default_factory=list)
    logs: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    offsets: dict[str, Committed | ClientError] = field(default_factory=dict)
    queues: dict[str, list[ShareGroupOffset]] = field(default_factory=dict)
    held: dict[str, list[ShareWindow]] = field(default_factory=dict)
    dirs: list[LogDir] = field(default_factory=list)
    described_nodes: list[NodeDescription] = field(
        default_factory=lambda: [NodeDescription(BROKER, NodeState.ACTIVE, 0)]
    )
    open_transactions: list[TransactionDescription] = field(default_factory=list)
    letter_topics: dict[str, str] = field(default_factory=dict)
    pointers: dict[str, Pointer] = field(default_factory=dict)
    told: Pipelines = field(default_factory=lambda: Pipelines({}, {}))
    settings_of: dict[str, TopicSettings | Missing] = field(default_factory=dict)
    certificates_end: dict[int, float] = field(default_factory=dict)
    written_ms: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    slow_ms: int = 0
    fails: dict[str, ClientError] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)
    """What was asked for, and for how many things."""

    def topic(self, name: str, partitions: int = 1, end: int = 0) -> None:
        self.topics_by_name[name] = topic_of(name, partitions)
        for index in range(partitions):
            self.logs[TopicPartition(name, index)] = (0, end)

    def group(self, name: str, kind: str = "consumer", state: str = "Stable") -> None:
        self.listed.append(GroupListing(name, "consumer", state, kind))

    def cluster_of(self) -> Cluster:
        settings = ClusterSettings("local", "127.0.0.1:9092")
        return Cluster(settings, clock=self.clock, source=self)

    def _call(self, what: str, things: int = 1) -> None:
        self.asked.append((what, things))
        self.clock.advance(self.slow_ms)
        for key in (what, "*"):
            if key in self.fails:
                raise self.fails[key]

    async def cluster(self) -> ClusterAnswer:
        self._call("cluster")
        return ClusterAnswer(self.id, 1, {1: BROKER}, dict(self.topics_by_name), APIS)

    async def nodes(self) -> Sequence[NodeDescription]:
        self._call("nodes")
        return self.described_nodes

    async def groups(self) -> Sequence[GroupListing]:
        self._call("groups")
        return list(self.listed)

    async def log_dirs(self) -> Sequence[LogDir]:
        self._call("log_dirs")
        sizes = {key: end for key, (_, end) in self.logs.items()}
        return self.dirs or [LogDir(1, "/data", None, None, sizes)]

    async def transactions(self) -> Sequence[TransactionDescription]:
        self._call("transactions")
        return self.open_transactions

    async def letters(self) -> Mapping[str, str]:
        self._call("letters")
        return dict(self.letter_topics)

    async def tables(self) -> Mapping[str, Pointer]:
        self._call("tables")
        return dict(self.pointers)

    async def pipelines(self) -> Pipelines:
        self._call("pipelines")
        return self.told

    async def settings(self) -> Mapping[str, TopicSettings | Missing]:
        self._call("settings")
        return dict(self.settings_of)

    async def certificates(self) -> Mapping[int, float]:
        self._call("certificates")
        return dict(self.certificates_end)

    async def ends(
        self, of: Sequence[TopicPartition], *, starts: bool
    ) -> Mapping[TopicPartition, tuple[int | None, int]]:
        self._call("ends", len(of))
        return {
            key: (self.logs[key][0] if starts else None, self.logs[key][1])
            for key in of
            if key in self.logs
        }

    async def committed(self, groups: Sequence[str]) -> Mapping[str, Committed | ClientError]:
        self._call("committed", len(groups))
        return {name: self.offsets.get(name, {}) for name in groups}

    async def members(self, group: str) -> GroupDescription:
        self._call("members")
        member = GroupMember("m-1", None, "client", "/10.0.0.5", [TopicPartition("orders", 0)])
        return GroupDescription(group, "consumer", "Stable", "range", 1, [member])

    async def shares(self, group: str) -> Sequence[ShareGroupOffset]:
        self._call("shares")
        return self.queues.get(group, [])

    async def share_members(self, group: str) -> ShareGroupDescription:
        self._call("share_members")
        return ShareGroupDescription(group, "Stable", "simple", 1, 1, 1, [])

    async def windows(self, group: str) -> Sequence[ShareWindow]:
        self._call("windows")
        return self.held.get(group, [])

    async def stamps(
        self, at: Sequence[tuple[TopicPartition, int]]
    ) -> Mapping[tuple[TopicPartition, int], int]:
        self._call("stamps", len(at))
        return {place: self.written_ms[place] for place in at if place in self.written_ms}

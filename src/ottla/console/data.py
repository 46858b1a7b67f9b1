"""What is known about a cluster, as a value: the last answer of each kind, and when it came.

Views and rules are functions of it; `snapshot` replaces it as answers come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from ottla.client.cluster.view import TopicPartition
from ottla.console.capabilities import Capabilities, capabilities
from ottla.console.missing import NOT_ASKED, Missing
from ottla.metadata.names import PIPELINES_TOPIC, POINTER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.client.admin.types import (
        GroupDescription,
        GroupListing,
        NodeDescription,
        ShareGroupDescription,
        ShareGroupOffset,
        ShareWindow,
        TransactionDescription,
    )
    from ottla.client.cluster.view import Broker, Topic
    from ottla.clock import Now
    from ottla.console.pipelines import Pipelines
    from ottla.console.tiering import TierAnswer
    from ottla.tables.pointer import Pointer

T = TypeVar("T")

NOT_FOLDED: Final = Missing("the catalogue is read while somebody looks at the page Tier")
CATALOGUE_TOPIC: Final = "__remote_log_metadata"


@dataclass(frozen=True, slots=True)
class Stamped(Generic[T]):
    """An answer, and when it came (monotonic milliseconds); None: not yet."""

    value: T | Missing = NOT_ASKED
    at_ms: int | None = None

    def age_s(self, now: Now) -> float | None:
        """Its age in seconds."""
        return None if self.at_ms is None else (now.ms - self.at_ms) / 1000


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    """Brokers and topics."""

    id: str | None
    controller: int
    brokers: Mapping[int, Broker]
    topics: Mapping[str, Topic]
    versions: Mapping[int, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    """The lowest and the highest version of each API, by its key."""
    features: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Levels of the features that are on; empty if the cluster does not tell."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """A directory of a broker; bytes are None if an old broker does not tell."""

    broker: int
    path: str
    total_bytes: int | None
    free_bytes: int | None
    sizes: Mapping[TopicPartition, int]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """The borders of a log; `start` is None until it was asked for."""

    end: int
    at_ms: int
    start: int | None = None


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of a topic that the list shows."""

    cleanup: str
    retention_ms: int
    """-1: for ever."""
    is_tiered: bool


Committed: TypeAlias = "Mapping[TopicPartition, int]"


@dataclass(frozen=True, slots=True)
class Data:
    """All that is known about a cluster."""

    name: str
    bootstrap: str
    cluster: Stamped[ClusterAnswer] = Stamped()
    nodes: Stamped[Sequence[NodeDescription]] = Stamped()
    groups: Stamped[Sequence[GroupListing]] = Stamped()
    log_dirs: Stamped[Sequence[LogDir]] = Stamped()
    settings: Stamped[Mapping[str, TopicSettings | Missing]] = Stamped()
    """By topic."""
    transactions: Stamped[Sequence[TransactionDescription]] = Stamped()
    letters: Stamped[Mapping[str, str]] = Stamped()
    """Topics of dead letters by share group, of those that have one."""
    tables: Stamped[Mapping[str, Pointer]] = Stamped()
    """Tables by topic."""
    pipelines: Stamped[Pipelines] = Stamped()
    certificates: Stamped[Mapping[int, float]] = Stamped()
    """When those of brokers end, in seconds since the epoch."""
    tier: Stamped[TierAnswer] = Stamped(NOT_FOLDED)
    ends: Mapping[TopicPartition, Ends] = field(default_factory=lambda: MappingProxyType({}))
    committed: Mapping[str, Stamped[Committed]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By group, of consumer and classic groups."""
    members: Mapping[str, Stamped[GroupDescription]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    shares: Mapping[str, Stamped[Sequence[ShareGroupOffset]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By share group."""
    share_members: Mapping[str, Stamped[ShareGroupDescription]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    windows: Mapping[str, Stamped[Sequence[ShareWindow]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By share group, of those that somebody looks at."""
    stamps: Mapping[tuple[TopicPartition, int], int] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Timestamps of records by partition and offset; they never change."""
    away_since_ms: int | None = None
    """Since when no broker has answered."""
    away_reason: str = ""
    replaced_id: str | None = None
    """The id of the cluster that was here before, if another one answers now."""
    has_registry: bool = False
    """Whether a schema registry is known."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name; none if they are not known."""
        found = self.cluster.value
        return {} if isinstance(found, Missing) else found.topics

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic."""
        found = self.topics.get(topic)
        return (
            [] if found is None else [TopicPartition(topic, one.index) for one in found.partitions]
        )

    @property
    def capabilities(self) -> Capabilities:
        """What the cluster can do."""
        found = self.cluster.value
        if isinstance(found, Missing):
            return Capabilities(frozenset())
        has_windows = any(
            one.in_flight is not None
            for answer in self.shares.values()
            if not isinstance(answer.value, Missing)
            for one in answer.value
        )
        return capabilities(
            found.versions,
            found.features,
            nodes=len(found.brokers),
            has_windows=has_windows,
            has_catalogue=CATALOGUE_TOPIC in found.topics,
            has_tables=POINTER_TOPIC in found.topics,
            has_pipelines=PIPELINES_TOPIC in found.topics,
            has_registry=self.has_registry,
        )

"""One topic: its partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.cluster.view import NO_LEADER, TopicPartition
from ottla.console.missing import Known, Missing
from ottla.console.views import topics as topics_view
from ottla.console.views.frame import Frame, frame
from ottla.console.views.lags import LagView, lag_view
from ottla.console.views.table import ALL, Query, Table, chosen, table

if TYPE_CHECKING:
    from ottla.client.cluster.view import Topic
    from ottla.console.attention import Attention
    from ottla.console.look import Look
    from ottla.console.views.topics import TopicRow

SKEW: Final = 2.0
"""A partition with more than this times its share of the records is named."""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition; figures are None until they are known."""

    name: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start: int | None
    end: int | None
    records: int | None
    size_bytes: Known[int] | None


@dataclass(frozen=True, slots=True)
class ReaderRow:
    """A group or a queue that reads the topic."""

    kind: str
    name: str
    lag: Known[LagView] | None


@dataclass(frozen=True, slots=True)
class TopicPage:
    """A topic. `found` is false if the cluster has none of this name."""

    frame: Frame
    name: str
    found: bool
    id: str
    row: TopicRow | None
    partitions: Table[PartitionRow] | None
    readers: tuple[ReaderRow, ...]
    skew: str
    """A sentence if one partition has far more records than others, else empty."""


def page(look: Look, attention: Attention, name: str, query: Query = ALL) -> TopicPage:
    """The page of a topic."""
    around = frame(look, attention)
    topic = look.data.topics.get(name)
    if topic is None:
        return TopicPage(around, name, False, "", None, None, (), "")
    [row] = topics_view.rows(look, [topic])
    rows = _partitions(look, topic)
    wanted = set(chosen((one.name for one in rows), query.contains))
    shown = table(
        [one for one in rows if one.name in wanted], query, "partition", lambda one: one.name
    )
    return TopicPage(
        around,
        name,
        True,
        topic.id.hex(),
        row,
        shown,
        tuple(_readers(look, name)),
        _skew(rows),
    )


def _partitions(look: Look, topic: Topic) -> list[PartitionRow]:
    sizes: dict[int, int] = {}
    directories = look.data.log_dirs.value
    if not isinstance(directories, Missing):
        for directory in directories:
            for key, size in directory.sizes.items():
                if key.topic == topic.name:
                    sizes[key.partition] = sizes.get(key.partition, 0) + size
    found = []
    for one in topic.partitions:
        ends = look.data.ends.get(TopicPartition(topic.name, one.index))
        has_both = ends is not None and ends.start is not None
        found.append(
            PartitionRow(
                name=str(one.index),
                partition=one.index,
                leader=None if one.leader == NO_LEADER else one.leader,
                replicas=tuple(one.replicas),
                isr=tuple(one.isr),
                start=None if ends is None else ends.start,
                end=None if ends is None else ends.end,
                records=max(0, ends.end - (ends.start or 0)) if ends and has_both else None,
                size_bytes=directories
                if isinstance(directories, Missing)
                else sizes.get(one.index),
            )
        )
    return found


def _readers(look: Look, topic: str) -> list[ReaderRow]:
    found = []
    for group, committed in sorted(look.data.committed.items()):
        if isinstance(committed.value, Missing):
            continue
        if any(key.topic == topic for key in committed.value):
            course = look.course(("group", group, topic, "lag"))
            found.append(
                ReaderRow("group", group, lag_view(look.group_behind(group, topic), course))
            )
    for group, shares in sorted(look.data.shares.items()):
        if isinstance(shares.value, Missing):
            continue
        if any(one.topic == topic for one in shares.value):
            course = look.course(("queue", group, topic, "lag"))
            found.append(
                ReaderRow("queue", group, lag_view(look.queue_behind(group, topic), course))
            )
    return found


def _skew(rows: list[PartitionRow]) -> str:
    known = [(one.records, one.partition) for one in rows if one.records is not None]
    total = sum(records for records, _ in known)
    if len(known) < 2 or total < 1_000:
        return ""
    most, partition = max(known)
    share = most / total
    if share * len(known) < SKEW:
        return ""
    return f"partition {partition} has {share:.0%} of the records (key distribution)"

"""The list of topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.client.cluster.view import NO_LEADER
from ottla.console.data import TopicSettings
from ottla.console.missing import NOT_ASKED, Known, Missing
from ottla.console.views.frame import Frame, frame
from ottla.console.views.table import ALL, Query, Table, chosen, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client.cluster.view import Topic
    from ottla.console.attention import Attention
    from ottla.console.look import Look


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic. `records` is end minus start, which compaction and transactions make too large.

    Figures are None until they are known; `of_partitions` says of how many partitions they are.
    """

    name: str
    is_internal: bool
    partitions: int
    offline: int
    records: int | None
    of_partitions: int
    size_bytes: Known[int] | None
    records_per_s: float | None
    spark: tuple[float | None, ...]
    cleanup: Known[str] | None
    retention_s: float | None
    """-1: for ever. None where no record is deleted by its age."""
    is_tiered: bool | None
    remote_bytes: int | None
    """In the tier; None until the catalogue was read for the page Tier."""
    groups: int
    queues: int


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """All topics, one page of them."""

    frame: Frame
    topics: Known[Table[TopicRow]]


def page(look: Look, attention: Attention, query: Query = ALL) -> TopicsPage:
    """The topics that the query asks for."""
    cluster = look.data.cluster.value
    around = frame(look, attention)
    if isinstance(cluster, Missing):
        return TopicsPage(around, cluster)
    topics = [cluster.topics[name] for name in chosen(cluster.topics, query.contains)]
    return TopicsPage(
        around,
        table(
            rows(look, [one for one in topics if query.internal or not one.is_internal]),
            query,
            "name",
            lambda row: row.name,
        ),
    )


def rows(look: Look, topics: list[Topic]) -> list[TopicRow]:
    """A row for each topic."""
    sizes = sizes_of(look)
    groups, queues = _readers(look)
    remote = _remote(look)
    return [_row(look, topic, sizes, groups, queues, remote) for topic in topics]


def _row(
    look: Look,
    topic: Topic,
    sizes: Mapping[str, int] | Missing,
    groups: Mapping[str, int],
    queues: Mapping[str, int],
    remote: Mapping[str, int],
) -> TopicRow:
    told = look.data.settings.value
    settings = told if isinstance(told, Missing) else told.get(topic.name)
    known_settings = settings if isinstance(settings, TopicSettings) else None
    records = known = 0
    for key in look.data.partitions(topic.name):
        ends = look.data.ends.get(key)
        if ends is not None and ends.start is not None:
            known += 1
            records += max(0, ends.end - ends.start)
    return TopicRow(
        name=topic.name,
        is_internal=topic.is_internal,
        partitions=len(topic.partitions),
        offline=sum(one.leader == NO_LEADER for one in topic.partitions),
        records=records if known else None,
        of_partitions=known,
        size_bytes=sizes if isinstance(sizes, Missing) else sizes.get(topic.name),
        records_per_s=look.rate("topic", topic.name, "records_per_s"),
        spark=look.spark("topic", topic.name, "records_per_s"),
        cleanup=known_settings.cleanup if known_settings else _refused(settings),
        retention_s=_retention_s(known_settings),
        is_tiered=known_settings.is_tiered if known_settings else None,
        remote_bytes=remote.get(topic.name),
        groups=groups.get(topic.name, 0),
        queues=queues.get(topic.name, 0),
    )


def _refused(settings: TopicSettings | Missing | None) -> Missing | None:
    """Why they are not known; None: they are asked for at this moment."""
    return settings if isinstance(settings, Missing) and settings is not NOT_ASKED else None


def _retention_s(settings: TopicSettings | None) -> float | None:
    if settings is None or "delete" not in settings.cleanup:
        return None
    return -1.0 if settings.retention_ms < 0 else settings.retention_ms / 1000


def _remote(look: Look) -> Mapping[str, int]:
    """Bytes of each topic in the tier, where the catalogue was read."""
    tier = look.data.tier.value
    found: dict[str, int] = {}
    if not isinstance(tier, Missing):
        for one in tier.partitions:
            found[one.topic] = found.get(one.topic, 0) + one.remote_bytes
    return found


def sizes_of(look: Look) -> Mapping[str, int] | Missing:
    """The bytes of each topic on all brokers."""
    directories = look.data.log_dirs.value
    if isinstance(directories, Missing):
        return directories
    found: dict[str, int] = {}
    for one in directories:
        for key, size in one.sizes.items():
            found[key.topic] = found.get(key.topic, 0) + size
    return found


def _readers(look: Look) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """How many groups and queues are known to read each topic."""
    groups: dict[str, int] = {}
    queues: dict[str, int] = {}
    for committed in look.data.committed.values():
        if not isinstance(committed.value, Missing):
            for topic in {key.topic for key in committed.value}:
                groups[topic] = groups.get(topic, 0) + 1
    for shares in look.data.shares.values():
        if not isinstance(shares.value, Missing):
            for topic in {one.topic for one in shares.value}:
                queues[topic] = queues.get(topic, 0) + 1
    return groups, queues

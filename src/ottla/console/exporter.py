"""`/metrics`: an exporter for any cluster that the console looks at. Pure.

A figure that is not known has no line: it is never a zero. Series of partitions beyond
`MAX_SERIES` are summed up by topic, and `ottla_console_metrics_cut` says so.

Scrapes are looks: while they come, the sampler works, within its budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.client.cluster.view import TopicPartition
from ottla.console import families
from ottla.console.attention import RULES
from ottla.console.lag import worst
from ottla.console.missing import Missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ottla.console.attention import Attention
    from ottla.console.families import Family
    from ottla.console.lag import Behind
    from ottla.console.look import Look

MAX_SERIES: Final = 20_000
"""A scrape of more takes the collecting system, and this one, longer than it is worth."""
Labelled: TypeAlias = "tuple[tuple[str, ...], float]"
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Scraped:
    """One cluster at the moment of a scrape."""

    name: str
    look: Look
    attention: Attention
    is_up: bool
    spent_s: float


def lines(
    clusters: Sequence[Scraped], own: Mapping[Family, int], scheme: str = "ottla"
) -> Iterator[str]:
    """The whole exposition, a line after the other; `own` are figures of the console itself."""
    cut = {one.name: _is_cut(one.look) for one in clusters}
    for family in families.FAMILIES:
        yield from _family(family, clusters, cut, own, scheme)


def _is_cut(look: Look) -> bool:
    """Whether partitions and groups together have too many series."""
    data = look.data
    found = 2 * len(data.ends)
    for committed in data.committed.values():
        if not isinstance(committed.value, Missing):
            found += 2 * len(committed.value)
    for shares in data.shares.values():
        if not isinstance(shares.value, Missing):
            found += len(shares.value)
    return found > MAX_SERIES


def _family(
    family: Family,
    clusters: Sequence[Scraped],
    cut: dict[str, bool],
    own: Mapping[Family, int],
    scheme: str,
) -> Iterator[str]:
    is_other = scheme == "kafka_exporter" and bool(family.other)
    name = family.other if is_other else family.name
    names = [families.OTHER_LABELS.get(one, one) if is_other else one for one in family.labels]
    yield f"# HELP {name} {family.help}\n"
    yield f"# TYPE {name} {family.kind}\n"
    if family in own:
        yield f"{name} {own[family]}\n"
        return
    for cluster in clusters:
        rows: Iterable[Labelled] = _rows(family, cluster, cut[cluster.name])
        if cut[cluster.name] and family.labels[-1] == "partition":
            rows = _sums(rows)
        for labels, value in rows:
            # A sum has no partition: labels that are left are left out.
            said = zip(names, (cluster.name, *labels), strict=False)
            text = ",".join(f'{label}="{_escaped(one)}"' for label, one in said)
            yield f"{name}{{{text}}} {value!r}\n"


def _escaped(text: str) -> str:
    plain = text.encode("utf-8", "replace").decode()
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _sums(
    rows: Iterable[Labelled],
) -> Iterator[Labelled]:
    found: dict[tuple[str, ...], float] = {}
    for labels, value in rows:
        found[labels[:-1]] = found.get(labels[:-1], 0) + value
    yield from found.items()


def _rows(family: Family, cluster: Scraped, is_cut: bool) -> Iterator[Labelled]:
    """Values with the labels after the cluster's."""
    look = cluster.look
    if family in (families.GROUP_LAG, families.GROUP_SECONDS, families.COMMITTED):
        yield from _groups(family, look)
    elif family in (families.SHARE_LAG, families.SHARE_SECONDS):
        yield from _queues(family, look)
    elif family is families.ATTENTION:
        yield from _attention(cluster.attention)
    elif family is families.GROUP_STATE:
        yield from _states(look)
    elif family is families.TOPIC_RECORDS:
        yield from _records(look)
    elif family in (families.END, families.START):
        yield from _borders(family, look)
    else:
        single = {
            families.UP: int(cluster.is_up),
            families.AGE: look.data.cluster.age_s(look.now),
            families.SPENT: cluster.spent_s,
            families.SERIES: look.history.rings,
            families.CUT: int(is_cut),
        }
        value = single[family]
        if value is not None:
            yield (), value


def _states(look: Look) -> Iterator[Labelled]:
    listed = look.data.groups.value
    if not isinstance(listed, Missing):
        for group in listed:
            yield (group.id, group.type, group.state), 1


def _borders(family: Family, look: Look) -> Iterator[Labelled]:
    for key, one in look.data.ends.items():
        offset = one.end if family is families.END else one.start
        if offset is not None:
            yield (key.topic, str(key.partition)), offset


def _attention(found: Attention) -> Iterator[Labelled]:
    missed = {one.word for one in found.not_checked}
    for word in dict.fromkeys(word for _, word, _, _ in RULES):
        count = sum(one.word == word for one in found.findings)
        if count or word not in missed:
            yield (word,), count


def _groups(family: Family, look: Look) -> Iterator[Labelled]:
    for group, stamped in look.data.committed.items():
        if isinstance(stamped.value, Missing):
            continue
        topics: dict[str, list[Behind]] = {}
        for key, offset in stamped.value.items():
            labels = (group, key.topic, str(key.partition))
            if family is families.COMMITTED:
                yield labels, offset
                continue
            behind = look.behind(key, offset)
            if behind is None:
                continue
            if family is families.GROUP_LAG:
                yield labels, behind.records
            else:
                topics.setdefault(key.topic, []).append(behind)
        for topic, some in topics.items():
            seconds = worst(some).seconds
            if seconds is not None:
                yield (group, topic), seconds


def _queues(family: Family, look: Look) -> Iterator[Labelled]:
    for group, stamped in look.data.shares.items():
        if isinstance(stamped.value, Missing):
            continue
        if family is families.SHARE_SECONDS:
            for topic in dict.fromkeys(one.topic for one in stamped.value):
                behind = look.queue_behind(group, topic)
                if behind is None or isinstance(behind, Missing) or behind.seconds is None:
                    continue
                yield (group, topic), behind.seconds
            continue
        for one in stamped.value:
            lag: float | None = one.lag
            if lag is None and one.start_offset is not None:
                timed = look.behind(TopicPartition(one.topic, one.partition), one.start_offset)
                lag = None if timed is None else timed.records
            if lag is not None:
                yield (group, one.topic, str(one.partition)), lag


def _records(look: Look) -> Iterator[Labelled]:
    """Of topics all of whose partitions are known."""
    data = look.data
    for topic in data.topics:
        known = [data.ends.get(key) for key in data.partitions(topic)]
        spans = [one.end - one.start for one in known if one is not None and one.start is not None]
        if spans and len(spans) == len(known):
            yield (topic,), sum(spans)

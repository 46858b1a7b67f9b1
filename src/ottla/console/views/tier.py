"""Tiered storage: which part of each log is where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.console.missing import Known, Missing
from ottla.console.views.frame import Frame, frame
from ottla.console.views.table import ALL, Query, Table, table

if TYPE_CHECKING:
    from ottla.console.attention import Attention
    from ottla.console.look import Look
    from ottla.console.tiering import TierAnswer
    from ottla.tier.upkeep.tools import PartitionStatus

GB: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TierRow:
    """A partition of a tiered topic. Offsets from `start` up to `remote_end` are remote, those from
    `local_start` on are local; some are both."""

    name: str
    topic: str
    partition: int
    start: int
    remote_end: int | None
    """None: nothing is remote."""
    local_start: int
    end: int
    waiting: int
    """Offsets that are on local disk alone."""
    segments: int
    remote_bytes: int
    unfinished: int
    unfinished_s: float | None
    """Age of the oldest copy that is not finished."""
    deleting: int
    remote_share: float
    """Parts of the log by offsets, for the strip: remote, and local."""
    local_share: float


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a gigabyte a month, by the settings."""

    remote: float
    local: float
    currency: str


@dataclass(frozen=True, slots=True)
class Costs:
    """About so much a month; requests are not counted."""

    remote: float
    local: float
    all_local: float
    """If everything were on local disks."""
    currency: str


@dataclass(frozen=True, slots=True)
class TierPage:
    """All tiered topics."""

    frame: Frame
    age_s: float | None
    remote_bytes: int
    segments: int
    unfinished: int
    undecodable: int
    local_bytes: int | None
    """Of tiered topics on local disks; None: the brokers do not tell."""
    costs: Costs | None
    partitions: Known[Table[TierRow]]


def page(
    look: Look,
    attention: Attention,
    answer: TierAnswer | Missing,
    age_s: float | None,
    prices: Prices,
    query: Query = ALL,
    topic: str | None = None,
) -> TierPage:
    """The partitions that the query asks for, those that wait for their copy first; of one topic
    or of all."""
    around = frame(look, attention)
    if isinstance(answer, Missing):
        return TierPage(around, age_s, 0, 0, 0, 0, None, None, answer)
    wanted = query.contains.casefold()
    rows = [
        _row(one, look.now.wall_ms)
        for one in answer.partitions
        if topic is None or one.topic == topic
    ]
    remote = sum(one.remote_bytes for one in rows)
    local = _local(look, {one.topic for one in rows})
    chosen = [one for one in rows if wanted in one.topic.casefold()]
    return TierPage(
        around,
        age_s,
        remote,
        sum(one.segments for one in rows),
        sum(one.unfinished for one in rows),
        answer.undecodable,
        local,
        None if local is None else _costs(remote, local, rows, prices),
        table(chosen, query, "-waiting", lambda one: f"{one.topic}-{one.partition:09}"),
    )


def _local(look: Look, topics: set[str]) -> int | None:
    directories = look.data.log_dirs.value
    if isinstance(directories, Missing):
        return None
    return sum(
        size for one in directories for key, size in one.sizes.items() if key.topic in topics
    )


def _costs(remote: int, local: int, rows: list[TierRow], prices: Prices) -> Costs:
    """What is remote and local at once is counted once where all would be local."""
    both = 0.0
    for one in rows:
        remote_end = one.start if one.remote_end is None else one.remote_end
        copied = remote_end - one.start
        if copied > 0:
            overlap = max(0, remote_end - max(one.local_start, one.start))
            both += one.remote_bytes * overlap / copied
    per_remote, per_local = prices.remote / GB, prices.local / GB
    return Costs(
        remote * per_remote,
        local * per_local,
        (remote + max(0.0, local - both)) * per_local,
        prices.currency,
    )


def _row(one: PartitionStatus, now_ms: int) -> TierRow:
    remote_end = one.highest_remote + 1 if one.highest_remote >= 0 else None
    whole = max(1, one.log_end - one.log_start)
    return TierRow(
        name=f"{one.topic}-{one.partition}",
        topic=one.topic,
        partition=one.partition,
        start=one.log_start,
        remote_end=remote_end,
        local_start=one.local_start,
        end=one.log_end,
        waiting=one.lag,
        segments=one.segments,
        remote_bytes=one.remote_bytes,
        unfinished=one.unfinished,
        unfinished_s=None
        if one.unfinished_since_ms is None
        else max(0, now_ms - one.unfinished_since_ms) / 1000,
        deleting=one.deleting,
        remote_share=max(0, (remote_end or one.log_start) - one.log_start) / whole,
        local_share=max(0, one.log_end - max(one.local_start, one.log_start)) / whole,
    )

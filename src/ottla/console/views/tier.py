"""Tiered storage: which part of each log is where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.console.missing import Known, Missing
from ottla.console.views.frame import Frame, frame
from ottla.console.views.table import ALL, Query, Table, table

if TYPE_CHECKING:
    from ottla.console.attention import Attention
    from ottla.console.look import Look
    from ottla.console.tiering import TierAnswer
    from ottla.tier.upkeep.tools import PartitionStatus


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
    deleting: int
    remote_share: float
    """Parts of the log by offsets, for the strip: remote, and local."""
    local_share: float


@dataclass(frozen=True, slots=True)
class TierPage:
    """All tiered topics."""

    frame: Frame
    age_s: float | None
    remote_bytes: int
    segments: int
    unfinished: int
    undecodable: int
    partitions: Known[Table[TierRow]]


def page(
    look: Look,
    attention: Attention,
    answer: TierAnswer | Missing,
    age_s: float | None,
    query: Query = ALL,
) -> TierPage:
    """The partitions that the query asks for, those that wait for their copy first."""
    around = frame(look, attention)
    if isinstance(answer, Missing):
        return TierPage(around, age_s, 0, 0, 0, 0, answer)
    wanted = query.contains.casefold()
    rows = [_row(one) for one in answer.partitions]
    chosen = [one for one in rows if wanted in one.topic.casefold()]
    return TierPage(
        around,
        age_s,
        sum(one.remote_bytes for one in rows),
        sum(one.segments for one in rows),
        sum(one.unfinished for one in rows),
        answer.undecodable,
        table(chosen, query, "-waiting", lambda one: f"{one.topic}-{one.partition:09}"),
    )


def _row(one: PartitionStatus) -> TierRow:
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
        deleting=one.deleting,
        remote_share=max(0, (remote_end or one.log_start) - one.log_start) / whole,
        local_share=max(0, one.log_end - max(one.local_start, one.log_start)) / whole,
    )

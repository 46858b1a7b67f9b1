"""Everything that a view is made from: the data of a cluster, its history, and the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ottla.client.cluster.view import TopicPartition
from ottla.console.lag import Behind, Course, behind, course, exactly, worst
from ottla.console.missing import Missing
from ottla.console.pipelines import ENDED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clock import Now
    from ottla.console.data import Data
    from ottla.console.history import History, Name
    from ottla.console.lag import EndSamples
    from ottla.console.pipelines import FlowState

TREND_SLOTS: Final = 60
"""Ten minutes."""


@dataclass(frozen=True, slots=True)
class Look:
    """One moment of a cluster. Views only read it."""

    data: Data
    history: History
    now: Now
    samples: Mapping[TopicPartition, EndSamples] = field(
        default_factory=lambda: MappingProxyType({})
    )

    _behind: dict[tuple[str, str | None], Behind | Missing | None] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Lags of groups that were asked for before: several rules and the page want the same."""

    def silent_s(self, flow: FlowState) -> float | None:
        """For how long a flow that should run was not heard of; None: it has ended.

        By the wall clocks of two machines; that of the pipeline may be ahead of ours.
        """
        told = self.data.pipelines.value
        if flow.state in ENDED or isinstance(told, Missing):
            return None
        run = told.pipelines.get(flow.pipeline)
        if run is not None and run.run == flow.run and run.ended_ms is not None:
            return None
        return max(0.0, (self.now.wall_ms - flow.at_ms) / 1000)

    def rate(self, *name: str) -> float | None:
        """The last value of a series."""
        return self.history.last(name, self.now.ms)

    def spark(self, *name: str, count: int = 60) -> tuple[float | None, ...]:
        """The last ten minutes of a series; empty if it is not kept."""
        found = self.history.fine(name, self.now.ms, count)
        return () if isinstance(found, Missing) else tuple(found)

    def course(self, name: Name) -> Course:
        """Where a lag is going."""
        return course(self.history.timed(name, self.now.ms, TREND_SLOTS), self.now.ms)

    def behind(self, key: TopicPartition, committed: int) -> Behind | None:
        """The lag of a group in a partition; None until the end of the log is known."""
        ends = self.data.ends.get(key)
        if ends is None:
            return None
        stamp = self.data.stamps.get((key, max(committed, ends.start or 0)))
        if stamp is not None:
            return exactly(committed, ends.end, ends.start, stamp, self.now.wall_ms)
        return behind(committed, ends.end, ends.start, self.samples.get(key), self.now.ms)

    def is_exact(self, key: TopicPartition, committed: int) -> bool:
        """Whether the seconds come from the record itself, not from samples."""
        ends = self.data.ends.get(key)
        return ends is not None and (key, max(committed, ends.start or 0)) in self.data.stamps

    def group_behind(self, group: str, topic: str | None = None) -> Behind | Missing | None:
        """The lag of a consumer group, in one topic or in all; None until it is known."""
        if (group, topic) not in self._behind:
            self._behind[group, topic] = self._group_behind(group, topic)
        return self._behind[group, topic]

    def _group_behind(self, group: str, topic: str | None) -> Behind | Missing | None:
        stamped = self.data.committed.get(group)
        if stamped is None:
            return None
        if isinstance(stamped.value, Missing):
            return stamped.value
        found = [
            one
            for key, offset in stamped.value.items()
            if topic in (None, key.topic) and (one := self.behind(key, offset)) is not None
        ]
        if stamped.value and not found and topic is None:
            return None
        return worst(found)

    def queue_behind(self, group: str, topic: str | None = None) -> Behind | Missing | None:
        """The lag of a share group: records to settle, and the age of its start offset."""
        stamped = self.data.shares.get(group)
        if stamped is None:
            return None
        if isinstance(stamped.value, Missing):
            return stamped.value
        found = []
        for one in stamped.value:
            if topic not in (None, one.topic) or one.start_offset is None:
                continue
            timed = self.behind(TopicPartition(one.topic, one.partition), one.start_offset)
            records = one.lag if one.lag is not None else timed.records if timed else 0
            seconds = 0.0 if records == 0 else timed.seconds if timed else None
            at_least = bool(timed and timed.at_least and records)
            from_future = bool(timed and timed.from_future and records)
            found.append(Behind(records, seconds, at_least, from_future))
        return worst(found)

"""Where a group is to go on: plan new offsets, without setting them.

A new offset always lies within its log: what points below the start or past the end is moved to
the nearest offset that exists. A time after the last record means the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from ottla.client import arguments
from ottla.client.admin.groups import GroupCalls
from ottla.client.arguments import INT64
from ottla.client.cluster.cluster import together
from ottla.client.errors import BadArgument, ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.client.cluster.view import TopicPartition


class NothingToReset(ClientError):
    """The reset names no partition, or one from which it cannot start."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """This offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """This many records after (if negative, before) the committed offset."""

    records: int


ResetTarget: TypeAlias = Literal["earliest", "latest"] | datetime | ToOffset | ShiftBy


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """A group's offset in a partition before (None: none) and after a reset."""

    topic: str
    partition: int
    before: int | None
    after: int


class ResetCalls(GroupCalls):
    """Plan what `alter_group_offsets` is to do."""

    async def plan_offset_reset(
        self, group: str, to: ResetTarget, topics: Iterable[str] = ()
    ) -> list[OffsetMove]:
        """Where the group would go on in all partitions of these topics.

        Without topics: in the partitions it has offsets for. Give the result to
        `alter_group_offsets` as {(move.topic, move.partition): move.after, ...}.

        >>> from ottla import Admin
        >>> async with Admin("127.0.0.1:9092") as admin:
        ...     await admin.plan_offset_reset("billing", "earliest", ["orders"])
        [OffsetMove(topic='orders', partition=0, before=None, after=0)]
        """
        arguments.text("group", group)
        check_target(to)
        topics = arguments.texts("topics", topics)
        committed = await self._client.retry(lambda: self._committed(group))
        return await self._moves(group, {key: one[0] for key, one in committed.items()}, to, topics)

    async def _moves(
        self,
        group: str,
        committed: Mapping[TopicPartition, int],
        to: ResetTarget,
        topics: Iterable[str],
    ) -> list[OffsetMove]:
        """The plan for a group that is at these offsets."""
        wanted: list[str | tuple[str, int]] = list(topics) or list(committed)
        if not wanted:
            raise NothingToReset(f"group {group!r} has no offsets; name the topics to reset")
        starts, ends = await together(
            self.list_offsets(wanted, at) for at in ("earliest", "latest")
        )
        timed = await self.list_offsets(wanted, to) if isinstance(to, datetime) else {}
        moves = []
        for key, end in ends.items():
            before = committed.get(key)
            if isinstance(to, ShiftBy) and before is None:
                raise NothingToReset(f"group {group!r} has no offset in {key} to shift")
            at_time = timed[key].offset if key in timed else -1
            after = new_offset(to, before or 0, starts[key].offset, end.offset, at_time)
            moves.append(OffsetMove(key.topic, key.partition, before, after))
        return moves


def check_target(to: object) -> None:
    if isinstance(to, ToOffset):
        arguments.whole("to.offset", to.offset, 0, INT64)
    elif isinstance(to, ShiftBy):
        arguments.whole("to.records", to.records, -INT64, INT64)
    elif isinstance(to, str):
        arguments.choice("to", to, ("earliest", "latest"))
    elif not isinstance(to, datetime):
        wanted = '"earliest", "latest", a datetime, ToOffset(...) or ShiftBy(...)'
        raise arguments.wrong_type("to", wanted, to)
    elif to.tzinfo is None:
        raise BadArgument(f"to: the time {to.isoformat()} needs a zone, such as datetime.UTC")


def new_offset(to: ResetTarget, before: int, start: int, end: int, at_time: int) -> int:
    """The target within a log from `start` to `end`; `at_time` is -1 when nothing is that new."""
    if to == "earliest":
        return start
    if to == "latest":
        return end
    if isinstance(to, ToOffset):
        wanted = to.offset
    elif isinstance(to, ShiftBy):
        wanted = before + to.records
    else:
        wanted = end if at_time < 0 else at_time
    return min(max(wanted, start), end)

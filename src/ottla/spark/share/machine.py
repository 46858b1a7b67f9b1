"""The state machine of a share source: held records and pending acknowledgements. No I/O.

Rules:

- An offset has all that a later process needs: the member, the ranges of the batch that ends there,
  and the ghosts. Every process plans the same batch from it.
- Ranges are accepted when their batch is in Spark's commit log, which the next call for an offset
  shows, and once per process. Records whose acceptance the broker refuses have been processed: they
  become ghosts.
- A ghost that is delivered again is accepted at once and never planned. An old ghost does no harm:
  its record was in a committed batch.
- Acquired records wait until they are planned. A record that is delivered twice waits once.
- A batch has no more than `MAX_RANGES` ranges, ghosts included: Spark writes them to its log.
- A process decides the end for a start once.
- An end also carries the place from which to read the verdicts of its batch; the caller provides
  it.

    acquired -> waiting -> held (planned) -> settled: accepted, or a ghost
    acquired -> accepted (it was a ghost)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.spark.errors import BadCheckpoint
from ottla.spark.offsets import from_json as offsets_from_json
from ottla.spark.offsets import to_json as offsets_to_json
from ottla.spark.share.ranges import (
    Spans,
    common,
    from_json,
    minus,
    part,
    pieces,
    plus,
    size,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.spark.backend import Offset
    from ottla.spark.offsets import Offsets

VERSION: Final = 1
MAX_RANGES: Final = 10_000


class ShareOffset(NamedTuple):
    """The end of a batch."""

    group: str
    member: str
    batch: int
    ranges: Spans
    ghosts: Spans
    verdicts: Offsets | None = None
    """Where a topic of verdicts ended when the batch was planned."""

    def to_json(self) -> Offset:
        """The JSON for Spark's checkpoint."""
        found: Offset = {
            "version": VERSION,
            "group": self.group,
            "member": self.member,
            "batch": self.batch,
            "ranges": to_json(self.ranges),
            "ghosts": to_json(self.ghosts),
        }
        if self.verdicts is not None:
            found["verdicts"] = offsets_to_json(self.verdicts)
        return found


def parse_offset(found: Mapping[str, object], group: str) -> ShareOffset:
    """Parse the offset of a checkpoint; it must belong to this group."""
    if found.get("version") != VERSION or found.get("group") != group:
        raise BadCheckpoint(
            f"the checkpoint is not one of share group {group!r}, it holds {str(found)[:100]}; "
            "give the query a checkpointLocation of its own"
        )
    member, batch = found["member"], found["batch"]
    assert isinstance(member, str)
    assert isinstance(batch, int)
    ranges, ghosts = from_json(found["ranges"]), from_json(found["ghosts"])  # type: ignore[arg-type]  # as to_json wrote them
    verdicts = found.get("verdicts")
    if verdicts is not None:
        verdicts = offsets_from_json(verdicts)  # type: ignore[arg-type]  # as to_json wrote them
    return ShareOffset(group, member, batch, ranges, ghosts, verdicts)


def initial_offset(group: str) -> Offset:
    """The initial offset of every query."""
    return ShareOffset(group, "", 0, {}, {}).to_json()


class ShareMachine:
    """The state of one process; `member` is the name if the checkpoint has none."""

    def __init__(self, group: str, member: str) -> None:
        self.member = member
        self.waiting: Spans = {}
        """Acquired records that are in no batch yet."""
        self.held: Spans = {}
        """Records of the running batch while we know that its locks are valid."""
        self.ghosts: Spans = {}
        self.lost_locks = 0
        """Records of batches whose locks were or may have been lost before they were accepted."""
        self._group = group
        self._settled: Offset | None = None
        self._planned: tuple[Offset, Offset] | None = None

    def adopt(self, end: Offset) -> Spans:
        """Take over a batch that another process planned; returns the records to lock."""
        if self._planned is not None or self._settled is not None:
            return {}
        offset = parse_offset(end, self._group)
        self.member = offset.member or self.member
        self.held = offset.ranges
        return self.held

    def to_settle(self, start: Offset) -> Spans:
        """The records to accept after the batch that ended at `start`."""
        if start == self._settled:
            return {}
        offset = parse_offset(start, self._group)
        self.member = offset.member or self.member
        self.ghosts = offset.ghosts
        return offset.ranges

    def settled(self, start: Offset, refused: Spans, *, overdue: bool = False) -> None:
        """Note accepted records; `overdue`: another member may have had them.

        Refusals do not show that: acknowledging records that another member has accepted is not
        refused.
        """
        self._settled = start
        self.held = {}
        owed = parse_offset(start, self._group).ranges
        self.lost_locks += size(owed if overdue else refused)
        self.ghosts = plus(self.ghosts, refused)
        self.waiting = minus(self.waiting, refused)

    def acquired(self, found: Spans) -> Spans:
        """Delivered records to accept at once; the others wait."""
        again = common(found, self.ghosts)
        self.waiting = plus(self.waiting, minus(found, again))
        return again

    def laid(self, ghosts: Spans) -> None:
        """Forget these ghosts."""
        self.ghosts = minus(self.ghosts, ghosts)

    def oldest_ghosts(self) -> Spans:
        """The lowest range of ghosts of each partition; the group's start passes it first."""
        return {place: some[:1] for place, some in self.ghosts.items()}

    def unlocked(self, gone: Spans) -> None:
        """Locks were lost: forget these records."""
        self.waiting = minus(self.waiting, gone)
        self.held = minus(self.held, gone)

    def given_back(self, spans: Spans) -> None:
        """Forget waiting records that were released."""
        self.waiting = minus(self.waiting, spans)

    @property
    def room(self) -> int:
        """How many more ranges a batch may have."""
        return max(1, MAX_RANGES - pieces(self.ghosts))

    def end(self, start: Offset, most: int, verdicts: Offsets | None = None) -> Offset:
        """The end of the batch that begins at `start`, with about `most` records of what waits."""
        if self._planned is not None and self._planned[0] == start:
            return self._planned[1]
        taken = part(self.waiting, most, self.room) if self.waiting else {}
        if not taken:
            return start
        batch = parse_offset(start, self._group).batch + 1
        member, ghosts = self.member, self.ghosts
        end = ShareOffset(self._group, member, batch, taken, ghosts, verdicts).to_json()
        self.waiting = minus(self.waiting, taken)
        self.held = taken
        self._planned = start, end
        return end

"""What a reader sees of a topic: the table's files up to a cut, the log from there to an end. Pure.

Rules:

- The cut is the position of the pinned snapshot, the end is what the log said when it was asked. A
  view does not change; a newer one needs newer inputs.
- A partition that the table does not know is read from the log, from its start.
- What a view names is exact: offsets that neither the table nor the log has raise `TableHasHoles`,
  a log that ends before the cut raises `LogBehindTable`. A caller who accepts losses gets the rest.
- `at` ends the view earlier, at one offset for each partition. A partition that it does not name
  has no rows: an `at` that was taken before partitions were added stays what it was.
- Files are left out only if their statistics say that no row of theirs is wanted. Rows that are not
  wanted may be left in the files of a view: `bounds` and `since`, `until` are for the engine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.errors import BadArgument
from ottla.tables.errors import LogBehindTable, TableHasHoles, TopicReplaced
from ottla.tables.position import load_holes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.tables.format import DataFile, Snapshot

TOPIC_ID: Final = "ottla.topic-id"
HOLES: Final = "ottla.holes"
_DAY: Final = re.compile(r"/_day=(\d{4}-\d\d-\d\d)/[^/]+$")


class OffsetRange(NamedTuple):
    """The offsets of a partition from `first` up to `end`."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Log:
    """The partitions of a topic: where each starts, and its last stable offset."""

    topic_id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Choice:
    """The rows that are wanted; times are of records."""

    at: Mapping[int, int] | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class TableView:
    """What to read; `bounds` are first offsets that are not wanted, None if all rows are."""

    topic: str
    snapshot: int | None
    cut: Mapping[int, int]
    end: Mapping[int, int]
    files: Sequence[DataFile]
    tail: Sequence[OffsetRange]
    bounds: Mapping[int, int] | None = None
    since: datetime | None = None
    until: datetime | None = None
    missing: Sequence[OffsetRange] = field(default=())

    @property
    def tail_offsets(self) -> int:
        """How many offsets the tail has; some may have no record."""
        return sum(one.end - one.first for one in self.tail)


def view(
    topic: str,
    archive: Snapshot | None,
    log: Log | None,
    choice: Choice | None = None,
    *,
    accept_loss: bool = False,
) -> TableView:
    """What a reader of the topic sees. No archive: the log alone; no log: the archive alone."""
    choice = choice or Choice()
    if archive is not None and log is not None:
        _check_same_topic(topic, archive, log)
    cut = {} if archive is None else dict(sorted(archive.position.items()))
    if log is not None:
        cut.update((one, start) for one, start in sorted(log.starts.items()) if one not in cut)
    end = cut if log is None else _ends(topic, cut, log, accept_loss=accept_loss)
    if choice.at is not None:
        end = _ended_at(choice.at, end)
    missing = _missing(archive, log, cut, end)
    if missing and not accept_loss:
        raise TableHasHoles(
            f"the table of {topic!r} has not taken these records, and the log cannot give them: "
            f"{_named(topic, missing)}; accept_loss=True (Spark: failOnDataLoss=false, ottla sql: "
            "--accept-loss) reads what is left"
        )
    starts = {} if log is None else log.starts
    tail = [
        OffsetRange(one, max(cut[one], starts[one]), end[one])
        for one in starts
        if max(cut[one], starts[one]) < end.get(one, 0)
    ]
    bounds = None
    if choice.at is not None and any(end.get(one, 0) < position for one, position in cut.items()):
        bounds = dict(end)
    files = () if archive is None else archive.files
    return TableView(
        topic=topic,
        snapshot=None if archive is None else archive.snapshot,
        cut=cut,
        end=end,
        files=tuple(wanted_files(files, bounds, choice.since, choice.until)),
        tail=tuple(sorted(tail)),
        bounds=bounds,
        since=choice.since,
        until=choice.until,
        missing=tuple(missing),
    )


def wanted_files(
    files: Iterable[DataFile],
    bounds: Mapping[int, int] | None,
    since: datetime | None,
    until: datetime | None,
) -> list[DataFile]:
    """The files that may have rows below the bounds and between the times."""
    first = None if since is None else since.astimezone(UTC).date()
    last = None if until is None else until.astimezone(UTC).date()
    return [
        one
        for one in files
        if _is_within(day_of(one), first, last) and (bounds is None or _is_below(one, bounds))
    ]


def day_of(file: DataFile) -> date | None:
    """The day of all rows of a file, by its directory; None if the directory names none."""
    found = _DAY.search(file.url)
    try:
        return None if found is None else date.fromisoformat(found[1])
    except ValueError:
        return None


def _is_within(day: date | None, first: date | None, last: date | None) -> bool:
    if day is None:
        return True
    return (first is None or day >= first) and (last is None or day <= last)


def _is_below(file: DataFile, bounds: Mapping[int, int]) -> bool:
    if file.offsets is None or file.partitions is None:
        return True
    least, greatest = file.partitions
    highest = max((end for one, end in bounds.items() if least <= one <= greatest), default=0)
    return file.offsets[0] < highest


def _check_same_topic(topic: str, archive: Snapshot, log: Log) -> None:
    belongs_to = archive.properties.get(TOPIC_ID, "")
    if belongs_to != log.topic_id:
        raise TopicReplaced(
            f"the table is of a topic {topic!r} with id {belongs_to or 'unknown'}, and the topic "
            f"has id {log.topic_id}: it was deleted and created again; retire or rename the table"
        )


def _ends(topic: str, cut: Mapping[int, int], log: Log, *, accept_loss: bool) -> dict[int, int]:
    behind = {
        one: position for one, position in cut.items() if log.ends.get(one, position) < position
    }
    if behind and not accept_loss:
        listed = ", ".join(
            f"{topic}-{one} ends at {log.ends[one]}, the table is at {position}"
            for one, position in behind.items()
        )
        raise LogBehindTable(
            f"the log has lost records that the table has: {listed}; tail=False reads the table"
        )
    return {one: max(position, log.ends.get(one, position)) for one, position in cut.items()}


def _ended_at(at: Mapping[int, int], end: Mapping[int, int]) -> dict[int, int]:
    for one, offset in at.items():
        if one not in end:
            raise BadArgument(f"at: partition {one} does not exist; {_listed(end)} do")
        if not 0 <= offset <= end[one]:
            raise BadArgument(
                f"at: offset {offset} of partition {one} is not between 0 and its end, {end[one]}"
            )
    return dict(sorted(at.items()))


def _missing(
    archive: Snapshot | None, log: Log | None, cut: Mapping[int, int], end: Mapping[int, int]
) -> list[OffsetRange]:
    """Offsets before the end that neither the table nor the log has."""
    if archive is None:
        return []
    holes = [
        OffsetRange(one.partition, one.start, one.end)
        for one in load_holes(archive.properties.get(HOLES, "[]"))
    ]
    if log is not None:
        holes += [OffsetRange(one, cut[one], start) for one, start in log.starts.items()]
    clipped = [one._replace(end=min(one.end, end.get(one.partition, 0))) for one in holes]
    return sorted(one for one in clipped if one.first < one.end)


def _named(topic: str, ranges: Iterable[OffsetRange]) -> str:
    return ", ".join(
        f"{topic}-{one.partition} offsets {one.first}..{one.end - 1}" for one in ranges
    )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(one) for one in sorted(numbers)) or "none"


def parse_time(name: str, value: str | datetime) -> datetime:
    """A time; text is ISO 8601, in UTC unless it says otherwise."""
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value.strip())
        except ValueError:
            raise BadArgument(
                f"{name}: {value[:100]!r} is no time; write 2026-11-14 or 2026-11-14T08:30Z"
            ) from None
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    if not isinstance(value, datetime):
        raise BadArgument(f"{name}: expected a time, got {type(value).__name__}")
    if value.tzinfo is None:
        raise BadArgument(
            f"{name}: the time {value.isoformat()} needs a zone, such as datetime.UTC"
        )
    return value


def parse_offsets(name: str, given: Mapping[str, int] | Mapping[int, int]) -> dict[int, int]:
    """Offsets by partition, whose keys may be text as in JSON."""
    found: dict[int, int] = {}
    for key, offset in given.items():
        text = str(key)
        if not text.isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
            raise BadArgument(
                f'{name}: expected offsets by partition like {{"0": 12}}, got {given}'
            )
        found[int(text)] = offset
    if not found:
        raise BadArgument(f'{name}: no partition is named; write {{"0": 12, "1": 7}}')
    return found

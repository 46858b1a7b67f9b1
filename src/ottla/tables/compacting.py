"""Which files to merge, which snapshots to forget, which files nobody names. Pure.

- Files have size classes of factor 8, up to the target. Eight files of one class in one Iceberg
  partition are merged, which makes a file of the next class; so are two or more small ones in a
  partition that has had no new file for an hour. A file from 0.75 of the target on is left. So a
  row is written once for each factor 8 between a commit's file and the target: four times for
  files of 180 KiB.
- Iceberg partitions that are older than the table's retention as a whole leave it.
- Snapshots are kept for a day, at least 10 and at most 100 of them.
- A file that no kept snapshot names is deleted when it is older than the grace: a reader, or a
  commit that is under way, may still use it. Files whose names are not ours are never deleted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ottla.tables.format import DataFile

MIB: Final = 1024 * 1024
FACTOR: Final = 8
"""Files of a class that are merged; the sizes of classes differ by it, too."""
SMALLEST_CLASS: Final = 2 * 1024
"""Files below it are one class: most of such a file is its footer."""
FULL: Final = 0.75
"""Share of the target from which a file is not merged again."""
MOST_INPUTS: Final = 16
SMALL_FILE_BYTES: Final = 8 * MIB
"""Spark takes about 8 ms for a file, whatever it has in it."""
RETENTION: Final = "retention"
"""Why files left the table: readers must not miss their rows."""
HOUR_MS: Final = 3_600_000
QUIET_MS: Final = HOUR_MS
LEAST_SNAPSHOTS: Final = 10
MOST_SNAPSHOTS: Final = 100
EXPIRED_AT_ONCE: Final = 20
"""Expiring rewrites the metadata: it waits until so many snapshots can go."""

_HOURS: Final = {"day(_timestamp)": 24, "hour(_timestamp)": 1}

# Of the worker, and of pyiceberg for this table's metadata.
_OURS: Final = re.compile(
    r"[0-9a-f]{32}-[0-9]+\.parquet"
    r"|(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})-m[0-9]+\.avro"
    r"|snap-[0-9]+-[0-9]+-[0-9a-f-]{36}\.avro"
    r"|[0-9]{5,}-[0-9a-f-]{36}\.metadata\.json"
)


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A kept snapshot: its id and when it was made."""

    id: int
    made_ms: int


def plan_compaction(
    files: Iterable[DataFile], partition: str | None, now_ms: int, target_bytes: int
) -> list[tuple[DataFile, ...]]:
    """Groups of files to merge, each into one file of one Iceberg partition.

    `partition` says how the table is divided. Files that were divided in another way are left.
    """
    by_bucket: dict[int | None, list[DataFile]] = defaultdict(list)
    for file in files:
        is_current = (file.bucket is None) == (partition == "none")
        # Rows without an offset are somebody else's; they are not moved.
        if is_current and file.size < FULL * target_bytes and file.offsets is not None:
            by_bucket[file.bucket].append(file)
    groups = []
    for bucket in sorted(by_bucket, key=lambda one: (one is not None, one)):
        found = by_bucket[bucket]
        is_quiet = all(file.added_ms <= now_ms - QUIET_MS for file in found)
        classes: dict[int, list[DataFile]] = defaultdict(list)
        for file in found:
            classes[0 if is_quiet else size_class(file.size)].append(file)
        least = 2 if is_quiet else FACTOR
        for _, same in sorted(classes.items()):
            groups += _groups(same, least, target_bytes)
    return groups


def _groups(files: list[DataFile], least: int, target_bytes: int) -> list[tuple[DataFile, ...]]:
    """Neighbours by offset, of no more than the target together."""
    groups: list[tuple[DataFile, ...]] = []
    group: list[DataFile] = []
    for file in sorted(files, key=lambda one: (one.offsets or (0, 0), one.url)):
        if group and (
            len(group) == MOST_INPUTS or sum(one.size for one in group) + file.size > target_bytes
        ):
            groups.append(tuple(group))
            group = []
        group.append(file)
    groups.append(tuple(group))
    return [one for one in groups if len(one) >= least]


def plan_retention(
    files: Iterable[DataFile], partition: str | None, now_ms: int, retention_ms: int
) -> list[DataFile]:
    """Files of Iceberg partitions that are older as a whole; none if the time is negative."""
    if retention_ms < 0 or partition is None or partition == "none":
        return []
    oldest = now_ms - retention_ms
    return [
        file
        for file in files
        if file.bucket is not None and _end_ms(file.bucket, partition) <= oldest
    ]


def _end_ms(bucket: int, partition: str) -> int:
    """When an Iceberg partition ends."""
    if partition == "month(_timestamp)":
        year, month = divmod(bucket + 1, 12)
        if not MINYEAR <= 1970 + year <= MAXYEAR:
            return bucket * 31 * 24 * HOUR_MS
        return int(datetime(1970 + year, month + 1, 1, tzinfo=UTC).timestamp()) * 1000
    return (bucket + 1) * _HOURS[partition] * HOUR_MS


def size_class(size: int) -> int:
    """0 below 2 KiB, 1 below 16 KiB, 2 below 128 KiB, 3 below 1 MiB, and so on."""
    found, bound = 0, SMALLEST_CLASS
    while size >= bound:
        found, bound = found + 1, bound * FACTOR
    return found


def plan_expiry(
    snapshots: Iterable[SnapshotInfo], named: Collection[int], now_ms: int, keep_ms: int
) -> list[int]:
    """Snapshots to forget, oldest first; none unless there are enough. Those of refs stay."""
    newest = sorted(snapshots, key=lambda one: (one.made_ms, one.id), reverse=True)
    old = [
        one.id
        for place, one in enumerate(newest)
        if place >= LEAST_SNAPSHOTS
        and one.id not in named
        and (place >= MOST_SNAPSHOTS or one.made_ms < now_ms - keep_ms)
    ]
    return old[::-1] if len(old) >= EXPIRED_AT_ONCE else []


def is_rubbish(
    url: str, modified_ms: int, named: Collection[str], now_ms: int, grace_ms: int
) -> bool:
    """Whether a file in the table's directory may be deleted."""
    return url not in named and modified_ms < now_ms - grace_ms and is_ours(url)


def is_ours(url: str) -> bool:
    """Whether the worker names its files so, or pyiceberg those of a table's metadata."""
    return _OURS.fullmatch(url.rpartition("/")[2]) is not None

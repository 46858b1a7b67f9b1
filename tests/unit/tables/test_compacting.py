"""What upkeep decides: files to merge, snapshots to forget, files to delete."""

from __future__ import annotations

import pytest

from ottla.tables.compacting import (
    MIB,
    QUIET_MS,
    SnapshotInfo,
    is_rubbish,
    plan_compaction,
    plan_expiry,
    plan_retention,
    size_class,
)
from ottla.tables.format import DataFile

TARGET = 256 * MIB
NOW = 10 * QUIET_MS
DAY = "day(_timestamp)"


def file(number: int, size: int = MIB // 2, bucket: int = 0, added: int = NOW) -> DataFile:
    return DataFile(f"f{number}", 10, size, bucket, (0, 0), (number * 10, number * 10 + 9), added)


@pytest.mark.parametrize(
    ("size", "found"), [(0, 0), (2047, 0), (2048, 1), (MIB - 1, 3), (MIB, 4), (64 * MIB, 6)]
)
def test_size_classes_grow_by_eight(size: int, found: int) -> None:
    assert size_class(size) == found


def test_eight_files_of_one_class_and_bucket_are_merged() -> None:
    seven = [file(number) for number in range(7)]
    assert plan_compaction(seven, DAY, NOW, TARGET) == []
    assert plan_compaction([*seven, file(7, bucket=1)], DAY, NOW, TARGET) == []
    assert plan_compaction([*seven, file(7, size=2 * MIB)], DAY, NOW, TARGET) == []
    [group] = plan_compaction([file(7), *seven], DAY, NOW, TARGET)
    assert [one.url for one in group] == [f"f{number}" for number in range(8)]


def test_large_files_and_files_of_others_are_left() -> None:
    large = [file(number, size=200 * MIB) for number in range(9)]
    foreign = [DataFile(f"x{number}", 1, 5, 0, None, None, NOW) for number in range(9)]
    assert plan_compaction([*large, *foreign], DAY, NOW, TARGET) == []


def test_case_61_a_quiet_partition_is_merged_as_a_whole() -> None:
    two = [file(0, added=NOW - QUIET_MS), file(1, size=20 * MIB, added=0)]
    [group] = plan_compaction(two, DAY, NOW, TARGET)
    assert len(group) == 2
    assert plan_compaction([*two, file(2)], DAY, NOW, TARGET) == []
    assert plan_compaction(two[:1], DAY, NOW, TARGET) == []


def test_files_that_were_divided_in_another_way_are_left() -> None:
    older = [DataFile(f"x{number}", 1, 5, None, (0, 0), (0, 9), 0) for number in range(9)]
    assert plan_compaction(older, DAY, NOW, TARGET) == []
    assert len(plan_compaction(older, "none", NOW, TARGET)) == 1
    assert plan_compaction([file(number) for number in range(9)], "none", NOW, TARGET) == []


def test_groups_have_no_more_than_16_files_and_the_target() -> None:
    groups = plan_compaction([file(number) for number in range(40)], DAY, NOW, TARGET)
    assert [len(one) for one in groups] == [16, 16, 8]
    groups = plan_compaction(
        [file(number, size=60 * MIB, added=0) for number in range(8)], DAY, NOW, TARGET
    )
    assert [len(one) for one in groups] == [4, 4]


def test_case_62_a_row_is_written_at_most_four_times() -> None:
    files: list[DataFile] = []
    written = kept = 0
    for number in range(2_000):
        files.append(file(number, size=100_000))
        written += 100_000
        kept += 100_000
        while groups := plan_compaction(files, DAY, NOW, TARGET):
            group = groups[0]
            size = sum(one.size for one in group)
            written += size
            files = [one for one in files if one not in group]
            low = min(one.offsets[0] for one in group if one.offsets)
            high = max(one.offsets[1] for one in group if one.offsets)
            files.append(DataFile(f"m{written}", 1, size, 0, (0, 0), (low, high), NOW))
    assert len(files) < 30
    assert written <= 4 * kept


@pytest.mark.parametrize(
    ("partition", "buckets", "count"),
    [
        (DAY, [0, 8, 9, 10], 3),
        ("hour(_timestamp)", [0, 238, 239, 240], 3),
        ("month(_timestamp)", [-13, -1, 0, 10**6], 2),
    ],
)
def test_case_65_whole_partitions_that_are_older_go(
    partition: str, buckets: list[int], count: int
) -> None:
    hour = 3_600_000
    files = [file(number, bucket=bucket) for number, bucket in enumerate(buckets)]
    now = 13 * 24 * hour
    gone = plan_retention(files, partition, now, 3 * 24 * hour)
    assert [one.bucket for one in gone] == buckets[:count]
    assert plan_retention(files, partition, now, -1) == []
    assert plan_retention(files, "none", now, 0) == []


def test_snapshots_are_forgotten_twenty_at_a_time() -> None:
    day = 24 * 3_600_000
    old = [SnapshotInfo(number, number) for number in range(29)]
    assert plan_expiry(old, {28}, 10 * day, day) == []
    old.append(SnapshotInfo(29, 29))
    assert plan_expiry(old, {29}, 10 * day, day) == list(range(20))
    assert plan_expiry(old, {0, 29}, 10 * day, day) == []
    young = [SnapshotInfo(number, 10 * day) for number in range(120)]
    assert plan_expiry(young, set(), 10 * day, day) == list(range(20))


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("0123456789abcdef0123456789abcdef-0.parquet", True),
        ("00000-0-0123456789.parquet", False),
        ("0b2c5bb1-6f1e-4c33-9f4c-0b1d4c8e2a10-m0.avro", True),
        ("snap-123-0-0b2c5bb1-6f1e-4c33-9f4c-0b1d4c8e2a10.avro", True),
        ("00003-0b2c5bb1-6f1e-4c33-9f4c-0b1d4c8e2a10.metadata.json", True),
        ("README", False),
    ],
)
def test_only_files_of_our_naming_are_deleted(name: str, gone: bool) -> None:
    url = f"file:///w/t/data/{name}"
    assert is_rubbish(url, 99, (), 200, 100) is gone
    assert not is_rubbish(url, 100, (), 200, 100)
    assert not is_rubbish(url, 99, {url}, 200, 100)

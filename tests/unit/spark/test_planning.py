"""Ranges to tasks (case 16)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.log.planning import Range, Split, plan

sizes = st.lists(st.integers(0, 2000), max_size=30)
splits = st.builds(
    Split,
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 500),
    st.integers(1, 3000),
    st.none() | st.integers(1, 20),
)


def ranges(*counts: int) -> list[Range]:
    return [Range("t", b"id", number, 100, 100 + size) for number, size in enumerate(counts)]


@given(sizes, splits)
def test_case_16_every_offset_is_in_exactly_one_task(counts: list[int], split: Split) -> None:
    tasks = plan(ranges(*counts), split)
    read = [(one.partition, at) for task in tasks for one in task for at in range(*one[3:])]
    assert len(read) == len(set(read)) == sum(counts)
    assert all(one.size > 0 for task in tasks for one in task)
    assert all(tasks)


@given(sizes, splits)
def test_case_16_limits_hold(counts: list[int], split: Split) -> None:
    tasks = plan(ranges(*counts), split)
    records = [sum(one.size for one in task) for task in tasks]
    if split.max_records is not None:
        assert max(records, default=0) <= split.max_records
    elif split.max_tasks is not None:
        assert len(tasks) <= max(split.max_tasks, split.min_partitions or 0)
    if split.min_partitions is not None and min(counts, default=0) >= split.min_partitions:
        # Shares are rounded, as they are in Spark's Kafka source.
        assert len(tasks) >= split.min_partitions - len(counts)


def test_case_16_small_partitions_are_packed() -> None:
    tasks = plan(ranges(*[100] * 200), Split())
    assert [len(task) for task in tasks] == [200]
    assert len(plan(ranges(*[100] * 200), Split(task_target=1000))) == 20
    assert len(plan(ranges(*[100] * 200), Split(task_target=1000, max_tasks=4))) == 4


def test_case_16_large_ranges_are_split_as_asked() -> None:
    [task] = plan(ranges(900), Split())
    assert task == (Range("t", b"id", 0, 100, 1000),)
    three = plan(ranges(900), Split(min_partitions=3))
    assert [task[0][3:] for task in three] == [(100, 400), (400, 700), (700, 1000)]
    # The small one stays whole, and the large one has the rest.
    pieces = plan(ranges(10, 990), Split(min_partitions=5))
    assert sorted(sum(one.size for one in task) for task in pieces) == [10, 247, 247, 248, 248]
    assert len(plan(ranges(900), Split(max_records=250))) == 4


def test_pieces_that_meet_again_in_a_task_are_one_range() -> None:
    tasks = plan(ranges(1000), Split(max_records=100, task_target=100))
    assert len(tasks) == 10
    [task] = plan(ranges(10), Split(max_records=5, task_target=5))[:1]
    assert task == (Range("t", b"id", 0, 100, 105),)
    pieces = plan([Range("t", None, 0, 0, 4), Range("t", None, 0, 4, 9)], Split())
    assert pieces == [(Range("t", None, 0, 0, 9),)]

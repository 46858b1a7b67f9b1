"""What the worker counts (case 73), and which topics are of its share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.tables.errors import BadTableSetting
from ottla.tables.format import Hole
from ottla.tables.topics import Shard, parse_shard
from ottla.tables.worker_metrics import WorkerMetrics
from tests.support.clocks import ManualClock


def state(position: dict[int, int], changed_ms: int, *holes: Hole) -> Any:
    return SimpleNamespace(next=position, changed_ms=changed_ms, holes=holes)


def shown(metrics: WorkerMetrics) -> dict[str, float]:
    return {
        sample.name.removeprefix("ottla_table_"): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.labels == {"topic": "orders"}
    }


def test_case_73_each_metric_moves_when_it_should() -> None:
    clock = ManualClock(100_000)
    metrics = WorkerMetrics(clock)
    assert shown(metrics) == {}
    metrics.loaded("orders", state({0: 4}, 40_000), {0: 10, 1: 5})
    first = shown(metrics)
    assert (first["lag_records"], first["lag_seconds"]) == (6, 60)
    assert (first["last_commit_seconds"], first["holes_total"]) == (40, 0)
    metrics.invalid["orders"] += 2
    metrics.small_files["orders"] = 3
    metrics.committed("orders", state({0: 10, 1: 5}, 99_000, Hole(1, 0, 5, "deleted")))
    assert shown(metrics) == {
        "lag_records": 0,
        "lag_seconds": 0,
        "last_commit_seconds": 99,
        "small_files": 3,
        "commits_total": 1,
        "invalid_total": 2,
        "holes_total": 5,
    }


def test_every_topic_is_of_one_share() -> None:
    shards = [Shard(number, 4) for number in range(4)]
    names = [f"topic-{number}" for number in range(200)]
    found = [[one.number for one in shards if one.has(name)] for name in names]
    assert all(len(one) == 1 for one in found)
    assert {one[0] for one in found} == {0, 1, 2, 3}


@pytest.mark.parametrize("text", ["", "4", "4/4", "5/4", "-1/4", "a/b", "0/0", "0/12345", " 0/4"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(BadTableSetting, match="K/N"):
        parse_shard(text)


def test_a_share_is_counted_from_zero() -> None:
    assert parse_shard("3/4") == Shard(3, 4)

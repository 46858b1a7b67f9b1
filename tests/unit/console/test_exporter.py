"""The exporter, its dashboard and its alert rules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.admin.types import ShareGroupOffset
from ottla.client.cluster.view import TopicPartition
from ottla.console import exporter, families
from ottla.console.attention import RULES
from ottla.console.data import Ends
from ottla.console.exporter import Scraped
from ottla.console.snapshot import Kind
from scripts import generate_dashboards
from tests.support.console_source import FakeSource

if TYPE_CHECKING:
    from ottla.console.clusters import Cluster

ROOT = Path(__file__).parents[3]
ORDERS = TopicPartition("orders", 0)


def scraped(cluster: Cluster) -> Scraped:
    return Scraped("local", cluster.look(), cluster.attention(), is_up=True, spent_s=0.5)


def text(cluster: Cluster, scheme: str = "ottla") -> str:
    own = {families.REQUESTS: 7, families.LOGINS: 2, families.STREAMS: 1}
    return "".join(exporter.lines([scraped(cluster)], own, scheme))


def samples(exposition: str) -> dict[str, float]:
    """By name and labels; fails if a line is not what Prometheus reads."""
    found = {}
    line_form = re.compile(
        r'([a-z_]+)((?:\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})?) (-?[0-9.e+-]+|nan)'
    )
    for line in exposition.splitlines():
        if not line.startswith("# "):
            parts = line_form.fullmatch(line)
            assert parts is not None, line
            assert parts[1] + parts[2] not in found, line
            found[parts[1] + parts[2]] = float(parts[3])
    return found


async def shop(group: str = "billing") -> Cluster:
    source = FakeSource()
    source.topic("orders", 2, end=500)
    source.group(group)
    source.offsets[group] = {ORDERS: 100}
    source.group("warehouse", "share")
    source.queues["warehouse"] = [ShareGroupOffset("orders", 1, 450, 50, 7, 3)]
    cluster = source.cluster_of()
    for _ in range(2):
        await cluster.tick()
        await cluster.snapshot.refresh(*Kind)
        source.clock.advance(10_000)
    return cluster


async def test_case_69_names_and_values() -> None:
    exposition = text(await shop())
    found = samples(exposition)
    assert found["ottla_console_requests_total"] == 7
    assert found["ottla_console_logins"] == 2
    here = 'cluster="local"'
    assert found[f"ottla_console_cluster_up{{{here}}}"] == 1
    assert found[f"ottla_console_metrics_cut{{{here}}}"] == 0
    billing = f'{{{here},group="billing",topic="orders",partition="0"}}'
    assert found[f"ottla_group_lag_records{billing}"] == 400
    assert found[f"ottla_group_committed_offset{billing}"] == 100
    assert f'ottla_group_lag_seconds{{{here},group="billing",topic="orders"}}' in found
    warehouse = f'{{{here},group="warehouse",topic="orders",partition="1"}}'
    assert found[f"ottla_share_group_lag_records{warehouse}"] == 50
    assert found[f'ottla_topic_records{{{here},topic="orders"}}'] == 1000
    assert found[f'ottla_partition_end_offset{{{here},topic="orders",partition="1"}}'] == 500
    assert found[f'ottla_console_attention{{{here},word="LAG"}}'] == 0
    for family in families.FAMILIES:
        assert f"# TYPE {family.name} {family.kind}\n" in exposition
        assert (family.kind == "counter") == family.name.endswith("_total")


async def test_case_69_the_names_of_kafka_exporter() -> None:
    found = samples(text(await shop(), "kafka_exporter"))
    labels = '{cluster="local",consumergroup="billing",topic="orders",partition="0"}'
    assert found[f"kafka_consumergroup_lag{labels}"] == 400
    assert found[f"kafka_consumergroup_current_offset{labels}"] == 100
    partition = '{cluster="local",topic="orders",partition="0"}'
    assert found[f"kafka_topic_partition_current_offset{partition}"] == 500
    assert found[f"kafka_topic_partition_oldest_offset{partition}"] == 0
    assert not any(one.startswith("ottla_group_lag_records") for one in found)
    assert any(one.startswith("ottla_group_lag_seconds") for one in found)


async def test_case_69_of_30000_partitions_there_are_sums() -> None:
    source = FakeSource()
    for name in ("a", "b", "c"):
        source.topic(name, 10_000, end=3)
    source.group("billing")
    source.offsets["billing"] = {TopicPartition("a", number): 1 for number in range(10_000)}
    cluster = source.cluster_of()
    await cluster.snapshot.refresh(Kind.CLUSTER, Kind.GROUPS)
    now = source.clock.monotonic_ms()
    cluster.snapshot.keep_ends(dict.fromkeys(source.logs, (0, 3)))
    cluster.snapshot.keep_committed(source.offsets)
    assert cluster.look().data.ends[ORDERS._replace(topic="a")] == Ends(3, now, 0)
    found = samples(text(cluster))
    assert found['ottla_console_metrics_cut{cluster="local"}'] == 1
    assert found['ottla_partition_end_offset{cluster="local",topic="b"}'] == 30_000
    assert found['ottla_group_lag_records{cluster="local",group="billing",topic="a"}'] == 20_000
    assert len(found) < 100


async def test_what_is_not_known_has_no_line() -> None:
    source = FakeSource()
    source.topic("orders", 2, end=5)
    cluster = source.cluster_of()
    found = samples(text(cluster))
    assert not any(one.startswith(("ottla_topic_records", "ottla_group")) for one in found)
    assert 'ottla_console_attention{cluster="local",word="LAG"}' not in found


@pytest.mark.parametrize("group", ['a"b', "a\\b", "a\nb", "ü\u202e", "\ud800", '"} 1\nx{a="'])
async def test_hostile_names_stay_labels(group: str) -> None:
    found = samples(text(await shop(group)))
    assert sum(one.startswith("ottla_group_lag_records") for one in found) == 1


def known_metrics() -> set[str]:
    """Of the console by its table, of the broker by its source."""
    found = {one.name for one in families.FAMILIES}
    form = re.compile(r'(Gauge|Counter|Histogram)MetricFamily\(\s*f?"(ottla_[a-z_]+)"')
    for file in (ROOT / "src/ottla/broker").rglob("*.py"):
        for kind, name in form.findall(file.read_text()):
            found.add(f"{name}_total" if kind == "Counter" else name)
    return found


def test_case_69_queries_of_dashboard_and_alerts_name_metrics_that_exist() -> None:
    known = known_metrics()
    assert "ottla_requests_total" in known
    files = generate_dashboards.files()
    asked = [
        target["expr"]
        for panel in json.loads(files["ottla.json"])["panels"]
        for target in panel.get("targets", ())
    ]
    asked += re.findall(r'expr: "(.*)"', files["alerts.yaml"])
    assert len(asked) > 30
    for query in asked:
        names = re.findall(r"\bottla_[a-z_]+", query)
        assert names, query
        assert set(names) <= known, query


def test_alerts_are_rules_of_the_overview() -> None:
    rules = {(rule, word) for rule, word, _, _ in RULES}
    assert {(one.rule, one.word) for one in generate_dashboards.ALERTS} <= rules
    names = re.findall(r"alert: (\w+)", generate_dashboards.alerts())
    assert len(set(names)) == len(names) == len(generate_dashboards.ALERTS) + 1


def test_the_files_in_the_package_are_what_the_script_writes() -> None:
    for name, written in generate_dashboards.files().items():
        assert (generate_dashboards.HERE / name).read_text() == written, (
            "run python scripts/generate_dashboards.py"
        )

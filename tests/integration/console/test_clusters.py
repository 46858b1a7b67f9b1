"""The console's data against a real broker: lags, refusals, clusters that are away."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, EmbeddedBroker, Producer, Secured
from ottla.client.cluster.view import TopicPartition
from ottla.console.clusters import Cluster, ClusterSettings, first_timestamp
from ottla.console.missing import Missing
from ottla.console.snapshot import Kind
from ottla.console.views import group, groups, nodes, topics
from ottla.console.views.table import Table
from ottla.wire.builder import BatchBuilder
from tests.support.clocks import SteppedClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ORDERS = TopicPartition("orders", 0)
LONG_AGO = 1_600_000_000_000


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        async with Producer(broker.bootstrap) as producer:
            for number in range(5):
                await producer.send("orders", b"v", timestamp_ms=LONG_AGO + 1_000 * number)
        async with Admin(broker.bootstrap) as admin:
            await admin.alter_group_offsets("billing", {ORDERS: 2})
        cluster = Cluster(ClusterSettings("local", broker.bootstrap), clock=SteppedClock())
        yield cluster
        await cluster.close()


async def lag(cluster: Cluster) -> tuple[int | None, float | None, bool]:
    await cluster.snapshot.refresh_stamps("billing")
    page = group.page(cluster.look(), cluster.attention(), "billing")
    assert isinstance(page.partitions, Table)
    [row] = page.partitions.rows
    return row.lag_records, row.lag_s, row.exact


async def test_case_46_the_lag_equals_a_computation_from_the_log(cluster: Cluster) -> None:
    await cluster.tick()
    records, seconds, is_exact = await lag(cluster)
    now = cluster.look().now.wall_ms
    assert (records, is_exact) == (3, True)
    assert seconds is not None
    assert now - 60_000 < LONG_AGO + 2_000 + seconds * 1000 <= now


async def test_case_46_with_an_idle_producer_the_seconds_grow(cluster: Cluster) -> None:
    clock = cluster.sampler._clock
    assert isinstance(clock, SteppedClock)
    await cluster.tick()
    _, before, _ = await lag(cluster)
    clock.step(3_600_000)
    _, after, _ = await lag(cluster)
    assert before is not None
    assert after is not None
    assert 3_600 <= after - before < 3_660


def test_the_first_record_at_or_after_an_offset() -> None:
    builder = BatchBuilder()
    for number in range(5):
        builder.append(b"v", timestamp=100 + number)
    batch = builder.build()
    assert [first_timestamp(batch, at) for at in (0, 3, 4, 5)] == [100, 103, 104, None]
    assert first_timestamp(batch[:-1], 0) is None
    assert first_timestamp(b"\xff" * 100, 0) is None


async def test_case_19_what_acls_refuse_is_said_in_place_of_the_figure() -> None:
    secured = Secured(
        users={"root": "r-secret", "eve": "e-secret"},
        super_users=["root"],
        acls=["allow eve describe topic:orders"],
        protocol="SASL_PLAINTEXT",
    )
    async with EmbeddedBroker(security=secured) as broker:
        broker.create_topic("orders")
        broker.create_topic("secret")
        async with Admin(broker.bootstrap, security=broker.security("root")) as admin:
            await admin.alter_group_offsets("billing", {ORDERS: 0})
        settings = ClusterSettings("local", broker.bootstrap, broker.security("eve"))
        assert "e-secret" not in repr(settings)
        cluster = Cluster(settings)
        try:
            cluster.snapshot.want(*Kind)
            await cluster.tick()
            await cluster.snapshot.refresh_group("billing")
            look, rules = cluster.look(), cluster.attention()
            assert set(look.data.topics) == {"orders"}
            reason = "not allowed: needs Describe on the cluster"
            [row] = topics.rows(look, list(look.data.topics.values()))
            assert row.size_bytes == Missing(reason)
            assert look.data.nodes.value == Missing(reason)
            assert not isinstance(nodes.page(look, rules).nodes, Missing), "by its metadata"
            listed = groups.page(look, rules).groups
            assert not isinstance(listed, Missing)
            assert listed.rows == ()
            of_group = group.page(look, rules, "billing")
            assert of_group.members == Missing("not allowed: needs Describe on group 'billing'")
            assert look.data.away_since_ms is None
        finally:
            await cluster.close()


async def test_case_10_a_cluster_that_cannot_be_reached_says_since_when(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.console.clusters.API_TIMEOUT", 0.3)
    cluster = Cluster(ClusterSettings("away", "127.0.0.1:1"))
    try:
        await cluster.tick()
        page = topics.page(cluster.look(), cluster.attention())
        assert page.frame.away_s is not None
        assert "127.0.0.1:1" in page.frame.away_reason
        assert isinstance(page.topics, Missing)
        assert page.frame.attention == 1
    finally:
        await cluster.close()


def test_nothing_of_the_web_is_loaded() -> None:
    """`ottla top` needs no extra; in another process, since tests load everything."""
    code = (
        "import sys, ottla.cli.top_screen, ottla.console.clusters, ottla.console.views.queue;"
        "print([m for m in ('starlette', 'uvicorn', 'jinja2', 'msgspec', 'pyarrow', 'numpy',"
        " 'ottla.broker', 'ottla.log') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"

"""The console's data and `ottla top` against Apache Kafka."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ottla import Admin, Producer, ShareConsumer
from ottla.cli.top_state import VIEWS
from ottla.cli.whole import app
from ottla.client.cluster.view import TopicPartition
from ottla.console import window as w
from ottla.console.clusters import Cluster, ClusterSettings
from ottla.console.missing import Missing
from ottla.console.views import group, queues
from ottla.console.views.table import Table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ottla.client.share.types import AckKind

TOPIC, GROUP, QUEUE = "console-orders", "console-billing", "console-warehouse"
KEY = TopicPartition(TOPIC, 0)
LONG_AGO = 1_600_000_000_000


@pytest.fixture
async def shop(apache_bootstrap: str) -> AsyncIterator[str]:
    """Five records; a group that has taken two of them, and a queue at its beginning."""
    async with Admin(apache_bootstrap) as admin:
        await admin.create_topic(TOPIC, 1)
        async with Producer(apache_bootstrap) as producer:
            for number in range(5):
                await producer.send(TOPIC, b"v", timestamp_ms=LONG_AGO + 1_000 * number)
        await admin.alter_group_offsets(GROUP, {KEY: 2})
        await admin.alter_share_group_offsets(QUEUE, {KEY: 1})
        yield apache_bootstrap
        await admin.delete_groups([GROUP, QUEUE])
        await admin.delete_topic(TOPIC)


async def test_case_46_the_lag_equals_a_computation_from_the_log(shop: str) -> None:
    cluster = Cluster(ClusterSettings("local", shop))
    try:
        await cluster.tick()
        await cluster.snapshot.refresh_group(GROUP)
        await cluster.snapshot.refresh_stamps(GROUP)
        await cluster.snapshot.refresh_queue(QUEUE)
        await cluster.snapshot.refresh_windows(QUEUE)
        look, rules = cluster.look(), cluster.attention()
        page = group.page(look, rules, GROUP)
        assert isinstance(page.partitions, Table)
        [row] = page.partitions.rows
        assert (row.committed, row.end, row.lag_records, row.exact) == (2, 5, 3, True)
        assert row.lag_s is not None
        assert look.now.wall_ms - 60_000 < LONG_AGO + 2_000 + row.lag_s * 1000 <= look.now.wall_ms
        listed = queues.page(look, rules).queues
        assert isinstance(listed, Table)
        [queue] = [one for one in listed.rows if one.name == QUEUE]
        assert (queue.lag_records, queue.in_flight) == (4, None), "Kafka tells no records in flight"
        windows = look.data.windows[QUEUE].value
        assert not isinstance(windows, Missing)
        [window] = windows
        assert (window.start, window.end, window.log_end) == (1, 1, 5)
    finally:
        await cluster.close()


async def test_case_53_the_stored_half_of_a_window(shop: str) -> None:
    async with ShareConsumer(shop, group=QUEUE, topics=[TOPIC], ack_mode="explicit") as member:
        found = await member.poll(60.0)
        assert [record.offset for record in found] == [1, 2, 3, 4]
        kinds: list[AckKind] = ["release", "accept", "reject", "accept"]
        for record, kind in zip(found, kinds, strict=True):
            member.acknowledge(record, kind)
        await member.commit()
        cluster = Cluster(ClusterSettings("local", shop))
        try:
            await cluster.tick()
            for _ in range(2):  # the second look reads what is new only
                await cluster.snapshot.refresh_windows(QUEUE, 0)
            windows = cluster.look().data.windows[QUEUE].value
        finally:
            await cluster.close()
    assert not isinstance(windows, Missing)
    [window] = windows
    assert (window.source, window.start, window.end, window.cut) == ("state topic", 1, 5, False)
    states = [one.state for one in w.columns(window, 4)]
    assert states == [
        w.State.AGAIN,
        w.State.ACKNOWLEDGED,
        w.State.ARCHIVED,
        w.State.ACKNOWLEDGED,
    ]


async def test_case_70_every_view_of_top(shop: str) -> None:
    def shown(view: str) -> Any:
        words = ["top", view, "--once", "--json", "--interval", "0.1", "--bootstrap", shop]
        result = CliRunner().invoke(app, words)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return json.loads(result.stdout)

    # In a thread: each command runs an event loop of its own.
    found = {view: await asyncio.to_thread(shown, view) for view in VIEWS}
    assert TOPIC in {row["name"] for row in found["topics"]["topics"]["rows"]}
    assert GROUP in {row["name"] for row in found["groups"]["groups"]["rows"]}
    assert QUEUE in {row["name"] for row in found["queues"]["queues"]["rows"]}
    [node] = found["overview"]["nodes"]
    assert node["free_bytes"] > 0

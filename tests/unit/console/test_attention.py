"""Rules of what needs attention: brokers, transactions, nodes."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from ottla.client.admin.types import NodeDescription, NodeState, TransactionDescription
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import BrokerUnreachable
from ottla.console.attention import attention
from ottla.console.snapshot import Kind
from tests.support.console_source import BROKER, FakeSource


async def found(source: FakeSource, minutes: int = 0) -> list[tuple[str, tuple[str, ...]]]:
    """Words and pages of the findings after this time."""
    cluster = source.cluster_of()
    for tick in range(6 * minutes + 1):
        if tick:
            source.clock.advance(10_000)
        cluster.snapshot.want(*Kind)
        await cluster.tick()
    return [(one.word, one.page) for one in attention(cluster.look()).findings]


async def test_rule_a1_no_broker_answers() -> None:
    source = FakeSource()
    source.topic("orders")
    cluster = source.cluster_of()
    cluster.snapshot.want(*Kind)
    await cluster.tick()
    assert attention(cluster.look()).findings == ()
    source.fails["*"] = BrokerUnreachable("refused")
    source.clock.advance(60_000)
    cluster.snapshot.want(*Kind)
    with contextlib.suppress(BrokerUnreachable):
        await cluster.tick()
    assert "DOWN" in {one.word for one in attention(cluster.look()).findings}


async def test_rule_a10_a_transaction_that_is_open_for_long_leads_to_its_page() -> None:
    source = FakeSource()
    source.topic("orders")
    began = source.clock.wall_ms() - 59_000
    held = [TopicPartition("orders", 0)]
    one = TransactionDescription("billing/1", 1, "Ongoing", 7, 0, 60_000, began, held)
    source.open_transactions = [one]
    assert await found(source) == []
    source.open_transactions = [replace(one, start_time_ms=began - 2_000)]
    assert await found(source) == [("TXN", ("transactions", "billing/1"))]
    source.open_transactions = [replace(one, state="CompleteCommit", start_time_ms=0)]
    assert await found(source) == []


async def test_rule_a13_a_node_that_drains_for_long() -> None:
    source = FakeSource()
    source.topic("orders")
    source.described_nodes = [NodeDescription(BROKER, NodeState.DRAINING, 0)]
    assert await found(source, minutes=2) == []
    assert await found(source, minutes=7) == [("NODE", ("nodes",))]

"""Snapshot, sampler and views against a cluster of values: ages, budgets, refusals."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ottla.client.admin.types import GroupListing, ShareGroupOffset, ShareWindow, ShareWindowRun
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import BrokerUnreachable, ClientError, UnsupportedApi, kafka_error
from ottla.console.attention import attention
from ottla.console.budget import LEAST_GROUPS, LEAST_PARTITIONS, MOST_GROUPS, MOST_PARTITIONS
from ottla.console.data import LogDir
from ottla.console.missing import Missing
from ottla.console.snapshot import Kind
from ottla.console.views import group, groups, nodes, overview, queue, queues, topic, topics
from ottla.console.views.lags import LagView
from ottla.console.views.table import Query, Table
from ottla.wire.error_codes import ErrorCode
from tests.support.console_source import FakeSource, topic_of

ORDERS = TopicPartition("orders", 0)


def shop() -> FakeSource:
    """A topic, a group that is 400 behind, and a queue."""
    source = FakeSource()
    source.topic("orders", 2, end=500)
    source.group("billing")
    source.offsets["billing"] = {ORDERS: 100}
    source.group("warehouse", "share")
    source.queues["warehouse"] = [ShareGroupOffset("orders", 1, 450, 50, 7, 3)]
    return source


async def test_case_13_at_most_200_groups_and_2000_partitions_a_tick() -> None:
    source = FakeSource()
    source.topic("orders", 10_000)
    for number in range(1_000):
        source.group(f"g{number:04}", state="Empty")
        source.offsets[f"g{number:04}"] = {TopicPartition("orders", number): 5}
    source.logs = dict.fromkeys(source.logs, (0, 7))
    cluster = source.cluster_of()
    for _ in range(5):
        source.asked.clear()
        await cluster.tick()
        asked = {what: 0 for what, _ in source.asked}
        for what, things in source.asked:
            asked[what] += things
        assert asked["committed"] <= MOST_GROUPS
        assert asked["ends"] <= MOST_PARTITIONS
        source.clock.advance(10_000)
    assert len(cluster.look().data.committed) == 1_000
    assert len(cluster.look().data.ends) == 10_000, "each within 50 s"
    page = groups.page(cluster.look(), cluster.attention(), Query(sort="name", page=3))
    assert isinstance(page.groups, Table)
    assert (page.groups.total, page.groups.first, page.groups.pages) == (1_000, 101, 20)
    assert page.groups.rows[0].name == "g0100"
    assert page.groups.rows[0].lag_records == 2


async def test_case_14_a_cluster_that_takes_2_s_is_asked_for_the_floor() -> None:
    source = FakeSource()
    source.topic("orders", 5_000)
    for number in range(300):
        source.group(f"g{number}")
    source.slow_ms = 2_000
    cluster = source.cluster_of()
    for _ in range(8):
        await cluster.tick()
    assert cluster.sampler.budget.partitions == LEAST_PARTITIONS
    assert cluster.sampler.budget.groups == LEAST_GROUPS
    page = topics.page(cluster.look(), cluster.attention())
    assert page.frame.age_s is not None
    assert page.frame.age_s > 0, "the age is shown"
    assert isinstance(page.topics, Table)
    assert page.topics.rows[0].partitions == 5_000


async def test_what_somebody_looks_at_comes_first() -> None:
    source = FakeSource()
    source.topic("many", 5_000)
    source.topic("orders", 3)
    source.slow_ms = 2_000
    cluster = source.cluster_of()
    for _ in range(8):
        cluster.sampler.watch(cluster.look().data.partitions("orders"))
        await cluster.tick()
    now = source.clock.monotonic_ms()
    for key in cluster.look().data.partitions("orders"):
        assert now - cluster.look().data.ends[key].at_ms < 20_000


async def test_what_is_looked_at_before_the_first_answer_is_asked_for() -> None:
    source = FakeSource()
    source.topic("orders")  # without a byte, so that nobody else asks for it
    cluster = source.cluster_of()
    cluster.snapshot.want(Kind.LOG_DIRS)
    cluster.sampler.watch([ORDERS])
    await cluster.tick()
    assert ORDERS in cluster.look().data.ends
    source.clock.advance(10_000)
    await cluster.tick()
    assert cluster.look().rate("topic", "orders", "records_per_s") == 0


async def test_rates_come_from_two_samples_of_the_same_partition() -> None:
    source = shop()
    cluster = source.cluster_of()
    await cluster.tick()
    assert overview.page(cluster.look(), cluster.attention()).in_per_s is None
    source.clock.advance(10_000)
    source.logs[ORDERS] = (0, 1_500)
    source.offsets["billing"] = {ORDERS: 600}
    await cluster.tick()
    page = overview.page(cluster.look(), cluster.attention())
    assert page.in_per_s == 100.0
    assert page.taken_per_s == 50.0
    assert page.busiest_topics[0].records_per_s == 100.0
    source.clock.advance(10_000)
    source.logs[ORDERS] = (0, 3)  # recreated
    await cluster.tick()
    assert (cluster.look().rate("topic", "orders", "records_per_s") or 0) >= 0


async def test_lag_in_records_and_seconds_from_samples() -> None:
    source = shop()
    cluster = source.cluster_of()
    for _ in range(6):
        await cluster.tick()
        source.clock.advance(10_000)
        source.logs[ORDERS] = (0, source.logs[ORDERS][1] + 100)
    page = groups.page(cluster.look(), cluster.attention())
    assert isinstance(page.groups, Table)
    [row] = page.groups.rows
    assert isinstance(row.lag, LagView)
    assert row.lag.records == 900
    assert row.lag.at_least, "record 100 came before the first sample"
    assert row.lag.seconds == 60.0
    assert row.lag.trend == "growing"


async def test_case_47_in_detail_the_seconds_are_exact() -> None:
    source = shop()
    source.written_ms[ORDERS, 100] = source.clock.wall_ms() - 3_600_000
    source.written_ms[TopicPartition("orders", 1), 450] = source.clock.wall_ms() + 5_000
    cluster = source.cluster_of()
    await cluster.tick()
    await cluster.snapshot.refresh_stamps("billing")
    await cluster.snapshot.refresh_stamps("warehouse")
    page = group.page(cluster.look(), cluster.attention(), "billing")
    assert isinstance(page.partitions, Table)
    [row] = page.partitions.rows
    assert (row.lag_s, row.exact) == (3_600.0, True)
    assert row.lag is not None
    assert not row.lag.at_least
    found = cluster.look().queue_behind("warehouse")
    assert found is not None
    assert not isinstance(found, Missing)
    assert (found.seconds, found.from_future) == (0.0, True)
    source.asked.clear()
    await cluster.snapshot.refresh_stamps("billing")
    assert not source.asked, "a record's time never changes"


async def test_case_17_another_cluster_under_the_name() -> None:
    source = shop()
    cluster = source.cluster_of()
    for _ in range(3):
        await cluster.tick()
        source.clock.advance(10_000)
        source.logs[ORDERS] = (0, source.logs[ORDERS][1] + 100)
    first = cluster.look().history
    assert first.last(("topic", "orders", "records_per_s"), source.clock.monotonic_ms())
    source.id = "cluster-b"
    source.topics_by_name = {"orders": topic_of("orders", 1)}
    await cluster.tick()
    look = cluster.look()
    assert look.history is not first, "its history is kept apart"
    assert look.rate("topic", "orders", "records_per_s") is None
    page = overview.page(look, cluster.attention())
    assert (page.frame.cluster_id, page.frame.replaced_id) == ("cluster-b", "cluster-a")
    source.clock.advance(10_000)
    source.id = "cluster-a"
    await cluster.tick()
    assert cluster.look().history is first


async def test_case_19_a_refusal_is_never_a_zero() -> None:
    source = shop()
    denied = kafka_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, "read")
    source.offsets["billing"] = denied
    source.fails["log_dirs"] = kafka_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "describe")
    cluster = source.cluster_of()
    cluster.snapshot.want(Kind.LOG_DIRS)
    await cluster.tick()
    look, rules = cluster.look(), cluster.attention()
    page = groups.page(look, rules)
    assert isinstance(page.groups, Table)
    reason = "not allowed: needs Describe on group 'billing'"
    assert page.groups.rows[0].lag == Missing(reason)
    assert page.groups.rows[0].lag_records is None
    assert group.page(look, rules, "billing").partitions == Missing(reason)
    [listed] = topics.rows(look, [look.data.topics["orders"]])
    assert listed.size_bytes == Missing("not allowed: needs Describe on the cluster")
    assert [one.rule for one in rules.not_checked if one.word == "DISK"] == ["A3"]
    assert look.data.away_since_ms is None, "a refusal is an answer"


async def test_case_19_groups_that_may_not_be_listed() -> None:
    source = shop()
    source.fails["groups"] = kafka_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "list")
    cluster = source.cluster_of()
    await cluster.tick()
    page = overview.page(cluster.look(), cluster.attention())
    assert isinstance(page.groups, Missing)
    assert page.topics == 1
    assert isinstance(groups.page(cluster.look(), cluster.attention()).groups, Missing)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnsupportedApi("no"), "only Ottla tells who holds which record of a queue"),
        (
            kafka_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "read"),
            "not allowed: needs Read on topic '__share_group_state'",
        ),
        (
            kafka_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, "read"),
            "not allowed: needs Describe on group 'warehouse'",
        ),
    ],
)
async def test_case_19_why_there_is_no_window(error: ClientError, reason: str) -> None:
    source = shop()
    source.fails["windows"] = error
    cluster = source.cluster_of()
    await cluster.tick()
    await cluster.snapshot.refresh_windows("warehouse")
    page = queue.page(cluster.look(), cluster.attention(), "warehouse")
    assert page.windows_missing == reason


async def test_case_15_a_broker_that_is_away_leaves_the_last_data() -> None:
    source = shop()
    cluster = source.cluster_of()
    await cluster.tick()
    source.clock.advance(60_000)
    source.fails["*"] = BrokerUnreachable("cannot connect to 127.0.0.1:9092")
    await cluster.tick()
    asked = len(source.asked)
    for _ in range(10):
        source.clock.advance(50)
        await cluster.tick()
    assert len(source.asked) - asked <= 5, "at most a try a second of each kind"
    source.clock.advance(5_000)
    page = overview.page(cluster.look(), cluster.attention())
    assert page.topics == 1
    assert page.frame.away_s is not None
    assert page.frame.away_s >= 5
    assert page.findings[0].word == "DOWN"
    source.fails.clear()
    await cluster.tick()
    source.clock.advance(1_000)
    assert overview.page(cluster.look(), cluster.attention()).frame.away_s is None


async def test_concurrent_askers_share_one_request() -> None:
    source = shop()
    cluster = source.cluster_of()
    await asyncio.gather(*(cluster.snapshot.refresh(Kind.CLUSTER) for _ in range(10)))
    assert source.asked.count(("cluster", 1)) == 1
    await cluster.snapshot.refresh(Kind.CLUSTER)
    assert source.asked.count(("cluster", 1)) == 1, "it is not old yet"
    source.clock.advance(10_000)
    await cluster.snapshot.refresh(Kind.CLUSTER)
    assert source.asked.count(("cluster", 1)) == 2


async def test_a_kind_that_nobody_wants_is_not_asked_for() -> None:
    source = shop()
    cluster = source.cluster_of()
    cluster.snapshot.want(Kind.NODES)
    await cluster.tick()
    source.clock.advance(61_000)
    source.asked.clear()
    await cluster.tick()
    assert ("nodes", 1) not in source.asked


async def test_case_49_groups_of_all_types_in_one_list() -> None:
    source = FakeSource()
    source.listed = [
        GroupListing("c", "consumer", "Stable", "classic"),
        GroupListing("connect", "connect", "Stable", "classic"),
        GroupListing("k", "consumer", "Assigning", "consumer"),
        GroupListing("q", "share", "Stable", "share"),
        GroupListing("s", "streams", "NotReady", "streams"),
        GroupListing("x", "?", "?", "from-the-future"),
        GroupListing("old", "consumer", "", ""),
    ]
    cluster = source.cluster_of()
    await cluster.tick()
    page = groups.page(cluster.look(), cluster.attention(), Query(sort="name"))
    assert isinstance(page.groups, Table)
    assert {row.name: row.kind for row in page.groups.rows} == {
        "c": "classic",
        "connect": "classic (connect)",
        "k": "consumer (KIP-848)",
        "old": "classic",
        "s": "streams",
        "x": "from-the-future (unknown type)",
    }
    listed = queues.page(cluster.look(), cluster.attention()).queues
    assert isinstance(listed, Table)
    assert [row.name for row in listed.rows] == ["q"]


async def test_a_deleted_topic_is_forgotten_and_its_page_says_so() -> None:
    source = shop()
    cluster = source.cluster_of()
    await cluster.tick()
    del source.topics_by_name["orders"]
    source.clock.advance(10_000)
    await cluster.tick()
    assert not cluster.look().data.ends
    assert not cluster.sampler.samples
    assert not topic.page(cluster.look(), cluster.attention(), "orders").found
    assert not group.page(cluster.look(), cluster.attention(), "no-such").found


async def test_pages_of_one_topic_group_and_queue() -> None:
    source = shop()
    held = [ShareWindowRun(450, 459, 1, 1, 0, 20_000), ShareWindowRun(460, 499, 0)]
    window = ShareWindow("orders", 1, 450, 500, 500, held, ("m-1",), 2_000, 5, 30_000)
    source.held["warehouse"] = [window]
    size = {ORDERS: 1 << 20, TopicPartition("orders", 1): 5}
    source.dirs = [LogDir(1, "/data", 100 << 30, 50 << 30, size)]
    cluster = source.cluster_of()
    cluster.snapshot.want(*Kind)
    await cluster.tick()
    await cluster.snapshot.refresh_group("billing")
    await cluster.snapshot.refresh_queue("warehouse")
    await cluster.snapshot.refresh_windows("warehouse")
    look, rules = cluster.look(), cluster.attention()
    of_topic = topic.page(look, rules, "orders")
    assert of_topic.partitions is not None
    assert [one.size_bytes for one in of_topic.partitions.rows] == [1 << 20, 5]
    assert {one.name for one in of_topic.readers} == {"billing", "warehouse"}
    of_group = group.page(look, rules, "billing")
    assert isinstance(of_group.partitions, Table)
    [row] = of_group.partitions.rows
    assert (row.committed, row.end, row.lag_records) == (100, 500, 400)
    assert row.member == "client /10.0.0.5"
    of_queue = queue.page(look, rules, "warehouse")
    assert isinstance(of_queue.partitions, tuple)
    assert of_queue.partitions[0].window is not None
    assert of_queue.partitions[0].window.in_flight == 10
    of_window = queue.window_page(look, rules, "warehouse", "orders", 1)
    assert [one.holder for one in of_window.runs] == ["m-1", ""]
    assert of_window.holders == (("m-1", 10),)
    other = queue.window_page(look, rules, "warehouse", "orders", 0)
    assert isinstance(other.window, Missing)
    assert not isinstance(nodes.page(look, rules).nodes, Missing)


# -- what needs attention -------------------------------------------------------------------------


async def words(source: FakeSource, minutes: int = 0) -> set[str]:
    cluster = source.cluster_of()
    cluster.snapshot.want(*Kind)
    await cluster.tick()
    for _ in range(6 * minutes):
        source.clock.advance(10_000)
        cluster.snapshot.want(*Kind)
        await cluster.tick()
    if "warehouse" in source.held:
        await cluster.snapshot.refresh_windows("warehouse")
    return {one.word for one in attention(cluster.look()).findings}


async def test_nothing_needs_attention_and_what_was_checked_is_listed() -> None:
    cluster = shop().cluster_of()
    await cluster.tick()
    found = cluster.attention()
    assert found.findings == ()
    assert "every partition has a leader, every log directory is online" in found.checked
    assert {one.word for one in found.not_checked} == {
        *("DISK", "TXN", "NODE", "LETTERS", "TABLE", "CERT")
    }


async def test_rule_a2_offline() -> None:
    source = shop()
    source.topics_by_name["orders"] = topic_of("orders", 2, leader=-1)
    assert await words(source) == {"OFFLINE"}
    source = shop()
    source.dirs = [LogDir(1, "/data", None, None, {}, "KAFKA_STORAGE_ERROR")]
    assert await words(source) == {"OFFLINE"}


async def test_rule_a3_disk() -> None:
    source = shop()
    source.dirs = [LogDir(1, "/data", 100 << 30, 5 << 30, {})]
    assert await words(source) == {"DISK"}
    source.dirs = [LogDir(1, "/data", 100 << 30, 50 << 30, {})]
    assert await words(source) == set()


async def test_rule_a4_lag_that_grows_for_ten_minutes() -> None:
    source = shop()
    cluster = source.cluster_of()
    for _ in range(70):
        await cluster.tick()
        source.clock.advance(10_000)
        source.logs[ORDERS] = (0, source.logs[ORDERS][1] + 100)
    assert {one.word for one in attention(cluster.look()).findings} == {"LAG"}


async def test_rule_a5_idle_and_lost() -> None:
    source = shop()
    source.listed[0] = replace(source.listed[0], state="Empty")
    assert await words(source, minutes=2) == set()
    assert await words(source, minutes=6) == {"IDLE"}
    source.logs[ORDERS] = (300, 500)
    assert "LOST" in await words(source)


async def test_rule_a6_rebalancing() -> None:
    source = shop()
    source.listed[0] = replace(source.listed[0], state="PreparingRebalance")
    assert await words(source) == set()
    assert await words(source, minutes=2) == {"REBALANCING"}


async def test_case_51_rules_a7_and_a8_of_queues() -> None:
    source = shop()
    held = [ShareWindowRun(450, 450, 1, 5, 0, 20_000), ShareWindowRun(451, 549, 2)]
    window = ShareWindow("orders", 1, 450, 550, 900, held, ("m-1",), 100, 5, 30_000, 240_000)
    source.held["warehouse"] = [window]
    assert await words(source) == {"STALLED", "LAST TRY"}
    source.held["warehouse"] = [replace(window, runs=[ShareWindowRun(450, 549, 0)], stalled_ms=0)]
    assert await words(source) == set()


@pytest.mark.parametrize("hostile", ["\u202egroup", "<b>", "a\x1b[2J"])
async def test_case_20_names_in_findings_are_visible(hostile: str) -> None:
    source = shop()
    source.listed[0] = replace(source.listed[0], id=hostile, state="PreparingRebalance")
    cluster = source.cluster_of()
    for _ in range(12):
        await cluster.tick()
        source.clock.advance(10_000)
    [found] = attention(cluster.look()).findings
    assert "\u202e" not in found.text
    assert "\x1b" not in found.text
    assert found.page == ("groups", hostile)


async def test_those_who_look_at_one_moment_share_it() -> None:
    source = shop()
    cluster = source.cluster_of()
    await cluster.tick()
    first = cluster.look()
    assert cluster.look() is first
    source.clock.advance(100)
    second = cluster.look()
    assert second is not first
    assert second.now.ms == first.now.ms + 100
    await cluster.snapshot.refresh(Kind.NODES)
    assert cluster.look().data is cluster.snapshot.data


async def test_case_12_ten_thousand_partitions_in_pages_of_50() -> None:
    source = FakeSource()
    source.topic("many", 10_000)
    cluster = source.cluster_of()
    await cluster.tick()
    look, rules = cluster.look(), cluster.attention()
    first = topic.page(look, rules, "many").partitions
    assert first is not None
    assert (len(first.rows), first.total, first.pages) == (50, 10_000, 200)
    assert [one.partition for one in first.rows] == list(range(50))
    found = topic.page(look, rules, "many", Query(contains="9999")).partitions
    assert found is not None
    assert [one.partition for one in found.rows] == [9_999]


async def test_case_16_another_cluster_with_other_topics_comes_back() -> None:
    source = shop()
    cluster = source.cluster_of()
    await cluster.tick()
    source.fails["*"] = BrokerUnreachable("cannot connect to 127.0.0.1:9092")
    source.clock.advance(10_000)
    await cluster.tick()
    assert topic.page(cluster.look(), cluster.attention(), "orders").found, "the last data stays"
    source.fails.clear()
    del source.topics_by_name["orders"]
    source.topic("payments")
    source.clock.advance(10_000)
    await cluster.tick()
    page = topics.page(cluster.look(), cluster.attention())
    assert page.frame.away_s is None
    assert isinstance(page.topics, Table)
    assert [one.name for one in page.topics.rows] == ["payments"]
    assert not topic.page(cluster.look(), cluster.attention(), "orders").found


async def test_case_52_a_window_is_asked_for_once_a_second() -> None:
    source = shop()
    cluster = source.cluster_of()
    await cluster.tick()
    for _ in range(40):
        await asyncio.gather(*(cluster.snapshot.refresh_windows("warehouse") for _ in range(3)))
        source.clock.advance(100)
    assert source.asked.count(("windows", 1)) == 4


async def test_case_52_those_who_look_share_the_request_that_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = shop()
    cluster = source.cluster_of()
    await cluster.tick()
    may_answer, asked = asyncio.Event(), 0

    async def slow(_: str) -> list[ShareWindow]:
        nonlocal asked
        asked += 1
        await may_answer.wait()
        return []

    monkeypatch.setattr(source, "windows", slow)
    looks = []
    for _ in range(5):  # each a second after the other, while the first still waits
        looks.append(asyncio.ensure_future(cluster.snapshot.refresh_windows("warehouse")))
        await asyncio.sleep(0)
        source.clock.advance(1_000)
    may_answer.set()
    await asyncio.gather(*looks)
    assert asked == 1
    assert "warehouse" in cluster.look().data.windows


async def test_what_is_new_is_asked_for_at_once_but_once_a_second() -> None:
    source = shop()
    cluster = source.cluster_of()
    await cluster.snapshot.refresh(Kind.CLUSTER)
    asked = source.asked.count(("cluster", 1))
    for _ in range(5):
        cluster.snapshot.doubt(Kind.CLUSTER)
        await cluster.snapshot.refresh(Kind.CLUSTER)
    assert source.asked.count(("cluster", 1)) == asked + 1
    source.clock.advance(1_000)
    cluster.snapshot.doubt(Kind.CLUSTER)
    await cluster.snapshot.refresh(Kind.CLUSTER)
    assert source.asked.count(("cluster", 1)) == asked + 2

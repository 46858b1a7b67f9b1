"""Pipelines: what runs tell, folded, as pages, in the terminal and as rule A12."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from ottla.cli import top
from ottla.cli.top_screen import draw
from ottla.cli.top_state import TopState
from ottla.client.errors import kafka_error
from ottla.clock import Now
from ottla.console.missing import Missing
from ottla.console.pipelines import (
    MOST_BYTES,
    MOST_KEYS,
    MOST_READ,
    FlowState,
    Fold,
    PipelineState,
    Unreadable,
    decode,
)
from ottla.console.plain import plain
from ottla.console.snapshot import Kind
from ottla.console.svg.graph import columns, graph
from ottla.console.views import pipelines
from ottla.console.views.pipelines import GraphEdge, GraphNode
from ottla.console.views.table import Query, Table
from ottla.metadata.names import PIPELINES_TOPIC
from ottla.wire.error_codes import ErrorCode
from tests.support.console_source import START_MS, FakeSource
from tests.support.pipeline_run import PipelineRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.console.clusters import Cluster
    from ottla.spark.pipelines.announcing import Due

SCREEN = (80, 24)


class Shop:
    """A cluster with the topic, and what was told there."""

    def __init__(self) -> None:
        self.source = FakeSource()
        self.source.topic(PIPELINES_TOPIC)
        self.source.topic("bad-orders", 2, end=20)
        self.fold = Fold()
        self.cluster: Cluster = self.source.cluster_of()

    async def hear(self, told: Sequence[Due] = ()) -> None:
        for one in told:
            self.fold.add(one.key, one.value)
        self.source.told = self.fold.value()
        self.source.clock.advance(10_000)
        await self.cluster.tick()

    def findings(self) -> list[str]:
        found = self.cluster.attention().findings
        return [one.text for one in found if one.word == "PIPELINE"]

    def page(self) -> pipelines.PipelinePage:
        look, attention = self.cluster.look(), self.cluster.attention()
        return pipelines.pipeline_page(look, attention, "orders")


async def test_case_60_a_pipeline_restarts_twice_and_then_fails_for_good() -> None:
    shop, run = Shop(), PipelineRun(at_ms=START_MS)
    run.board.enter("valid", "running")
    run.board.enter("sales", "running")
    run.batch(7)
    await shop.hear(run.tell())
    assert shop.findings() == []
    page = shop.page()
    assert page.row is not None
    assert (page.row.state, page.row.host, page.row.flows) == ("running", "host-a", 2)
    assert (page.row.rows_per_s, page.row.lag) == (50.0, 7)
    assert [one.kind for one in page.nodes] == ["topic", "flow", "topic", "topic", "flow", "table"]
    assert page.checkpoints == "s3a://k:***@b/c"
    valid = next(one for one in page.flows if one.name == "valid")
    assert (valid.batch, valid.batch_ms, valid.plan_ms, valid.run_ms) == (7, 180, 20, 140)
    assert valid.watermark.startswith("2026-11-16")
    assert (valid.rejects_to, valid.rejects_when) == ("bad-orders", "amount < 0")
    assert valid.rejected == 40

    for number in (1, 2):
        run.now_ms = shop.source.clock.ms
        run.board.enter("valid", "pausing", "the broker is away", number)
        await shop.hear(run.tell())
    assert shop.findings() == [], "two restarts are no trouble"
    [valid] = [one for one in shop.page().flows if one.name == "valid"]
    assert (valid.state, valid.restarts, valid.restarts_hour) == ("pausing", 2, 2)
    assert valid.error == "the broker is away"

    run.board.enter("valid", "failed", "no such column", 2)
    await shop.hear(run.tell())
    [found] = shop.findings()
    assert found == "pipeline orders, flow valid: failed for good: no such column"
    listed = pipelines.page(shop.cluster.look(), shop.cluster.attention())
    assert isinstance(listed.pipelines, Table)
    [row] = listed.pipelines.rows
    assert (row.state, row.failed, row.error) == ("failed", 1, "no such column")


async def test_case_60_without_the_topic_the_page_says_how_to_switch_it_on() -> None:
    source = FakeSource()
    source.topic("orders")
    cluster = source.cluster_of()
    await cluster.tick()
    page = pipelines.page(cluster.look(), cluster.attention())
    assert isinstance(page.pipelines, Missing)
    assert "ottla topic create ottla.pipelines" in page.pipelines.reason
    one = pipelines.pipeline_page(cluster.look(), cluster.attention(), "orders")
    assert one.row is None
    assert "ottla topic create ottla.pipelines" in one.problem
    assert "pipelines" not in page.frame.pages
    assert ("pipelines", 1) not in source.asked, "nothing is asked for that is not there"


async def test_a12_many_restarts_and_silence_need_attention() -> None:
    shop, run = Shop(), PipelineRun(at_ms=START_MS)
    run.board.enter("sales", "running")
    for number in range(1, 5):
        run.now_ms = shop.source.clock.ms
        run.board.enter("valid", "pausing", "again", number)
        await shop.hear(run.tell())
    [found] = shop.findings()
    assert "4 restarts in 10 min" in found
    run.board.enter("valid", "running", None, 4)
    for _ in range(62):  # a run that tells every 10 s is well after ten minutes
        run.now_ms = shop.source.clock.ms
        run.batch(run.now_ms)
        run.batch(run.now_ms, "sales")
        await shop.hear(run.tell())
    assert shop.findings() == []
    for _ in range(12):
        await shop.hear()
    assert [one.partition(": ")[2][:27] for one in shop.findings()] == [
        "nothing was heard of it for"
    ] * 2
    row = shop.page().row
    assert row is not None
    assert row.state == "silent"


async def test_a_run_that_has_ended_is_not_silent() -> None:
    shop, run = Shop(), PipelineRun(at_ms=START_MS)
    run.board.enter("valid", "done")
    await shop.hear(run.tell(ended=True))
    for _ in range(12):
        await shop.hear()
    assert shop.findings() == []
    page = shop.page()
    assert page.ended is not None
    assert {one.name: one.state for one in page.flows} == {"valid": "done", "sales": "stopped"}


async def test_flows_that_the_file_has_no_more_are_left_out() -> None:
    shop, run = Shop(), PipelineRun(at_ms=START_MS)
    await shop.hear(run.tell())
    later = Now(2 * START_MS, 2 * START_MS)
    old = json.loads(run.announcer.due(run.board.views(), later)[1].value)
    shop.fold.add(b"orders/old", json.dumps({**old, "flow": "old"}).encode())
    await shop.hear()
    assert [one.name for one in shop.page().flows] == ["sales", "valid"]


async def test_rates_of_flows_have_a_history_until_they_are_gone() -> None:
    shop, run = Shop(), PipelineRun(at_ms=START_MS)
    run.board.enter("valid", "running")
    run.batch(1, rate=50.0)
    await shop.hear(run.tell())
    run.batch(2, rate=70.0)
    await shop.hear(run.tell())
    [valid] = [one for one in shop.page().flows if one.name == "valid"]
    assert [one for one in valid.spark if one is not None][-1] == 70.0
    shop.fold = Fold()
    await shop.hear()
    await shop.hear()
    assert [name for name in shop.cluster.history.names() if name[0] == "flow"] == []


async def test_case_70_pipelines_in_the_terminal() -> None:
    shop, run = Shop(), PipelineRun("shop\u202e", at_ms=START_MS)
    run.board.enter("valid", "failed", "<script>")
    await shop.hear(run.tell())
    for state in (TopState("pipelines"), TopState("pipelines", detail="shop\u202e")):
        page = top.page_of(shop.cluster, state)
        out = io.StringIO()
        screen = Console(file=out, width=SCREEN[0], height=SCREEN[1], highlight=False)
        screen.print(draw(page, state, SCREEN[1]))
        assert len(out.getvalue().splitlines()) <= SCREEN[1]
        assert "failed" in out.getvalue()
        assert "\u202e" not in out.getvalue()
        json.dumps(plain(page))
    assert top.names(shop.cluster, TopState("pipelines")) == ["shop\u202e"]
    assert "top --once pipelines" in top.command(shop.cluster, TopState("pipelines"))


# -- records of strangers --------------------------------------------------------------------------


def told() -> list[Due]:
    run = PipelineRun(at_ms=START_MS)
    run.batch(1)
    return list(run.tell())


def test_what_a_run_tells_is_understood() -> None:
    kinds = [type(decode(one.value)) for one in told()]
    assert kinds == [PipelineState, FlowState, FlowState]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"version": 2, "kind": "flow"}',
        b'{"version": 1, "kind": "cat", "pipeline": "a"}',
        b'{"version": 1, "kind": "pipeline", "pipeline": 7}',
        b'{"version": 1, "kind": "flow", "pipeline": "a", "flow": "b", "state": "bored"}',
        b"[" * 100_000,
        b'"' + b"x" * MOST_BYTES + b'"',
    ],
)
def test_records_of_strangers_are_counted_and_passed_over(value: bytes) -> None:
    with pytest.raises(Unreadable):
        decode(value)
    fold = Fold()
    fold.add(b"k", value)
    assert fold.value().unreadable == 1


SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
JSON = SIMPLE | st.lists(SIMPLE, max_size=3) | st.lists(st.lists(SIMPLE, max_size=3), max_size=2)


@settings(max_examples=20)
@given(st.data())
async def test_whatever_the_fields_hold_pages_are_made(data: st.DataObject) -> None:
    shop = Shop()
    for one in told():
        fields = json.loads(one.value)
        for name in data.draw(st.sets(st.sampled_from(sorted(fields)), max_size=4)):
            fields[name] = data.draw(JSON)
        shop.fold.add(one.key, json.dumps(fields).encode())
    await shop.hear()
    look, attention = shop.cluster.look(), shop.cluster.attention()
    listed = pipelines.page(look, attention)
    assert isinstance(listed.pipelines, Table)
    for row in listed.pipelines.rows:
        page = pipelines.pipeline_page(look, attention, row.name)
        json.dumps(plain(page))
        graph(page.nodes, page.edges)


def test_a_long_topic_is_read_from_near_its_end_and_on_from_there() -> None:
    fold = Fold()
    starts, stops = fold.plan(b"id", {0: (1_000, 100_000), 1: (0, 10), 2: (5, 5)})
    assert (starts, stops) == ({0: 100_000 - MOST_READ, 1: 0}, {0: 100_000, 1: 10})
    assert fold.value().not_read == 99_000 - MOST_READ
    assert fold.plan(b"id", {0: (1_000, 100_001), 1: (0, 10)}) == ({0: 100_000}, {0: 100_001})
    fold.add(b"orders", told()[0].value)
    assert len(fold.value().pipelines) == 1
    assert fold.plan(b"other", {0: (0, 3)}) == ({0: 0}, {0: 3}), "the topic was recreated"
    assert fold.value().names == []
    assert fold.plan(b"other", {0: (0, 2)}) == ({0: 0}, {0: 2}), "it was cut"
    fold.failed()
    assert fold.plan(b"other", {0: (0, 2)}) == ({0: 0}, {0: 2}), "it is read again"


def test_of_many_names_the_last_are_kept_and_null_deletes() -> None:
    fold = Fold()
    text = b'{"version":1,"kind":"flow","pipeline":"orders","state":"running","flow":"f%d"}'
    for number in range(MOST_KEYS + 50):
        fold.add(b"p/f%d" % number, text % number)
        if number == 1_000:
            fold.value()
    found = fold.value().flows
    assert len(found) == MOST_KEYS
    assert ("orders", "f0") not in found
    fold.add(b"p/f2000", None)
    assert ("orders", "f2000") not in fold.value().flows
    fold.add(b"x" * 10_000, b"{}")
    fold.add(None, b"{}")
    assert fold.value().unreadable == 0


async def test_pipelines_are_filtered_and_sorted() -> None:
    shop = Shop()
    for name in ("a", "b", "c"):
        run = PipelineRun(name, at_ms=START_MS)
        run.board.enter("valid", "failed" if name == "c" else "running")
        run.board.enter("sales", "running")
        await shop.hear(run.tell())
    look, attention = shop.cluster.look(), shop.cluster.attention()

    def names(query: Query) -> list[str]:
        found = pipelines.page(look, attention, query).pipelines
        assert isinstance(found, Table)
        return [one.name for one in found.rows]

    assert names(Query()) == ["c", "a", "b"], "trouble first"
    assert names(Query(sort="name", descending=True)) == ["c", "b", "a"]
    assert names(Query(contains="B")) == ["b"]


async def test_a_refusal_is_told_in_place_of_pipelines() -> None:
    shop = Shop()
    refused = kafka_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "read")
    shop.source.fails["pipelines"] = refused
    await shop.cluster.tick()
    assert shop.source.asked.count(("pipelines", 1)) == 1
    page = pipelines.page(shop.cluster.look(), shop.cluster.attention())
    assert page.pipelines == Missing("not allowed: needs Read on topic 'ottla.pipelines'")
    rules = {one.word: one.reason for one in shop.cluster.attention().not_checked}
    assert "not allowed" in rules["PIPELINE"]
    assert Kind.PIPELINES.max_age_ms == 5_000


# -- the picture -----------------------------------------------------------------------------------


def test_nodes_stand_right_of_what_leads_to_them() -> None:
    assert columns(4, [(0, 1), (1, 2), (0, 2), (3, 2)]) == [0, 1, 2, 0]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_cycles_end(edges: list[tuple[int, int]]) -> None:
    assert all(0 <= one < 6 for one in columns(6, edges))


def test_names_in_the_picture_are_text() -> None:
    nodes = [GraphNode("topic", "<script>"), GraphNode("flow", "a\u202eb", "failed")]
    drawn = graph(nodes, [GraphEdge(0, 1, '"><svg onload=x>')])
    assert "<script>" not in drawn
    assert "\u202e" not in drawn
    assert "<svg onload" not in drawn
    assert "(failed)" in drawn
    assert graph([], []) == ""
    assert graph([GraphNode("flow", "x")] * 101, []) == "", "a list has them"

"""`ottla top` without a terminal: keys, states and the screen."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ottla.cli import top
from ottla.cli.keys import keys_of
from ottla.cli.top_screen import draw
from ottla.cli.top_state import VIEWS, TopState, after
from ottla.client.admin.types import ShareGroupOffset, ShareWindow, ShareWindowRun
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import BrokerUnreachable
from ottla.console.plain import plain
from tests.support.console_source import FakeSource

if TYPE_CHECKING:
    from ottla.console.clusters import Cluster


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"jk", ["j", "k"]),
        (b"\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        (b"\x1b", ["escape"]),
        (b"\r\x7f", ["enter", "backspace"]),
        (b"\x1b[200~x", ["x"]),
        (b"\x1b[1;5C", []),
        ("ü😀".encode(), ["ü", "😀"]),
        (b"\x00\x01", []),
    ],
)
def test_keys(typed: bytes, keys: list[str]) -> None:
    assert keys_of(typed) == keys


@given(st.binary(max_size=40))
def test_whatever_a_terminal_sends_becomes_keys(typed: bytes) -> None:
    for key in keys_of(typed):
        assert key


def typed(*keys: str, names: tuple[str, ...] = ("a", "b", "c")) -> TopState:
    state = TopState()
    for key in keys:
        state = after(state, key, names)
    return state


def test_keys_choose_views_rows_and_details() -> None:
    assert [typed(str(number)).view for number in range(1, 7)] == list(VIEWS)
    assert typed("3", "j", "j", "j", "j").row == 2, "not beyond the last"
    assert typed("3", "j", "k", "k").row == 0
    assert typed("3", "down", "enter").detail == "b"
    assert typed("3", "enter", "escape").detail == ""
    assert typed("3", "enter", names=()).detail == ""
    assert typed("p").is_paused
    assert typed("?", "x") == TopState()
    assert typed("q").is_done
    assert typed("3", "s").order == ("lag_records", True)


def test_a_filter_is_typed_and_its_keys_are_letters() -> None:
    state = typed("2", "/", "q", "j", "x", "backspace")
    assert (state.contains, state.is_typing, state.is_done) == ("qj", True, False)
    assert after(state, "enter").contains == "qj"
    assert after(state, "escape").contains == ""
    assert len(typed("/", *["x"] * 1_000).contains) == 249


def shop() -> FakeSource:
    source = FakeSource()
    source.topic("orders", 2, end=500)
    for number in range(40):
        source.topic(f"topic-{number:02}", 3, end=number)
    source.group("billing")
    source.group("evil\u202e\x1b[2J[bold]x[/bold]")
    source.offsets["billing"] = {TopicPartition("orders", 0): 100}
    source.group("warehouse", "share")
    source.queues["warehouse"] = [ShareGroupOffset("orders", 1, 450, 50, 10, 3)]
    runs = [ShareWindowRun(450, 459, 1, 1, 0, 20_000), ShareWindowRun(460, 499, 2)]
    window = ShareWindow("orders", 1, 450, 500, 900, runs, ("m-1",), 50, 5, 30_000, 240_000)
    source.held["warehouse"] = [window]
    return source


async def sampled(source: FakeSource) -> Cluster:
    cluster = source.cluster_of()
    for _ in range(3):
        await top.sample(cluster, TopState())
        source.clock.advance(10_000)
    return cluster


def screen(cluster: Cluster, state: TopState, width: int = 80, height: int = 24) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, highlight=False, color_system=None)
    page = top.page_of(cluster, state)
    console.print(draw(page, state, height, top.command(cluster, state)))
    return out.getvalue().splitlines()


async def test_case_70_80_by_24_is_enough() -> None:
    cluster = await sampled(shop())
    for view in VIEWS:
        for width, height in ((80, 24), (40, 10), (200, 60)):
            lines = screen(cluster, TopState(view=view), width, height)
            assert len(lines) <= height, view
            assert max(map(len, lines)) <= width
    for state in (TopState(shows_help=True), TopState(view="topics", row=30, shows_command=True)):
        assert len(screen(cluster, state)) <= 24


async def test_case_70_the_screen_has_the_right_values() -> None:
    cluster = await sampled(shop())
    overview = "\n".join(screen(cluster, TopState(), 160))
    assert "STALLED queue warehouse, orders-1: window full for 4 min 00 s, held by m-1" in overview
    assert "topics 41 (122 partitions)" in overview
    groups = screen(cluster, TopState(view="groups"), 160)
    [billing] = [line for line in groups if line.startswith("billing")]
    assert billing.split()[:6] == ["billing", "consumer", "(KIP-848)", "Stable", "1", "400"]
    queue = "\n".join(screen(cluster, TopState(view="queues", detail="warehouse"), 160))
    assert "█" * 8 + "▒" * 32 in queue
    assert "offset 450 is held by m-1" in queue
    topic = "\n".join(screen(cluster, TopState(view="topics", detail="orders"), 160))
    assert "500" in topic
    group = "\n".join(screen(cluster, TopState(view="groups", detail="billing"), 160))
    assert "400" in group
    gone = "\n".join(screen(cluster, TopState(view="groups", detail="nope"), 160))
    assert "no group nope" in gone


async def test_case_20_hostile_names_stay_text() -> None:
    cluster = await sampled(shop())
    lines = "\n".join(screen(cluster, TopState(view="groups"), 200))
    assert "evil⟨U+202E⟩⟨U+001B⟩[2J[bold]x" in lines
    assert "\x1b[2J" not in lines


async def test_the_chosen_row_is_in_sight_and_has_a_command() -> None:
    cluster = await sampled(shop())
    state = TopState(view="topics", row=35, shows_command=True)
    lines = screen(cluster, state)
    assert "$ ottla topic describe topic-34 --bootstrap 127.0.0.1:9092" in lines[2]
    assert any(line.startswith("topic-34") for line in lines)
    assert "ottla share-group describe warehouse" in top.command(cluster, TopState(view="queues"))
    assert "ottla transaction list" in top.command(cluster, TopState(view="transactions"))
    empty = FakeSource().cluster_of()
    assert "ottla group list" in top.command(empty, TopState(view="groups"))


async def test_case_70_a_filter_and_a_cluster_that_goes_away() -> None:
    source = shop()
    cluster = await sampled(source)
    lines = screen(cluster, TopState(view="topics", contains="ORD"))
    assert any(line.startswith("orders") for line in lines)
    assert not any(line.startswith("topic-") for line in lines)
    source.fails["*"] = BrokerUnreachable("cannot connect")
    source.clock.advance(70_000)
    await top.sample(cluster, TopState())
    source.clock.advance(5_000)
    lines = screen(cluster, TopState())
    assert any("no answer for 5" in line for line in lines)
    assert any("orders" in line for line in lines), "the last data stays"


async def test_pages_are_json() -> None:
    cluster = await sampled(shop())
    for view in VIEWS:
        for detail in ("", "orders", "billing", "warehouse"):
            found = plain(top.page_of(cluster, TopState(view=view, detail=detail)))
            assert isinstance(found, dict)
            frame = found["frame"]
            assert isinstance(frame, dict)
            assert str(frame["as_of"]).endswith("Z")
    with pytest.raises(TypeError, match="bytes"):
        plain(b"x")

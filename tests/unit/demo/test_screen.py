"""Plain lines, the live picture, the summary and the SVG, from the same scene."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console

from ottla.demo.checks import Check, expect
from ottla.demo.figures import Figures
from ottla.demo.orders import make_orders
from ottla.demo.screen import PlainScreen, Scene, draw, draw_summary, save_picture

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

EXPECTED = expect(make_orders(500, seed=1, begin_ms=0))
CHECKS = [
    Check("orders booked", "500", "500", holds=True, by="ledger.db"),
    Check("orders shipped", "497", "496", holds=False, by="warehouse.db"),
]


def scene() -> Scene:
    return Scene("the title", EXPECTED, Figures(produced=500, booked=250), events=[(0.5, "began")])


def text_of(picture: RenderableType) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(picture)
    return out.getvalue()


def test_plain_lines_say_each_event_once_and_figures_now_and_then() -> None:
    out = io.StringIO()
    screen = PlainScreen(out)
    shown = scene()
    screen.show(shown)
    screen.show(shown)
    assert out.getvalue() == "   0.5 s  began\n"
    shown.seconds = 6.0
    screen.show(shown)
    screen.show(shown)
    assert out.getvalue().count("ledger 250/500") == 1


def test_the_picture_has_figures_and_events() -> None:
    text = text_of(draw(scene()))
    assert "the title" in text
    assert "250 / 500" in text
    assert "began" in text


def test_the_summary_marks_what_failed() -> None:
    lines = text_of(draw_summary(CHECKS, 12.0)).splitlines()
    assert [line.split()[0] for line in lines if "orders" in line] == ["ok", "FAILED"]
    assert "1 of 2 checks hold, after 12 s" in lines[-1]


def test_the_picture_can_be_saved(tmp_path: Path) -> None:
    file = tmp_path / "demo.svg"
    save_picture(file, scene(), CHECKS)
    assert file.read_text().startswith("<svg")

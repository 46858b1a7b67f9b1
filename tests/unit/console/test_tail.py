"""How many records a live tail shows in a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pytest

from ottla.client.reader.types import Record
from ottla.console import tail as tailing
from ottla.console.clusters import ClusterSettings
from ottla.console.decode.mask import Rules
from ottla.console.decode.reading import Decoder
from ottla.console.query import Query
from tests.support.clocks import ManualClock

if TYPE_CHECKING:
    from types import TracebackType

BEHIND = 40


class Flood:
    """A reader that always has records; asking for its lag takes a second."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked: list[int] = []
        self.sought: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    async def read_many(self, most: int) -> list[Record]:
        self.asked.append(most)
        return [Record("orders", 0, number, 1, 0, None, b"x", ()) for number in range(most)]

    async def lag(self) -> dict[str, int]:
        self.clock.advance(1_000)
        return {"orders-0": BEHIND}

    async def seek(self, to: str) -> None:
        self.sought.append(to)


@pytest.mark.parametrize("rows", [1, 7, 200])
async def test_a_tail_shows_as_many_as_the_setting_says(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    clock = ManualClock()
    flood = Flood(clock)

    def reader(*_: Any, **__: Any) -> Flood:
        return flood

    monkeypatch.setattr(tailing, "RecordReader", reader)
    turns = tailing.tail(
        ClusterSettings("local", "127.0.0.1:1"),
        Query("orders"),
        Decoder(Rules(), 4096),
        clock,
        rows,
    )
    assert await anext(turns) == tailing.Turn((), 0)
    turn = await anext(turns)
    assert (len(turn.messages), turn.passed) == (rows, BEHIND)
    assert (flood.asked, flood.sought) == ([rows], ["latest"])

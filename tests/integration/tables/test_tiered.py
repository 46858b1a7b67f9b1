"""A worker that is far behind reads tiered segments from their store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.reader.reader import Reader
from ottla.objects.location import parse_location
from ottla.tables import taking
from ottla.tables.worker import Worker
from tests.support.tables import Place, places
from tests.support.tiered_broker import TIERED, produce, settings, tiered_broker, values

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

SENT = values(5000)


class NotedReader(Reader):
    """Notes where it begins."""

    starts: list[int]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.starts.append(options["start"][0])


async def local_start(place: Place) -> int:
    async with Admin(place.bootstrap) as admin:
        [found] = (await admin.list_offsets([place.topic], "earliest-local")).values()
    return found.offset


async def emptied(place: Place) -> int:
    """Wait until the local log has lost most of the records; where it begins."""
    async with asyncio.timeout(120):
        while True:
            found = await local_start(place)
            if found >= len(SENT) // 2:
                return found
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("least", [1, 2**62])
def test_case_45_long_ranges_of_the_tier_come_from_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr("ottla.tables.tiered.MIN_BYTES", least)
    monkeypatch.setattr(NotedReader, "starts", [], raising=False)
    monkeypatch.setattr(taking, "Reader", NotedReader)
    monkeypatch.setattr(taking, "CHUNK_ROWS", 300)
    monkeypatch.setattr(taking, "ROUND_BYTES", 1_000_000)
    store = tmp_path / "store"
    with tiered_broker(store) as broker:
        place = next(places(broker.bootstrap, tmp_path))
        keys = {key.replace(".", "_"): value for key, value in TIERED.items()}
        asyncio.run(place.create(**keys))
        produce(place.bootstrap, place.topic, SENT)
        local = asyncio.run(emptied(place))
        tier = parse_location({"rsm.config.url": settings(store)["rsm.config.url"]})

        async def taken() -> dict[int, int]:
            chosen = replace(place.settings, tier=tier)
            async with Worker(place.bootstrap, chosen, topics=[place.topic]) as worker:
                return dict((await worker.run_once())[place.topic])

        assert asyncio.run(taken()) == {0: len(SENT)}
        assert place.values() == SENT
    if least == 1:
        assert min(NotedReader.starts) >= local
    else:
        assert min(NotedReader.starts) == 0

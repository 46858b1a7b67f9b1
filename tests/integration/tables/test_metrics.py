"""Metrics of a worker, as a scraper sees them (case 73)."""

from __future__ import annotations

import asyncio
import urllib.request
from typing import TYPE_CHECKING

import pytest

from ottla.tables.worker_metrics import serve_metrics

if TYPE_CHECKING:
    from tests.support.tables import Place

pytestmark = pytest.mark.long


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("ottla_table_"))
    return {name.partition("{")[0]: float(value) for name, value in pairs if "_created" not in name}


async def test_case_73_a_scraper_sees_what_the_worker_did(place: Place) -> None:
    await place.create(ottla_table_value_format="json", ottla_table_value_schema="n bigint")
    await place.fill([b'{"n":1}', b"{"])
    async with place.worker() as worker, serve_metrics(worker.metrics, 0) as port:
        assert port is not None
        assert await asyncio.to_thread(scraped, port) == {}
        await worker.run_once()
        found = await asyncio.to_thread(scraped, port)
    assert found["ottla_table_last_commit_seconds"] > 0
    assert (found["ottla_table_lag_records"], found["ottla_table_lag_seconds"]) == (0, 0)
    assert (found["ottla_table_commits_total"], found["ottla_table_invalid_total"]) == (1, 1)


async def test_nothing_is_served_without_a_port(place: Place) -> None:
    async with serve_metrics(place.worker().metrics, None) as port:
        assert port is None

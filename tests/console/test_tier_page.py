"""Tiered storage in the console, on a broker with a store."""

from __future__ import annotations

import csv
import io
import json
import time
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Settings
from ottla.tier.reading.answers import LATEST_TIERED
from tests.support.tiered_broker import eventually, tier_place

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long
WAIT = 60.0


def test_case_59_the_page_says_which_part_of_a_log_is_where(tmp_path: Path) -> None:
    with tier_place(tmp_path) as place:
        topic = place.topic(partitions=2)
        place.broker.create_topic("plain")
        place.cold(topic)
        eventually(lambda: place.offset(topic, LATEST_TIERED) == 1999, "the second one is copied")
        settings = Settings(clusters=(ClusterSettings("local", place.broker.bootstrap),))
        with TestClient(make_app(settings), base_url="http://127.0.0.1:9095") as client:
            end = time.monotonic() + WAIT
            while "rows" not in (text := client.get("/api/v1/c/local/tier").text):
                assert time.monotonic() < end, text
            page = client.get("/c/local/tier").text
            tab = client.get(f"/c/local/topics/{topic}?tab=tier").text
            table = client.get(f"/c/local/topics/{topic}?tab=tier&format=csv").text
            plain = client.get("/c/local/topics/plain?tab=tier").text
        found = json.loads(text)["partitions"]["rows"]
        [first] = [one for one in found if (one["topic"], one["partition"]) == (topic, 0)]
        assert (first["start"], first["local_start"], first["remote_end"], first["end"]) == (
            0,
            1000,
            2000,
            3000,
        )
        assert (first["waiting"], first["segments"]) == (1000, 2)
        assert (first["remote_share"], first["local_share"]) == (2 / 3, 2 / 3)
        [second] = [one for one in found if (one["topic"], one["partition"]) == (topic, 1)]
        assert (second["remote_end"], second["segments"]) == (None, 0)
        assert 'aria-label="67% of the offsets are remote, 67% local"' in page
        assert 'href="/c/local/tier"' in page
        # The tab of a topic shows its own partitions alone, and has the same table as a file.
        assert f'href="/c/local/topics/{topic}?tab=tier" aria-current="page"' in tab
        assert 'aria-label="67% of the offsets are remote, 67% local"' in tab
        assert f'href="/api/v1/c/local/tier?contains={topic}"' in tab
        assert f"ottla tier status --bootstrap {place.broker.bootstrap} {topic}" in tab
        rows = list(csv.DictReader(io.StringIO(table)))
        assert {(row["topic"], row["partition"]) for row in rows} == {(topic, "0"), (topic, "1")}
        assert "This topic is not tiered" in plain
        assert topic not in plain

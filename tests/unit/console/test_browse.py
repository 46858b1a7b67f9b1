"""Places in topics: what the URL says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.query import BadPlace, Start, parse_cut, parse_start, write_cut

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("newest", Start("newest")),
        ("oldest", Start("oldest")),
        ("offset:12", Start("offset", offset=12)),
        ("time:1970-01-01T00:00:01Z", Start("time", time_ms=1000)),
        ("time:1970-01-01T01:00:01+01:00", Start("time", time_ms=1000)),
        ("time:1970-01-01T00:00:01", Start("time", time_ms=1000)),
        ("ago:15m", Start("time", time_ms=int(NOW.timestamp() * 1000) - 900_000)),
        ("ago:999999999d", Start("oldest")),
    ],
)
def test_places(text: str, start: Start) -> None:
    assert parse_start(text, NOW) == start


@pytest.mark.parametrize(
    "text", ["", "latest", "offset:", "offset:-1", "offset:9" * 20, "time:x", "ago:5", "ago:5y"]
)
def test_what_is_no_place_is_told(text: str) -> None:
    with pytest.raises(BadPlace):
        parse_start(text, NOW)


@given(st.dictionaries(st.integers(0, 10**9 - 1), st.integers(0, 2**63 - 1), min_size=1))
def test_cuts_are_read_as_they_were_written(cut: dict[int, int]) -> None:
    assert parse_cut(write_cut(cut)) == cut


@pytest.mark.parametrize("text", ["", "x", "0:1,", "0", "0:-1", "0:1;1:2"])
def test_what_is_no_cut_is_told(text: str) -> None:
    with pytest.raises(BadPlace):
        parse_cut(text)

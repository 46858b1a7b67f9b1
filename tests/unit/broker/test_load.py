"""The load that a node tells: rates over the last samples."""

from __future__ import annotations

import json

from ottla.broker.running.load import Load
from tests.support.clocks import ManualClock


def test_rates_are_those_since_the_sample_before_the_last() -> None:
    clock, requests = ManualClock(), {0: 0, 1: 0}
    load = Load(requests, clock)
    load.connections = range(3)
    requests[0] += 1_000_000
    clock.advance(5_000)
    load.sample()
    load.sample()
    requests[1] += 40
    clock.advance(4_000)
    found = json.loads(load.as_json())
    assert (found["requests"], found["connections"]) == (10.0, 3)
    assert found["cpu"] >= 0


def test_a_look_right_after_the_start_is_possible() -> None:
    assert json.loads(Load({}, ManualClock()).as_json())["requests"] == 0

"""How much of a large request is waited for before the loop is woken."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest

from ottla.broker.access import low_water
from ottla.broker.access.low_water import AT_ONCE, MOST_BYTES, RECORD_BYTES, LowWater, level


class Transport:
    """Has a socket, and notes the levels that it is given."""

    def __init__(self) -> None:
        self.levels: list[int] = []

    def get_extra_info(self, name: str) -> Transport:
        assert name == "socket"
        return self

    def setsockopt(self, family: int, option: int, value: int) -> None:
        assert (family, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.levels.append(value)


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(low_water, "is_possible", lambda: True)
    return cast("Any", Transport())


def test_no_more_is_waited_for_than_must_come() -> None:
    """OpenSSL may hold most of a record, which the socket will not give again."""
    for missing in range(-5, 400_000, 7):
        assert AT_ONCE <= level(missing) <= max(AT_ONCE, missing - RECORD_BYTES)
        assert level(missing) <= MOST_BYTES
    assert level(1 << 30) == MOST_BYTES


def test_the_level_follows_what_is_missing(transport: Any) -> None:
    low = LowWater()
    for missing in (0, 20_000, 1 << 20, 900_000, 100_000, 10_000, 0, -4):
        low.wait_for(missing, transport)
    assert transport.levels == [MOST_BYTES, 100_000 - RECORD_BYTES, AT_ONCE]


def test_whoever_looks_for_slow_clients_has_it_taken_away_for_the_rest_of_a_request(
    transport: Any,
) -> None:
    low = LowWater()
    assert not low.release(transport)
    low.wait_for(0, transport)
    low.wait_for(1 << 20, transport)
    assert low.release(transport)
    low.wait_for(1_000_000, transport)  # a few bytes have come
    assert not low.release(transport)
    assert transport.levels == [MOST_BYTES, AT_ONCE]
    low.wait_for(0, transport)
    low.wait_for(1 << 20, transport)
    assert transport.levels == [MOST_BYTES, AT_ONCE, MOST_BYTES]


def test_where_the_kernel_cannot_nothing_is_set(
    transport: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(low_water, "is_possible", lambda: False)
    LowWater().wait_for(1 << 20, transport)
    assert transport.levels == []

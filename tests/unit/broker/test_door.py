"""The door's timers, without a socket."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from ottla.broker.access.door import Door
from ottla.broker.access.lobby import Lobby
from ottla.broker.access.refusals import Refusals

if TYPE_CHECKING:
    from collections.abc import Callable


class Handle:
    """What uvloop's `call_at` gives for a time that is due: it has no `when`."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    def __init__(self) -> None:
        self.timers: list[tuple[float, Handle]] = []

    def time(self) -> float:
        return 100.0

    def call_at(self, when: float, call: Callable[[], None]) -> Handle:
        self.timers.append((when, Handle()))
        return self.timers[-1][1]


class Visitor:
    def __init__(self) -> None:
        self.peer = SimpleNamespace(host="10.0.0.7", listener="SASL_SSL")
        self.must_speak = False

    def enter(self) -> None:
        """It has a slot."""


def test_a_timer_that_is_due_does_not_tell_when() -> None:
    """Fault: `'uvloop.loop.Handle' object has no attribute 'when'`."""
    loop = Loop()
    door: Any = Door.__new__(Door)
    door._loop = loop
    door._timer, door._timer_at = None, 0.0
    door._lobby = Lobby(slots=1, wait_seconds=5.0, authentication_seconds=9.0)
    door.arrived(Visitor())
    door.arrived(Visitor())
    assert [(when, handle.cancelled) for when, handle in loop.timers] == [
        (109.0, True),
        (101.0, False),  # the first may have stalled by then
    ]
    door.arrived(Visitor())
    assert len(loop.timers) == 2


async def test_an_answer_that_is_dropped_waits_no_longer() -> None:
    door: Any = Door.__new__(Door)
    door._loop = asyncio.get_running_loop()
    door._refusals, door._held_back = Refusals(most=1), {}
    door.audit, door.failed_authentications = mock.Mock(), 0
    with door.attempt("10.0.0.7", 3600.0) as first:
        held = asyncio.create_task(door.failed(mock.Mock(), first, "wrong password", "alice"))
        while not door._held_back:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0)
        with door.attempt("10.0.0.8", 0.0) as second:
            await held
            assert first.is_dropped
            await door.failed(mock.Mock(), second, "unknown user", "bob")
            assert not second.is_dropped
    assert (len(door._refusals), door._held_back) == (0, {})

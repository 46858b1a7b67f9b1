"""The door's timer, without a socket."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.broker.access.door import Door
from ottla.broker.access.lobby import Lobby

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

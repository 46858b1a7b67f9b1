"""Deadlines against a dictionary that is searched in full."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.coordination.timers import Timers

keys = st.sampled_from("abc")
times = st.integers(0, 20)


class TimersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.timers: Timers[str] = Timers()
        self.model: dict[str, int] = {}

    @rule(key=keys, deadline=times)
    def set_deadline(self, key: str, deadline: int) -> None:
        self.timers.set(key, deadline)
        self.model[key] = deadline

    @rule(key=keys)
    def cancel(self, key: str) -> None:
        self.timers.cancel(key)
        self.model.pop(key, None)

    @rule(now=times)
    def pop(self, now: int) -> None:
        expected = sorted(deadline for deadline in self.model.values() if deadline <= now)
        popped = []
        while (key := self.timers.pop_due(now)) is not None:
            popped.append(self.model.pop(key))
        assert popped == expected

    @invariant()
    def agrees(self) -> None:
        assert self.timers.next_deadline() == min(self.model.values(), default=None)
        for key in "abc":
            assert (key in self.timers) == (key in self.model)
            assert self.timers.deadline(key) == self.model.get(key)


TestTimers = TimersMachine.TestCase

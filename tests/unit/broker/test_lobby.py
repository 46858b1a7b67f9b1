"""The lobby: slots, turns, limits of time and of rates, and delays of failures (cases 89 to 91)."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from ottla.broker.access import lobby as lobby_module
from ottla.broker.access.lobby import Bucket, Failures, Lobby
from tests.support.sizes import examples

WAIT, LIMIT = 30.0, 10.0


def lobby_of(slots: int = 2, rate: float | None = None) -> Lobby[str]:
    return Lobby(
        slots=slots, wait_seconds=WAIT, authentication_seconds=LIMIT, address_rate=lambda _: rate
    )


def test_a_slot_is_taken_at_once_while_there_is_one() -> None:
    lobby = lobby_of()
    for name in ("a", "b", "c"):
        lobby.arrived(name, "host", "L", 0.0)
    assert lobby.step(0.0).enter == ["a", "b"]
    assert (lobby.authenticating, lobby.waiting) == (2, 1)
    lobby.left("a")
    assert lobby.step(1.0).enter == ["c"]


def test_case_91_slots_go_round_by_address() -> None:
    lobby = lobby_of(slots=1)
    for number in range(100):
        lobby.arrived(f"flood{number}", "flood", "L", 0.0)
    lobby.arrived("honest", "elsewhere", "L", 0.0)
    order = []
    for _ in range(4):
        (entered,) = lobby.step(0.0).enter
        order.append(entered)
        lobby.left(entered)
    assert order == ["flood0", "honest", "flood1", "flood2"]


def test_case_90_who_takes_too_long_is_closed() -> None:
    lobby = lobby_of(slots=1)
    lobby.arrived("slow", "h", "L", 0.0)
    lobby.arrived("waits", "h", "L", 5.0)
    assert lobby.step(5.0).enter == ["slow"]
    lobby.left("waits")
    assert lobby.next_time(5.0) == 5.0 + LIMIT
    moves = lobby.step(5.0 + LIMIT)
    assert [(one.visitor, one.reason) for one in moves.close] == [("slow", "timeout")]


def test_case_89_who_waits_too_long_is_closed() -> None:
    lobby = lobby_of(slots=1)
    lobby.arrived("first", "h", "L", 0.0)
    lobby.step(0.0)
    lobby.arrived("second", "h", "L", 1.0)
    lobby.left("first")
    lobby.arrived("again", "h", "L", 1.0)
    assert lobby.step(1.0).enter == ["second"]
    lobby._authenticating["second"] = 1e9  # it is slow in a way the clock does not see
    lobby._progress["second"] = 1e9
    assert [one.visitor for one in lobby.step(1.0 + WAIT).close] == ["again"]


def test_case_89_who_says_nothing_keeps_nobody_waiting() -> None:
    lobby = lobby_of(slots=1)
    for number in range(1000):
        lobby.arrived(f"silent{number}", "h", "L", 0.0, silent=True)
    lobby.arrived("honest", "h", "L", 1.0, silent=True)
    assert lobby.step(1.0).enter == []
    assert lobby.next_time(1.0) == LIMIT
    lobby.spoke("honest", 1.5)
    lobby.spoke("honest", 1.5)
    assert lobby.step(1.5).enter == ["honest"]
    assert len(lobby.step(LIMIT).close) == 1000
    assert (lobby.waiting, lobby.authenticating) == (0, 1)


def test_case_90_who_stalls_loses_the_slot_to_one_that_waits() -> None:
    busy: set[str] = set()
    lobby: Lobby[str] = Lobby(
        slots=3,
        wait_seconds=WAIT,
        authentication_seconds=LIMIT,
        waits_for_us=busy.__contains__,
    )
    for name in ("stalls", "works", "goes on"):
        lobby.arrived(name, "h", "L", 0.0)
    assert len(lobby.step(0.0).enter) == 3
    busy.add("works")  # for example, its password is being hashed
    assert lobby.step(5.0).close == []  # nobody waits
    lobby.progressed("goes on", 5.0)
    lobby.arrived("honest", "h", "L", 5.0)
    moves = lobby.step(5.0)
    assert [(one.visitor, one.reason) for one in moves.close] == [
        ("stalls", "stalled while others wait")
    ]
    assert moves.enter == ["honest"]
    lobby.arrived("another", "h", "L", 5.0)
    assert lobby.step(5.0).close == []
    assert lobby.next_time(5.0) == 5.0 + lobby_module.LOOK_AGAIN_SECONDS
    moves = lobby.step(6.0)
    assert [one.visitor for one in moves.close] == ["goes on"]
    assert moves.enter == ["another"]


def test_rates_make_visitors_wait() -> None:
    lobby = lobby_of(slots=100)
    lobby.set_rates(None, {"L": 2.0}, 0.0)
    for number in range(5):
        lobby.arrived(f"{number}", f"host{number}", "L", 0.0)
    lobby.arrived("other", "h", "M", 0.0)
    assert lobby.step(0.0).enter == ["0", "1", "other"]
    assert lobby.next_time(0.0) == 0.5
    assert lobby.step(0.5).enter == ["2"]
    lobby.set_rates(1.0, {}, 0.5)
    assert lobby.step(0.5).enter == ["3"]
    assert lobby.step(1.4).enter == []
    assert lobby.step(1.5).enter == ["4"]


def test_case_71_an_address_that_is_too_fast_is_held_and_closed() -> None:
    lobby = lobby_of(slots=100, rate=0.5)
    lobby.arrived("a", "h", "L", 0.0)
    lobby.arrived("b", "h", "L", 0.0)
    lobby.arrived("c", "other", "L", 0.0)
    assert lobby.step(0.0).enter == ["a", "c"]
    assert lobby.next_time(0.0) == lobby_module.MAX_HELD_SECONDS
    assert [one.visitor for one in lobby.step(1.0).close] == ["b"]


def test_a_bucket_holds_a_second() -> None:
    bucket = Bucket(4.0, 0.0)
    for _ in range(4):
        assert bucket.wait(100.0) == 0.0
        bucket.take()
    assert bucket.wait(100.0) == 0.25
    assert bucket.wait(100.25) == 0.0


class Visits(RuleBasedStateMachine):
    """Slots are never exceeded, nobody is forgotten, and nobody stays beyond the limits."""

    visitors: Bundle[str] = Bundle("visitors")

    def __init__(self) -> None:
        super().__init__()
        self.lobby = lobby_of(slots=3)
        self.now = 0.0
        self.count = 0
        self.silent: dict[str, float] = {}
        self.waiting: dict[str, float] = {}
        self.inside: dict[str, float] = {}
        self.progress: dict[str, float] = {}

    @rule(target=visitors, host=st.sampled_from("abc"), silent=st.booleans())
    def arrives(self, host: str, silent: bool) -> str:
        self.count += 1
        name = f"{host}{self.count}"
        self.lobby.arrived(name, host, "L", self.now, silent=silent)
        (self.silent if silent else self.waiting)[name] = self.now
        return name

    @rule(visitor=visitors)
    def speaks(self, visitor: str) -> None:
        self.lobby.spoke(visitor, self.now)
        if self.silent.pop(visitor, None) is not None:
            self.waiting[visitor] = self.now

    @rule(visitor=visitors)
    def goes_on(self, visitor: str) -> None:
        self.lobby.progressed(visitor, self.now)
        if visitor in self.inside:
            self.progress[visitor] = self.now

    @rule(visitor=consumes(visitors))
    def leaves(self, visitor: str) -> None:
        self.lobby.left(visitor)
        for place in (self.silent, self.waiting, self.inside):
            place.pop(visitor, None)

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 9.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        crowded = len(self.inside) == 3 and bool(self.waiting)
        moves = self.lobby.step(self.now)
        for visitor, reason in moves.close:
            if visitor in self.silent:
                assert self.now >= self.silent.pop(visitor) + LIMIT
            elif visitor in self.waiting:
                assert self.now >= self.waiting.pop(visitor) + WAIT
            elif reason == "timeout":
                assert self.now >= self.inside.pop(visitor) + LIMIT
            else:
                assert crowded
                assert self.now >= self.progress[visitor] + lobby_module.STALLED_SECONDS
                del self.inside[visitor]
        for visitor in moves.enter:
            del self.waiting[visitor]
            self.inside[visitor] = self.progress[visitor] = self.now
        assert len(self.inside) == 3 or not self.waiting
        assert all(self.now < began + LIMIT for began in self.silent.values())
        assert all(self.now < began + WAIT for began in self.waiting.values())
        assert all(self.now < began + LIMIT for began in self.inside.values())
        if self.waiting:
            due = lobby_module.STALLED_SECONDS
            assert all(self.now < self.progress[one] + due for one in self.inside)

    @invariant()
    def counts_are_right(self) -> None:
        assert self.lobby.waiting == len(self.waiting) + len(self.silent)
        assert self.lobby.authenticating == len(self.inside) <= 3


Visits.TestCase.settings = hypothesis_settings(max_examples=examples(), stateful_step_count=40)
TestVisits = Visits.TestCase


def test_delays_double_from_the_tenth_failure_within_ten_seconds_on() -> None:
    failures = Failures()
    delays = [failures.failed("h", 0.1, number * 0.5) for number in range(18)]
    assert delays[:10] == [0.1] * 10
    assert delays[10:16] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert delays[17] == 5.0
    assert failures.failed("other", 0.1, 9.0) == 0.1
    failures.succeeded("h")
    assert failures.failed("h", 0.1, 9.0) == 0.1


def test_failures_that_are_far_apart_do_not_add_up() -> None:
    failures = Failures()
    assert {failures.failed("h", 0.1, number * 2.0) for number in range(50)} == {0.1}


def test_failures_are_forgotten_and_bounded() -> None:
    failures = Failures()
    for number in range(20):
        failures.failed("h", 0.1, number * 0.1)
    assert failures.failed("h", 0.1, 2.0) == 5.0
    assert failures.failed("h", 0.1, 2.0 + lobby_module.FORGET_SECONDS) == 0.1
    for number in range(lobby_module.MAX_ADDRESSES + 5):
        failures.failed(f"{number}", 0.1, 100.0)
    assert len(failures) == lobby_module.MAX_ADDRESSES


def test_thousands_of_failures_do_not_overflow() -> None:
    failures = Failures()
    for _ in range(3_000):
        assert failures.failed("h", 0.1, 0.0) <= 5.0

"""Supervision: each rule, and random lives of three nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.cluster.supervise import (
    CRASH_SECONDS,
    LAST_DELAY_SECONDS,
    START_SECONDS,
    STOP_SECONDS,
    STOP_TOLD_SECONDS,
    TICK_SECONDS,
    Announce,
    Awaited,
    Beat,
    Exit,
    Exited,
    Fence,
    Fenced,
    Phase,
    Ready,
    Sent,
    Signal,
    Spawn,
    Started,
    Stop,
    Tick,
    back_off,
    decide_supervision,
    nodes_of,
    supervision_of,
)
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.errors import InvalidConfig

if TYPE_CHECKING:
    from ottla.cluster.supervise import Command, Event

KILLED = -9


class Shell:
    """Feeds events; the time is set by the test. Node 1 is well and sends its beats.

    A `Tick` after a long time comes with all those before it, unless the supervisor is paused.
    """

    def __init__(self, nodes: int = 2) -> None:
        self.state = supervision_of(load_broker_config(), nodes)
        self.now = 0.0

    def __call__(self, event: Event, after: float = 0.0) -> list[Command]:
        commands: list[Command] = []
        while isinstance(event, Tick) and after > TICK_SECONDS:
            commands += self._feed(event, TICK_SECONDS)
            after -= TICK_SECONDS
        return commands + self._feed(event, after)

    def paused(self, seconds: float) -> list[Command]:
        """The supervisor was stopped for so long, and has not read what came meanwhile."""
        self.now += seconds
        self.state, commands = decide_supervision(self.state, Tick(), self.now)
        return commands

    def _feed(self, event: Event, after: float) -> list[Command]:
        self.now += after
        if isinstance(event, Tick):
            self.state, _ = decide_supervision(self.state, Beat(1), self.now)
        self.state, commands = decide_supervision(self.state, event, self.now)
        return commands


@pytest.fixture
def shell() -> Shell:
    """Two nodes that are up."""
    shell = Shell()
    assert shell(Started()) == [Spawn(1), Spawn(2)]
    assert shell(Ready(2)) == []
    assert shell(Ready(1)) == [Announce()]
    return shell


def test_an_exited_node_is_spawned_at_once_and_announced_once(shell: Shell) -> None:
    assert shell(Exited(2, KILLED)) == [Spawn(2)]
    assert shell(Ready(2), 0.2) == []


def test_the_third_exit_in_a_minute_fences(shell: Shell) -> None:
    for _ in range(2):
        assert shell(Exited(2, 1), 10.0) == [Spawn(2)]
        assert shell(Ready(2)) == []
    assert shell(Exited(2, 1), 10.0) == [Fence(2)]
    assert shell(Tick(), 5.0) == []  # not before it is carried out
    assert shell(Fenced(2)) == []
    assert shell(Tick(), 0.9) == []
    assert shell(Tick(), 0.1) == [Spawn(2)]


def test_three_exits_over_more_than_a_minute_do_not_fence(shell: Shell) -> None:
    for _ in range(6):
        assert shell(Exited(2, 1), CRASH_SECONDS / 2) == [Spawn(2)]
        shell(Ready(2))


def test_on_probation_each_exit_fences_and_the_wait_doubles(shell: Shell) -> None:
    for _ in range(3):
        commands = shell(Exited(2, 1))
        shell(Ready(2))
    for delay in (1, 2, 4, 8, 16, 32, 60, 60):
        assert commands == [Fence(2)]
        assert shell(Fenced(2)) == []
        assert shell(Tick(), delay - 0.5) == []
        assert shell(Tick(), 0.5) == [Spawn(2)]
        shell(Ready(2))
        commands = shell(Exited(2, 1), 1.0)


def test_nodes_do_not_wait_for_each_other_when_none_serves(shell: Shell) -> None:
    for _ in range(3):
        shell(Exited(2, 1))
        shell(Ready(2))
    for delay in (1, 2, 4, 8, 16):
        shell(Fenced(2))
        assert shell(Tick(), delay) == [Spawn(2)]
        shell(Ready(2))
        assert shell(Exited(2, 1)) == [Fence(2)]
    assert shell(Fenced(2)) == []  # waits for 32 s
    for _ in range(2):
        assert shell(Exited(1, KILLED)) == [Spawn(1)]
    assert shell(Exited(1, KILLED)) == [Fence(1)]
    assert shell(Fenced(1)) == []
    assert shell(Tick(), 0.9) == []
    assert shell(Tick(), 0.1) == [Spawn(1), Spawn(2)]


def test_a_minute_up_ends_the_probation(shell: Shell) -> None:
    for _ in range(3):
        shell(Exited(2, 1))
        shell(Ready(2))
    shell(Fenced(2))
    shell(Tick(), 1.0)
    shell(Ready(2))
    for _ in range(int(CRASH_SECONDS)):
        shell(Beat(2))
        assert shell(Tick(), 1.0) == []
    assert shell(Exited(2, 1)) == [Spawn(2)]


def test_a_restart_that_is_not_ready_in_time_is_killed_then_fenced(shell: Shell) -> None:
    shell(Exited(2, KILLED))
    assert shell(Tick(), 2.9) == []
    assert shell(Tick(), 0.1) == [Signal(2, Sent.KILL)]
    assert shell(Tick(), 0.1) == []
    assert shell(Exited(2, KILLED)) == [Fence(2)]


def test_a_node_without_beats_is_killed(shell: Shell) -> None:
    assert shell(Tick(), 8.9) == []
    assert shell(Tick(), 0.1) == [Signal(2, Sent.KILL)]
    assert shell(Tick(), 1.0) == []
    assert shell(Exited(2, KILLED)) == [Spawn(2)]


def test_a_paused_supervisor_takes_no_node_for_dead(shell: Shell) -> None:
    assert shell.paused(17.0) == []
    assert shell(Beat(2)) == []
    assert shell(Tick(), 8.5) == []
    assert shell(Tick(), 0.5) == [Signal(2, Sent.KILL)]  # it does not answer now


def test_a_node_without_beats_is_killed_although_the_supervisor_pauses_time_and_again(
    shell: Shell,
) -> None:
    commands: list[Command] = []
    for _ in range(18):
        commands += shell.paused(5.0)
        shell(Beat(1))
    assert commands == [Signal(2, Sent.KILL)]


def test_a_pause_is_not_taken_from_the_time_of_a_start(shell: Shell) -> None:
    shell(Exited(2, KILLED))
    assert shell.paused(17.0) == []
    assert shell(Tick(), 2.0) == []
    assert shell(Tick(), 0.5) == [Signal(2, Sent.KILL)]
    assert shell(Exited(2, KILLED)) == [Fence(2)]


def test_a_start_after_a_pause_gets_no_more_time(shell: Shell) -> None:
    shell(Exited(2, KILLED), 17.0)
    assert shell(Tick()) == []
    assert shell(Tick(), 2.5) == []
    assert shell(Tick(), 0.5) == [Signal(2, Sent.KILL)]


def test_a_stop_is_clean_if_all_are(shell: Shell) -> None:
    assert shell(Stop()) == [Signal(1, Sent.TERM), Signal(2, Sent.TERM)]
    assert shell(Exited(1, 0)) == []
    assert shell(Exited(2, 0)) == [Exit(0)]
    assert shell(Tick(), 100.0) == []


def test_a_stop_with_a_failure_says_so(shell: Shell) -> None:
    shell(Stop())
    shell(Exited(1, 1))
    assert shell(Exited(2, 0)) == [Exit(1)]


def test_a_stop_kills_after_thirty_seconds(shell: Shell) -> None:
    shell(Stop())
    shell(Exited(1, 0))
    assert shell(Tick(), STOP_TOLD_SECONDS - 0.1) == []
    assert shell(Tick(), 0.1) == [Awaited(2)]
    assert shell(Tick(), STOP_SECONDS - STOP_TOLD_SECONDS - 0.1) == []
    assert shell(Tick(), 0.1) == [Signal(2, Sent.KILL)]
    assert shell(Exited(2, KILLED)) == [Exit(1)]


def test_a_second_stop_kills(shell: Shell) -> None:
    shell(Stop())
    assert shell(Stop()) == [Signal(1, Sent.KILL), Signal(2, Sent.KILL)]


def test_a_stop_waits_for_a_fence_and_spawns_nothing(shell: Shell) -> None:
    for _ in range(3):
        shell(Exited(2, 1))
        shell(Ready(2))
    assert shell(Stop()) == [Signal(1, Sent.TERM)]
    assert shell(Exited(1, 0)) == []
    assert shell(Fenced(2)) == [Exit(0)]


def test_a_stop_does_not_wait_for_a_node_in_back_off(shell: Shell) -> None:
    for _ in range(3):
        shell(Exited(2, 1))
        shell(Ready(2))
    shell(Fenced(2))
    shell(Stop())
    assert shell(Exited(1, 0)) == [Exit(0)]


@pytest.mark.parametrize(("status", "told"), [(2, 2), (1, 1), (3, 3), (KILLED, 1), (0, 1)])
def test_a_refused_start_ends_the_supervisor_with_its_status(status: int, told: int) -> None:
    shell = Shell()
    shell(Started())
    shell(Ready(1))
    assert shell(Exited(2, status)) == [Signal(1, Sent.TERM)]
    assert shell(Exited(1, 0)) == [Exit(told)]


def test_a_first_start_that_hangs_ends_the_supervisor() -> None:
    shell = Shell(1)
    shell(Started())
    assert shell(Tick(), START_SECONDS) == [Signal(1, Sent.KILL)]
    assert shell(Exited(1, KILLED)) == [Exit(1)]


def test_a_stop_during_the_start_is_clean() -> None:
    shell = Shell(1)
    shell(Started())
    shell(Stop())
    assert shell(Exited(1, -15)) == [Exit(0)]


def test_late_events_of_a_gone_process_change_nothing(shell: Shell) -> None:
    for _ in range(3):
        shell(Exited(2, 1))
        shell(Ready(2))
    before = shell.state
    assert shell(Ready(2)) == shell(Exited(2, 1)) == []
    assert shell.state == before
    shell(Fenced(2))
    before = shell.state
    assert shell(Fenced(2)) == []
    assert shell.state == before


def test_the_wait_is_bounded() -> None:
    assert back_off(1) == 1.0
    assert back_off(10_000) == LAST_DELAY_SECONDS


@pytest.mark.parametrize(
    ("value", "cores", "nodes"),
    [("1", 8, 1), ("4", 2, 4), ("64", 2, 64), ("auto", 6, 6), ("auto", 0, 1), ("auto", 256, 64)],
)
def test_the_number_of_nodes(value: str, cores: int, nodes: int) -> None:
    assert nodes_of(load_broker_config(sets=[f"ottla.nodes={value}"]), cores) == nodes


@pytest.mark.parametrize("value", ["0", "65", "-1", "two", ""])
def test_a_wrong_number_of_nodes_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ottla\.nodes"):
        load_broker_config(sets=[f"ottla.nodes={value}"])


def test_times_are_those_of_the_configuration() -> None:
    sets = ["broker.session.timeout.ms=2000", "ottla.nodes.restart.timeout.ms=500"]
    state = supervision_of(load_broker_config(sets=sets), 2)
    assert (state.nodes, state.session_seconds, state.restart_seconds) == ((1, 2), 2.0, 0.5)


class Lives(RuleBasedStateMachine):
    """The shell's processes as a model: what is spawned, runs; what is killed, exits."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.state = supervision_of(load_broker_config(), 3)
        self.running: dict[int, str] = {}
        self.fencing: set[int] = set()
        self.killed: set[int] = set()
        self.exits: dict[int, list[float]] = {1: [], 2: [], 3: []}
        self.announced = 0
        self.over: int | None = None
        self.stopping = False
        self.feed(Started())

    def feed(self, event: Event) -> None:
        self.state, commands = decide_supervision(self.state, event, self.now)
        for command in commands:
            assert self.over is None
            match command:
                case Spawn(node):
                    assert node not in self.running, "two processes of one node"
                    assert node not in self.fencing, "spawned while its lock is held"
                    assert not self.stopping
                    self.running[node] = "starting"
                case Signal(node, signal):
                    assert node in self.running
                    if signal is Sent.KILL:
                        assert node not in self.killed, "killed twice"
                        self.killed.add(node)
                case Fence(node):
                    assert node not in self.running, "fenced while it runs"
                    self.fencing.add(node)
                case Announce():
                    self.announced += 1
                case Exit(status):
                    assert not self.running
                    assert not self.fencing
                    self.over = status

    def exit(self, node: int, status: int) -> None:
        del self.running[node]
        self.killed.discard(node)
        self.exits[node].append(self.now)
        self.feed(Exited(node, status))

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0, 10.0, 61.0]), frozen=st.integers(0, 3))
    def time(self, seconds: float, frozen: int) -> None:
        """In steps of at most half a second, as the shell's clock ticks; one may be stopped."""
        for _ in range(max(1, int(seconds / 0.5))):
            self.now += min(seconds, 0.5)
            for node, phase in tuple(self.running.items()):
                if phase == "up" and node != frozen:
                    self.feed(Beat(node))
            self.feed(Tick())
            for node in tuple(self.killed):
                self.exit(node, KILLED)

    @rule(node=st.integers(1, 3))
    def ready(self, node: int) -> None:
        if self.running.get(node) == "starting":
            self.running[node] = "up"
            self.feed(Ready(node))

    @rule(node=st.integers(1, 3), status=st.sampled_from([0, 1, 2, KILLED]))
    def dies(self, node: int, status: int) -> None:
        if node in self.running:
            self.exit(node, status)

    @rule(node=st.integers(1, 3))
    def fenced(self, node: int) -> None:
        if node in self.fencing:
            self.fencing.remove(node)
            self.feed(Fenced(node))

    @precondition(lambda self: self.announced)
    @rule()
    def stop(self) -> None:
        self.stopping = True
        self.feed(Stop())

    @invariant()
    def the_state_tells_the_truth(self) -> None:
        if self.over is not None:
            return
        self.stopping = self.state.stopping is not None
        for node, child in self.state.children.items():
            assert child.phase.has_process == (node in self.running)
            assert (child.phase is Phase.FENCING) == (node in self.fencing)
        assert self.announced <= 1
        if not self.running and not self.fencing and not self.stopping:
            assert all(child.until <= self.now + 1 for child in self.state.children.values())

    def teardown(self) -> None:
        """Whatever happened, a stop ends within its time."""
        self.stopping = True
        if self.over is None and self.state.stopping is None:
            self.feed(Stop())
        for node in tuple(self.fencing):
            self.fenced(node)
        for _ in range(int(STOP_SECONDS / 0.5) + 1):
            self.time(0.5, 0)
        assert self.over is not None
        super().teardown()


TestLives = Lives.TestCase

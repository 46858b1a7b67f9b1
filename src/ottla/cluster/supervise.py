"""Supervision of the node processes of one machine: events in, commands out.

The shell passes each event with the monotonic time to `decide_supervision` and carries out the
commands in their order. It sends a `Tick` at least every `TICK_SECONDS`, after it has read the
beats that have come. If a `Tick` comes later, the supervisor was held up (SIGSTOP, a machine that
slept) and may not have read yet what its nodes sent meanwhile: that time counts for no node.

A node is in one phase:

    STARTING --Ready--> UP --Exited--> STARTING            a restart at once
    STARTING, UP --Exited--> FENCING --Fenced--> WAITING --Tick--> STARTING

* Start: all nodes are spawned. Once each is ready, `Announce` comes, once in a life. If one exits
  or is not ready within `START_SECONDS` before that, the others are stopped and the supervisor
  exits with that node's status (1 if it was killed): a start that is refused is not tried again.
* An exited node is spawned at once. Its partitions wait for it: its logs are warm, and it is ready
  sooner than a sibling could take them over.
* A node is fenced when it has exited `CRASHES` times within `CRASH_SECONDS`, when a restart is not
  ready within the restart timeout (it is killed first), or when it exits on probation. `Fence`
  means: the shell holds the lock of the dead node's directory, gives its partitions to siblings,
  and answers with `Fenced`. The process is gone by then, so nobody else appends to its logs.
* A fenced node is spawned again 1, 2, 4, ... 60 s after `Fenced`. It is then on probation until it
  has been up for `CRASH_SECONDS`: that ends its record of exits and fences. On probation a start
  may take `START_SECONDS`, because nobody waits for it.
* Once no node has a process, nobody serves and nobody could take over: all that wait are spawned
  1 s after the last `Fenced`, however often they have failed.
* A node that is up and has not sent a beat for the session timeout is killed. A stopped process
  (SIGSTOP) is thus killed, never waited for; then it counts as exited.
* Stop: SIGTERM to all, SIGKILL after `STOP_SECONDS` or at a second `Stop`; `Awaited` tells of each
  node that still runs after `STOP_TOLD_SECONDS`. When all are gone, `Exit` with 0 if every one
  exited with 0 or was terminated while it started, else with 1.

Events of a process that has been replaced cannot come: the shell closes its pipe before it reports
`Exited`, and a node has one process at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.cluster.layout import MAX_NODES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.metadata.config.broker import BrokerConfig

TICK_SECONDS: Final = 0.5  # exits, beats and signals wake the shell at once
BEAT_SECONDS: Final = 0.5
CRASHES: Final = 3
CRASH_SECONDS: Final = 60.0
# A first start reads checkpoints and may wait for a slow disk; longer means that it hangs.
START_SECONDS: Final = 30.0
# A node that stops syncs its logs first: to kill it sooner costs a recovery at the next start.
STOP_SECONDS: Final = 30.0
STOP_TOLD_SECONDS: Final = 3.0  # a stop is usually over by then
FIRST_DELAY_SECONDS: Final = 1.0
LAST_DELAY_SECONDS: Final = 60.0
FAILED: Final = 1
# Exit status of a process that SIGTERM ended: one that did not listen to signals yet.
TERMINATED: Final = -15


class Phase(Enum):
    STARTING = "starting"
    UP = "up"
    FENCING = "fencing"
    WAITING = "waiting"
    GONE = "gone"

    @property
    def has_process(self) -> bool:
        return self in {Phase.STARTING, Phase.UP}


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The supervisor has the directory; sent once, first."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The node serves its listeners."""

    node: int


@dataclass(frozen=True, slots=True)
class Beat:
    """A byte on the node's pipe, sent by its event loop every `BEAT_SECONDS`."""

    node: int


@dataclass(frozen=True, slots=True)
class Exited:
    """`waitpid` returned. A status below 0 is the signal that killed the process."""

    node: int
    status: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """`Fence` has been carried out, and the lock of the node's directory is free again."""

    node: int


@dataclass(frozen=True, slots=True)
class Tick:
    pass


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGTERM or SIGINT came to the supervisor."""


Event = Started | Ready | Beat | Exited | Fenced | Tick | Stop


# -- commands --------------------------------------------------------------------------------------


class Sent(Enum):
    TERM = "SIGTERM"
    KILL = "SIGKILL"


@dataclass(frozen=True, slots=True)
class Spawn:
    node: int


@dataclass(frozen=True, slots=True)
class Signal:
    node: int
    signal: Sent


@dataclass(frozen=True, slots=True)
class Fence:
    """Fence the node in the metadata and give its partitions to siblings; answer `Fenced`."""

    node: int


@dataclass(frozen=True, slots=True)
class Announce:
    """Print the ready line."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """Tell that the node has not stopped yet."""

    node: int


@dataclass(frozen=True, slots=True)
class Exit:
    status: int


Command = Spawn | Signal | Fence | Announce | Awaited | Exit


# -- state -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Child:
    """One node. `since` is when its phase began, `beat` when its last beat came."""

    phase: Phase
    since: float
    beat: float = 0.0
    until: float = 0.0
    """STARTING: when it must be ready. WAITING: when it is spawned again."""
    exits: tuple[float, ...] = ()
    """When it exited, within `CRASH_SECONDS`."""
    fences: int = 0
    """How often it was fenced without a good life in between; above 0 it is on probation."""
    is_killed: bool = False
    is_late: bool = False
    """Killed because a restart was not ready in time."""


@dataclass(frozen=True, slots=True)
class Supervision:
    nodes: tuple[int, ...]
    session_seconds: float
    restart_seconds: float
    children: Mapping[int, Child] = field(default_factory=dict)
    is_announced: bool = False
    stopping: float | None = None
    """Since when."""
    is_wait_told: bool = False
    status: int = 0
    is_over: bool = False
    looked: float = 0.0
    """When the last `Tick` came."""

    def with_child(self, node: int, child: Child) -> Supervision:
        return replace(self, children={**self.children, node: child})


def nodes_of(config: BrokerConfig, cores: int) -> int:
    """The number of nodes that `ottla.nodes` means on a machine with so many cores."""
    wanted = config.get_str("ottla.nodes")
    return min(max(cores, 1), MAX_NODES) if wanted == "auto" else int(wanted)


def supervision_of(config: BrokerConfig, nodes: int) -> Supervision:
    """Nodes 1 to `nodes`, none of which has been started."""
    return Supervision(
        tuple(range(1, nodes + 1)),
        config.get_int("broker.session.timeout.ms") / 1000,
        config.get_int("ottla.nodes.restart.timeout.ms") / 1000,
    )


def back_off(fences: int) -> float:
    """Seconds until a node that was fenced so often is spawned again."""
    return min(FIRST_DELAY_SECONDS * 2.0 ** min(fences - 1, 16), LAST_DELAY_SECONDS)


def decide_supervision(
    state: Supervision, event: Event, now: float
) -> tuple[Supervision, list[Command]]:
    if state.is_over:
        return state, []
    match event:
        case Started():
            return _spawn_all(state, now)
        case Ready(node):
            return _ready(state, node, now)
        case Beat(node):
            child = state.children[node]
            return state.with_child(node, replace(child, beat=now)), []
        case Exited(node, status):
            return _exited(state, node, status, now)
        case Fenced(node):
            return _fenced(state, node, now)
        case Tick():
            return _tick(state, now)
        case Stop():
            return _stop(state, now)


def _spawn_all(state: Supervision, now: float) -> tuple[Supervision, list[Command]]:
    child = Child(Phase.STARTING, now, until=now + START_SECONDS)
    return replace(state, children=dict.fromkeys(state.nodes, child), looked=now), [
        Spawn(node) for node in state.nodes
    ]


def _ready(state: Supervision, node: int, now: float) -> tuple[Supervision, list[Command]]:
    child = state.children[node]
    if child.phase is not Phase.STARTING:
        return state, []
    state = state.with_child(node, replace(child, phase=Phase.UP, since=now, beat=now))
    if (
        state.is_announced
        or state.stopping is not None
        or any(one.phase is not Phase.UP for one in state.children.values())
    ):
        return state, []
    return replace(state, is_announced=True), [Announce()]


def _exited(
    state: Supervision, node: int, status: int, now: float
) -> tuple[Supervision, list[Command]]:
    child = state.children[node]
    if not child.phase.has_process:
        return state, []
    if state.stopping is not None:
        gone = replace(child, phase=Phase.GONE, since=now)
        is_clean = not status or (child.phase is Phase.STARTING and status == TERMINATED)
        worst = state.status or (0 if is_clean else FAILED)
        return _ended(replace(state.with_child(node, gone), status=worst))
    if not state.is_announced:
        gone = replace(child, phase=Phase.GONE, since=now)
        refused = status if status > 0 else FAILED
        return _stop(replace(state.with_child(node, gone), status=refused), now)
    exits = (*(at for at in child.exits if at > now - CRASH_SECONDS), now)
    if child.fences or child.is_late or len(exits) >= CRASHES:
        fences = child.fences + 1
        fencing = Child(Phase.FENCING, now, exits=exits, fences=fences)
        return state.with_child(node, fencing), [Fence(node)]
    again = Child(Phase.STARTING, now, until=now + state.restart_seconds, exits=exits)
    return state.with_child(node, again), [Spawn(node)]


def _fenced(state: Supervision, node: int, now: float) -> tuple[Supervision, list[Command]]:
    child = state.children[node]
    if child.phase is not Phase.FENCING:
        return state, []
    if state.stopping is not None:
        return _ended(state.with_child(node, replace(child, phase=Phase.GONE, since=now)))
    until = now + back_off(child.fences)
    state = state.with_child(node, replace(child, phase=Phase.WAITING, since=now, until=until))
    if any(one.phase.has_process for one in state.children.values()):
        return state, []
    soon = now + FIRST_DELAY_SECONDS
    return replace(
        state,
        children={
            waiting: replace(one, until=min(one.until, soon))
            for waiting, one in state.children.items()
        },
    ), []


def _tick(state: Supervision, now: float) -> tuple[Supervision, list[Command]]:
    if state.stopping is not None:
        return _await(state, now - state.stopping)
    state = _without_pause(state, now)
    commands: list[Command] = []
    for node, child in state.children.items():
        match child.phase:
            case Phase.STARTING if now >= child.until and not child.is_killed:
                changed = replace(child, is_killed=True, is_late=True)
                commands.append(Signal(node, Sent.KILL))
            case Phase.UP if now >= child.beat + state.session_seconds and not child.is_killed:
                changed = replace(child, is_killed=True)
                commands.append(Signal(node, Sent.KILL))
            case Phase.UP if child.exits and now >= child.since + CRASH_SECONDS:
                changed = replace(child, exits=(), fences=0)
            case Phase.WAITING if now >= child.until:
                changed = Child(
                    Phase.STARTING,
                    now,
                    until=now + START_SECONDS,
                    exits=child.exits,
                    fences=child.fences,
                )
                commands.append(Spawn(node))
            case _:
                continue
        state = state.with_child(node, changed)
    return state, commands


def _without_pause(state: Supervision, now: float) -> Supervision:
    """Deadlines of nodes move by the time for which this `Tick` is late."""
    pause = now - state.looked - TICK_SECONDS
    state = replace(state, looked=now)
    if pause <= 0:
        return state
    for node, child in state.children.items():
        match child.phase:
            case Phase.STARTING:
                moved = replace(child, until=child.until + min(pause, now - child.since))
            case Phase.UP:
                moved = replace(child, beat=min(child.beat + pause, now))
            case _:
                continue
        state = state.with_child(node, moved)
    return state


def _stop(state: Supervision, now: float) -> tuple[Supervision, list[Command]]:
    if state.stopping is not None:
        return _kill_all(state)
    children = {
        node: replace(child, phase=Phase.GONE) if child.phase is Phase.WAITING else child
        for node, child in state.children.items()
    }
    commands: list[Command] = [
        Signal(node, Sent.TERM) for node, child in children.items() if child.phase.has_process
    ]
    state, exits = _ended(replace(state, stopping=now, children=children))
    return state, commands + exits


def _await(state: Supervision, waited: float) -> tuple[Supervision, list[Command]]:
    if waited >= STOP_SECONDS:
        return _kill_all(state)
    if waited < STOP_TOLD_SECONDS or state.is_wait_told:
        return state, []
    return replace(state, is_wait_told=True), [
        Awaited(node) for node, child in state.children.items() if child.phase.has_process
    ]


def _kill_all(state: Supervision) -> tuple[Supervision, list[Command]]:
    commands: list[Command] = []
    for node, child in state.children.items():
        if child.phase.has_process and not child.is_killed:
            state = state.with_child(node, replace(child, is_killed=True))
            commands.append(Signal(node, Sent.KILL))
    return state, commands


def _ended(state: Supervision) -> tuple[Supervision, list[Command]]:
    if any(child.phase is not Phase.GONE for child in state.children.values()):
        return state, []
    return replace(state, is_over=True), [Exit(state.status)]

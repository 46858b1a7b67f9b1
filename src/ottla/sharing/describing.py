"""A share-partition as it is described to people: who holds which records. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.wire.schema.describe_share_group_offsets import ShareWindowRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.sharing.partition import SharePartition

MOST_RUNS: Final = 2_000
"""Of a partition in a response: 60 KB, and more than a picture can show."""
NOBODY: Final = -1


class Held(NamedTuple):
    """The parts of a described partition that only its leader knows; -1 is unknown."""

    in_flight: int
    window: Sequence[ShareWindowRun] = ()
    members: Sequence[str] = ()
    end_offset: int = -1
    window_cut: bool = False
    stalled_ms: int = -1


def held(machine: SharePartition, now_ms: int, moved_ms: int, most_runs: int) -> Held:
    """What members hold, with at most so many runs of the window; 0 leaves it out."""
    if most_runs <= 0:
        return Held(machine.in_flight)
    found = machine.runs()
    shown = found[: min(most_runs, MOST_RUNS)]
    members: dict[str, int] = {}
    window = []
    for first, last, condition, _ in shown:
        owner = condition.owner
        member = NOBODY if owner is None else members.setdefault(owner, len(members))
        lock_ms = 0 if owner is None else max(0, condition.deadline_ms - now_ms)
        window.append(
            ShareWindowRun(first, last, condition.state, condition.delivery_count, member, lock_ms)
        )
    return Held(
        machine.in_flight,
        window,
        list(members),
        machine.end_offset,
        len(found) > len(shown),
        now_ms - moved_ms,
    )

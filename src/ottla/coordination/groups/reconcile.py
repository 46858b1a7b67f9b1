"""Moves one member towards its target: revoke before grant.

A member is in one of three states, kept in its current assignment:

    STABLE (0)      it has reached the target epoch and all of its target
    UNREVOKED (1)   it must give partitions back first; its epoch stays until it has
    UNRELEASED (2)  it has reached the target epoch; others still hold part of its target

Rules:

- Partitions outside the target leave `assigned` at once and wait in `pending_revocation` until the
  member reports an owned set without them. A member that reports nothing may still use them.
- A partition is granted only when no other member has it in either set.
- The epoch moves to the target's when nothing is left to revoke.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordination.groups.records import CurrentAssignmentValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordination.groups.partitions import Partitions, TopicPartition

STABLE, UNREVOKED, UNRELEASED = range(3)


def reconcile(
    current: CurrentAssignmentValue,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    is_free: Callable[[TopicPartition], bool],
) -> CurrentAssignmentValue:
    """The member's next assignment; it reports `owned`; `is_free`: no other member owns it."""
    if current.state == STABLE and current.member_epoch == target_epoch:
        return current
    if current.state == UNREVOKED and (owned is None or owned & current.pending_revocation):
        return current
    kept = current.assigned & target
    leaving = current.assigned - target
    if leaving and (owned is None or owned & leaving):
        return CurrentAssignmentValue(
            current.member_epoch, current.previous_epoch, UNREVOKED, kept, leaving
        )
    wanted = target - kept
    granted = frozenset(partition for partition in wanted if is_free(partition))
    moved = current.member_epoch != target_epoch
    return CurrentAssignmentValue(
        target_epoch,
        current.member_epoch if moved else current.previous_epoch,
        STABLE if granted == wanted else UNRELEASED,
        kept | granted,
        frozenset(),
    )

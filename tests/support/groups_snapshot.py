"""The durable part of a coordinator as a value, to compare a live one with its replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordination.groups.classic_state import ClassicGroup, State
from ottla.coordination.groups.share_group import ShareGroup

if TYPE_CHECKING:
    from ottla.coordination.groups.coordinator import Group, GroupCoordinator


def durable(machine: GroupCoordinator) -> dict[str, object]:
    """What must survive a restart; classic groups that were never recorded do not."""
    groups = {
        group_id: _durable_group(group)
        for group_id, group in machine.groups.items()
        if group.stored is not None
    }
    pending = {
        group_id: {partition: list(values.items()) for partition, values in partitions.items()}
        for group_id, partitions in machine.offsets.pending.groups.items()
    }
    return {"groups": groups, "offsets": machine.offsets.groups, "pending": pending}


def _durable_group(group: Group) -> object:
    if isinstance(group, ClassicGroup):
        return group.stored
    if isinstance(group, ShareGroup):
        return (
            group.stored,
            group.target_epoch,
            group.members,
            group.targets,
            group.current,
            group.states,
        )
    return (
        group.stored,
        group.target_epoch,
        group.members,
        group.targets,
        group.current,
        group.regexes,
        group.static,
        group.owners,
    )


def settled(group: ClassicGroup) -> object:
    """A group between rounds, as its members see it: a restart must rebuild exactly this."""
    assert group.state in (State.STABLE, State.EMPTY)
    return (
        group.state,
        group.state_ms,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader,
        group.static,
        [
            (
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.metadata(group.protocol),
                member.assignment,
            )
            for member in group.members.values()
        ],
    )

"""Effects of share groups at the share coordinator.

An effect is emitted after its decision is committed. The code that performs it must

- perform the effects of a group one after another, in their order, because a delete that overtakes
  an initialise (or vice versa) would leave the wrong state, and
- report the outcome of every effect once: `ShareStateInitialized` or `ShareStateDeleted` with an
  error code per partition; a missing partition counts as failed.

Effects are compared by identity: a report refers to the effect object itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ottla.coordination.machine import Effect
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.coordination.groups.partitions import Partitions, TopicPartition

Outcome: TypeAlias = "Mapping[TopicPartition, ErrorCode]"


@dataclass(frozen=True, slots=True, eq=False)
class InitializeShareState(Effect):
    """`starts` has the start offset of each partition; -1: use the group's reset."""

    group_id: str
    state_epoch: int
    starts: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, eq=False)
class DeleteShareState(Effect):
    group_id: str
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class ShareStateInitialized:
    effect: InitializeShareState
    outcome: Outcome

    @property
    def group_id(self) -> str:
        return self.effect.group_id


@dataclass(frozen=True, slots=True)
class ShareStateDeleted:
    effect: DeleteShareState
    outcome: Outcome

    @property
    def group_id(self) -> str:
        return self.effect.group_id


def error_of(outcome: Outcome, partition: TopicPartition) -> ErrorCode:
    return outcome.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)

"""The stored half of a queue's window, from `__share_group_state`: for clusters that tell no more.

A share-partition's state is a snapshot and the updates after it. They tell the start, and which
records beyond it are acknowledged, archived or available again. Who holds a record, and for how
long, only the leader knows: offsets between stored ones are "delivered, outcome unknown".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.client.admin.types import ShareWindow, ShareWindowRun
from ottla.coordination.share_state.batches import StateBatches, combine
from ottla.coordination.share_state.records import ShareKey, Snapshot, decode
from ottla.wire.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.client.cluster.view import TopicPartition

STATE_TOPIC: Final = "__share_group_state"
MOST_BYTES: Final = 64 << 20
"""Read of a state partition for one look at it; the next look goes on from there."""
MOST_SECONDS: Final = 3.0
MOST_GROUPS: Final = 20
"""Groups whose states are remembered, so that a look reads what is new only."""
MOST_RUNS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Stored:
    """The state of a share-partition so far."""

    start: int
    batches: StateBatches


@dataclass(slots=True)
class GroupState:
    """Of one group: what is stored, and how far each partition of the state topic was read."""

    group: str
    stored: dict[ShareKey, Stored] = field(default_factory=dict)
    read_to: dict[int, int] = field(default_factory=dict)


def fold(state: GroupState, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    """Take in keys and values of records in their order; other groups' are passed over."""
    stored = state.stored
    for key, value in records:
        try:
            record = None if key is None else decode(bytes(key), value)
        except WireError:
            continue  # of a version to come
        if record is None or record.key.group_id != state.group:
            continue
        if record.value is None:
            stored.pop(record.key, None)
        elif isinstance(record.value, Snapshot):
            stored[record.key] = Stored(record.value.start_offset, record.value.batches)
        elif (before := stored.get(record.key)) is not None:
            update = record.value
            start = before.start if update.start_offset < 0 else update.start_offset
            stored[record.key] = Stored(start, combine(before.batches, update.batches, start))


def window(key: TopicPartition, state: Stored, log_end: int, *, is_cut: bool) -> ShareWindow | None:
    """The window of a share-partition; None if its start is not resolved yet."""
    if state.start < 0:
        return None
    shown = [one for one in state.batches if one.last >= state.start][:MOST_RUNS]
    return ShareWindow(
        topic=key.topic,
        partition=key.partition,
        start=state.start,
        end=max((one.last + 1 for one in state.batches), default=state.start),
        log_end=log_end,
        runs=[ShareWindowRun(*one) for one in shown],
        source="state topic",
        cut=is_cut or len(shown) < len(state.batches),
    )

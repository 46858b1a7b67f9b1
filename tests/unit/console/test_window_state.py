"""The fold of `__share_group_state` into windows."""

from __future__ import annotations

from uuid import UUID

from ottla.client.cluster.view import TopicPartition
from ottla.console import window as w
from ottla.console.window_state import MOST_RUNS, GroupState, Stored, fold, window
from ottla.coordination.share_state.batches import StateBatch
from ottla.coordination.share_state.records import ShareKey, Snapshot, StateRecord, Update

KEY = ShareKey("warehouse", UUID(int=7), 0)
OTHER = KEY._replace(group_id="other")
PLACE = TopicPartition("orders", 0)


def snapshot(start: int, *batches: StateBatch, key: ShareKey = KEY) -> StateRecord:
    return StateRecord(key, Snapshot(0, 1, 1, start, 0, 0, batches))


def update(start: int, *batches: StateBatch) -> StateRecord:
    return StateRecord(KEY, Update(0, 1, start, batches))


def folded(*records: StateRecord) -> dict[ShareKey, Stored]:
    state = GroupState(KEY.group_id)
    fold(state, (record.encode() for record in records))
    return state.stored


def test_case_53_a_snapshot_and_its_updates() -> None:
    found = folded(
        snapshot(100, StateBatch(105, 109, w.ACKNOWLEDGED, 1)),
        snapshot(5, key=OTHER),
        update(-1, StateBatch(100, 101, w.AVAILABLE, 2), StateBatch(110, 110, w.ARCHIVED, 5)),
        update(101),
    )
    assert set(found) == {KEY}
    made = window(PLACE, found[KEY], 200, is_cut=False)
    assert made is not None
    assert (made.start, made.end, made.log_end) == (101, 111, 200)
    assert w.strip(made, 10) == "a???▒▒▒▒▒x"


def test_what_ends_begins_or_is_not_understood() -> None:
    assert folded(snapshot(5), StateRecord(KEY, None)) == {}
    assert folded(update(7)) == {}, "an update before any snapshot"
    state = GroupState(KEY.group_id)
    fold(state, [(None, b"x"), (b"\x00\x09", b""), (b"\x00", None), (b"\x00\x00", b"\xff")])
    assert state.stored == {}
    unresolved = folded(snapshot(-1))
    assert window(PLACE, unresolved[KEY], 5, is_cut=False) is None


def test_case_54_many_runs_are_cut() -> None:
    batches = tuple(StateBatch(at, at, 2, 1) for at in range(0, 10_000, 2))
    made = window(PLACE, Stored(0, batches), 10_000, is_cut=False)
    assert made is not None
    assert len(made.runs) == MOST_RUNS
    assert made.cut
    assert made.end == 9_999

"""Committed offsets under any order of commits, transactions, deletions, restarts, compaction.

The model is the rule as Kafka states it: every write has the offset of its record, and a marker
lets a pending write count unless what counts already was written after it. Held at every step:
what is fetched is what the model says, stable or not; a replay of the log, compacted or not, is the
live state.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.coordination.groups.messages import (
    ApplyMarker,
    DeleteGroup,
    DeleteGroupResponse,
    ForgetOffsets,
    ForgetOffsetsResponse,
    MarkerApplied,
    OffsetCommit,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
)
from ottla.coordination.machine import Batch, Marker, Transactional
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_driver import Driver
from tests.support.groups_snapshot import durable

GROUPS, TOPICS, PRODUCERS = "gh", "tu", (1, 2)

Key = tuple[str, str]  # group, topic; partition 0 serves


class Write(NamedTuple):
    record: int
    offset: int


# Mostly one of each, so that writes meet.
keys = st.sampled_from([("g", "t")] * 5 + [("g", "u"), ("h", "t"), ("h", "u")])
producers = st.sampled_from(PRODUCERS)


def compacted(batches: list[Batch]) -> list[Batch]:
    """What compaction may leave: below the first open transaction, of each key the last record.

    Records of aborted transactions go first, and count for nothing.
    """
    opened: dict[int, int] = {}
    aborted: set[int] = set()
    members: dict[int, list[int]] = {}
    for number, (_, transaction) in enumerate(batches):
        if isinstance(transaction, Marker):
            opened.pop(transaction.producer_id, None)
            ended = members.pop(transaction.producer_id, [])
            if not transaction.commit:
                aborted.update(ended)
        elif transaction is not None:
            opened.setdefault(transaction.producer_id, number)
            members.setdefault(transaction.producer_id, []).append(number)
    stable = min(opened.values(), default=len(batches))
    decided = [number for number in range(stable) if number not in aborted]
    last = {key: number for number in decided for key, _ in batches[number].records}
    return [
        Batch([r for r in records if number in decided and last[r[0]] == number], transaction)
        if number < stable
        else batches[number]
        for number, (records, transaction) in enumerate(batches)
    ]


class TransactionalOffsets(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.written = 0
        self.counts: dict[Key, Write] = {}
        self.pending: dict[int, dict[Key, Write]] = {}

    def commit(self, key: Key, producer_id: int | None) -> Write:
        self.written += 1
        transaction = None if producer_id is None else Transactional(producer_id, 0)
        offsets = (OffsetToCommit(key[1], 0, self.written),)
        request = OffsetCommit(key[0], offsets, transaction=transaction)
        assert self.driver.commit(request) == [ErrorCode.NONE]
        return Write(self.written, self.written)

    def forget(self, *keys: Key) -> None:
        for key in keys:
            self.counts.pop(key, None)
            for writes in self.pending.values():
                writes.pop(key, None)

    @rule(key=keys, producer_id=st.none() | producers)
    def write(self, key: Key, producer_id: int | None) -> None:
        written = self.commit(key, producer_id)
        if producer_id is None:
            self.counts[key] = written
        else:
            self.pending.setdefault(producer_id, {})[key] = written

    @rule(key=keys)
    def interleave(self, key: Key) -> None:
        """Random steps alone seldom bring the transactions of several producers together."""
        for producer_id in (*PRODUCERS, PRODUCERS[0]):
            self.write(key, producer_id)

    @rule(producer_id=producers, commit=st.booleans())
    def end(self, producer_id: int, commit: bool) -> None:
        marker = Marker(producer_id, 0, 0, commit)
        self.driver.ask(ApplyMarker(marker), MarkerApplied)
        for key, write in self.pending.pop(producer_id, {}).items():
            if commit and write.record > self.counts.get(key, Write(0, -1)).record:
                self.counts[key] = write

    @rule(key=keys, what=st.sampled_from(["offset", "group", "topic"]))
    def delete(self, key: Key, what: str) -> None:
        group, topic = key
        if what == "offset":
            self.driver.ask(OffsetDelete(group, ((topic, 0),)), OffsetDeleteResponse)
            self.forget(key)
        elif what == "topic":
            self.driver.ask(ForgetOffsets(frozenset({topic})), ForgetOffsetsResponse)
            self.forget(*((each, topic) for each in GROUPS))
        else:
            known = any(each[0] == group for each in self.counts.keys() | self.unstable())
            answer = self.driver.ask(DeleteGroup(group), DeleteGroupResponse)
            assert answer.error is (ErrorCode.NONE if known else ErrorCode.GROUP_ID_NOT_FOUND)
            self.forget(*((group, each) for each in TOPICS))

    @rule(compacts=st.booleans())
    def restart(self, compacts: bool) -> None:
        if compacts:
            self.driver.batches = compacted(self.driver.batches)
        self.driver.restart()

    def unstable(self) -> set[Key]:
        return {key for writes in self.pending.values() for key in writes}

    @invariant()
    def fetches_what_counts(self) -> None:
        unstable = self.unstable()
        for group in GROUPS:
            asked = tuple((topic, (0,)) for topic in TOPICS)
            for stable in (False, True):
                request = OffsetFetch(group, asked, require_stable=stable)
                for found in self.driver.ask(request, OffsetFetchResponse).offsets:
                    key = group, found.topic
                    if stable and key in unstable:
                        assert found.error is ErrorCode.UNSTABLE_OFFSET_COMMIT
                    else:
                        expected = self.counts.get(key, Write(0, -1)).offset
                        assert (found.error, found.offset) == (ErrorCode.NONE, expected)

    @invariant()
    def replay_equals(self) -> None:
        assert durable(self.driver.replayed()) == durable(self.driver.machine)


TestTransactionalOffsets = TransactionalOffsets.TestCase
TestTransactionalOffsets.settings = settings(stateful_step_count=20)  # every step replays all

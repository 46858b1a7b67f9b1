"""The planner of fetches, with a world of logs, leaders and accidents around it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.client.cluster.view import NO_LEADER, Partition, Topic
from ottla.client.errors import ClientError, ConnectionLost, KafkaError, UnsupportedApi
from ottla.client.reader.fetching import (
    FETCH_BYTES,
    OVERTAKE_AFTER,
    Fetch,
    Fetched,
    LookedUp,
    Lookup,
)
from ottla.client.reader.planner import Planner
from ottla.client.reader.types import (
    EARLIEST,
    LATEST,
    DataLost,
    OnDataLoss,
    Place,
    TopicRecreated,
)
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.reader.fetching import Question

NODES = (1, 2, 3)
PARTITIONS = 4
PREFETCH = 100
ID = b"i" * 16
LOST = ConnectionLost("lost")
BEGINNING = Place(0)


def topic_of(leaders: Sequence[int], topic_id: bytes = ID) -> Topic:
    partitions = [Partition(n, leader, 5, (), (), ()) for n, leader in enumerate(leaders)]
    return Topic("t", topic_id, False, partitions)


def planner_of(
    start: Place = BEGINNING,
    stop: Place | None = None,
    *,
    partitions: Sequence[int] | None = None,
    on_data_loss: OnDataLoss = "error",
    patience: float = 60.0,
    prefetch: int = PREFETCH,
) -> Planner:
    return Planner(
        topic="t",
        start=lambda _: start,
        stop=lambda _: stop,
        partitions=partitions,
        prefetch=prefetch,
        patience=patience,
        metadata_max_age=300.0,
        random=lambda: 0.0,
        on_data_loss=on_data_loss,
    )


def ready_planner(leaders: Sequence[int] = (1,), **options: object) -> Planner:
    planner = planner_of(**options)  # type: ignore[arg-type]  # they are those of planner_of
    assert planner.wants_metadata(0.0)
    planner.refreshed({"t": topic_of(leaders)}, 0.0)
    return planner


class World(RuleBasedStateMachine):
    """Logs that grow and shrink from below, leaders that move, answers that are late or lost."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.buffered = 0
        self.logs = [(0, 5)] * PARTITIONS  # first offset, end
        self.leaders = [NODES[n % len(NODES)] for n in range(PARTITIONS)]
        self.asked: list[Question[int]] = []
        self.asked_metadata = 0
        self.expected: dict[int, int] = {}

    @initialize(
        start=st.sampled_from([Place(0), Place(3), Place(None, EARLIEST), Place(None, 99)]),
        stop=st.sampled_from([Place(7), Place(None, LATEST), Place(None, 1000)]),
    )
    def begin(self, start: Place, stop: Place) -> None:
        self.planner = planner_of(start, stop, on_data_loss="earliest", patience=math.inf)
        self.plan()
        self.answer_metadata(True)

    # What the reader does. It plans after whatever happens, as the pump does.

    def plan(self) -> None:
        questions = self.planner.plan(self.now, self.buffered)
        for one in questions:
            if isinstance(one, Fetch):
                wanted = [other.max_bytes for other in self._fetches() if self._is_wanted(other)]
                used = self.buffered + sum(wanted)
                assert used == 0 or used + one.max_bytes <= PREFETCH
                self.asked.append(one)
                for number, asked in one.asked.items():
                    assert asked.at == self.expected[number]
                    track = self.planner.tracks[number]
                    assert track.end is not None
                    assert asked.at < track.end or not track.is_confirmed
                    assert asked.at != track.end
        self.asked += [one for one in questions if isinstance(one, Lookup)]
        assert self.planner.plan(self.now, self.buffered) == []
        self.asked_metadata += self.planner.wants_metadata(self.now)
        assert self.asked_metadata <= 1

    @rule(share=st.integers(1, 3))
    def read(self, share: int) -> None:
        self.buffered -= self.buffered // share
        self.plan()

    @rule(
        number=st.integers(0, PARTITIONS - 1),
        place=st.sampled_from([Place(0), Place(2), Place(6), Place(None, LATEST), Place(None, 3)]),
    )
    def seek(self, number: int, place: Place) -> None:
        if number in self.planner.tracks:
            self.planner.seek(number, place)
            self.expected.pop(number, None)
            if place.offset is not None:
                self.expected[number] = place.offset
            self.plan()

    @rule(seconds=st.floats(0.0, 2.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.plan()

    # What the brokers do.

    @rule(number=st.integers(0, PARTITIONS - 1), records=st.integers(1, 5))
    def grow(self, number: int, records: int) -> None:
        first, end = self.logs[number]
        self.logs[number] = (first, end + records)

    @rule(number=st.integers(0, PARTITIONS - 1), records=st.integers(1, 5))
    def shrink(self, number: int, records: int) -> None:
        first, end = self.logs[number]
        self.logs[number] = (min(end, first + records), end)

    @rule(number=st.integers(0, PARTITIONS - 1), node=st.sampled_from((NO_LEADER, *NODES)))
    def move(self, number: int, node: int) -> None:
        self.leaders[number] = node

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 9), records=st.integers(0, 5))
    def answer(self, which: int, records: int) -> None:
        question = self.asked.pop(which % len(self.asked))
        if isinstance(question, Lookup):
            self._answer_lookup(question)
        else:
            self._answer_fetch(question, records)
        self.plan()

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 9))
    def lose(self, which: int) -> None:
        question = self.asked.pop(which % len(self.asked))
        self.planner.failed(question, LOST, self.now)
        self.plan()

    @precondition(lambda self: self.asked_metadata)
    @rule(succeeds=st.booleans())
    def answer_metadata(self, succeeds: bool) -> None:
        self.asked_metadata -= 1
        known = set(self.planner.tracks)
        if succeeds:
            self.planner.refreshed({"t": topic_of(self.leaders)}, self.now)
        else:
            self.planner.refresh_failed(LOST, self.now)
        for number in self.planner.tracks.keys() - known:
            offset = self.planner.tracks[number].offset
            if offset is not None:
                self.expected[number] = offset
        self.plan()

    def _answer_lookup(self, question: Lookup[int]) -> None:
        answer = {}
        for number, asked in question.asked.items():
            first, end = self.logs[number]
            if self.leaders[number] != question.node:
                answer[number] = LookedUp(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            elif asked.at == EARLIEST:
                answer[number] = LookedUp(0, first)
            elif asked.at == LATEST:
                answer[number] = LookedUp(0, end)
            else:  # records are as old as their offsets
                answer[number] = LookedUp(0, max(first, asked.at) if asked.at < end else -1)
        for number, offset in self.planner.looked_up(question, answer, self.now).items():
            assert offset >= 0
            self.expected[number] = offset

    def _answer_fetch(self, question: Fetch[int], records: int) -> None:
        answer = {}
        for number, asked in question.asked.items():
            first, end = self.logs[number]
            if self.leaders[number] != question.node:
                answer[number] = Fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
            elif not first <= asked.at <= end:
                answer[number] = Fetched(ErrorCode.OFFSET_OUT_OF_RANGE, None)
            else:
                after = min(end, asked.at + records)
                answer[number] = Fetched(0, after if after > asked.at else None)
        for number in self.planner.fetched(question, answer, self.now):
            assert question.asked[number].at == self.expected[number]
            after_it = answer[number].next_offset
            assert after_it is not None
            self.expected[number] = after_it
            self.buffered += 7

    @invariant()
    def nothing_that_passes_is_a_failure(self) -> None:
        if hasattr(self, "planner"):
            assert self.planner.failure is None

    def _fetches(self) -> list[Fetch[int]]:
        return [one for one in self.asked if isinstance(one, Fetch)]

    def _is_wanted(self, fetch: Fetch[int]) -> bool:
        """Whether its answer is used for any partition."""
        tracks = self.planner.tracks
        return any(tracks[n].version == asked.version for n, asked in fetch.asked.items())

    @invariant()
    def a_leader_has_one_fetch_and_one_that_was_overtaken(self) -> None:
        nodes = [one.node for one in self._fetches()]
        assert max(map(nodes.count, nodes), default=0) <= 2
        wanted = [one.node for one in self._fetches() if self._is_wanted(one)]
        assert len(wanted) == len(set(wanted))

    def teardown(self) -> None:
        """When the accidents stop, every partition reaches its end."""
        if not hasattr(self, "planner"):
            return
        self.leaders = [NODES[0]] * PARTITIONS
        self.logs = [(min(first, 20), max(end, 60)) for first, end in self.logs]
        for _ in range(200):
            self.buffered = 0
            self.plan()
            for _ in range(len(self.asked)):
                self.answer(0, 5)
            if self.asked_metadata:
                self.answer_metadata(True)
            tracks = self.planner.tracks.values()
            if tracks and all(track.is_done for track in tracks):
                return
            self.now = max(self.now, min(self.planner.wake_at(self.now), self.now + 1000.0))
        raise AssertionError(f"still at {self.planner.tracks}")


TestWorld = World.TestCase
TestWorld.settings = settings(stateful_step_count=60)


def test_one_fetch_per_leader_with_all_of_its_partitions() -> None:
    planner = ready_planner((1, 2, 1))
    first, second = planner.plan(0.0, 0)
    assert isinstance(first, Fetch)
    assert (first.node, list(first.asked)) == (1, [0, 2])
    assert (second.node, list(second.asked)) == (2, [1])
    assert first.asked[0] == (0, 5, planner.tracks[0].version)


def test_partitions_that_gave_data_go_to_the_back() -> None:
    planner = ready_planner((1, 1, 1))
    [question] = planner.plan(0.0, 0)
    assert isinstance(question, Fetch)
    answer = {0: Fetched(0, 10), 1: Fetched(0, None), 2: Fetched(0, 3)}
    assert planner.fetched(question, answer, 0.0) == [0, 2]
    [question] = planner.plan(0.0, 0)
    assert list(question.asked) == [1, 0, 2]


def test_a_large_buffer_is_fetched_in_pieces_and_a_small_one_is_shared() -> None:
    [question] = ready_planner(prefetch=10**9).plan(0.0, 0)
    assert isinstance(question, Fetch)
    assert question.max_bytes == FETCH_BYTES
    questions = ready_planner((1, 2, 3)).plan(0.0, 0)
    assert [one.max_bytes for one in questions if isinstance(one, Fetch)] == [25, 25, 25]
    assert ready_planner((1, 2, 3)).plan(0.0, 76) == []
    [question] = ready_planner(prefetch=1).plan(0.0, 0)
    assert isinstance(question, Fetch)
    assert question.max_bytes == 1


def test_failures_are_tried_again_ever_later_until_patience_ends() -> None:
    planner = ready_planner(patience=1.0)
    now, waits = 0.0, []
    while planner.failure is None:
        [question] = planner.plan(now, 0)
        planner.failed(question, LOST, now)
        wake = planner.tracks[0].not_before
        waits.append(round(wake - now, 3))
        now = wake
        if planner.wants_metadata(now):
            planner.refreshed({"t": topic_of([1])}, now)
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]
    assert planner.plan(now, 0) == []
    assert planner.wake_at(now) == math.inf
    assert not planner.wants_metadata(now)
    assert planner.take_failure() is LOST
    assert planner.take_failure() is None
    assert len(planner.plan(now, 0)) == 1


def test_a_leader_that_is_not_one_any_more_is_not_asked_again_before_metadata_comes() -> None:
    planner = ready_planner((1, 1))
    [question] = planner.plan(0.0, 0)
    answer = {0: Fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, None), 1: Fetched(0, None)}
    assert planner.fetched(question, answer, 0.0) == []  # type: ignore[arg-type]  # nothing to look up
    [question] = planner.plan(10.0, 0)
    assert list(question.asked) == [1]
    assert planner.wants_metadata(10.0)
    assert planner.plan(20.0, 0) == []
    planner.refreshed({"t": topic_of([2, 1])}, 20.0)
    [question] = planner.plan(20.0, 0)
    assert (question.node, list(question.asked)) == (2, [0])


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedApi("too old"),
        KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "read"),
    ],
)
def test_what_will_not_pass_fails_at_once(error: ClientError) -> None:
    planner = ready_planner()
    [question] = planner.plan(0.0, 0)
    planner.failed(question, error, 0.0)
    assert planner.take_failure() is error


def test_an_answer_that_leaves_a_partition_out_is_no_answer() -> None:
    planner = ready_planner()
    [question] = planner.plan(0.0, 0)
    assert isinstance(question, Fetch)
    assert planner.fetched(question, {}, 0.0) == []
    assert "UNKNOWN_SERVER_ERROR" in str(planner.take_failure())


def test_lost_records_fail_or_move_the_partition() -> None:
    gone = {0: Fetched(ErrorCode.OFFSET_OUT_OF_RANGE, None)}
    strict = ready_planner(start=Place(7))
    [question] = strict.plan(0.0, 0)
    assert isinstance(question, Fetch)
    strict.fetched(question, gone, 0.0)
    assert isinstance(strict.take_failure(), DataLost)
    assert strict.tracks[0].offset == 7

    lax = ready_planner(start=Place(7), on_data_loss="latest")
    [question] = lax.plan(0.0, 0)
    assert isinstance(question, Fetch)
    lax.fetched(question, gone, 0.0)
    [lookup] = lax.plan(0.0, 0)
    assert isinstance(lookup, Lookup)
    assert lookup.asked[0].at == LATEST
    assert lax.looked_up(lookup, {0: LookedUp(0, 90)}, 0.0) == {0: 90}
    assert lax.tracks[0].offset == 90


def test_an_offset_beyond_the_end_is_fetched_once_to_learn_whether_the_log_has_it() -> None:
    def asked_at(offset: int) -> tuple[Planner, Question[int]]:
        planner = ready_planner(start=Place(offset), stop=Place(None, LATEST))
        [lookup] = planner.plan(0.0, 0)
        assert isinstance(lookup, Lookup)
        planner.looked_up(lookup, {0: LookedUp(0, 10)}, 0.0)
        return planner, next(iter(planner.plan(0.0, 0)), lookup)

    planner, _ = asked_at(10)
    assert planner.tracks[0].is_done

    planner, fetch = asked_at(50)
    assert isinstance(fetch, Fetch)
    planner.fetched(fetch, {0: Fetched(ErrorCode.OFFSET_OUT_OF_RANGE, None)}, 0.0)
    assert isinstance(planner.take_failure(), DataLost)

    # It is there: records that were written since, or that are not committed yet, are left out.
    planner, fetch = asked_at(50)
    assert isinstance(fetch, Fetch)
    planner.held(fetch)
    assert not planner.tracks[0].is_done
    [fetch] = planner.plan(0.0, 0)
    assert isinstance(fetch, Fetch)
    assert planner.fetched(fetch, {0: Fetched(0, 60)}, 0.0) == []
    assert planner.tracks[0].is_done
    assert planner.tracks[0].offset == 50
    planner.seek(0, Place(70))
    assert not planner.tracks[0].is_done


def test_a_time_after_the_last_record_is_the_end() -> None:
    planner = ready_planner(start=Place(None, 77), stop=Place(None, 88))
    for asked, found in ((77, -1), (LATEST, 9), (88, -1), (LATEST, 12)):
        [lookup] = planner.plan(0.0, 0)
        assert isinstance(lookup, Lookup)
        assert lookup.asked[0].at == asked
        planner.looked_up(lookup, {0: LookedUp(0, found)}, 0.0)
    assert (planner.tracks[0].offset, planner.tracks[0].end) == (9, 12)


def test_a_seek_voids_what_was_asked_before() -> None:
    planner = ready_planner()
    [question] = planner.plan(0.0, 0)
    assert isinstance(question, Fetch)
    planner.seek(0, Place(50))
    assert planner.plan(0.0, 0) == []
    assert planner.fetched(question, {0: Fetched(0, 10)}, 0.0) == []
    [question] = planner.plan(0.0, 0)
    assert question.asked[0].at == 50


def test_a_seek_overtakes_a_fetch_that_waits_for_records() -> None:
    planner = ready_planner((1, 1))
    [waiting] = planner.plan(0.0, 0)
    planner.seek(0, Place(50))
    assert planner.plan(0.0, 0) == []
    assert planner.wake_at(0.0) == OVERTAKE_AFTER
    [question] = planner.plan(OVERTAKE_AFTER, 0)
    assert {number: asked.at for number, asked in question.asked.items()} == {0: 50, 1: 0}
    # One void fetch at a time: the next seek waits for its end.
    planner.seek(1, Place(60))
    assert planner.wake_at(1.0) > 1.0
    assert planner.plan(1.0, 0) == []
    planner.failed(waiting, LOST, 1.0)
    assert planner.tracks[0].failures == planner.tracks[1].failures == 0
    [question] = planner.plan(1.0, 0)
    assert {number: asked.at for number, asked in question.asked.items()} == {0: 50, 1: 60}


def test_a_fetch_that_fills_the_buffer_is_overtaken_as_well() -> None:
    planner = ready_planner(prefetch=1)
    planner.plan(0.0, 0)
    planner.seek(0, Place(50))
    assert planner.plan(OVERTAKE_AFTER, 1) == []
    assert planner.wake_at(OVERTAKE_AFTER) > OVERTAKE_AFTER
    assert len(planner.plan(OVERTAKE_AFTER, 0)) == 1


def test_a_partition_that_backs_off_overtakes_nothing() -> None:
    planner = ready_planner((1, 1))
    [question] = planner.plan(0.0, 0)
    assert isinstance(question, Fetch)
    answer = {0: Fetched(ErrorCode.UNKNOWN_SERVER_ERROR, None), 1: Fetched(0, None)}
    planner.fetched(question, answer, 0.0)
    planner.take_failure()
    assert [list(one.asked) for one in planner.plan(0.0, 0)] == [[1]]
    assert planner.plan(10.0, 0) == []


def test_a_topic_made_anew() -> None:
    strict = ready_planner()
    strict.refreshed({"t": topic_of([1], b"j" * 16)}, 1.0)
    assert isinstance(strict.take_failure(), TopicRecreated)
    lax = ready_planner((1, 1), on_data_loss="earliest")
    before = replace(lax.tracks[0])
    lax.refreshed({"t": topic_of([2], b"j" * 16)}, 1.0)
    assert list(lax.tracks) == [0]
    assert lax.tracks[0].version != before.version
    [lookup] = lax.plan(1.0, 0)
    assert isinstance(lookup, Lookup)
    assert (lookup.node, lookup.asked[0].at) == (2, EARLIEST)


def test_partitions_that_are_added_are_read_only_without_an_end() -> None:
    follows = ready_planner(start=Place(None, LATEST))
    follows.refreshed({"t": topic_of([1, 1])}, 1.0)
    assert follows.tracks[1].start == Place(None, EARLIEST)
    ends = ready_planner(stop=Place(9))
    ends.refreshed({"t": topic_of([1, 1])}, 1.0)
    assert list(ends.tracks) == [0]
    chosen = ready_planner(partitions=[0])
    chosen.refreshed({"t": topic_of([1, 1])}, 1.0)
    assert list(chosen.tracks) == [0]


def test_a_partition_that_does_not_exist() -> None:
    planner = planner_of(partitions=[3])
    now = 0.0
    while planner.failure is None:
        assert planner.wants_metadata(now)
        planner.refreshed({"t": topic_of([1])}, now)
        now = planner.wake_at(now)
    assert "t-3: UNKNOWN_TOPIC_OR_PARTITION" in str(planner.take_failure())

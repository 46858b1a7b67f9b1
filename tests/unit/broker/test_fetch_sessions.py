"""Fetch sessions: the rules of KIP-227 one by one, then random consumers against a model."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.broker.errors import ApiError
from ottla.broker.serving.fetch_sessions import (
    EVICTION_MS,
    MAX_EPOCH,
    FetchPlan,
    FetchSessions,
    Watcher,
)
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)


def request(
    session_id: int = 0,
    epoch: int = 0,
    topics: dict[str, dict[int, int]] | None = None,
    forget: dict[str, list[int]] | None = None,
) -> FetchRequest:
    """Topics map partitions to fetch offsets."""
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(name, partitions=[FetchPartition(p, -1, o) for p, o in parts.items()])
            for name, parts in (topics or {}).items()
        ],
        forgotten_topics_data=[ForgottenTopic(t, partitions=p) for t, p in (forget or {}).items()],
    )


def new_sessions(slots: int = 10) -> FetchSessions:
    numbers = count(1)
    return FetchSessions(slots, lambda: next(numbers))


def offsets(plan: FetchPlan) -> dict[tuple[object, int], int]:
    wanted = plan.wanted if plan.session is None else plan.session.wanted.values()
    return {want.key: want.fetch_offset for want in wanted}


def test_without_a_session_only_what_is_asked_is_fetched() -> None:
    sessions = new_sessions()
    plan = sessions.begin(request(0, -1, {"t": {0: 5}}), by_id=False, view=0, now_ms=0)
    assert offsets(plan) == {("t", 0): 5}
    assert (plan.session_id, plan.incremental, len(sessions)) == (0, False, 0)


def test_a_session_remembers_changes_and_forgets() -> None:
    sessions = new_sessions()
    plan = sessions.begin(request(0, 0, {"t": {0: 5, 1: 7}}), by_id=False, view=0, now_ms=0)
    assert plan.session_id == 1
    plan = sessions.begin(
        request(1, 1, {"t": {0: 6}, "u": {3: 1}}, {"t": [1]}), by_id=False, view=0, now_ms=0
    )
    assert plan.incremental
    assert offsets(plan) == {("t", 0): 6, ("u", 3): 1}


@pytest.mark.parametrize(
    ("session_id", "epoch", "by_id", "error"),
    [
        (9, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_request_that_does_not_fit_is_refused(
    session_id: int, epoch: int, by_id: bool, error: ErrorCode
) -> None:
    sessions = new_sessions()
    sessions.begin(request(0, 0, {"t": {0: 0}}), by_id=False, view=0, now_ms=0)
    with pytest.raises(ApiError) as caught:
        sessions.begin(request(session_id, epoch), by_id=by_id, view=0, now_ms=0)
    assert caught.value.code == error


def test_the_epoch_wraps_to_one() -> None:
    sessions = new_sessions()
    session = sessions.begin(request(0, 0, {"t": {0: 0}}), by_id=False, view=0, now_ms=0).session
    assert session is not None
    session.epoch = MAX_EPOCH
    sessions.begin(request(1, MAX_EPOCH), by_id=False, view=0, now_ms=0)
    assert session.epoch == 1


def test_a_final_epoch_closes_the_session() -> None:
    sessions = new_sessions()
    sessions.begin(request(0, 0, {"t": {0: 0}}), by_id=False, view=0, now_ms=0)
    plan = sessions.begin(request(1, -1, {"t": {0: 0}}), by_id=False, view=0, now_ms=0)
    assert (plan.session_id, len(sessions)) == (0, 0)


def test_a_full_cache_evicts_only_the_idle() -> None:
    sessions = new_sessions(slots=1)
    sessions.begin(request(0, 0, {"t": {0: 0}}), by_id=False, view=0, now_ms=0)
    refused = sessions.begin(
        request(0, 0, {"t": {0: 0}}), by_id=False, view=0, now_ms=EVICTION_MS - 1
    )
    assert refused.session_id == 0
    taken = sessions.begin(request(0, 0, {"t": {0: 0}}), by_id=False, view=0, now_ms=EVICTION_MS)
    assert taken.session_id == 2
    assert len(sessions) == 1


def test_an_incremental_answer_lists_what_changed() -> None:
    sessions = new_sessions()
    session = sessions.begin(
        request(0, 0, {"t": {0: 0, 1: 0}}), by_id=False, view=0, now_ms=0
    ).session
    assert session is not None
    quiet = PartitionData(0, 0, high_watermark=5, log_start_offset=0, records=b"")
    assert session.changed(("t", 0), quiet)
    assert not session.changed(("t", 0), quiet)
    assert session.changed(("t", 0), quiet._replace(high_watermark=6))
    assert session.changed(("t", 0), quiet._replace(high_watermark=6, log_start_offset=2))
    assert session.changed(("t", 0), quiet._replace(error_code=3))
    assert [want.key for want in session.begin_look()] == [("t", 0), ("t", 1)]
    assert session.changed(("t", 0), quiet._replace(records=[b"data"]))
    looks = [want.key for want in session.begin_look()]
    assert looks == [("t", 1), ("t", 0)], "a partition with records goes last"


def test_looks_keep_the_order_of_the_session_whoever_has_news_first() -> None:
    """kafka-python loses track of a partition when answers come in another order than Kafka's."""
    sessions = new_sessions()
    session = sessions.begin(
        request(0, 0, {"t": {0: 0, 1: 0}}), by_id=False, view=0, now_ms=0
    ).session
    assert session is not None
    session.due.clear()
    session.want(session.wanted["t", 1])
    session.want(session.wanted["t", 0])
    assert [want.key for want in session.begin_look()] == [("t", 0), ("t", 1)]


def test_what_is_forgotten_while_it_is_answered_is_told_again() -> None:
    sessions = new_sessions()
    session = sessions.begin(request(0, 0, {"t": {0: 0}}), by_id=False, view=0, now_ms=0).session
    assert session is not None
    session.forget(("t", 0))
    quiet = PartitionData(0, 0, high_watermark=5, log_start_offset=0, records=b"")
    assert session.changed(("t", 0), quiet)
    assert session.changed(("t", 0), quiet)


def test_a_session_that_ends_watches_nothing() -> None:
    class Partition:
        topic, topic_id, index = "t", bytes(16), 0

        def __init__(self) -> None:
            self.watchers: set[Watcher] = set()

    for ends in (request(1, -1), request(1, 0), request(0, 0, {"t": {0: 0}})):
        partition = Partition()
        sessions = new_sessions(slots=1)
        opened = sessions.begin(request(0, 0, {"t": {0: 0}}), by_id=False, view=0, now_ms=0)
        assert opened.session is not None
        opened.session.watch(("t", 0), partition)
        assert partition.watchers == {opened.session}
        sessions.begin(ends, by_id=False, view=0, now_ms=EVICTION_MS)
        assert not partition.watchers


class ManyConsumers(RuleBasedStateMachine):
    """Consumers that follow the protocol always fetch exactly what they told."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = new_sessions(slots=3)
        self.now = 0
        self.consumers: dict[int, tuple[int, dict[tuple[str, int], int]]] = {}

    def known(self) -> list[int]:
        return sorted(self.consumers)

    @rule(partitions=st.dictionaries(st.integers(0, 3), st.integers(0, 9), min_size=1))
    def open_session(self, partitions: dict[int, int]) -> None:
        before = len(self.sessions)
        plan = self.sessions.begin(
            request(0, 0, {"t": partitions}), by_id=False, view=0, now_ms=self.now
        )
        assert offsets(plan) == {("t", p): o for p, o in partitions.items()}
        if plan.session_id:
            self.consumers[plan.session_id] = (1, {("t", p): o for p, o in partitions.items()})
        else:
            assert before == 3

    @precondition(lambda self: self.consumers)
    @rule(
        data=st.data(),
        update=st.dictionaries(st.integers(0, 3), st.integers(0, 9)),
        forget=st.lists(st.integers(0, 3), max_size=2, unique=True),
    )
    def go_on(self, data: st.DataObject, update: dict[int, int], forget: list[int]) -> None:
        session_id = data.draw(st.sampled_from(self.known()))
        epoch, wanted = self.consumers[session_id]
        asked = request(session_id, epoch, {"t": update}, {"t": forget})
        if session_id not in self.sessions:
            with pytest.raises(ApiError, match="FETCH_SESSION_ID_NOT_FOUND"):
                self.sessions.begin(asked, by_id=False, view=0, now_ms=self.now)
            del self.consumers[session_id]
            return
        plan = self.sessions.begin(asked, by_id=False, view=0, now_ms=self.now)
        wanted = {**wanted, **{("t", p): o for p, o in update.items()}}
        wanted = {key: o for key, o in wanted.items() if key[1] not in forget}
        assert offsets(plan) == wanted
        self.consumers[session_id] = (epoch + 1, wanted)

    @rule(step=st.sampled_from([1, EVICTION_MS]))
    def wait(self, step: int) -> None:
        self.now += step

    @invariant()
    def bounded(self) -> None:
        assert len(self.sessions) <= 3


TestManyConsumers = ManyConsumers.TestCase

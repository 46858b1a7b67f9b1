"""Share sessions: epochs, partitions, connections, limits. The numbers are those of the cases in
the contract for share groups."""

from __future__ import annotations

import pytest

from ottla.sharing import sessions as module
from ottla.sharing.sessions import FINAL_EPOCH, MAX_EPOCH, ShareSessions
from ottla.sharing.values import ShareError
from ottla.wire.error_codes import ErrorCode

P0, P1, P2 = (b"\1" * 16, 0), (b"\1" * 16, 1), (b"\1" * 16, 2)
HERE, THERE = 1, 2


@pytest.fixture
def sessions() -> ShareSessions:
    return ShareSessions(4)


def refused(sessions: ShareSessions, epoch: int, *, ack: bool = False) -> ErrorCode:
    try:
        if ack:
            sessions.begin_acknowledge("g", "m", epoch)
        else:
            sessions.begin_fetch("g", "m", epoch, HERE)
    except ShareError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize("ack", [False, True])
def test_14_epochs(sessions: ShareSessions, *, ack: bool) -> None:
    assert refused(sessions, 3, ack=ack) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert refused(sessions, FINAL_EPOCH, ack=ack) is ErrorCode.SHARE_SESSION_NOT_FOUND
    sessions.begin_fetch("g", "m", 0, HERE, added=[P0])
    for wrong in (2, -2, MAX_EPOCH):
        assert refused(sessions, wrong, ack=ack) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert list(sessions.begin_fetch("g", "m", 1, HERE).session.partitions) == [P0]


def test_15_only_a_fetch_without_acknowledgements_opens(sessions: ShareSessions) -> None:
    assert refused(sessions, 0, ack=True) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    with pytest.raises(ShareError) as caught:
        sessions.begin_fetch("g", "m", 0, HERE, added=[P0], has_acks=True)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert len(sessions) == 0


def test_15_a_refused_opening_leaves_the_session(sessions: ShareSessions) -> None:
    sessions.begin_fetch("g", "m", 0, HERE, added=[P0])
    with pytest.raises(ShareError):
        sessions.begin_fetch("g", "m", 0, HERE, added=[P1], has_acks=True)
    assert list(sessions.begin_fetch("g", "m", 1, HERE).session.partitions) == [P0]


def test_16_one_sequence_for_both_apis(sessions: ShareSessions) -> None:
    session = sessions.begin_fetch("g", "m", 0, HERE, added=[P0]).session
    sessions.begin_acknowledge("g", "m", 1)
    sessions.begin_fetch("g", "m", 2, HERE)
    session.epoch = MAX_EPOCH
    sessions.begin_acknowledge("g", "m", MAX_EPOCH)
    assert sessions.begin_fetch("g", "m", 1, HERE).epoch == 2


def test_17_a_full_cache(sessions: ShareSessions) -> None:
    for member in "abcd":
        sessions.begin_fetch("g", member, 0, HERE)
    assert refused(sessions, 0) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.begin_fetch("g", "a", 0, HERE)  # takes its own place
    sessions.begin_fetch("g", "b", FINAL_EPOCH, HERE)
    sessions.begin_fetch("g", "m", 0, HERE)
    assert len(sessions) == 4


def test_18_the_old_connection_of_a_reopened_session(sessions: ShareSessions) -> None:
    old = sessions.begin_fetch("g", "m", 0, HERE, added=[P0])
    sessions.begin_fetch("g", "m", 0, THERE, added=[P1])
    assert not old.is_current
    assert sessions.connection_closed(HERE) == ([], [], [])
    assert list(sessions.begin_fetch("g", "m", 1, THERE).session.partitions) == [P1]
    closed = sessions.connection_closed(THERE)
    assert [list(session.partitions) for session in closed.sessions] == [[P1]]
    assert closed.idle_groups == ["g"]
    assert refused(sessions, 2) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_18_reopened_on_the_same_connection(sessions: ShareSessions) -> None:
    sessions.begin_fetch("g", "m", 0, HERE, added=[P0])
    sessions.begin_fetch("g", "m", 0, HERE, added=[P1])
    [session] = sessions.connection_closed(HERE).sessions
    assert list(session.partitions) == [P1]


@pytest.mark.parametrize("ack", [False, True])
def test_19_the_last_request(sessions: ShareSessions, *, ack: bool) -> None:
    waiting = sessions.begin_fetch("g", "m", 0, HERE, added=[P0, P1])
    if ack:
        turn = sessions.begin_acknowledge("g", "m", FINAL_EPOCH)
    else:
        turn = sessions.begin_fetch("g", "m", FINAL_EPOCH, HERE)
    assert turn.is_final
    assert list(turn.session.partitions) == [P0, P1]
    assert not waiting.is_current
    assert len(sessions) == 0
    assert sessions.connection_closed(HERE) == ([], ["g"], [])


def test_20_forgotten_and_added_again(sessions: ShareSessions) -> None:
    sessions.begin_fetch("g", "m", 0, HERE, added=[P0, P1])
    turn = sessions.begin_fetch("g", "m", 1, HERE, added=[P2], forgotten=[P0])
    assert list(turn.session.partitions) == [P1, P2]
    turn = sessions.begin_fetch("g", "m", 2, HERE, added=[P0, P1])
    assert list(turn.session.partitions) == [P1, P2, P0]
    turn = sessions.begin_fetch("g", "m", 3, HERE, added=[P0], forgotten=[P0])
    assert P0 not in turn.session.partitions


def test_groups_are_idle_when_their_last_session_is_gone(sessions: ShareSessions) -> None:
    sessions.begin_fetch("g", "m", 0, HERE)
    sessions.begin_fetch("g", "n", 0, THERE)
    assert sessions.connection_closed(HERE).idle_groups == []
    assert sessions.connection_closed(THERE).idle_groups == ["g"]
    assert sessions.connection_closed(THERE) == ([], [], [])


def test_a_connection_remembers_a_bounded_number_of_groups() -> None:
    sessions = ShareSessions(1000)
    count = module.MAX_CONNECTION_GROUPS + 1
    for index in range(count):
        sessions.begin_fetch(f"g{index}", "m", 0, HERE)
        sessions.begin_fetch(f"g{index}", "m", FINAL_EPOCH, HERE)
    idle = sessions.connection_closed(HERE).idle_groups
    assert idle == [f"g{index}" for index in range(1, count)]


def test_a_session_holds_a_bounded_number_of_partitions(
    sessions: ShareSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SESSION_PARTITIONS", 2)
    sessions.begin_fetch("g", "m", 0, HERE, added=[P0, P1])
    with pytest.raises(ShareError) as caught:
        sessions.begin_fetch("g", "m", 1, HERE, added=[P2])
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    turn = sessions.begin_fetch("g", "m", 1, HERE, added=[P2], forgotten=[P0])
    assert list(turn.session.partitions) == [P1, P2]


def test_partitions_take_turns(sessions: ShareSessions) -> None:
    turn = sessions.begin_fetch("g", "m", 0, HERE, added=[P0, P1, P2])
    assert turn.order == [P1, P2, P0]
    turn.session.gave_records([P1])
    turn = sessions.begin_fetch("g", "m", 1, HERE)
    assert turn.order == [P1, P0, P2]
    assert sessions.begin_fetch("g", "n", 0, HERE).order == []


def test_a_turn_is_overtaken_by_the_next(sessions: ShareSessions) -> None:
    waiting = sessions.begin_fetch("g", "m", 0, HERE, added=[P0])
    assert waiting.is_current
    sessions.begin_acknowledge("g", "m", 1)
    assert not waiting.is_current


def test_what_a_response_lists(sessions: ShareSessions) -> None:
    session = sessions.begin_fetch("g", "m", 0, HERE, added=[P0, P1]).session
    assert session.must_list(P0, has_news=False, has_error=False)
    assert session.must_list(P1, has_news=False, has_error=True)
    session.must_list(P0, has_news=False, has_error=True)
    sessions.begin_fetch("g", "m", 1, HERE, added=[P2], forgotten=[P0])
    assert not session.must_list(P0, has_news=False, has_error=False)
    assert session.must_list(P0, has_news=True, has_error=False)
    assert session.must_list(P1, has_news=False, has_error=False), "it has recovered"
    assert not session.must_list(P1, has_news=False, has_error=False)
    assert session.must_list(P2, has_news=False, has_error=False), "it is new"


def test_a_member_with_grace_comes_back_to_its_session(sessions: ShareSessions) -> None:
    sessions.begin_fetch("g", "m", 0, HERE, added=[P0])
    closed = sessions.connection_closed(HERE, lambda group: group == "g")
    [kept] = closed.kept
    assert (closed.sessions, closed.idle_groups, list(kept.partitions)) == ([], [], [P0])
    assert refused(sessions, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    sessions.begin_fetch("g", "m", 0, THERE, added=[P0])
    assert sessions.grace_ended(kept) == ([], [], [])
    assert sessions.connection_closed(THERE).sessions


def test_a_grace_that_ends_releases_and_leaves_the_group_idle(sessions: ShareSessions) -> None:
    for member in ("m", "n"):
        sessions.begin_fetch("g", member, 0, HERE, added=[P0])
    one, other = sessions.connection_closed(HERE, lambda _: True).kept
    assert sessions.grace_ended(one) == ([one], [], [])
    assert sessions.grace_ended(one) == ([], [], [])
    assert sessions.grace_ended(other) == ([other], ["g"], [])


def test_no_more_sessions_are_kept_than_may_be_open(sessions: ShareSessions) -> None:
    for connection in range(6):
        sessions.begin_fetch("g", f"m{connection}", 0, connection)
        closed = sessions.connection_closed(connection, lambda _: True)
        assert len(closed.kept) == (connection < 4)
        assert len(closed.sessions) == (connection >= 4)

"""The SASL session: its table, every short history, and long random ones (cases 35 and 36)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Final

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.broker.access.authentication import (
    FAILED_TEXT,
    MAX_API_VERSIONS,
    MAX_FRAMES,
    MECHANISM_TEXT,
    PRINCIPAL_TEXT,
    Admission,
    Reply,
    SaslSession,
    State,
)
from ottla.security.steps import Challenge, Failure, Step, Success, Work
from ottla.wire.error_codes import ErrorCode
from tests.support.sizes import examples

METADATA, API_VERSIONS, HANDSHAKE, AUTHENTICATE = 3, 18, 17, 36
WALL: Final = 1_000_000.0
LIFETIME: Final = 10.0


@dataclass
class Scripted:
    """A mechanism whose tokens say what it comes to."""

    made: list[str] = field(default_factory=list)

    def step(self, token: bytes) -> Step:
        kind, _, rest = token.decode().partition(":")
        match kind:
            case "more":
                return Challenge(b"challenge")
            case "work":
                return Work(lambda: rest, lambda result: self.step(result.encode()))
            case "ok":
                name, _, left = rest.partition("@")
                return Success(name, b"bye", WALL + float(left) if left else None)
            case _:
                return Failure("wrong password")


def session_of(lifetime: float | None = None) -> SaslSession:
    return SaslSession(("A", "B"), lambda _: Scripted(), lambda _: lifetime)


def logged_in(lifetime: float | None = None, token: bytes = b"ok:alice") -> SaslSession:
    session = session_of(lifetime)
    assert session.handshake("A", 0.0).error_code == ErrorCode.NONE
    reply = session.token(token, 0.0, WALL)
    assert isinstance(reply, Reply)
    assert reply.error_code == ErrorCode.NONE
    return session


@pytest.mark.parametrize("token", [b"ok:__node", b"work:ok:__other"])
def test_a_reserved_name_is_refused_unless_it_is_the_nodes_own(token: bytes) -> None:
    session = session_of()
    session.handshake("A", 0.0)
    reply = session.token(token, 0.0, WALL)
    if isinstance(reply, Work):
        reply = session.worked(reply.finish(), 0.0, WALL)
    assert reply == Reply(ErrorCode.SASL_AUTHENTICATION_FAILED, FAILED_TEXT)
    assert (session.reason, session.principal, session.is_node) == ("reserved name", None, False)
    assert session.tried.startswith("__")


def test_the_node_is_known_by_the_mechanism_that_checked_it() -> None:
    def is_own(mechanism: str, name: str) -> bool:
        return (mechanism, name) == ("A", "__node")

    for mechanism, name, comes_in in (
        ("A", "__node", True),
        ("B", "__node", False),
        ("A", "__other", False),
    ):
        session = SaslSession(("A", "B"), lambda _: Scripted(), lambda _: None, is_own)
        session.handshake(mechanism, 0.0)
        session.token(f"ok:{name}".encode(), 0.0, WALL)
        assert (session.is_open, session.is_node) == (comes_in, comes_in)


def test_an_exchange() -> None:
    session = session_of()
    assert session.admit(API_VERSIONS, 3, 0.0) is Admission.SERVE
    assert session.admit(HANDSHAKE, 1, 0.0) is Admission.SERVE
    assert session.handshake("A", 0.0) == (ErrorCode.NONE, ("A", "B"))
    assert session.admit(AUTHENTICATE, 2, 0.0) is Admission.SERVE
    assert session.token(b"more:", 0.0, WALL) == Reply(ErrorCode.NONE, None, b"challenge")
    work = session.token(b"work:ok:alice", 0.0, WALL)
    assert isinstance(work, Work)
    assert not session.is_open
    reply = session.worked(work.finish(), 0.0, WALL)
    assert reply == Reply(ErrorCode.NONE, None, b"bye")
    assert session.is_open
    assert session.principal == "User:alice"
    assert session.admit(METADATA, 12, 1e9) is Admission.SERVE


def test_a_failure_tells_the_client_nothing() -> None:
    session = session_of()
    session.handshake("A", 0.0)
    reply = session.token(b"no:", 0.0, WALL)
    assert reply == Reply(ErrorCode.SASL_AUTHENTICATION_FAILED, FAILED_TEXT)
    assert session.reason == "wrong password"
    assert session.admit(API_VERSIONS, 3, 0.0) is Admission.CLOSE


def test_case_25_an_unknown_mechanism_is_told_the_list() -> None:
    session = session_of()
    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert session.handshake("GSSAPI", 0.0) == (code, ("A", "B"))
    assert session.state is State.FAILED


@pytest.mark.parametrize(
    ("api_key", "version"), [(METADATA, 12), (0, 9), (17, 0), (36, 3), (-1, 0)]
)
def test_case_35_strangers_are_closed(api_key: int, version: int) -> None:
    assert session_of().admit(api_key, version, 0.0) is Admission.CLOSE
    session = session_of()
    session.handshake("A", 0.0)
    assert session.admit(api_key, version, 0.0) is Admission.CLOSE


def test_case_35_the_fourth_api_versions_closes() -> None:
    session = session_of()
    for _ in range(MAX_API_VERSIONS):
        assert session.admit(API_VERSIONS, 99, 0.0) is Admission.SERVE
    assert session.admit(API_VERSIONS, 3, 0.0) is Admission.CLOSE


def test_case_35_the_seventeenth_frame_closes() -> None:
    session = session_of()
    session.admit(HANDSHAKE, 1, 0.0)
    session.handshake("A", 0.0)
    for _ in range(MAX_FRAMES - 1):
        assert session.admit(AUTHENTICATE, 1, 0.0) is Admission.SERVE
        session.token(b"more:", 0.0, WALL)
    assert session.admit(AUTHENTICATE, 1, 0.0) is Admission.CLOSE


def test_case_35_out_of_order() -> None:
    illegal = ErrorCode.ILLEGAL_SASL_STATE
    session = session_of()
    assert session.token(b"ok:alice", 0.0, WALL) == Reply(illegal)
    assert session.state is State.FAILED
    session = session_of()
    session.handshake("A", 0.0)
    assert session.handshake("A", 0.0).error_code == illegal
    assert session.state is State.FAILED
    session = session_of()
    session.handshake("A", 0.0)
    assert session.admit(API_VERSIONS, 3, 0.0) is Admission.ILLEGAL
    assert session.state is State.FAILED


def test_case_36_again_within_a_second_is_refused_and_the_session_stays() -> None:
    session = logged_in(LIFETIME)
    assert session.handshake("A", 0.5).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert session.token(b"ok:alice", 0.5, WALL) == Reply(ErrorCode.ILLEGAL_SASL_STATE)
    assert session.admit(METADATA, 12, 0.5) is Admission.SERVE
    # Without a lifetime there is no reason to do it at all.
    assert logged_in(None).handshake("A", 5.0).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_case_36_authenticating_again_prolongs_the_session() -> None:
    session = logged_in(LIFETIME)
    assert session.handshake("A", 9.0).error_code == ErrorCode.NONE
    assert session.admit(METADATA, 12, 9.0) is Admission.CLOSE
    session = logged_in(LIFETIME)
    session.handshake("A", 9.0)
    assert session.token(b"ok:alice", 9.0, WALL) == Reply(ErrorCode.NONE, None, b"bye", 10_000)
    assert session.admit(METADATA, 12, 18.9) is Admission.SERVE
    assert session.admit(METADATA, 12, 19.0) is Admission.EXPIRED


def test_case_36_another_principal_or_mechanism_is_refused() -> None:
    session = logged_in(LIFETIME)
    session.handshake("A", 5.0)
    code = ErrorCode.SASL_AUTHENTICATION_FAILED
    assert session.token(b"ok:mallory", 5.0, WALL) == Reply(code, PRINCIPAL_TEXT)
    assert (session.state, session.principal) == (State.FAILED, "User:alice")
    session = logged_in(LIFETIME)
    assert session.handshake("B", 5.0).error_code == ErrorCode.NONE
    assert session.token(b"ok:alice", 5.0, WALL) == Reply(code, MECHANISM_TEXT)
    assert session.state is State.FAILED


def test_case_36_an_expired_session_may_only_authenticate() -> None:
    for api_key in (METADATA, API_VERSIONS, AUTHENTICATE):
        assert logged_in(LIFETIME).admit(api_key, 1, 10.0) is Admission.EXPIRED
    session = logged_in(LIFETIME)
    assert session.admit(HANDSHAKE, 1, 10.0) is Admission.SERVE
    assert session.handshake("A", 10.0).error_code == ErrorCode.NONE
    assert session.state is State.REAUTH


@pytest.mark.parametrize(
    ("lifetime", "token", "told"),
    [
        (None, b"ok:alice", 0),
        (10.0, b"ok:alice", 10_000),
        (None, b"ok:alice@3", 3_000),
        (10.0, b"ok:alice@3", 3_000),
        (2.0, b"ok:alice@3", 2_000),
    ],
)
def test_case_42_a_session_ends_with_its_credential(
    lifetime: float | None, token: bytes, told: int
) -> None:
    session = session_of(lifetime)
    session.handshake("A", 0.0)
    assert session.token(token, 0.0, WALL) == Reply(ErrorCode.NONE, None, b"bye", told)
    assert session.has_expired(told / 1000) == bool(told)


def test_a_credential_that_has_expired_is_refused() -> None:
    session = session_of()
    session.handshake("A", 0.0)
    reply = session.token(b"ok:alice@-1", 0.0, WALL)
    assert reply == Reply(ErrorCode.SASL_AUTHENTICATION_FAILED, FAILED_TEXT)


# -- every short history ------------------------------------------------------------------------

EVENTS: Final = ("versions", "handshake", "other handshake", "good", "bad", "more", "ask", "wait")


class Watched:
    """A session, and what must hold of it whatever happens."""

    def __init__(self, lifetime: float | None) -> None:
        self.session = session_of(lifetime)
        self.lifetime = lifetime
        self.now = 0.0
        self.closed = False
        self.good = False  # the last token was a good one
        self.proven_at: float | None = None

    def do(self, event: str) -> None:
        """One event; nothing reaches a closed connection."""
        if self.closed:
            return
        if event == "wait":
            self.now += LIFETIME * 0.6
            return
        api_key = {"versions": API_VERSIONS, "ask": METADATA}.get(event)
        if api_key is None:
            api_key = HANDSHAKE if "handshake" in event else AUTHENTICATE
        before = self.session.state
        admission = self.session.admit(api_key, 1, self.now)
        if admission is not Admission.SERVE:
            assert self.session.state is State.FAILED
            self.closed = True
            return
        if event == "ask":
            self.asked()
        elif api_key == HANDSHAKE:
            greeting = self.session.handshake("B" if "other" in event else "A", self.now)
            began = greeting.error_code == ErrorCode.NONE
            assert began == (self.session.state in (State.EXCHANGE, State.REAUTH))
        elif api_key == AUTHENTICATE:
            self.token(event, before)
        self.closed = self.session.state is State.FAILED

    def asked(self) -> None:
        """Somebody's request is served: they have proven who they are, and not too long ago."""
        assert self.proven_at is not None
        assert self.lifetime is None or self.now < self.proven_at + self.lifetime
        assert self.session.principal == "User:alice"

    def token(self, event: str, before: State) -> None:
        tokens = {"good": b"ok:alice", "bad": b"no:", "more": b"more:"}
        reply = self.session.token(tokens[event], self.now, WALL)
        assert isinstance(reply, Reply)
        if self.session.state is State.DONE and before is not State.DONE:
            assert event == "good"
            self.proven_at = self.now
        if reply.data == b"bye":
            assert event == "good"
            assert before in (State.EXCHANGE, State.REAUTH)


@pytest.mark.parametrize("lifetime", [None, LIFETIME])
def test_every_short_history(lifetime: float | None) -> None:
    """Nobody is served who has not proven who they are, in all histories of six events."""
    served = 0
    for history in product(EVENTS, repeat=6):
        watched = Watched(lifetime)
        for event in history:
            watched.do(event)
        served += watched.proven_at is not None
    assert served > 1_000


class Sessions(RuleBasedStateMachine):
    """The same for long histories."""

    def __init__(self) -> None:
        super().__init__()
        self.watched = Watched(LIFETIME)

    @precondition(lambda self: not self.watched.closed)
    @rule(event=st.sampled_from([*EVENTS, "handshake", "good", "ask"]))
    def happens(self, event: str) -> None:
        self.watched.do(event)

    @precondition(lambda self: self.watched.closed)
    @rule()
    def connects_again(self) -> None:
        self.watched = Watched(LIFETIME)

    @invariant()
    def who_is_known_has_proven_it(self) -> None:
        known = self.watched.session.principal is not None
        assert known == (self.watched.proven_at is not None)


Sessions.TestCase.settings = hypothesis_settings(max_examples=examples(), stateful_step_count=40)
TestSessions = Sessions.TestCase

"""PLAIN, both sides. Numbers are those of the acceptance cases in the specification."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security import scram
from ottla.security.mechanisms import (
    MAX_VERIFIERS,
    PlainClient,
    PlainServer,
    Verifiers,
)
from ottla.security.scram import (
    MIN_ITERATIONS,
    SHA_256,
    SHA_512,
    ScramCredential,
    make_credential,
)
from ottla.security.steps import Failure, Success, Work

ALICE = make_credential(SHA_512, "secret", b"salt of alice", MIN_ITERATIONS)


def credential_of(name: str) -> ScramCredential | None:
    return ALICE if name == "alice" else None


def verifiers() -> Verifiers:
    return Verifiers(b"process key")


def test_the_right_password_is_work_once() -> None:
    known = verifiers()
    token = PlainClient("alice", "secret").first()
    assert token == b"\0alice\0secret"
    work = PlainServer(credential_of, known).step(token)
    assert isinstance(work, Work)
    assert work.finish() == Success("alice")
    assert PlainServer(credential_of, known).step(token) == Success("alice")


def test_a_verifier_belongs_to_one_credential() -> None:
    known = verifiers()
    known.keep("alice", ALICE, "secret")
    changed = make_credential(SHA_512, "secret", b"another salt", MIN_ITERATIONS)
    assert known.verdict("alice", ALICE, "secret") is True
    assert known.verdict("alice", ALICE, "secres") is False
    assert known.verdict("alice", changed, "secret") is None
    assert known.verdict("bob", ALICE, "secret") is None
    known.forget(lambda name: name == "bob")
    assert len(known) == 1
    known.forget(lambda name: name == "alice")
    assert known.verdict("alice", ALICE, "secret") is None


def test_case_32_no_password_is_hashed_of_users_that_are_unknown_or_have_logged_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fault: each wrong password took milliseconds of a thread, and the loop waited for the GIL."""
    known = verifiers()
    known.keep("alice", ALICE, "secret")

    def never(*_: object) -> bytes:
        raise AssertionError("hashed")

    monkeypatch.setattr(scram, "salted_password", never)
    for token, outcome in (
        (b"\0alice\0secret", Success("alice")),
        (b"\0alice\0wrong", Failure("wrong password")),
        (b"\0nobody\0secret", Failure("unknown user")),
    ):
        assert PlainServer(credential_of, known).step(token) == outcome
    assert isinstance(PlainServer(credential_of, verifiers()).step(b"\0alice\0wrong"), Work)


def test_a_wrong_password_leaves_no_verifier() -> None:
    known = verifiers()
    work = PlainServer(credential_of, known).step(b"\0alice\0wrong")
    assert isinstance(work, Work)
    assert work.finish() == Failure("wrong password")
    assert len(known) == 0


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"bob\0alice\0secret", "authorization id differs from the user"),
        (b"\0alice", "malformed message"),
        (b"\0alice\0secret\0", "malformed message"),
        (b"alice\0secret", "malformed message"),
        (b"", "malformed message"),
        (b"\0\0secret", "empty user name"),
        (b"\0alice\0", "empty password"),
        (b"\0" + b"a" * 256 + b"\0secret", "user name or password too long"),
        (b"\0alice\0" + b"s" * 1025, "user name or password too long"),
        (b"\0alice\0" + b"s" * 2000, "message too long"),
        (b"\0al\nice\0secret", "user name with control characters"),
        (b"\0\xff\0secret", "message is not UTF-8"),
    ],
)
def test_messages_that_are_refused_case_31(token: bytes, reason: str) -> None:
    assert PlainServer(credential_of, verifiers()).step(token) == Failure(reason)


def test_the_authorization_id_may_repeat_the_user_case_31() -> None:
    work = PlainServer(credential_of, verifiers()).step(b"alice\0alice\0secret")
    assert isinstance(work, Work)
    assert work.finish() == Success("alice")


def test_an_exchange_is_one_message() -> None:
    server = PlainServer(credential_of, verifiers())
    server.step(b"\0alice\0secret")
    assert isinstance(server.step(b"\0alice\0secret"), Failure)
    assert isinstance(PlainClient("alice", "secret").step(b"more"), Failure)
    assert PlainClient("alice", "secret").step(b"") == Success("alice")


@given(st.binary(max_size=64))
def test_any_bytes_get_an_answer(token: bytes) -> None:
    assert isinstance(PlainServer(credential_of, verifiers()).step(token), Failure | Work)


def test_verifiers_are_bounded() -> None:
    known = verifiers()
    small = ScramCredential(SHA_256, b"", 4096, b"", b"")
    for number in range(MAX_VERIFIERS + 5):
        known.keep(f"user-{number}", small, "x")
    assert len(known) == MAX_VERIFIERS
    assert known.verdict("user-4", small, "x") is None
    assert known.verdict("user-5", small, "x") is True
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(known)


@pytest.mark.parametrize(
    "now", [None, make_credential(SHA_512, "another", b"another salt", MIN_ITERATIONS)]
)
def test_a_user_that_changes_or_goes_while_the_password_is_hashed_is_refused(
    now: ScramCredential | None,
) -> None:
    found: list[ScramCredential | None] = [ALICE]
    known = verifiers()
    work = PlainServer(lambda _: found[-1], known).step(b"\0alice\0secret")
    assert isinstance(work, Work)
    fits = work.call()
    found.append(now)
    assert work.then(fits) == Failure("credential changed within the exchange")
    assert len(known) == 0

"""PLAIN, both sides. Numbers are those of the acceptance cases in the specification."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.mechanisms import (
    MAX_REMEMBERED,
    REMEMBERED_SECONDS,
    PlainClient,
    PlainServer,
    RememberedPasswords,
)
from ottla.security.scram import (
    MIN_ITERATIONS,
    SHA_256,
    SHA_512,
    ScramCredential,
    fake_credential,
    make_credential,
)
from ottla.security.steps import Failure, Success, Work

ALICE = make_credential(SHA_512, "secret", b"salt of alice", MIN_ITERATIONS)


def credential_of(name: str) -> ScramCredential:
    if name == "alice":
        return ALICE
    return fake_credential(b"cluster", SHA_512, name, 24, MIN_ITERATIONS)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def remembered(clock: Clock | None = None) -> RememberedPasswords:
    return RememberedPasswords(b"process key", clock or Clock())


def test_the_right_password_is_work_once() -> None:
    clock = Clock()
    known = remembered(clock)
    token = PlainClient("alice", "secret").first()
    assert token == b"\0alice\0secret"
    work = PlainServer(credential_of, known).step(token)
    assert isinstance(work, Work)
    assert work.finish() == Success("alice")
    assert PlainServer(credential_of, known).step(token) == Success("alice")
    clock.now = REMEMBERED_SECONDS
    assert isinstance(PlainServer(credential_of, known).step(token), Work)


def test_a_remembered_password_ends_with_its_credential() -> None:
    known = remembered()
    known.keep("alice", ALICE, "secret")
    changed = make_credential(SHA_512, "secret", b"another salt", MIN_ITERATIONS)
    assert known.has("alice", ALICE, "secret")
    assert not known.has("alice", changed, "secret")
    assert not known.has("alice", ALICE, "secres")
    assert not known.has("bob", ALICE, "secret")


def test_a_wrong_password_and_an_unknown_user_are_the_same_work_case_26() -> None:
    for token, reason in (
        (b"\0alice\0wrong", "wrong password"),
        (b"\0nobody\0secret", "unknown user"),
    ):
        known = remembered()
        work = PlainServer(credential_of, known).step(token)
        assert isinstance(work, Work)
        assert work.finish() == Failure(reason)
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
    assert PlainServer(credential_of, remembered()).step(token) == Failure(reason)


def test_the_authorization_id_may_repeat_the_user_case_31() -> None:
    work = PlainServer(credential_of, remembered()).step(b"alice\0alice\0secret")
    assert isinstance(work, Work)
    assert work.finish() == Success("alice")


def test_an_exchange_is_one_message() -> None:
    server = PlainServer(credential_of, remembered())
    server.step(b"\0alice\0secret")
    assert isinstance(server.step(b"\0alice\0secret"), Failure)
    assert isinstance(PlainClient("alice", "secret").step(b"more"), Failure)
    assert PlainClient("alice", "secret").step(b"") == Success("alice")


@given(st.binary(max_size=64))
def test_any_bytes_get_an_answer(token: bytes) -> None:
    assert isinstance(PlainServer(credential_of, remembered()).step(token), Failure | Work)


def test_what_is_remembered_is_bounded() -> None:
    known = remembered()
    small = ScramCredential(SHA_256, b"", 4096, b"", b"")
    for number in range(MAX_REMEMBERED + 5):
        known.keep(f"user-{number}", small, "x")
    assert len(known) == MAX_REMEMBERED
    assert not known.has("user-4", small, "x")
    assert known.has("user-5", small, "x")
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(known)


def test_a_credential_that_changes_while_a_password_is_hashed_is_refused() -> None:
    found = [ALICE]
    work = PlainServer(lambda _: found[-1], remembered()).step(b"\0alice\0secret")
    assert isinstance(work, Work)
    fits = work.call()
    found.append(make_credential(SHA_512, "another", b"another salt", MIN_ITERATIONS))
    assert work.then(fits) == Failure("credential changed within the exchange")

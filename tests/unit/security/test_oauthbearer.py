"""OAUTHBEARER's messages. Numbers are those of the acceptance cases in the specification."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.oauthbearer import (
    MAX_TOKEN_CHARACTERS,
    BadToken,
    GoodToken,
    OAuthBearerClient,
    OAuthBearerServer,
    Unfetched,
    Verdict,
)
from ottla.security.steps import Challenge, Failure, Success, Work

GOOD = "aaa.bbb.ccc"


def judge(token: str) -> Verdict:
    if token == GOOD:
        return GoodToken("alice", 1000.0)
    if token == "no.scope.here":
        return BadToken("scope write is missing", "insufficient_scope", "write")
    return BadToken("the signature does not fit")


def server() -> OAuthBearerServer:
    return OAuthBearerServer(judge)


def test_a_good_token() -> None:
    client = OAuthBearerClient(GOOD)
    assert client.first() == b"n,,\x01auth=Bearer aaa.bbb.ccc\x01\x01"
    one = server()
    assert one.step(client.first()) == Success("alice", expires_at=1000.0)
    assert isinstance(client.step(b""), Success)
    assert isinstance(one.step(client.first()), Failure)
    assert GOOD not in repr(client)


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("x.y.z", b'{"status": "invalid_token"}'),
        ("no.scope.here", b'{"status": "insufficient_scope", "scope": "write"}'),
    ],
)
def test_a_bad_token_is_a_challenge_and_then_a_failure_case_42(token: str, said: bytes) -> None:
    one, client = server(), OAuthBearerClient(token)
    challenge = one.step(client.first())
    assert challenge == Challenge(said)
    assert client.step(said) == Challenge(b"\x01")
    assert isinstance(one.step(b"\x01"), Failure)
    assert isinstance(client.step(b""), Failure)


def test_keys_that_are_fetched_first() -> None:
    asked: list[str] = []

    def fetch_first(token: str) -> Unfetched:
        return Unfetched(lambda: asked.append(token), lambda _: judge(token))  # type: ignore[arg-type, return-value]  # never Unfetched twice

    one = OAuthBearerServer(fetch_first)
    work = one.step(OAuthBearerClient(GOOD).first())
    assert isinstance(work, Work)
    assert asked == []
    assert work.finish() == Success("alice", expires_at=1000.0)
    assert asked == [GOOD]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"n,a=bob,\x01auth=Bearer aaa.bbb.ccc\x01\x01", "authorization id differs from the user"),
        (b"n,,\x01auth=Basic aaa\x01\x01", "message without a bearer token"),
        (b"n,,\x01other=x\x01\x01", "message without a bearer token"),
        (b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01", "malformed message"),
        (b"n,,\x01auth=Bearer a\x01k1=x\x01\x01", "malformed message"),
        (b"n,,\x01auth=Bearer a\x01k=\xc3\xa9\x01\x01", "malformed message"),
        (b"n,,\x01auth=Bearer a\x01", "malformed message"),
        (b"y,,\x01auth=Bearer a\x01\x01", "malformed message"),
        (b"p=x,,\x01auth=Bearer a\x01\x01", "malformed message"),
        (b"", "malformed message"),
        (b"\xff", "message is not UTF-8"),
        (b"n,,\x01auth=Bearer a/b\x01\x01", "message without a bearer token"),
        (
            b"n,,\x01auth=Bearer " + b"a" * (MAX_TOKEN_CHARACTERS + 1) + b"\x01\x01",
            "token longer than 32768 characters",
        ),
        (b"a" * 2 * MAX_TOKEN_CHARACTERS + b"a", "message too long"),
    ],
)
def test_messages_that_are_refused_case_31(message: bytes, reason: str) -> None:
    assert server().step(message) == Failure(reason)


@pytest.mark.parametrize(
    "message",
    [
        b"n,a=alice,\x01auth=Bearer aaa.bbb.ccc\x01\x01",
        b"n,,\x01auth=bEARER aaa.bbb.ccc\x01\x01",
        b"n,,\x01traceId=1 2\x01auth=Bearer aaa.bbb.ccc\x01x=\x01\x01",
    ],
)
def test_messages_that_are_accepted(message: bytes) -> None:
    assert isinstance(server().step(message), Success)


@given(st.binary(max_size=100))
def test_any_bytes_get_an_answer(message: bytes) -> None:
    assert isinstance(server().step(message), Failure | Challenge)
    assert isinstance(OAuthBearerClient(GOOD).step(message), Success | Challenge)


@pytest.mark.parametrize("said", [b"[]", b"{", b'{"status": 3}', b'{"status": "a\\nb"}'])
def test_what_a_server_says_is_checked(said: bytes) -> None:
    client = OAuthBearerClient(GOOD)
    client.step(said)
    assert client.refusal == "the broker refused the token"

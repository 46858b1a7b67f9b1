"""A node vouches for a caller: what counts, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.http.messages import Request
from ottla.registry.forwarding import (
    CLIENT,
    MAX_AGE_SECONDS,
    PRINCIPAL,
    SIGNATURE,
    SIGNED_AT,
    signed,
    vouched,
)

KEY = b"k" * 32
NOW = 1_000_000.0
REQUEST = Request("POST", ("subjects", "a/b", "versions"), "normalize=true", body=b"{}")
WHO = ("User:alice", "10.0.0.7")


def sent(request: Request = REQUEST, now: float = NOW) -> Request:
    return replace(request, headers=signed(KEY, request, *WHO, now))


def test_who_asks_arrives_as_it_was_told() -> None:
    assert vouched(KEY, sent(), NOW) == WHO


@given(st.text(), st.text(), st.binary())
def test_any_name_and_address(principal: str, host: str, body: bytes) -> None:
    principal = principal.encode(errors="replace").decode()
    host = host.encode(errors="replace").decode()
    request = replace(REQUEST, body=body)
    headers = signed(KEY, request, principal, host, NOW)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert vouched(KEY, replace(request, headers=headers), NOW) == (principal, host)


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "PUT"},
        {"segments": ("subjects", "a", "b", "versions")},
        {"query": ""},
        {"body": b"{ }"},
    ],
)
def test_a_signature_is_of_one_request(changed: dict[str, object]) -> None:
    assert vouched(KEY, replace(sent(), **changed), NOW) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (PRINCIPAL, "User%3Aadmin"),
        (CLIENT, "127.0.0.1"),
        (SIGNED_AT, "1000001"),
        (SIGNED_AT, "later"),
        (SIGNATURE, ""),
        (SIGNATURE, "0" * 64),
        (SIGNATURE, "\xe9"),
    ],
)
def test_no_header_can_be_changed(header: str, value: str) -> None:
    request = sent()
    forged = replace(request, headers={**request.headers, header: value})
    assert vouched(KEY, forged, NOW) is None


def test_nothing_moves_from_the_head_into_the_body() -> None:
    moved = replace(sent(), query=REQUEST.query + '"', body=b"")
    assert vouched(KEY, moved, NOW) is None


def test_another_key_and_missing_headers() -> None:
    assert vouched(b"x" * 32, sent(), NOW) is None
    assert vouched(KEY, replace(REQUEST, headers={SIGNATURE: "a"}), NOW) is None


def test_a_signature_counts_for_a_minute() -> None:
    for late in (MAX_AGE_SECONDS, -MAX_AGE_SECONDS):
        assert vouched(KEY, sent(), NOW + late) == WHO
        assert vouched(KEY, sent(), NOW + 2 * late) is None

"""What a token must have to be believed (cases 38 to 42 and 87 of the specification)."""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING, Any

import jwt
import pytest

from ottla.broker.access.oauth import (
    FETCH_SECONDS,
    OAuthSettings,
    TokenJudge,
    _check_url,
    fetch_keys,
    parse_keys,
)
from ottla.client.https import FetchFailed
from ottla.clock import Clock
from ottla.metadata.config.broker import ListenerConfig, load_broker_config
from ottla.metadata.errors import InvalidConfig
from ottla.security.oauthbearer import BadToken, GoodToken, Unfetched
from ottla.security.principal import MappingRules
from tests.support.tokens import AUDIENCE, ISSUER, claims, forged, key_set, signer

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_000_000_000.0


class SetClock(Clock):
    """`at` is the time; `ahead` is what somebody has set the wall clock forward by."""

    def __init__(self) -> None:
        self.at = NOW
        self.ahead = 0.0

    def wall_ms(self) -> int:
        return int((self.at + self.ahead) * 1000)

    def monotonic(self) -> float:
        return self.at


class Server:
    """Has a key set, and counts who asks for it."""

    def __init__(self, document: bytes) -> None:
        self.document = document
        self.asked = 0

    def __call__(self, url: str) -> bytes:
        self.asked += 1
        if not self.document:
            raise FetchFailed("it answers with status 500")
        return self.document


def judge(
    document: bytes | None = None, clock: SetClock | None = None, **settings: Any
) -> tuple[TokenJudge, Server]:
    rules = MappingRules.parse(settings.pop("rules", "DEFAULT"))
    wanted = OAuthSettings(
        "https://idp.example/keys", ISSUER, frozenset({AUDIENCE, "other"}), rules, **settings
    )
    server = Server(key_set(signer()) if document is None else document)
    one = TokenJudge(wanted, clock or SetClock(), server)
    one.load()
    return one, server


def verdict(one: TokenJudge, token: str) -> GoodToken | BadToken:
    found = one.judge(token)
    return found.then(found.call()) if isinstance(found, Unfetched) else found


GOOD = GoodToken("alice", NOW + 300)


@pytest.mark.parametrize(
    "algorithm", ["RS256", "RS384", "PS256", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
)
def test_algorithms_that_are_accepted_case_38(algorithm: str) -> None:
    key = signer(algorithm)
    one, _ = judge(key_set(key))
    assert verdict(one, key.sign(claims(NOW))) == GOOD


def test_none_is_refused_case_38() -> None:
    one, _ = judge()
    for algorithm in ("none", "None", "NONE", ""):
        token = forged({"alg": algorithm, "kid": "one"}, claims(NOW))
        assert verdict(one, token) == BadToken("the token's alg does not fit its key")


def test_a_public_key_is_no_shared_secret_case_38() -> None:
    """HS256 with the public key, which everybody has, in each of its forms."""
    key = signer()
    one, _ = judge()
    for secret in (
        json.dumps(key.public).encode(),
        key.public["n"].encode(),
        jwt.PyJWK(key.public).key.public_numbers().n.to_bytes(256, "big"),
    ):
        header = {"alg": "HS256", "kid": "one", "typ": "JWT"}
        unsigned = forged(header, claims(NOW)).rpartition(".")[0]
        token = forged(header, claims(NOW), hmac.digest(secret, unsigned.encode(), "sha256"))
        assert verdict(one, token) == BadToken("the token's alg does not fit its key")
    oct_key = {"kty": "oct", "k": "c2VjcmV0", "kid": "two", "alg": "HS256"}
    with pytest.raises(FetchFailed, match="no key that can be used"):
        parse_keys(json.dumps({"keys": [oct_key]}).encode())


def test_the_algorithm_must_fit_the_key_case_38() -> None:
    rsa, curve = signer("RS256", "rsa"), signer("ES256", "curve")
    one, _ = judge(key_set(rsa, curve))
    token = curve.sign(claims(NOW), kid="rsa")
    assert verdict(one, token) == BadToken("the token's alg does not fit its key")
    stated = rsa.public | {"alg": "PS256"}
    strict, _ = judge(json.dumps({"keys": [stated]}).encode())
    assert verdict(strict, rsa.sign(claims(NOW))) == BadToken(
        "the token's alg does not fit its key"
    )


def test_signatures_that_do_not_fit_case_38() -> None:
    one, _ = judge()
    good = signer().sign(claims(NOW))
    head, body, signature = good.split(".")
    another = signer("RS256", "another").sign(claims(NOW), kid="one")
    for token in (
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-4]}",
        f"{head}.{another.split('.')[1]}x.{signature}",
        another,
        f"{head}.{signer().sign(claims(NOW, sub='root')).split('.')[1]}.{signature}",
    ):
        assert isinstance(verdict(one, token), BadToken)


@pytest.mark.parametrize("token", ["", "x", "a.b", "a.b.c", "....", "\u00e9.x.y", "e30.e30.e30"])
def test_what_is_no_token(token: str) -> None:
    one, _ = judge()
    assert isinstance(verdict(one, token), BadToken)


def test_headers_that_are_not_followed_case_38() -> None:
    """A key in the token, or an address of one, is not looked at: no request is made."""
    attacker = signer("RS256", "attacker")
    one, server = judge()
    before = server.asked
    for header in (
        {"jwk": attacker.public},
        {"jku": "https://attacker.example/keys"},
        {"x5u": "https://attacker.example/chain"},
        {"x5c": ["MII"]},
    ):
        token = attacker.sign(claims(NOW), kid="one", **header)
        assert verdict(one, token) == BadToken("the signature does not fit")
        assert verdict(one, signer().sign(claims(NOW), **header)) == GOOD
    assert server.asked == before
    crit = signer().sign(claims(NOW), crit=["exp"], exp=1)
    assert isinstance(verdict(one, crit), BadToken)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"exp": NOW - 31}, "expired"),
        ({"exp": NOW - 30}, "expired"),
        ({"exp": NOW - 29}, GoodToken("alice", NOW - 29)),
        ({"exp": None}, "no exp"),
        ({"exp": "tomorrow"}, "no exp"),
        ({"exp": True}, "no exp"),
        ({"nbf": NOW + 31}, "nbf is in the future"),
        ({"nbf": NOW + 29}, GOOD),
        ({"iat": NOW + 31}, "iat is in the future"),
        ({"iat": "x"}, "iat is in the future"),
        ({"iat": NOW - 10}, GOOD),
        ({"iss": "https://idp.example/"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "others"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": [["kafka"]]}, "another audience"),
        ({"aud": ["x", "other"]}, GOOD),
        ({"sub": ""}, "no user in the token, or no mapping rule for it"),
        ({"sub": 7}, "no user in the token, or no mapping rule for it"),
        ({"sub": "a\nb"}, "no user in the token, or no mapping rule for it"),
        ({"sub": "x" * 256}, "no user in the token, or no mapping rule for it"),
    ],
)
def test_claims_case_39(change: dict[str, Any], expected: GoodToken | str) -> None:
    body = {key: value for key, value in claims(NOW, **change).items() if value is not None}
    one, _ = judge()
    found = verdict(one, signer().sign(body))
    assert found == (BadToken(expected) if isinstance(expected, str) else expected)


def test_nested_claims_are_refused() -> None:
    deep: Any = 1
    for _ in range(17):
        deep = [deep]
    one, _ = judge()
    assert isinstance(verdict(one, signer().sign(claims(NOW, deep=deep))), BadToken)


def test_a_token_without_a_kid_case_39() -> None:
    first, second = signer("RS256", "one"), signer("RS256", "two")
    anonymous = jwt.encode(claims(NOW), first.key, algorithm="RS256")
    assert verdict(judge(key_set(first))[0], anonymous) == GOOD
    found = verdict(judge(key_set(first, second))[0], anonymous)
    assert found == BadToken("no key of the set has the token's kid")


def test_scopes_and_mapping_rules() -> None:
    scoped, _ = judge(required_scopes=frozenset({"write", "admin"}))
    assert verdict(scoped, signer().sign(claims(NOW, scope="read write"))) == BadToken(
        "a scope is missing", "insufficient_scope", "admin"
    )
    assert verdict(scoped, signer().sign(claims(NOW, scope=["admin", "write"]))) == GOOD
    mapped, _ = judge(rules="RULE:^(.*)@example\\.org$/$1/L", sub_claim="email")
    token = signer().sign(claims(NOW, email="Bob@example.org"))
    assert verdict(mapped, token) == GoodToken("bob", NOW + 300)
    assert isinstance(verdict(mapped, signer().sign(claims(NOW, email="x@evil.org"))), BadToken)


def test_a_new_key_works_with_its_first_token_case_40() -> None:
    one, server = judge()
    new = signer("RS256", "new")
    server.document = key_set(signer(), new)
    assert verdict(one, new.sign(claims(NOW))) == GOOD
    assert server.asked == 2
    assert verdict(one, new.sign(claims(NOW))) == GOOD
    assert server.asked == 2


def test_unknown_keys_do_not_flood_the_server_case_40() -> None:
    clock = SetClock()
    one, server = judge(clock=clock)
    for number in range(1000):
        token = signer().sign(claims(NOW), kid=f"made-up-{number}")
        assert isinstance(verdict(one, token), BadToken)
        clock.at += 0.02  # 20 seconds in all
    # Pauses of 0.1, 0.2, ... 6.4, then 10 s: the sum of the first eight is 12.8 s.
    assert server.asked <= 1 + 9
    assert verdict(one, signer().sign(claims(NOW))) == GOOD


def test_one_fetch_at_a_time() -> None:
    one, server = judge()
    token = signer().sign(claims(NOW), kid="unknown")
    waiting = one.judge(token)
    assert isinstance(waiting, Unfetched)
    assert isinstance(one.judge(token), BadToken)
    assert isinstance(waiting.then(waiting.call()), BadToken)
    assert server.asked == 2


def test_a_fetch_that_nobody_hears_of_does_not_keep_others_from_fetching() -> None:
    """Fault: after a client that left while keys were fetched, no key was ever fetched again."""
    clock = SetClock()
    one, _ = judge(clock=clock)
    token = signer().sign(claims(NOW), kid="unknown")
    assert isinstance(one.judge(token), Unfetched)
    clock.at += FETCH_SECONDS
    assert isinstance(one.judge(token), BadToken), "it may still go on"
    clock.at += FETCH_SECONDS
    assert isinstance(one.judge(token), Unfetched)


def test_new_keys_are_fetched_after_the_wall_clock_was_set_back() -> None:
    """Fault: keys were fetched by wall time, so for as long as it had been ahead nobody did."""
    clock = SetClock()
    clock.ahead = 86_400
    one, server = judge(clock=clock)
    new = signer("RS256", "new")
    assert isinstance(verdict(one, new.sign(claims(NOW))), BadToken)
    clock.ahead = 0
    clock.at += 60
    server.document = key_set(new)
    assert verdict(one, new.sign(claims(NOW, exp=NOW + 600))) == GoodToken("alice", NOW + 600)
    assert server.asked == 3


def test_a_failed_refresh_keeps_the_keys(caplog: pytest.LogCaptureFixture) -> None:
    clock = SetClock()
    one, server = judge(clock=clock)
    token = signer().sign(claims(NOW, exp=NOW + 10_000))
    clock.at = NOW + 3601
    server.document = b""
    assert verdict(one, token) == GoodToken("alice", NOW + 10_000)
    assert server.asked == 2
    assert "the old ones stay" in caplog.text
    server.document = key_set(signer("RS256", "new"))
    clock.at += 1
    assert isinstance(verdict(one, token), BadToken), "its key was withdrawn"


CONFIG = {
    "sasl.oauthbearer.jwks.endpoint.url": "https://idp.example/keys",
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "sasl.oauthbearer.expected.audience": "kafka,other",
}


def listener(config: dict[str, str]) -> ListenerConfig:
    return ListenerConfig(
        load_broker_config(sets=[f"{key}={value}" for key, value in config.items()]), "SASL_SSL"
    )


def test_settings() -> None:
    found = OAuthSettings.of(listener(CONFIG | {"ottla.sasl.oauthbearer.required.scope": "a,b"}))
    assert found.audiences == {"kafka", "other"}
    assert found.required_scopes == {"a", "b"}
    assert (found.skew, found.refresh, found.backoff, found.backoff_max) == (30, 3600, 0.1, 10)


@pytest.mark.parametrize("missing", CONFIG)
def test_without_a_check_it_does_not_start_case_41(missing: str) -> None:
    with pytest.raises(InvalidConfig, match=missing):
        OAuthSettings.of(listener({k: v for k, v in CONFIG.items() if k != missing}))


@pytest.mark.parametrize(
    ("url", "insecure", "good"),
    [
        ("https://idp.example/keys", False, True),
        ("file:///etc/keys.json", False, True),
        ("http://idp.example/keys", True, False),
        ("http://127.0.0.1:1/keys", False, False),
        ("http://127.0.0.1:1/keys", True, True),
        ("https://user:canary@idp.example/keys", False, False),
        ("file://host/etc/keys.json", False, False),
        ("ftp://idp.example/keys", True, False),
        ("/etc/passwd", True, False),
        ("jar:file:/x!/y", True, False),
        ("", True, False),
    ],
)
def test_urls_of_keys_case_87(url: str, insecure: bool, good: bool) -> None:
    config = listener({"ottla.allow.insecure.listeners": str(insecure).lower()})
    if good:
        _check_url(url, config)
    else:
        with pytest.raises(InvalidConfig, match="https:// or file://") as failure:
            _check_url(url, config)
        assert "canary" not in str(failure.value)


def test_files_that_are_no_key_set_are_not_quoted_case_87(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    rules = MappingRules.parse("DEFAULT")
    for content in (b"canary:x:0:0", b"[]", b'{"keys": 1}', b'{"keys": [{"canary": 1}]}', b"{" * 9):
        path.write_bytes(content)
        settings = OAuthSettings(f"file://{path}", ISSUER, frozenset({AUDIENCE}), rules)
        with pytest.raises(InvalidConfig) as failure:
            TokenJudge(settings, SetClock()).load()
        assert "canary" not in str(failure.value)
    path.write_bytes(b"x" * (256 * 1024 + 1))
    with pytest.raises(FetchFailed, match="more than"):
        fetch_keys(f"file://{path}")
    with pytest.raises(FetchFailed, match="No such file"):
        fetch_keys(f"file://{tmp_path}/none")
    path.write_bytes(key_set(signer()))
    assert parse_keys(fetch_keys(f"file://{path}")).keys() == {"one"}

"""Who asks over HTTP: tokens, certificates, passwords, other nodes; each failure and its answer."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.broker.access.http_callers import HttpCallers, Proofs
from ottla.broker.access.oauth import OAuthSettings, TokenJudge
from ottla.broker.access.refusals import Attempt
from ottla.broker.access.throttling import Throttling
from ottla.clock import Clock
from ottla.http.messages import Answer, Refused, Request
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.security.quotas import REQUEST_PERCENTAGE, USER
from ottla.registry.forwarding import signed
from ottla.security.certificates import Authority
from ottla.security.mechanisms import Verifiers
from ottla.security.principal import MappingRules
from ottla.security.scram import SHA_512, make_credential
from tests.support.clocks import ManualClock
from tests.support.tokens import AUDIENCE, ISSUER, claims, key_set, signer
from tests.unit.broker.test_quotas import image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOW = 1_000_000_000.0
KEY = b"k" * 32
END = "-----END CERTIFICATE-----"
CREDENTIAL = make_credential(SHA_512, "secret", b"salt" * 4, 4096)


class Door:
    """Counts failures instead of waiting for them."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, str]] = []
        self.forgiven: list[str] = []
        self.forwarding_key = KEY
        self.clock = ManualClock(int(NOW * 1000))
        self.verifiers = Verifiers(b"x")
        self.credentials = SimpleNamespace(plain=lambda *_, **__: CREDENTIAL)
        self.is_full = False

    @contextmanager
    def attempt(self, host: str, delay: float) -> Iterator[Attempt]:
        yield Attempt(host, 0.0, delay, is_dropped=self.is_full)

    async def failed(self, _peer: Any, attempt: Attempt, reason: str, user: str) -> None:
        assert attempt.delay == 0.25
        if not attempt.is_dropped:
            self.failures.append((reason, user))

    def forgive(self, host: str) -> None:
        self.forgiven.append(host)

    async def work(self, call: Callable[[], Any]) -> Any:
        return call()

    def is_worker(self, authorization: str) -> bool:
        return False


class AtNow(Clock):
    def wall_ms(self) -> int:
        return int(NOW * 1000)


def judge(**settings: Any) -> TokenJudge:
    rules = MappingRules.parse("DEFAULT")
    wanted = OAuthSettings("https://a/", ISSUER, frozenset({AUDIENCE}), rules, **settings)
    return TokenJudge(wanted, AtNow(), lambda _: key_set(signer("ES256")))


AUTHORITY = Authority.make()


def certificate(subject: str) -> bytes:
    leaf, _, _ = AUTHORITY.client("x", subject=subject).chain.decode().partition(END)
    return ssl.PEM_cert_to_DER_cert(leaf + END)


EVERY = Proofs(
    tokens=judge(), certificates=MappingRules.parse("RULE:^CN=([^,]+).*$/$1/"), delay=0.25
)


class Bench:
    def __init__(self, proofs: Proofs = EVERY) -> None:
        door: Any = Door()
        self.door = door
        self.throttling: Throttling | None = None
        self.callers = HttpCallers("REGISTRY", door, proofs, None, None, lambda: self.throttling)

    def asked(self, authorization: str | None = None, shown: bytes | None = None) -> Any:
        headers = {} if authorization is None else {"authorization": authorization}
        return self.identify(Request("GET", ("subjects",), "", headers, certificate=shown))

    def identify(self, request: Request) -> Any:
        return asyncio.run(self.callers.identify(request))

    def user(self, authorization: str | None = None, shown: bytes | None = None) -> str:
        return str(self.asked(authorization, shown)._peer.principal)

    def refused(self, authorization: str | None = None, shown: bytes | None = None) -> Answer:
        with pytest.raises(Refused) as found:
            self.asked(authorization, shown)
        return found.value.answer


def bearer(**more: Any) -> str:
    return "Bearer " + signer("ES256").sign(claims(NOW, **more))


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def test_a_token_says_who_asks() -> None:
    bench = Bench()
    assert bench.user(bearer()) == "User:alice"
    assert bench.user(bearer().replace("Bearer", "bEARER")) == "User:alice"
    assert bench.door.forgiven
    assert not bench.door.failures


def test_a_bad_token_is_401_and_its_reason_is_for_the_operator() -> None:
    bench = Bench()
    for given, reason in (
        (bearer(exp=NOW - 60), "expired"),
        (bearer(aud="other"), "another audience"),
        ("Bearer", "not a token"),
        ("Bearer é", "not a token"),
        (f"{bearer()}, {bearer()}", "not a token"),
    ):
        answer = bench.refused(given)
        assert answer.status == 401
        assert b"authentication failed" in answer.body
        assert answer.headers == (
            ("WWW-Authenticate", 'Bearer realm="ottla", error="invalid_token"'),
        )
        assert bench.door.failures.pop() == (reason, "")


def test_a_missing_scope_is_403() -> None:
    bench = Bench(replace(EVERY, tokens=judge(required_scopes=frozenset({"schemas"}))))
    answer = bench.refused(bearer(scope="else"))
    assert answer.status == 403
    (challenge,) = answer.headers
    assert challenge[1].endswith('error="insufficient_scope", scope="schemas"')
    assert bench.user(bearer(scope="else schemas")) == "User:alice"


def test_a_token_is_not_taken_where_there_is_no_oauthbearer() -> None:
    bench = Bench(Proofs(delay=0.25))
    answer = bench.refused(bearer())
    assert answer.status == 401
    assert [value.split()[0] for _, value in answer.headers] == ["Basic"]


def test_a_password_is_not_taken_where_there_is_oauthbearer_alone() -> None:
    bench = Bench(replace(EVERY, passwords=False))
    answer = bench.refused(basic("alice", "secret"))
    assert [value.split()[0] for _, value in answer.headers] == ["Bearer"]
    assert Bench().user(basic("alice", "secret")) == "User:alice"


def test_a_certificate_says_who_asks_and_a_header_comes_before_it() -> None:
    bench, shown = Bench(), certificate("CN=bob,OU=billing")
    assert bench.user(shown=shown) == "User:bob"
    assert bench.user(bearer(), shown) == "User:alice"
    assert bench.refused("Basic x", shown).status == 401


def test_a_certificate_without_a_rule_is_refused() -> None:
    bench = Bench()
    assert bench.refused(shown=certificate("OU=billing")).status == 401
    assert bench.refused(shown=b"no certificate").status == 401
    assert bench.door.failures == [("no mapping rule", "")] * 2


def test_a_certificate_counts_only_where_it_is_asked_for() -> None:
    bench = Bench(Proofs(delay=0.25))
    assert bench.refused(shown=certificate("CN=bob")).status == 401


@pytest.mark.parametrize("name", ["__node", "__table", "__x"])
def test_names_of_the_brokers_own_are_refused(name: str) -> None:
    bench = Bench()
    bench.refused(bearer(sub=name))
    bench.refused(shown=certificate(f"CN={name}"))
    assert bench.door.failures == [("reserved name", name)] * 2


def test_who_says_nothing_is_told_the_ways_there_are() -> None:
    bench = Bench()
    answer = bench.refused()
    assert answer.body.decode().rstrip() == (
        "send a user and a password (Basic authentication) or a token (Bearer authentication) "
        "or a client certificate"
    )
    assert [value.split()[0] for _, value in answer.headers] == ["Basic", "Bearer"]
    assert not bench.door.failures, "a browser that asks first has not failed"


def test_too_many_failures_are_503_and_not_an_error_of_the_server() -> None:
    bench = Bench()
    bench.door.is_full = True
    answer = bench.refused("Basic x")
    assert (answer.status, answer.headers) == (503, (("Retry-After", "5"),))


def test_another_node_vouches_for_user_and_address() -> None:
    bench = Bench()
    request = Request("GET", ("subjects",))
    headers = signed(KEY, request, "User:carol", "10.0.0.9", NOW)
    visitor = bench.identify(replace(request, headers=headers))
    assert (visitor._peer.principal, visitor._peer.host) == ("User:carol", "10.0.0.9")
    forged = {**headers, "x-ottla-principal": "User%3Aadmin"}
    with pytest.raises(Refused):
        bench.identify(replace(request, headers=forged))
    assert bench.door.failures == [("a signature that no node made", "")]


def test_time_counts_towards_the_users_quota() -> None:
    bench = Bench()
    clock = ManualClock(1_000_000)
    bench.throttling = Throttling(load_broker_config(), clock)
    bench.throttling.adopt(image(({USER: "alice"}, {REQUEST_PERCENTAGE: 0.0001})))

    async def slow(_: Request) -> Answer:
        return Answer(200, b"x" * sum(range(100_000)).bit_length())

    async def asking(who: str) -> Answer:
        request = Request("GET", ("subjects",), "", {"authorization": who})
        visitor = await bench.callers.identify(request)
        return await visitor.answer(request, slow)

    assert asyncio.run(asking(bearer())).status == 200
    with pytest.raises(Refused) as refused:
        asyncio.run(asking(bearer()))
    assert refused.value.answer.status == 429
    assert dict(refused.value.answer.headers)["Retry-After"] == "1"
    assert asyncio.run(asking(bearer(sub="bob"))).status == 200

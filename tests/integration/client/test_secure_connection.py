"""The own client over TLS and SASL, against a stand-in that can be false, slow or silent.

Real brokers are in tests/conformance. Numbers are acceptance cases of the specification.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.cluster.cluster import Client
from ottla.client.cluster.connection import Address
from ottla.client.cluster.protection import Protection
from ottla.client.cluster.secure import SecureConnection
from ottla.client.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    TlsFailed,
    UnsupportedSecurity,
)
from ottla.client.security import Security, Token
from ottla.security.contexts import server_context
from ottla.security.mechanisms import PlainServer, Verifiers
from ottla.security.oauthbearer import BadToken, GoodToken, OAuthBearerServer
from ottla.security.scram import (
    MECHANISMS,
    ScramCredential,
    ScramServer,
    fake_credential,
    make_credential,
)
from ottla.security.steps import Challenge, Failure, Mechanism, Success, Work
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.schema.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.schema.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.client_broker import Instead, ScriptedBroker, describe
from tests.support.clocks import HOUR_MS, ManualClock
from tests.support.tls import ago, authority, server_issued, shows
from tests.unit.security.test_contexts import revocation_list

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from ssl import SSLContext

HEARTBEAT = HeartbeatRequest("g", 1, "m")
CA = authority().issued.chain.decode()
SALT = b"salt" * 4
ALL = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")


def tls() -> SSLContext:
    return server_context(shows(server_issued()))


class SaslBroker(ScriptedBroker):
    """Knows user alice with the password "secret", and the token "good.to.ken"."""

    def __init__(
        self,
        ssl: SSLContext | None = None,
        *,
        lifetime_ms: int = 0,
        then: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(ssl=ssl)
        self.logins = 0
        self.lifetime_ms = lifetime_ms
        self._then = then
        self._mechanism: Mechanism | None = None
        self.script(SaslHandshakeRequest, self._shake)
        self.script(SaslAuthenticateRequest, self._authenticate)
        self.script(HeartbeatRequest, HeartbeatResponse())

    def _credential(self, name: str, mechanism: str) -> ScramCredential:
        known = MECHANISMS[mechanism]
        if name == "alice":
            return make_credential(known, "secret", SALT, 4096)
        return fake_credential(b"", known, name, len(SALT), 4096)

    def _shake(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        name = request.mechanism
        if name.startswith("SCRAM"):
            self._mechanism = ScramServer(
                MECHANISMS[name], lambda user: self._credential(user, name), "server-nonce"
            )
        elif name == "PLAIN":
            self._mechanism = PlainServer(
                lambda user: self._credential(user, "SCRAM-SHA-256"),
                Verifiers(b"key"),
            )
        else:
            self._mechanism = OAuthBearerServer(
                lambda token: GoodToken("alice", 0.0) if token == "good.to.ken" else BadToken("bad")
            )
        return SaslHandshakeResponse(0, ALL)

    def _authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        assert self._mechanism is not None
        step = self._mechanism.step(bytes(request.auth_bytes))
        while isinstance(step, Work):
            step = step.finish()
        if isinstance(step, Challenge):
            return SaslAuthenticateResponse(auth_bytes=step.data)
        code = self._then()
        if isinstance(step, Failure) or code:
            refused = code or ErrorCode.SASL_AUTHENTICATION_FAILED
            return SaslAuthenticateResponse(refused, "Authentication failed")
        assert isinstance(step, Success)
        self.logins += 1
        return SaslAuthenticateResponse(auth_bytes=step.data, session_lifetime_ms=self.lifetime_ms)


def security(mechanism: str = "SCRAM-SHA-512", password: str = "secret", **more: Any) -> Security:
    if mechanism == "OAUTHBEARER":
        more["token"] = provider("good.to.ken" if password == "secret" else "bad.to.ken")
    else:
        more |= {"sasl_username": "alice", "sasl_password": password}
    return Security("SASL_SSL", mechanism, ssl_ca=CA, **more)


def provider(value: str, life: float = 60.0) -> Callable[[], Any]:
    async def give() -> Token:
        return Token(value, time.time() + life)

    return give


async def connected(
    broker: ScriptedBroker, asked: Security, host: str = "127.0.0.1", within: float = 10.0
) -> SecureConnection:
    connection = SecureConnection(
        Address(host, broker.port), "me", protection=Protection(asked), random=lambda: 0.0
    )
    await connection.open(connect_timeout=within)
    return connection


@pytest.mark.parametrize("mechanism", ALL)
async def test_log_in(mechanism: str) -> None:
    async with SaslBroker(tls()) as broker:
        connection = await connected(broker, security(mechanism))
        assert connection.is_open
        answer = await connection.send(HEARTBEAT, 4)
        assert answer.error_code == 0
        await connection.close()
        await broker.until_left()
        names = [name for name, _ in broker.versions_used]
        assert names[:2] == ["api_versions", "sasl_handshake"]
        assert set(names[2:-1]) == {"sasl_authenticate"}


async def test_tls_without_a_login_and_a_login_without_tls() -> None:
    async with ScriptedBroker(ssl=tls()) as broker:
        broker.script(HeartbeatRequest, HeartbeatResponse())
        connection = await connected(broker, Security("SSL", ssl_ca=CA), "localhost")
        await connection.send(HEARTBEAT, 4)
        await connection.close()
    async with SaslBroker() as clear:
        asked = Security("SASL_PLAINTEXT", "SCRAM-SHA-256", "alice", "secret")
        connection = await connected(clear, asked)
        await connection.send(HEARTBEAT, 4)
        await connection.close()


@pytest.mark.parametrize("mechanism", ALL)
async def test_a_refused_login_ends_at_once_case_102(mechanism: str) -> None:
    """One attempt, an error that names user and mechanism, and no password in it."""
    async with SaslBroker(tls()) as broker:
        asked = security(mechanism, "canary")
        async with Client(broker.bootstrap, security=asked) as client:
            with pytest.raises(AuthenticationFailed, match=mechanism) as failure:
                await client.retry(lambda: client.refresh(()))
        assert "canary" not in str(failure.value)
        assert mechanism == "OAUTHBEARER" or "'alice'" in str(failure.value)
        assert broker.connections == 1


async def test_a_mechanism_that_is_not_offered() -> None:
    async with SaslBroker(tls()) as broker:
        broker.script(
            SaslHandshakeRequest,
            SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["GSSAPI", "PLAIN"]),
        )
        with pytest.raises(UnsupportedSecurity, match="it offers GSSAPI, PLAIN"):
            await connected(broker, security())
        broker.script(SaslHandshakeRequest, SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, []))
        with pytest.raises(UnsupportedSecurity, match="the listener has no SASL"):
            await connected(broker, security())


async def test_a_false_server_is_refused_case_34() -> None:
    """It takes any proof, and cannot prove that it knows the password."""
    async with SaslBroker(tls()) as broker:
        first = SaslAuthenticateResponse(auth_bytes=b"")

        def challenge(request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
            nonce = bytes(request.auth_bytes).rpartition(b"r=")[2]
            return SaslAuthenticateResponse(auth_bytes=b"r=" + nonce + b"x,s=c2FsdA==,i=4096")

        for second in (b"v=" + b"A" * 86 + b"==", b"", b"e=other-error"):
            last = first._replace(auth_bytes=second)
            broker.script(SaslAuthenticateRequest, challenge, last)
            with pytest.raises(AuthenticationFailed):
                await connected(broker, security())


async def test_a_broker_that_never_ends_is_refused() -> None:
    async with SaslBroker(tls()) as broker:
        broker.script(SaslAuthenticateRequest, Instead.HANG_UP)
        with pytest.raises(BrokerUnreachable, match="cannot log in at"):
            await connected(broker, security())


@pytest.mark.parametrize(
    ("asked", "host", "said"),
    [
        (Security("SSL"), "localhost", "not of a CA that is trusted.*ssl.truststore.location"),
        (
            Security("SSL", ssl_ca=authority("another").issued.chain.decode()),
            "localhost",
            "not of a CA that is trusted",
        ),
        (
            Security("SSL", ssl_ca=CA),
            "127.0.0.2",
            r"not for 127\.0\.0\.2 but for localhost, 127\.0\.0\.1",
        ),
    ],
)
async def test_a_certificate_that_is_refused_case_9(asked: Security, host: str, said: str) -> None:
    async with ScriptedBroker(ssl=tls(), host=host) as broker:
        with pytest.raises(TlsFailed, match=said):
            await connected(broker, asked, host)


async def test_an_expired_certificate_is_refused_case_9() -> None:
    old = authority().server(["localhost", "127.0.0.1"], days=1, now=ago(20))
    context = server_context(shows(old), now=ago(20).timestamp() + 60)
    async with ScriptedBroker(ssl=context) as broker:
        with pytest.raises(TlsFailed, match="has expired"):
            await connected(broker, Security("SSL", ssl_ca=CA))


async def test_a_revoked_certificate_is_refused(tmp_path: Path) -> None:
    revoked, crl = server_issued(), tmp_path / "crl.pem"
    asked = Security("SSL", ssl_ca=CA, ssl_crl=crl)
    async with ScriptedBroker(ssl=server_context(shows(revoked))) as broker:
        said = r"cannot read .*crl\.pem"
        with pytest.raises(UnsupportedSecurity, match=rf"^ssl\.crl\.location \(ssl_crl\): {said}"):
            await connected(broker, asked)
        crl.write_bytes(revocation_list(authority()))
        await (await connected(broker, asked)).close()
        crl.write_bytes(revocation_list(authority(), revoked))
        with pytest.raises(TlsFailed, match="is revoked"):
            await connected(broker, asked)


async def test_a_name_that_is_not_checked(caplog: pytest.LogCaptureFixture) -> None:
    other = authority().server(["elsewhere.example"])
    async with ScriptedBroker(ssl=server_context(shows(other))) as broker:
        asked = Security("SSL", ssl_ca=CA, ssl_check_hostname=False)
        connection = await connected(broker, asked)
        await connection.close()
        assert "ssl_check_hostname is off" in caplog.text
        with pytest.raises(TlsFailed, match=r"but for elsewhere\.example"):
            await connected(broker, Security("SSL", ssl_ca=CA))


async def test_a_listener_without_tls_case_18() -> None:
    async with SaslBroker() as broker:
        said = "does not speak TLS; set security.protocol to SASL_PLAINTEXT"
        with pytest.raises(TlsFailed, match=said):
            await connected(broker, security(), within=0.5)


async def test_a_listener_that_wants_a_login_case_18() -> None:
    async with ScriptedBroker() as broker, Client(broker.bootstrap, api_timeout=0.5) as client:
        broker.script(HeartbeatRequest, Instead.HANG_UP)
        with pytest.raises(ConnectionLost, match="at the first request; if the listener wants a"):
            await client.send(HEARTBEAT, to="any")


async def test_large_requests_and_many() -> None:
    """A request of 30 MiB does not fit a socket, so that it is encrypted piece by piece."""
    async with SaslBroker(tls()) as broker:
        connection = await connected(broker, security())
        group = "g" * 30_000
        large = HeartbeatRequest(group, 1, "m")
        answers = await asyncio.gather(*(connection.send(large, 4) for _ in range(1000)))
        assert len(answers) == 1000
        assert [one.group_id for one in broker.asked(HeartbeatRequest)] == [group] * 1000
        await connection.close()
        await broker.until_left()


async def test_a_session_is_renewed_case_36() -> None:
    """Requests that come meanwhile are held, and go out in order; none is lost."""
    async with SaslBroker(tls(), lifetime_ms=200) as broker:
        connection = await connected(broker, security())
        sent = 0
        while broker.logins < 4:
            await connection.send(HeartbeatRequest("g", sent, "m"), 4)
            sent += 1
        assert broker.connections == 1
        seen = [one.generation_id for one in broker.asked(HeartbeatRequest)]
        assert seen == list(range(sent))
        # Between the messages of a login there is nothing else.
        kinds = [type(one) for one in broker.requests]
        for at, kind in enumerate(kinds):
            if kind is SaslHandshakeRequest:
                assert kinds[at + 1] is SaslAuthenticateRequest
                assert kinds[at + 2] is SaslAuthenticateRequest
        await connection.close()


async def test_a_loop_that_stood_still_renews_first_case_36() -> None:
    """The timer has not rung yet, and a request after the session's end costs the connection."""
    async with SaslBroker(tls(), lifetime_ms=200) as broker:
        connection = await connected(broker, security())
        time.sleep(0.2)  # noqa: ASYNC251  # so that it stands still
        await connection.send(HEARTBEAT, 4)
        kinds = [type(one) for one in broker.requests]
        assert kinds.index(HeartbeatRequest) > kinds.index(SaslHandshakeRequest, 3)
        assert broker.connections == 1
        await connection.close()


async def test_requests_that_wait_for_a_renewal_are_counted_and_sent() -> None:
    async with SaslBroker(tls(), lifetime_ms=100) as broker:
        connection = await connected(broker, security())
        broker.script(SaslHandshakeRequest, Instead.SILENCE)
        await broker.until(lambda: len(broker.asked(SaslHandshakeRequest)) == 2)
        waiting = asyncio.create_task(connection.send(HEARTBEAT, 4))
        await asyncio.sleep(0)
        assert connection.in_flight == 2
        assert not broker.asked(HeartbeatRequest)
        broker.hang_up()
        with pytest.raises(BrokerUnreachable):
            await waiting
        assert connection.in_flight == 0


async def test_a_renewal_that_is_refused_ends_the_connection() -> None:
    codes = iter([0, ErrorCode.SASL_AUTHENTICATION_FAILED])
    async with SaslBroker(tls(), lifetime_ms=100, then=lambda: next(codes)) as broker:
        connection = await connected(broker, security())
        await broker.until_left()
        with pytest.raises(BrokerUnreachable, match="cannot log in as 'alice'"):
            await connection.send(HEARTBEAT, 4)


async def test_closing_ends_the_renewal() -> None:
    async with SaslBroker(tls(), lifetime_ms=60_000) as broker:
        connection = await connected(broker, security())
        assert connection._renewal is not None
        await connection.close()
        assert connection._renewal.cancelled()


async def fails() -> Token:
    raise OSError("canary")


async def hangs() -> Token:
    await asyncio.Event().wait()
    raise AssertionError


async def gives_text() -> Any:
    return "canary"


@pytest.mark.parametrize(
    ("give", "error", "said"),
    [
        (fails, AuthenticationFailed, "the token provider failed with OSError"),
        (provider("good.to.ken", -1.0), AuthenticationFailed, "has expired"),
        (provider("good.to.ken", math.nan), AuthenticationFailed, "has expired"),
        (gives_text, AuthenticationFailed, "failed with ValueError|must return"),
        (hangs, AuthenticationFailed, "gave no token in 0.5 s"),
    ],
)
async def test_token_providers_that_do_not_work_case_103(
    give: Any, error: type[Exception], said: str
) -> None:
    async with SaslBroker(tls()) as broker:
        asked = Security("SASL_SSL", "OAUTHBEARER", ssl_ca=CA, token=give)
        connection = SecureConnection(
            Address("127.0.0.1", broker.port), "me", protection=Protection(asked)
        )
        with pytest.raises(error, match=said) as failure:
            await connection.open(connect_timeout=0.5)
        assert "canary" not in str(failure.value)
        await broker.until_left()


class TokenServer:
    """Gives each token for 60 s of its clock; an answer may be long on its way."""

    def __init__(self, *values: str, travels_ms: int = 0) -> None:
        self.clock = ManualClock(1_000_000)
        self.given: list[str] = []
        self._values = values
        self._travels_ms = travels_ms

    async def give(self) -> Token:
        value = self._values[min(len(self.given), len(self._values) - 1)]
        self.given.append(value)
        ends_at = self.clock.wall() + 60
        self.clock.advance(self._travels_ms)
        return Token(value, ends_at)

    def protection(self) -> Protection:
        asked = Security("SASL_SSL", "OAUTHBEARER", ssl_ca=CA, token=self.give)
        return Protection(asked, self.clock)


async def test_a_token_is_asked_for_anew_after_most_of_its_life() -> None:
    tokens = TokenServer("good.to.ken")
    async with SaslBroker(tls()) as broker:
        shared = tokens.protection()
        for _ in range(3):
            connection = SecureConnection(
                Address("127.0.0.1", broker.port), "me", protection=shared
            )
            await connection.open()
            await connection.close()
    tokens.clock.advance(47_999)
    await shared.login(10)
    assert len(tokens.given) == 1
    tokens.clock.advance(1)
    await shared.login(10)
    assert len(tokens.given) == 2


@pytest.mark.parametrize("step", [-HOUR_MS, HOUR_MS])
async def test_a_wall_clock_that_is_set_leaves_the_life_of_a_token_as_it_is(step: int) -> None:
    tokens = TokenServer("good.to.ken")
    shared = tokens.protection()
    await shared.login(10)
    tokens.clock.step(step)
    await shared.login(10)
    assert len(tokens.given) == 1
    tokens.clock.advance(48_000)
    await shared.login(10)
    assert len(tokens.given) == 2


async def test_the_life_of_a_token_is_what_is_left_when_it_has_come() -> None:
    tokens = TokenServer("good.to.ken", travels_ms=50_000)
    shared = tokens.protection()
    await shared.login(10)
    tokens.clock.advance(8_000)
    await shared.login(10)
    assert len(tokens.given) == 2
    with pytest.raises(AuthenticationFailed, match="has expired"):
        await TokenServer("good.to.ken", travels_ms=60_000).protection().login(10)


async def test_a_token_that_was_refused_is_not_sent_again() -> None:
    tokens = TokenServer("revoked.to.ken", "good.to.ken")
    async with SaslBroker(tls()) as broker:
        shared = tokens.protection()
        address = Address("127.0.0.1", broker.port)
        with pytest.raises(AuthenticationFailed, match="OAUTHBEARER"):
            await SecureConnection(address, "me", protection=shared).open()
        connection = SecureConnection(address, "me", protection=shared)
        await connection.open()
        await connection.close()
    assert tokens.given == ["revoked.to.ken", "good.to.ken"]


async def test_a_client_uses_all_of_it() -> None:
    async with SaslBroker(tls()) as broker:
        describe({1: broker}, {"t": [1]})
        async with Client(broker.bootstrap, security=security()) as client:
            view = await client.refresh(["t"])
            assert set(view.brokers) == {1}
            await client.send(HEARTBEAT, to=1)


async def test_requests_that_time_out_leave_no_bytes_behind_case_101() -> None:
    """CVE-2026-35554: what was half written is dropped with its connection, never reused."""
    async with SaslBroker(tls()) as broker:
        broker.script(HeartbeatRequest, Instead.SILENCE)
        async with Client(broker.bootstrap, security=security(), request_timeout=0.3) as client:
            before = [
                asyncio.create_task(client.send(HeartbeatRequest("a" * 30_000, at, "m"), to="any"))
                for at in range(200)
            ]
            outcome = await asyncio.gather(*before, return_exceptions=True)
            assert all(isinstance(one, ClientError) for one in outcome)
            broker.requests.clear()
            broker.script(HeartbeatRequest, HeartbeatResponse())
            for at in range(200):
                await client.retry(
                    lambda at=at: client.send(  # type: ignore[misc]
                        HeartbeatRequest("b" * 30_000, at, "m"), to="any"
                    )
                )
            seen = broker.asked(HeartbeatRequest)
            assert [(one.group_id, one.generation_id) for one in seen] == [
                ("b" * 30_000, at) for at in range(200)
            ]

"""A connection with TLS, SASL or both: `Connection` behind a `TlsChannel` and a `Login`.

- TLS: ciphertext goes into the channel, whose plain bytes go where those of a plain connection go.
  What is written waits in the channel as views, and is encrypted as the socket takes it.
- SASL: after the versions are agreed on, the client logs in; until then the connection is not open.
- Renewal (KIP-368): when most of the session's lifetime has passed, requests are held, the answers
  to earlier ones are waited for, the client logs in again, and the held requests go out in order.
  A renewal that fails ends the connection; requests that were held were not served.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.client.cluster.connection import (
    CONNECT_TIMEOUT,
    REQUEST_TIMEOUT,
    Connection,
    Question,
    resolve,
)
from ottla.client.cluster.tls_faults import SILENT, refused_certificate, tls_failure
from ottla.client.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    TlsFailed,
    UnsupportedSecurity,
    afresh,
)
from ottla.client.sasl import HANDSHAKE_VERSION, LoggedIn
from ottla.randomness import RANDOM
from ottla.security.steps import Work
from ottla.security.tls_channel import AHEAD_BYTES, READ_BUFFER, State, TlsChannel

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.client.cluster.protection import Protection
    from ottla.client.sasl import Login
    from ottla.wire.schema.sasl_authenticate import SaslAuthenticateRequest
    from ottla.wire.writers import Parts

SASL_AUTHENTICATE: Final = 36


class _Sink:
    """Plain bytes of the channel go where those of a plain connection would."""

    __slots__ = ("buffer_updated", "get_buffer")

    def __init__(
        self, get_buffer: Callable[[int], memoryview], buffer_updated: Callable[[int], None]
    ) -> None:
        self.get_buffer = get_buffer
        self.buffer_updated = buffer_updated


class SecureConnection(Connection):
    """To be opened once, and used until it is closed or fails."""

    _HINT_AT_FIRST_REQUEST = " at the first request"

    def __init__(
        self,
        *args: Any,
        protection: Protection,
        random: Callable[[], float] = RANDOM.random,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._protection = protection
        self._random = random
        self._channel: TlsChannel | None = None
        self._sink = _Sink(super().get_buffer, super().buffer_updated)
        self._shaken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_logged_in = not protection.security.has_sasl
        self._is_renewing = False
        self._quiet: asyncio.Future[None] | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._renew_at = self._renewed_within = 0.0
        self._renewing: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the client has logged in, and requests can be sent."""
        return self._is_logged_in and super().is_open

    @property
    def certificate_until(self) -> float | None:
        shown = {} if self._channel is None else self._channel.verified()
        until = shown.get("notAfter")
        return None if until is None else float(ssl.cert_time_to_seconds(str(until)))

    async def open(
        self,
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        request_timeout: float = REQUEST_TIMEOUT,
    ) -> None:
        """Connect, agree on versions and log in; if anything goes wrong, no socket stays open."""
        security = self._protection.security
        security.check_address(self.address.host)
        if security.has_tls:
            self._channel = await self._protection.channel(self.address.host)
        await super().open(connect_timeout=connect_timeout, request_timeout=request_timeout)
        if not security.has_sasl:
            return
        try:
            await self._log_in(min(request_timeout, connect_timeout))
        except (AuthenticationFailed, UnsupportedSecurity):
            self.abort()
            raise
        except ClientError as error:
            self.abort()
            raise BrokerUnreachable(f"cannot log in at {self.address}: {error}") from error
        except BaseException:
            self.abort()
            raise

    async def _greet(self, within: float) -> None:
        if self._channel is not None:
            await self._shake_hands(self._channel, within)
        await super()._greet(within)

    async def _no_broker(self, error: ClientError) -> BrokerUnreachable:
        if isinstance(self._failure, TlsFailed):
            return afresh(self._failure)
        if self._channel is None or self._exchange.error is not None:
            return await super()._no_broker(error)
        # In TLS 1.3 a server refuses a certificate after the handshake, and its alert may be lost
        # when it closes the connection. It may as well be stopping, so this is tried again.
        return BrokerUnreachable(
            f"{self.address} closed the connection after the TLS handshake: {error}; if it asks "
            "for a certificate of the client, set ssl.keystore.location (ssl_certificate)"
        )

    # TLS

    async def _shake_hands(self, channel: TlsChannel, within: float) -> None:
        try:
            async with asyncio.timeout(within):
                await asyncio.shield(self._shaken)
        except TimeoutError:
            self.abort()
            raise await tls_failure(self.address, SILENT, self._protection) from None
        except BaseException:
            self.abort()
            raise
        if channel.state is not State.OPEN:
            self.abort()
            raise await tls_failure(self.address, channel.fault, self._protection)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._channel is not None and self._transport is not None:
            self._transport.set_write_buffer_limits(high=AHEAD_BYTES)
            self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._channel is None:
            return super().get_buffer(sizehint)
        return READ_BUFFER.lend(self)

    def buffer_updated(self, nbytes: int) -> None:
        channel = self._channel
        if channel is None:
            super().buffer_updated(nbytes)
        else:
            channel.received(READ_BUFFER.take(self, nbytes), self._sink)
            self._flush()
            self._look_at(channel)
        if self._quiet is not None and not len(self._exchange) and not self._quiet.done():
            self._quiet.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._channel is not None:
            self._channel.ended()
            self._look_at(self._channel)
        super().connection_lost(exc)

    def _look_at(self, channel: TlsChannel) -> None:
        """Pass on what has become of the channel."""
        if channel.state is State.HANDSHAKING:
            return
        if not self._shaken.done():
            self._shaken.set_result(None)
        elif channel.fault is not None:
            refused = None if self.versions else refused_certificate(self.address, channel.fault)
            lost = ConnectionLost(f"TLS with {self.address} failed: {channel.fault}")
            self._fail(refused or lost)
        elif channel.state is State.CLOSED:
            self._fail(ConnectionLost(f"{self.address} closed the connection"))

    def _write(self, parts: Parts) -> None:
        if self._channel is None:
            super()._write(parts)
        else:
            self._channel.send(parts)
            self._flush()

    def _flush(self) -> None:
        channel, transport = self._channel, self._transport
        if channel is None:
            super()._flush()
            return
        if transport is None or transport.is_closing():
            return
        while True:
            room = AHEAD_BYTES - transport.get_write_buffer_size() if self._writable else 0
            ready = channel.ciphertext(room)
            for one in ready:
                transport.write(one)
            if not ready or not channel.waiting_bytes:
                break
        if self._failure is not None and self._is_drained:
            self._hang_up(transport)

    @property
    def _is_drained(self) -> bool:
        if self._channel is None:
            return super()._is_drained
        return not self._channel.waiting_bytes

    def _hang_up(self, transport: asyncio.Transport) -> None:
        if self._channel is not None and not transport.is_closing():
            goodbye = self._channel.close()
            if goodbye:
                transport.write(goodbye)
        super()._hang_up(transport)

    def _fail(self, failure: ClientError, cause: BaseException | None = None) -> None:
        super()._fail(failure, cause)
        if not self._shaken.done():
            self._shaken.set_result(None)

    def _release_waiters(self) -> None:
        super()._release_waiters()
        if self._renewal is not None:
            self._renewal.cancel()
        if self._renewing is not None and self._renewing is not asyncio.current_task():
            self._renewing.cancel()

    # SASL

    async def _log_in(self, within: float) -> None:
        login = await self._protection.login(within)
        try:
            done = await self._authenticate(login, within)
        except AuthenticationFailed:
            self._protection.refused()
            raise
        self._is_logged_in = True
        delay = done.renewed_after(self._random())
        if delay is not None and self._failure is None:
            loop = asyncio.get_running_loop()
            self._renewal = loop.call_later(delay, self._begin_renewal, within)
            self._renew_at = self._renewal.when()
            self._renewed_within = within

    async def _authenticate(self, login: Login, within: float) -> LoggedIn:
        version = self.pick_version(SASL_AUTHENTICATE)
        following: SaslAuthenticateRequest | Work | LoggedIn
        following = login.shaken(await self._send_now(login.begin(), HANDSHAKE_VERSION, within))
        while not isinstance(following, LoggedIn):
            if isinstance(following, Work):
                following = login.worked(following, await asyncio.to_thread(following.call))
            else:
                following = login.answered(await self._send_now(following, version, within))
        return following

    async def _send_now(self, request: Any, version: int, within: float) -> Any:
        """Send a request of the login, past those that are held."""
        if self._failure is not None:
            raise BrokerUnreachable(str(self._failure)) from self._failure
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        question = Question(partial(resolve, answer))
        self._send_out(request, version, question)
        question.timer = timer = loop.call_later(within, self._time_out, question, request, within)
        try:
            return await answer
        finally:
            timer.cancel()

    def _post(self, request: Any, version: int, question: Question | None) -> None:
        loop = asyncio.get_running_loop()
        if self._renewal is not None and loop.time() >= self._renew_at:
            # A loop that stood still runs what waits before its timers; a request that is sent
            # after the session's end costs the connection.
            self._renewal.cancel()
            self._begin_renewal(self._renewed_within)
        super()._post(request, version, question)

    def _begin_renewal(self, within: float) -> None:
        self._renewal = None
        self._is_renewing = True
        self._hold()
        self._renewing = asyncio.get_running_loop().create_task(self._renew(within))

    async def _renew(self, within: float) -> None:
        try:
            if len(self._exchange):
                self._quiet = asyncio.get_running_loop().create_future()
                await self._quiet
                self._quiet = None
            # The broker does not read before that.
            await asyncio.sleep(self.muted_until - asyncio.get_running_loop().time())
            await self._log_in(within)
        except ClientError as error:
            self._fail(error)
            return
        self._is_renewing = False
        self._release_held()

    def _not_sent(self, name: str, within: float) -> BrokerUnreachable:
        if self.is_muted:
            return super()._not_sent(name, within)
        return BrokerUnreachable(
            f"{name} was not sent to {self.address} in {within:g} s: the login is being renewed"
        )

    def _release_held(self) -> None:
        if not self._is_renewing and not self.is_muted:
            super()._release_held()

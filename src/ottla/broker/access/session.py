"""The session of a connection to a listener with SASL: the shell around `SaslSession`.

It is asked before a request is looked at (`admit`), and by the handlers of the two SASL APIs. The
answer to a failure is held back, and the connection closes after it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ottla.broker.access.authentication import Admission, SaslSession, State
from ottla.broker.serving.apis import SERVED
from ottla.security.steps import Work
from ottla.wire.error_codes import ErrorCode
from ottla.wire.errors import MessageError
from ottla.wire.messages import API_VERSIONS, codec
from ottla.wire.schema.api_versions import ApiVersionsResponse
from ottla.wire.schema.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.schema.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ottla.broker.access.guard import Guard
    from ottla.broker.access.guarded_connection import GuardedConnection
    from ottla.broker.access.refusals import Attempt
    from ottla.wire.writers import Parts

_HEADER = struct.Struct(">hhi")


LONG_AGO: Final = float("-inf")


class NotWelcome(MessageError):
    """A request that an unauthenticated client must not send; the connection is closed."""

    summary = "not authenticated"


class Session:
    """Of one connection; it lives as long."""

    __slots__ = ("_connection", "_guard", "_in_time", "_machine")

    def __init__(self, connection: GuardedConnection, guard: Guard) -> None:
        self._connection = connection
        self._guard = guard
        self._machine = SaslSession(guard.mechanisms, guard.begin, guard.lifetime_of, guard.is_own)
        # Of the requests that wait since the session has ended, so many had come before its end.
        self._in_time: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether all APIs are served."""
        return self._machine.is_open

    @property
    def is_node(self) -> bool:
        """Whether the client has logged in with the node's own credential."""
        return self._machine.is_node

    def end(self, reason: str) -> None:
        """Serve nothing more of this client."""
        self._machine.end(reason)

    @property
    def mechanism(self) -> str:
        return self._machine.mechanism_name

    def has_expired(self) -> bool:
        return self._machine.is_open and self._machine.has_expired(self._guard.now())

    def admit(self, frame: memoryview) -> Awaitable[Parts] | None:
        """None if the request is served; an answer in its place, or `NotWelcome`."""
        api_key, version, correlation_id = _HEADER.unpack_from(frame)
        now = self._guard.now()
        if self._machine.has_expired(now) and self._came_in_time():
            now = LONG_AGO
        admission = self._machine.admit(api_key, version, now)
        if admission is Admission.SERVE:
            return None
        if admission is Admission.ILLEGAL:
            return self._illegal(version, correlation_id)
        if admission is Admission.EXPIRED:
            self._guard.expired(self._connection.peer)
        raise NotWelcome("an authenticated client", self._machine.reason, "session")

    def received(self, waiting: int) -> None:
        """More bytes have come, behind `waiting` requests that are not served yet."""
        if self._in_time is None and self._machine.has_expired(self._guard.now()):
            self._in_time = waiting

    def _came_in_time(self) -> bool:
        """Whether the next request had come before the session ended; it may have waited since."""
        if self._in_time is None:
            return True  # nothing has come since then
        self._in_time -= 1
        return self._in_time >= 0

    def handshake(self, mechanism: str) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
        greeting = self._machine.handshake(mechanism, self._guard.now())
        answer = SaslHandshakeResponse(greeting.error_code, greeting.mechanisms)
        return self._held(answer) if self._machine.state is State.FAILED else answer

    async def _held(self, answer: SaslHandshakeResponse) -> SaslHandshakeResponse:
        with self._guard.attempt(self._connection.peer) as attempt:
            await self._punish(attempt)
        return answer

    async def authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        guard, machine = self._guard, self._machine
        reply = machine.token(token, guard.now(), guard.wall())
        if isinstance(reply, Work) or machine.state is State.FAILED:
            with guard.attempt(self._connection.peer) as attempt:
                while isinstance(reply, Work):
                    result = await guard.work(reply.call)
                    reply = machine.worked(reply.then(result), guard.now(), guard.wall())
                if machine.state is State.FAILED:
                    await self._punish(attempt)
        if machine.state is State.DONE and machine.principal is not None:
            self._in_time = None
            self._connection.welcome(machine.principal)
        return SaslAuthenticateResponse(*reply)

    async def _illegal(self, version: int, correlation_id: int) -> Parts:
        """ApiVersions within an exchange; answered in version 0 if its own is not known."""
        with self._guard.attempt(self._connection.peer) as attempt:
            await self._punish(attempt)
        served = SERVED[API_VERSIONS]
        known = served.min_version <= version <= served.max_version
        answer = ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        return codec(API_VERSIONS, version if known else 0).response(correlation_id, answer)

    async def _punish(self, attempt: Attempt) -> None:
        """Hold the answer back; the connection closes after it."""
        machine = self._machine
        await self._guard.hold_back(self._connection, attempt, machine.reason, machine.tried)
        self._connection.close_soon()

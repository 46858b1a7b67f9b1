"""SaslHandshake (17) and SaslAuthenticate (36): clients log in.

The rules are in `ottla.broker.access.authentication`. On a listener without SASL both are answered
with 34, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.schema.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ottla.broker.serving.context import RequestContext


def sasl_handshake(
    context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
    session = context.peer.session
    if session is None:
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    return session.handshake(request.mechanism)


def sasl_authenticate(
    context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
    session = context.peer.session
    if session is None:
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, None)
    return session.authenticate(bytes(request.auth_bytes))

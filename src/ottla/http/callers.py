"""Who asks: the token of a Bearer header.

A token is compared in constant time: how long a refusal takes tells nothing about the right one.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from ottla.http.messages import Refused

if TYPE_CHECKING:
    from ottla.http.messages import Answer, Request
    from ottla.http.routes import Handler

CHALLENGE: Final = ("WWW-Authenticate", 'Bearer realm="ottla"')


def with_token(token: str, handler: Handler) -> Handler:
    """Let only those in who know the token."""

    async def checked(request: Request) -> Answer:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        known = hmac.compare_digest(given.strip().encode("latin-1"), token.encode())
        if scheme.lower() != "bearer" or not known:
            raise Refused(401, "send the header Authorization: Bearer TOKEN", CHALLENGE)
        return await handler(request)

    return checked

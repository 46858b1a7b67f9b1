"""Pass a request on to the node that decides.

Where callers are asked who they are, the node that was asked has checked it, and vouches for the
user and its address: it signs them and the whole request with a key that all nodes have. So a
client's certificate counts on every node, ACLs see the address that the client came from, and
neither a password nor a token travels a second time. A signature counts for `MAX_AGE_SECONDS`.

A node that is asked although it does not lead, by one that thinks so, answers 50003; it does not
pass the request on a second time.
"""

from __future__ import annotations

import asyncio
import hmac
import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from ottla.http.messages import Answer
from ottla.registry.errors import Code, RegistryError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from ottla.http.messages import Request

FORWARDED: Final = "x-ottla-forwarded"
PRINCIPAL: Final = "x-ottla-principal"
CLIENT: Final = "x-ottla-client"
SIGNED_AT: Final = "x-ottla-signed-at"
SIGNATURE: Final = "x-ottla-signature"
MAX_AGE_SECONDS: Final = 60
"""Clocks of two machines may differ, and a request waits for a thread."""
TIMEOUT_SECONDS: Final = 15.0
"""More than the leader needs for the longest schema, which is parsed for 2 s."""
THREADS: Final = 8
"""Requests that wait for the leader at once; others wait here."""
PASSED: Final = ("accept", "content-type")
RETURNED: Final = ("www-authenticate", "allow", "retry-after")


class Forwarder:
    """`context` is for leaders that are reached by https."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._threads = ThreadPoolExecutor(THREADS, "ottla-registry-forward")

    async def forward(
        self, request: Request, url: str, vouching: Callable[[], Mapping[str, str]]
    ) -> Answer:
        """`vouching` makes the headers that say who asks; in a thread."""
        if FORWARDED in request.headers:
            raise RegistryError(Code.NO_LEADER, "the leader of the registry's topic has changed")
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._exchange, request, url, vouching)
        except (OSError, http.client.HTTPException) as error:
            raise RegistryError(
                Code.NO_LEADER, f"the registry's leader does not answer: {error}"
            ) from error

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _exchange(
        self, request: Request, url: str, vouching: Callable[[], Mapping[str, str]]
    ) -> Answer:
        parts = urlsplit(url)
        assert parts.hostname is not None
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=TIMEOUT_SECONDS, context=self._context
            )
        else:
            connection = http.client.HTTPConnection(
                parts.hostname, parts.port, timeout=TIMEOUT_SECONDS
            )
        headers = {name: request.headers[name] for name in PASSED if name in request.headers}
        try:
            headers |= {**vouching(), FORWARDED: "1"}
            connection.request(request.method, _target(request), request.body, headers)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        returned = tuple(
            (name, value) for name in RETURNED if (value := response.getheader(name)) is not None
        )
        kind = response.getheader("content-type", "application/json")
        return Answer(response.status, body, kind, returned)


def _target(request: Request) -> str:
    path = "/" + "/".join(quote(segment, safe="") for segment in request.segments)
    return f"{path}?{request.query}" if request.query else path


# -- vouching for a caller ------------------------------------------------------------------------


def signed(key: bytes, request: Request, principal: str, host: str, now: float) -> dict[str, str]:
    """Headers that say who asks, from which address, and that a node says so."""
    at = str(int(now))
    return {
        PRINCIPAL: quote(principal, safe=""),
        CLIENT: quote(host, safe=""),
        SIGNED_AT: at,
        SIGNATURE: _signature(key, request, principal, host, at),
    }


def vouched(key: bytes, request: Request, now: float) -> tuple[str, str] | None:
    """The principal and the address that a node has signed; None if none has, or long ago."""
    headers = request.headers
    principal, host = unquote(headers.get(PRINCIPAL, "")), unquote(headers.get(CLIENT, ""))
    at = headers.get(SIGNED_AT, "")
    expected = _signature(key, request, principal, host, at)
    if not hmac.compare_digest(expected.encode(), headers.get(SIGNATURE, "").encode()):
        return None
    return (principal, host) if abs(int(at) - now) <= MAX_AGE_SECONDS else None


def _signature(key: bytes, request: Request, principal: str, host: str, at: str) -> str:
    said = [request.method, request.segments, request.query, principal, host, at]
    # As JSON has no zero byte, nothing can move from the head into the body.
    return hmac.digest(key, json.dumps(said).encode() + b"\0" + request.body, "sha256").hex()

"""Pass a request on to the node that decides.

It goes as it came, with the caller's own user and password: the leader looks at them again, so no
node has to be believed. A node that is asked although it does not lead, by one that thinks so,
answers 50003; it does not pass the request on a second time.
"""

from __future__ import annotations

import asyncio
import http.client
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from ottla.http.messages import Answer
from ottla.registry.errors import Code, RegistryError

if TYPE_CHECKING:
    import ssl

    from ottla.http.messages import Request

FORWARDED: Final = "x-ottla-forwarded"
TIMEOUT_SECONDS: Final = 15.0
"""More than the leader needs for the longest schema, which is parsed for 2 s."""
THREADS: Final = 8
"""Requests that wait for the leader at once; others wait here."""
PASSED: Final = ("accept", "authorization", "content-type")
RETURNED: Final = ("www-authenticate", "allow", "retry-after")


class Forwarder:
    """`context` is for leaders that are reached by https."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._threads = ThreadPoolExecutor(THREADS, "ottla-registry-forward")

    async def forward(self, request: Request, url: str) -> Answer:
        if FORWARDED in request.headers:
            raise RegistryError(Code.NO_LEADER, "the leader of the registry's topic has changed")
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._exchange, request, url)
        except (OSError, http.client.HTTPException) as error:
            raise RegistryError(
                Code.NO_LEADER, f"the registry's leader does not answer: {error}"
            ) from error

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _exchange(self, request: Request, url: str) -> Answer:
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
            connection.request(
                request.method, _target(request), request.body, {**headers, FORWARDED: "1"}
            )
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

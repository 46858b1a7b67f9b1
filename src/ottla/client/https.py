"""One small document over HTTPS, for token servers and key sets; blocks, so call it in a thread.

No redirects, no proxy variables, a limit for the time of the whole transfer and for its size. An
error never quotes what the server says: it may hold a secret, or be somebody else's file
(CVE-2025-27817).
"""

from __future__ import annotations

import time
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

MAX_BYTES: Final = 256 * 1024
"""Key sets and tokens have a few KiB."""
_CHUNK_BYTES: Final = 16 * 1024


class FetchFailed(Exception):
    """There is no document; the text says why, without a word of the server's."""


class _NoRedirects(HTTPRedirectHandler):
    """Another host would be shown the secret, or be asked in our name."""

    def redirect_request(self, _: Request, answer: Any, *__: Any) -> NoReturn:
        answer.close()
        raise FetchFailed("it redirects, which is not followed")


def fetch(
    url: str,
    *,
    seconds: float,
    context: ssl.SSLContext | None = None,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    allow_http: bool = False,
) -> bytes:
    """The document at a URL; with `data` it is posted. `allow_http` is for loopback alone."""
    if urlsplit(url).scheme.lower() not in (("https", "http") if allow_http else ("https",)):
        raise FetchFailed("its URL does not begin with https://")
    request = Request(url, data, dict(headers or {}))
    try:
        return _read(_opener(context), request, time.monotonic() + seconds, seconds)
    except HTTPError as error:
        error.close()
        raise FetchFailed(f"it answers with status {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None)
        what = type(reason if isinstance(reason, BaseException) else error).__name__
        raise FetchFailed(what) from None


def _opener(context: ssl.SSLContext | None) -> OpenerDirector:
    return build_opener(ProxyHandler({}), _NoRedirects(), HTTPSHandler(context=context))


def _read(opener: OpenerDirector, request: Request, deadline: float, seconds: float) -> bytes:
    body = b""
    with opener.open(request, timeout=seconds) as answer:
        while chunk := answer.read1(_CHUNK_BYTES):
            body += chunk
            if len(body) > MAX_BYTES:
                raise FetchFailed(f"it answers with more than {MAX_BYTES} bytes")
            if time.monotonic() > deadline:
                raise FetchFailed(f"it takes longer than {seconds:g} s")
    return body

"""Plain HTTP to a registry, for what its clients do not say."""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

V1 = "application/vnd.schemaregistry.v1+json"


class Answered(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def code(self) -> int:
        return int(self.body["error_code"])


def ask(
    url: str,
    method: str,
    path: str,
    body: object = None,
    *,
    user: tuple[str, str] | None = None,
    context: ssl.SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answered:
    """`body` is JSON, or bytes as they are."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=30, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    sent = {"Content-Type": V1, **(headers or {})}
    if user is not None:
        sent["Authorization"] = "Basic " + b64encode(":".join(user).encode()).decode()
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    try:
        connection.request(method, path, data, sent)
        response = connection.getresponse()
        raw = response.read()
    finally:
        connection.close()
    try:
        found = json.loads(raw)
    except ValueError:
        found = raw
    return Answered(response.status, found, {k.lower(): v for k, v in response.getheaders()})

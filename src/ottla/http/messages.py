"""Requests, answers, and the limits that a listener sets."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from ottla.errors import OttlaError

if TYPE_CHECKING:
    from collections.abc import Mapping

KIB: Final = 1024
MIB: Final = 1024 * KIB
SHORT_BODY: Final = 64 * KIB
"""Nearly all schemas are shorter. Of 256 connections that is 16 MiB."""
PLAIN_TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may ask of the server, and how many there may be."""

    head_bytes: int = 16 * KIB
    """Request line and headers together."""
    headers: int = 64
    body_bytes: int = 5 * MIB
    long_bodies_bytes: int = 64 * MIB
    """Of all bodies beyond `SHORT_BODY` that have come and are not answered yet; one more is
    refused. So strangers, who are asked for a password only when their request is whole, cannot
    fill the memory, and short requests are always taken."""
    connections: int = 256
    """Of all clients; one more is closed at once. `Admission` may have further limits."""
    request_seconds: float = 10.0
    """From the first byte of a request to its last, and for a client to read its answer."""
    idle_seconds: float = 30.0
    """Between two requests."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    segments: tuple[str, ...]
    """The path, cut at its slashes and then decoded: a segment may contain a slash."""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By name in lower case; of a header given twice, the values joined by a comma."""
    body: bytes = b""
    host: str = ""
    """The address that the client came from."""
    certificate: bytes | None = field(default=None, repr=False)
    """What the client has shown in the TLS handshake, verified, in DER; None if nothing."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Of the route: `/subjects/{subject}` gives `subject`."""

    @property
    def path(self) -> str:
        return "/" + "/".join(self.segments)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = b""
    content_type: str = PLAIN_TEXT
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def text(cls, status: int, text: str, *headers: tuple[str, str]) -> Self:
        return cls(status, f"{text}\n".encode(), PLAIN_TEXT, headers)

    @classmethod
    def json(cls, status: int, value: object) -> Self:
        return cls(status, json.dumps(value).encode() + b"\n", JSON)


class Refused(OttlaError):
    """A request that is answered with an error before, or instead of, being served."""

    def __init__(self, status: int, why: str, *headers: tuple[str, str]) -> None:
        super().__init__(status, why, *headers)
        self.answer = Answer.text(status, why, *headers)

    def __str__(self) -> str:
        return self.answer.body.decode().rstrip()

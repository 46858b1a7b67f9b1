"""Requests and responses on the wire: size, header, body.

- A request header holds API key, version, correlation id and a client id that keeps its legacy
  form in every version; flexible versions add a tag section, whose unknown tags are skipped.
- A response header is the correlation id; flexible versions add a tag section. ApiVersions is the
  exception: a client reads its response before it knows the broker's versions, so all versions have
  the old header.
- Bytes after the body are ignored, as Kafka does: librdkafka 2.16 sends three when it asks for the
  metadata of all topics.
"""

from __future__ import annotations

import struct
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from ottla.wire.errors import MalformedMessage, UnknownApiKey, UnsupportedVersion
from ottla.wire.readers import compile_reader, read_uvarint
from ottla.wire.schema import API_NAMES
from ottla.wire.spec import Message
from ottla.wire.writers import Parts, compile_writer

API_VERSIONS: Final = 18

_REQUEST_HEADER = struct.Struct(">hhih")
_REQUEST_START_OF_HEADER = struct.Struct(">hhi")
_LENGTH = struct.Struct(">h")
_REQUEST_START = struct.Struct(">ihhih")
_RESPONSE_START = struct.Struct(">ii")
_FLEXIBLE_RESPONSE_START = struct.Struct(">iix")
_CORRELATION_ID = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """The header of a request; `body` is where the body starts in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


@cache
def message(api_key: int, *, request: bool) -> Message:
    """The request or response of an API; its module is imported on first use."""
    try:
        name = API_NAMES[api_key]
    except KeyError:
        raise UnknownApiKey("a key of the Kafka protocol", api_key, "request header") from None
    kind = "REQUEST" if request else "RESPONSE"
    found = getattr(import_module(f"ottla.wire.schema.{name}"), f"{name.upper()}_{kind}")
    assert isinstance(found, Message)
    return found


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version uses compact forms and tag sections, in its body and its header."""
    spec = message(api_key, request=True)
    low, high = spec.versions
    if not low <= version <= high:
        raise UnsupportedVersion(f"{low} to {high}", version, API_NAMES[api_key])
    return spec.flexible(version)


class Codec:
    """Requests and responses of one version of an API; `codec` creates it once."""

    __slots__ = ("_start", "_start_size", "_write", "flexible", "read")

    def __init__(self, api_key: int, version: int) -> None:
        self.flexible = is_flexible(api_key, version)
        self.read = compile_reader(message(api_key, request=True), version)
        self._write = compile_writer(message(api_key, request=False), version)
        tags = self.flexible and api_key != API_VERSIONS
        self._start = _FLEXIBLE_RESPONSE_START if tags else _RESPONSE_START
        self._start_size = self._start.size - 4

    def response(self, correlation_id: int, body: Any) -> Parts:
        """A response as the parts of one vectored write, size and header first."""
        parts = self._write(body)
        first = parts[0]
        size = len(first) if len(parts) == 1 else sum(map(len, parts))
        parts[0] = self._start.pack(self._start_size + size, correlation_id) + first
        return parts


@cache
def codec(api_key: int, version: int) -> Codec:
    return Codec(api_key, version)


def read_request_header(frame: memoryview) -> RequestHeader:
    """The header at the start of a frame, for any API and version that exists."""
    try:
        api_key, version, correlation_id = _REQUEST_START_OF_HEADER.unpack_from(frame)
    except struct.error:
        raise MalformedMessage("a whole header", f"{len(frame)} bytes", "request header") from None
    client_id, body = read_client_id(frame, is_flexible(api_key, version))
    return RequestHeader(api_key, version, correlation_id, client_id, body)


def read_client_id(frame: memoryview, flexible: bool) -> tuple[str | None, int]:
    """The rest of a request's header: the client id, and where the body starts."""
    try:
        (length,) = _LENGTH.unpack_from(frame, _REQUEST_START_OF_HEADER.size)
        position = _REQUEST_HEADER.size
        client_id = None
        if length >= 0:
            end = position + length
            if end > len(frame):
                raise MalformedMessage(f"{length} bytes", len(frame) - position, "client id")
            client_id = str(frame[position:end], "utf-8")
            position = end
        if flexible:
            position = position + 1 if frame[position] == 0 else _skip_tags(frame, position)
    except (struct.error, IndexError):
        raise MalformedMessage("a whole header", f"{len(frame)} bytes", "request header") from None
    except UnicodeDecodeError:
        raise MalformedMessage("UTF-8", "other bytes", "client id") from None
    return client_id, position


def read_request(header: RequestHeader, frame: memoryview) -> Any:
    """The body of a request. Records in it are slices of the frame."""
    return codec(header.api_key, header.api_version).read(frame, header.body)[0]


def read_response(api_key: int, version: int, frame: memoryview) -> tuple[int, Any]:
    """Correlation id and body of a response to a request of this API and version."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        position = _CORRELATION_ID.size
        if api_key != API_VERSIONS and is_flexible(api_key, version):
            position = _skip_tags(frame, position)
    except (struct.error, IndexError):
        raise MalformedMessage("a whole header", f"{len(frame)} bytes", "response header") from None
    spec = message(api_key, request=False)
    return correlation_id, compile_reader(spec, version)(frame, position)[0]


def request_parts(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: Any
) -> Parts:
    """A request as the parts of one vectored write, size and header first."""
    parts = compile_writer(message(api_key, request=True), version)(body)
    client = b"" if client_id is None else client_id.encode()
    tags = b"\0" if is_flexible(api_key, version) else b""
    size = _REQUEST_HEADER.size + len(client) + len(tags) + sum(map(len, parts))
    length = -1 if client_id is None else len(client)
    start = _REQUEST_START.pack(size, api_key, version, correlation_id, length)
    parts[0] = b"".join((start, client, tags, parts[0]))
    return parts


def response_parts(api_key: int, version: int, correlation_id: int, body: Any) -> Parts:
    """A response as the parts of one vectored write, size and header first."""
    return codec(api_key, version).response(correlation_id, body)


def _skip_tags(frame: memoryview, position: int) -> int:
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise MalformedMessage(f"{size} bytes", "less", "header tag")
    return position

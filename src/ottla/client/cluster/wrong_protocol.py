"""Recognize servers that are not Kafka brokers, by their answer or a probe.

Most HTTP servers answer the first request with text, whose first bytes are an impossible length;
some wait for the end of a line. A TLS server closes the connection without an answer if it gets no
handshake; so does a broker that shuts down. To tell these apart, this module sends bytes that both
answer: a TLS hello that is cut short and a line of HTTP in one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.wire.errors import FrameError

if TYPE_CHECKING:
    from ottla.wire.errors import WireError

# Long enough for a running server, and short enough not to delay the error much.
PROBE_TIMEOUT: Final = 1.0

# A handshake record of four bytes: a ClientHello whose length is zero.
_CUT_HELLO: Final = b"\x16\x03\x01\x00\x04\x01\x00\x00\x00"
_HTTP_LINE: Final = b" / HTTP/1.1\r\n\r\n"
_ALERT: Final = b"\x15\x03"
# ApiVersions 0, which every broker answers, of a client without a name.
_CORRELATION_ID: Final = b"\x00\x00\x00\x2a"
_API_VERSIONS: Final = b"\x00\x00\x00\x0a" + b"\x00\x12\x00\x00" + _CORRELATION_ID + b"\xff\xff"

_HTTP: Final = "an HTTP server listens there; give the port of the broker's Kafka listener"
_TLS: Final = (
    "it wants TLS: set security.protocol to SSL or SASL_SSL, in the file of --command-config or "
    "with security= in Python"
)


def named_by_answer(error: WireError) -> str:
    """What broke the protocol, by the four bytes that stand where a length should."""
    if isinstance(error, FrameError) and isinstance(error.got, int):
        name = _named(error.got.to_bytes(4, "big", signed=True))
        if name is not None:
            return name
    return f"{error}; give the port of the broker's Kafka listener"


async def named_by_probe(host: str, port: int) -> str | None:
    """What does not answer a Kafka client, if it answers something else."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_CUT_HELLO + _HTTP_LINE)
                return _named(await reader.readexactly(4))
            finally:
                writer.close()
    except (OSError, EOFError, TimeoutError):
        return None


async def speaks_without_tls(host: str, port: int) -> bool:
    """Whether a listener that does not answer a TLS hello answers a Kafka request in the clear."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_API_VERSIONS)
                return (await reader.readexactly(8))[4:] == _CORRELATION_ID
            finally:
                writer.close()
    except (OSError, EOFError, TimeoutError):
        return False


def _named(said: bytes) -> str | None:
    if said == b"HTTP":
        return _HTTP
    return _TLS if said.startswith(_ALERT) else None

"""The server's side of one HTTP/1.1 connection, without a socket. h11 owns the protocol.

    received(bytes) -> next_request() -> Request -> answered(Answer) -> bytes to send -> ...

- A request is given out when it is whole; the next one waits until this one is answered.
- Too long a head, too many headers, too long a body and whatever is not HTTP raise `Refused`; the
  shell sends `answered(refused.answer)` and closes, because the rest of the stream means nothing.
- A body that is announced as too long is refused before it is read.
- `is_over` tells that nothing more comes and nothing more may be sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

import h11

from ottla.http.messages import Refused, Request

if TYPE_CHECKING:
    from ottla.http.messages import Answer, Limits

SERVER_NAME: Final = ("Server", "ottla")


class Exchange:
    def __init__(self, limits: Limits, host: str = "") -> None:
        self._limits = limits
        self._host = host
        self.certificate: bytes | None = None
        """Of the client, in DER, once a TLS handshake has verified it."""
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._ended = False

    @property
    def is_idle(self) -> bool:
        """Whether no byte of a next request has come."""
        return (
            self._head is None
            and self._h11.their_state is h11.IDLE
            and not self._h11.trailing_data[0]
        )

    @property
    def is_over(self) -> bool:
        return self._ended or self._h11.our_state in (h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)

    @property
    def arrived_bytes(self) -> int:
        """Of the body of a request that is not whole yet."""
        return len(self._body)

    def received(self, data: bytes) -> None:
        """Take bytes of the client; none at all means that it sends no more."""
        self._h11.receive_data(data)

    def next_request(self) -> Request | None:
        """The next request that is whole, or None until more bytes come."""
        while True:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                raise self._refused(error) from None
            if isinstance(event, h11.Request):
                self._begun(event)
            elif isinstance(event, h11.Data):
                self._grow(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return self._whole()
            elif isinstance(event, h11.ConnectionClosed):
                self._ended = True
                return None
            else:  # NEED_DATA, or PAUSED until the request before is answered
                return None

    def go_on(self) -> bytes:
        """What a client must see before it sends the body that it announced."""
        if not self._h11.they_are_waiting_for_100_continue:
            return b""
        interim = self._h11.send(h11.InformationalResponse(status_code=100, headers=[]))
        return bytes(interim or b"")

    def answered(self, answer: Answer, *, last: bool = False) -> bytes:
        """The bytes of an answer; afterwards the next request is read, unless it is the last."""
        if self._h11.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self._ended = True
            return b""
        headers = [
            SERVER_NAME,
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            *answer.headers,
        ]
        if last:
            headers.append(("Connection", "close"))
        is_head = self._head is not None and self._head.method == b"HEAD"
        parts = [self._h11.send(h11.Response(status_code=answer.status, headers=headers))]
        if not is_head:
            parts.append(self._h11.send(h11.Data(data=answer.body)))
        parts.append(self._h11.send(h11.EndOfMessage()))
        self._head = None
        if last or self._h11.states != {h11.SERVER: h11.DONE, h11.CLIENT: h11.DONE}:
            self._ended = True
        else:
            self._h11.start_next_cycle()
        return b"".join(part for part in parts if part)

    def _begun(self, head: h11.Request) -> None:
        self._head = head
        self._body = bytearray()
        if len(head.headers) > self._limits.headers:
            raise Refused(431, f"at most {self._limits.headers} headers are taken")
        for name, value in head.headers:
            if name == b"content-length" and int(value) > self._limits.body_bytes:
                raise self._too_long()

    def _grow(self, data: bytes | bytearray | memoryview) -> None:
        self._body += data
        if len(self._body) > self._limits.body_bytes:
            raise self._too_long()

    def _too_long(self) -> Refused:
        return Refused(413, f"a body has at most {self._limits.body_bytes} bytes")

    def _whole(self) -> Request:
        head = self._head
        assert head is not None
        path, _, query = head.target.partition(b"?")
        body, self._body = bytes(self._body), bytearray()
        headers: dict[str, str] = {}
        for name, value in head.headers:
            key, text = name.decode("ascii"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        return Request(
            method=head.method.decode("ascii"),
            segments=_segments(path),
            query=query.decode("ascii"),
            headers=headers,
            body=body,
            host=self._host,
            certificate=self.certificate,
        )

    @staticmethod
    def _refused(error: h11.RemoteProtocolError) -> Refused:
        status = error.error_status_hint
        if status == 431:
            return Refused(431, "request line and headers are too long")
        return Refused(status, f"not HTTP/1.1: {error}")


def _segments(path: bytes) -> tuple[str, ...]:
    if not path.startswith(b"/"):
        raise Refused(400, "a path begins with a slash")
    try:
        return tuple(unquote_to_bytes(segment).decode() for segment in path[1:].split(b"/"))
    except UnicodeDecodeError:
        raise Refused(400, "a path is UTF-8, percent-encoded") from None

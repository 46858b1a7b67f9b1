"""One connection's protocol, without a socket: requests out as parts, answers in by order.

- Several requests may be in flight. The broker answers in the order of the requests, so answers
  are matched to the oldest; another correlation id means the two sides have lost each other.
- Each request carries the caller's token, which is returned with the response. If a caller gives
  up, its entry stays: the response still arrives and has to be read from the stream.
- A broker that does not support a version of ApiVersions answers error 35 in another version's
  format. Brokers differ in the fields after the code, so they are not read.
- The longest wait that answers have asked for is kept in `told_wait`.
- A violation of the protocol ends the stream: the responses before it are still returned, then
  `error` describes it.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from ottla.client.cluster.throttle import told_wait
from ottla.wire.error_codes import ErrorCode
from ottla.wire.errors import MalformedMessage, MessageError, WireError
from ottla.wire.frames import FrameParser
from ottla.wire.messages import API_VERSIONS, message, read_response, request_parts
from ottla.wire.schema import API_NAMES
from ottla.wire.schema.api_versions import ApiVersionsResponse

if TYPE_CHECKING:
    from ottla.wire.writers import Parts

# librdkafka's receive.message.max.bytes: twice the 50 MiB a fetch asks for, less than a bad length.
MAX_RESPONSE_BYTES: Final = 100_000_000

_MAX_CORRELATION_ID: Final = 0x7FFF_FFFF
_CORRELATION_ID = struct.Struct(">i")
_ERROR_CODE = struct.Struct(">4xh")
_KEYS: Final = {name: key for key, name in API_NAMES.items()}
_KEY_OF: Final[dict[type[object], int]] = {}

Token = TypeVar("Token")


class UnexpectedAnswer(MessageError):
    """An answer without a request, or out of order."""

    summary = "unexpected answer"


class _InFlight(NamedTuple, Generic[Token]):
    correlation_id: int
    api_key: int
    version: int
    token: Token


def api_key_of(request: object) -> int:
    """The API that a request, a value of one of the schema's types, belongs to."""
    kind = type(request)
    key = _KEY_OF.get(kind)
    if key is None:
        key = _KEYS.get(kind.__module__.rpartition(".")[2])
        if key is None or message(key, request=True).root is not kind:
            raise TypeError(f"{kind.__qualname__} is not a request of ottla.wire.schema")
        _KEY_OF[kind] = key
    return key


class Exchange(Generic[Token]):
    """Correlation ids and the queue of requests that wait for their answers."""

    __slots__ = ("_client_id", "_in_flight", "_last_id", "_parser", "error", "told_wait")

    def __init__(self, client_id: str | None, max_response_bytes: int = MAX_RESPONSE_BYTES) -> None:
        self._client_id = client_id
        self._in_flight: deque[_InFlight[Token]] = deque()
        self._last_id = -1
        self._parser = FrameParser(max_response_bytes)
        self.error: WireError | None = None
        self.told_wait = 0.0
        """Seconds; whoever obeys sets it back."""

    def __len__(self) -> int:
        """How many answers are outstanding."""
        return len(self._in_flight)

    @property
    def is_first_answer_missing(self) -> bool:
        """Whether ApiVersions has been answered and the request after it has not."""
        return self._last_id == 1 and len(self._in_flight) == 1

    def send(self, request: Any, version: int, token: Token) -> Parts:
        """The parts to write for a request that will be answered."""
        api_key = api_key_of(request)
        parts = self._parts(api_key, version, request)
        self._in_flight.append(_InFlight(self._last_id, api_key, version, token))
        return parts

    def send_unanswered(self, request: Any, version: int) -> Parts:
        """The parts to write for a request that gets no answer (Produce with acks=0)."""
        return self._parts(api_key_of(request), version, request)

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Memory for the next read."""
        return self._parser.get_buffer(sizehint)

    def received(self, nbytes: int) -> list[tuple[Token, Any]]:
        """The answers that the bytes just read into the buffer have made whole."""
        answers = []
        try:
            for frame in self._parser.buffer_updated(nbytes):
                answers.append(self._answer(frame))  # noqa: PERF401  # keeps those before an error
            self.error = self._parser.error
        except WireError as error:
            self.error = error
        return answers

    def abandon(self) -> list[Token]:
        """Who still waits when the connection ends."""
        waiting = [entry.token for entry in self._in_flight]
        self._in_flight.clear()
        return waiting

    def _parts(self, api_key: int, version: int, request: Any) -> Parts:
        correlation_id = (self._last_id + 1) & _MAX_CORRELATION_ID
        parts = request_parts(api_key, version, correlation_id, self._client_id, request)
        self._last_id = correlation_id
        return parts

    def _answer(self, frame: memoryview) -> tuple[Token, Any]:
        if not self._in_flight:
            raise UnexpectedAnswer("no answer", f"{len(frame)} bytes", "response")
        oldest = self._in_flight[0]
        if oldest.api_key == API_VERSIONS and _is_refused(frame):
            (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
            answer: Any = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        else:
            correlation_id, answer = read_response(oldest.api_key, oldest.version, frame)
        if correlation_id != oldest.correlation_id:
            raise UnexpectedAnswer(oldest.correlation_id, correlation_id, "correlation id")
        self._in_flight.popleft()
        wait = told_wait(oldest.api_key, oldest.version, answer)
        if wait > self.told_wait:
            self.told_wait = wait
        return oldest.token, answer


def _is_refused(frame: memoryview) -> bool:
    """Whether an ApiVersions answer, whose body starts with its error code, carries error 35."""
    try:
        (code,) = _ERROR_CODE.unpack_from(frame)
    except struct.error:
        raise MalformedMessage("an error code", f"{len(frame)} bytes", "ApiVersions") from None
    return bool(code == ErrorCode.UNSUPPORTED_VERSION)

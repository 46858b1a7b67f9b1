"""TLS without I/O: ciphertext in, plain bytes out, and the other way round.

    state        input                                    output                        next
    HANDSHAKING  bytes                                    handshake bytes               same or OPEN
    HANDSHAKING  more than the limit of handshake bytes   nothing                       FAILED
    HANDSHAKING  a fault                                  the alert that OpenSSL made   FAILED
    OPEN         bytes                                    plain bytes to the sink       same
    OPEN         close_notify                             ours                          CLOSED
    OPEN         end of the stream without close_notify   nothing                       CLOSED
    OPEN         a fault                                  the alert that OpenSSL made   FAILED
    CLOSED, FAILED   anything                             nothing                       same

- After every call of `received` the caller writes what `ciphertext` returns; it may be the alert of
  a failed handshake or an answer to a key update, so it must be asked in every state.
- Plain parts that are sent wait here as views. `ciphertext(room)` encrypts only as much as there is
  room for in the transport: what lies there encrypted is a private copy of the answer.
- Views of mapped files are encrypted from a copy that the kernel makes (`kernel_copy`). Who sends
  such views gives the channel a place for it, and expects an `OSError` of `ciphertext`.
- Why a handshake failed is for our log and the own client's message (`fault`). The peer gets the
  alert and nothing more.
- Truncation cannot forge a frame, because frames carry their lengths: an end without close_notify
  is an ordinary end.

`ReadBuffer` is the memory that ciphertext is read into: one for each thread instead of one for each
connection.
"""

from __future__ import annotations

import ssl
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ottla.security.kernel_copy import is_mapped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.security.kernel_copy import KernelCopy

    Bytes: TypeAlias = bytes | bytearray | memoryview

READ_BYTES: Final = 256 * 1024
"""Of the one buffer that a thread reads ciphertext into."""
AHEAD_BYTES: Final = 256 * 1024
"""What may wait in a transport encrypted; more costs system time for fresh pages."""
MAX_HANDSHAKE_BYTES: Final = 64 * 1024
"""From the peer before the channel is open; a hello with everything is 2 KiB."""
MAX_HANDSHAKE_BYTES_WITH_CERTIFICATES: Final = 128 * 1024
"""The same where the peer's certificate chain is asked for."""
SLICE_BYTES: Final = 128 * 1024
"""Of plain bytes that are encrypted in one call: eight records."""
JOIN_BYTES: Final = 16 * 1024
"""Smaller parts are joined up to this, the size of a TLS record: each call makes a record."""

MOST_PARTS: Final = 256
"""That are joined; the kernel takes 1,024 at once."""


class State(Enum):
    """Of a channel; the head of this file has the transitions."""

    HANDSHAKING = "handshaking"
    OPEN = "open"
    CLOSED = "closed"
    FAILED = "failed"


class Sink(Protocol):
    """Takes plain bytes, as `asyncio.BufferedProtocol` does."""

    def get_buffer(self, sizehint: int, /) -> memoryview: ...

    def buffer_updated(self, nbytes: int, /) -> object: ...


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """What a handshake has settled; `der` is None where the peer has shown no certificate."""

    der: bytes | None
    version: str
    cipher: str


@dataclass(frozen=True, slots=True)
class TlsFault:
    """Why a channel failed."""

    reason: str
    """OpenSSL's name such as `WRONG_VERSION_NUMBER`, or a word of ours."""
    detail: str = ""
    """What the verification of the peer's certificate said."""
    verify_code: int = 0
    """OpenSSL's X509_V_ERR number; 0 if it was not about the certificate."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


TOO_LONG: Final = TlsFault("HANDSHAKE_TOO_LONG")
ENDED_EARLY: Final = TlsFault("CLOSED_DURING_HANDSHAKE")


class TlsChannel:
    """One side of one TLS connection."""

    __slots__ = (
        "_copy",
        "_incoming",
        "_left",
        "_outgoing",
        "_queue",
        "_tls",
        "fault",
        "peer",
        "state",
        "waiting_bytes",
    )

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        copy: KernelCopy | None = None,
    ) -> None:
        """`copy` has room for `SLICE_BYTES`, and may be that of other channels, too."""
        self.state = State.HANDSHAKING
        self.peer: PeerCertificate | None = None  # once the channel has opened
        self.fault: TlsFault | None = None  # once it has failed
        self.waiting_bytes = 0  # plain bytes that are not encrypted yet
        self._queue: deque[memoryview] = deque()
        self._copy = copy
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_side,
            server_hostname=server_hostname,
        )
        asks = server_side and context.verify_mode is not ssl.CERT_NONE
        # A server's chain is as long as a client's.
        long = asks or not server_side
        self._left = MAX_HANDSHAKE_BYTES_WITH_CERTIFICATES if long else MAX_HANDSHAKE_BYTES
        if not server_side:
            self._shake()

    def received(self, view: Bytes, sink: Sink) -> None:
        """Ciphertext from the peer. The view is not kept; what is plain goes to the sink."""
        view = memoryview(view)
        while view and self.state is State.HANDSHAKING:
            if not self._left:
                self._fail(TOO_LONG)
                return
            part, view = view[: self._left], view[self._left :]
            self._left -= len(part)
            self._incoming.write(part)
            self._shake()
        if self.state is State.OPEN:
            self._incoming.write(view)
            self._read(sink)

    def ended(self) -> None:
        """The peer's stream has ended."""
        if self.state is State.HANDSHAKING:
            self._fail(ENDED_EARLY)
        elif self.state is State.OPEN:
            self._end(State.CLOSED)

    def send(self, parts: Iterable[Bytes]) -> None:
        """Queue plain parts, which must not change until they have left; also before OPEN."""
        if self.state in (State.CLOSED, State.FAILED):
            return
        for part in parts:
            view = memoryview(part)
            if view:
                self._queue.append(view)
                self.waiting_bytes += len(view)

    def ciphertext(self, room: int) -> list[bytes]:
        """What to write now: about `room` bytes of what was sent, and all that TLS says itself."""
        found = []
        if self._outgoing.pending:
            found.append(self._outgoing.read())
        while room > 0 and self._queue and self.state is State.OPEN:
            try:
                self._encrypt(room)
            except ssl.SSLError as error:
                self._fail(_fault_of(error))
            if self._outgoing.pending:
                found.append(self._outgoing.read())
                room -= len(found[-1])
        return found

    def close(self) -> bytes:
        """Say goodbye; what was sent and is not encrypted yet is dropped."""
        if self.state is State.OPEN:
            self._goodbye()
        if self.state is not State.FAILED:
            self._end(State.CLOSED)
        return self._outgoing.read()

    def verified(self) -> dict[str, object]:
        """The peer's certificate as `ssl.SSLSocket.getpeercert` shows it; empty if unverified."""
        return dict(self._tls.getpeercert() or {})

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            self._fail(_fault_of(error))
            return
        cipher = self._tls.cipher()
        self.peer = PeerCertificate(
            self._tls.getpeercert(binary_form=True),
            self._tls.version() or "",
            cipher[0] if cipher else "",
        )
        self.state = State.OPEN

    def _read(self, sink: Sink) -> None:
        """Until nothing is left; stops as well when the sink has closed the channel.

        A call gives one record of the peer's, and some clients (librdkafka) make one of each piece
        of a request: 20 bytes here, a kilobyte there. The sink hears of them together.
        """
        incoming, pending = self._incoming, self._tls.pending
        read: Any = self._tls.read  # with a buffer it returns a number
        try:
            while self.state is State.OPEN:
                buffer = sink.get_buffer(-1)
                size, filled = len(buffer), 0
                try:
                    while filled < size:
                        count = read(size - filled, buffer[filled:])
                        if not count:  # an older way to say close_notify
                            raise ssl.SSLZeroReturnError
                        filled += count
                        if not incoming.pending and not pending():
                            return
                finally:
                    if filled:
                        sink.buffer_updated(filled)
        except ssl.SSLWantReadError:
            return
        except ssl.SSLZeroReturnError:
            self._goodbye()
            self._end(State.CLOSED)
        except ssl.SSLError as error:
            if self.state is State.OPEN:  # the sink may have closed it
                self._fail(_fault_of(error))

    def _encrypt(self, room: int) -> None:
        """One slice: a piece of a large part as it is, or small parts joined."""
        queue, copy = self._queue, self._copy
        most = min(SLICE_BYTES, max(room, 1))
        first = queue[0]
        if copy is None or not (is_mapped(first) or (len(queue) > 1 and is_mapped(queue[1]))):
            if len(queue) == 1 or len(first) >= JOIN_BYTES:
                self._sent(self._tls.write(first[:most]))
                return
            joined = bytearray()
            for part in self._first(JOIN_BYTES):
                if copy is not None and is_mapped(part):
                    break
                joined += part
            self._sent(self._tls.write(joined))
        else:
            self._sent(self._tls.write(copy.of(self._first(most))))

    def _first(self, most: int) -> list[memoryview]:
        """Of what waits, so many bytes."""
        found = []
        for part in self._queue:
            found.append(part[:most])
            most -= len(found[-1])
            if not most or len(found) == MOST_PARTS:
                break
        return found

    def _sent(self, count: int) -> None:
        self.waiting_bytes -= count
        queue = self._queue
        while count:
            first = queue[0]
            if len(first) > count:
                queue[0] = first[count:]
                return
            count -= len(first)
            queue.popleft()

    def _goodbye(self) -> None:
        # It complains that the peer has not said goodbye yet, which is not waited for.
        with suppress(ssl.SSLError):
            self._tls.unwrap()

    def _fail(self, fault: TlsFault) -> None:
        self.fault = fault
        self._end(State.FAILED)

    def _end(self, state: State) -> None:
        self.state = state
        self._queue.clear()
        self.waiting_bytes = 0


def _fault_of(error: ssl.SSLError) -> TlsFault:
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFault("CERTIFICATE_VERIFY_FAILED", error.verify_message, error.verify_code)
    # Some have no reason: an end inside of a record, or a fault below TLS.
    return TlsFault(error.reason or type(error).__name__)


class ReadBuffer(threading.local):
    """Where the connections of a thread read ciphertext: loops read and hand over in one go.

    A connection `lend`s it in `get_buffer` and `take`s what was read in `buffer_updated`; nobody
    else may be lent it in between.
    """

    def __init__(self) -> None:
        self._view = memoryview(bytearray(READ_BYTES))
        self._owner: object = None

    def lend(self, owner: object) -> memoryview:
        self._owner = owner
        return self._view

    def take(self, owner: object, nbytes: int) -> memoryview:
        assert self._owner is owner, "two connections read into one buffer"
        self._owner = None  # a closed connection is not kept
        return self._view[:nbytes]


READ_BUFFER: Final = ReadBuffer()

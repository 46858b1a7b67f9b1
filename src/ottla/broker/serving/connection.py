"""One client connection: frames in, answers out, in order.

- Requests are served in order, one at a time: clients rely on that for the order of idempotent
  produce requests. A waiting long poll therefore delays later requests; a produce request that only
  waits for its sync does not. Responses are sent in the order of the requests.
- All answers that are ready after one read leave in one write; a read of a hundred small requests
  costs one system call each way.
- While a request holds those behind it, handlers are told of what is to come (`_look_ahead`), so
  that thousands of first writes on one connection do not wait for one new log after the other.
- Requests of all connections together get a part of each turn of the loop (`turns`).
- Answers that add up leave before the next request is looked at, and a long backlog is served a
  part at a time, so that one client costs neither much memory nor the others' time.
- Reading and serving stop while answers wait to leave (`answer_memory`). Reading stops, too, while
  too much waits unserved, here or in the whole process (`request_memory`).
- A client over its quota is muted (`mute`): it gets its answers, but nothing more of it is read or
  served for some time.
- A connection that violates the protocol is closed, after the responses to earlier requests;
  nothing it sent costs more than its limit.
- After a client has closed, its requests are dropped. But requests with acks=0 are still carried
  out: such a client closes as soon as it has sent them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from ottla.broker.serving.context import Ack
from ottla.wire.errors import WireError
from ottla.wire.frames import CHUNK_BYTES, FrameParser

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ottla.broker.serving.context import Parked, Peer
    from ottla.broker.serving.dispatch import Dispatcher
    from ottla.wire.writers import Parts

PRODUCE: Final = 0
FIRST_FLEXIBLE_PRODUCE: Final = 9
MAX_WAITING_BYTES: Final = 4 * 1024 * 1024  # requests behind a parked one; then reading stops
MAX_PIPELINED: Final = 1024  # answers waiting for one sync; a client far ahead gains nothing more
MAX_ANSWER_BYTES: Final = 1024 * 1024  # of several answers that leave together
MAX_REQUESTS_AT_ONCE: Final = 256  # a few milliseconds; then other connections have their turn
MAX_FORESEEN: Final = 256  # requests behind one that holds them
# Below this, one joined copy is cheaper than the bookkeeping of a vectored write. Answers with
# views of mapped files, which nobody but the kernel may read, are larger (`MIN_VIEW_BYTES`).
JOIN_BYTES: Final = 64 * 1024

logger = logging.getLogger(__name__)


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection."""

    def __init__(self, dispatcher: Dispatcher, peer: Peer, max_frame_bytes: int) -> None:
        self.peer = peer
        self.last_active = 0.0
        self.leaves = False  # it closes when it has its answers
        self._dispatcher = dispatcher
        self._turn = dispatcher.turn
        self._loop = asyncio.get_running_loop()
        self._frames = FrameParser(max_frame_bytes)
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._foreseen = 0  # of those that wait, handlers were told of the first ones
        self._answers: Parts = []
        self._answer_bytes = 0
        self._held = 0  # what of the process's request memory is this connection's
        self._has_room = True
        self._frame_began = 0.0
        self._turn_comes = False
        self._in_turn = False  # a request is being served in this very moment
        # What was asked and not answered yet, in order; the gate is the one that holds the rest.
        self._pending: deque[Parts | Ack | asyncio.Future[Parked]] = deque()
        self._gate: asyncio.Future[Parked] | None = None
        self._gate_writes = False  # it is a produce request with acks=0
        self._ended = False  # the client sends nothing more
        self._error: WireError | None = None  # why the connection closes when all is answered
        self._writable = True
        self._muted: asyncio.TimerHandle | None = None  # ends when a throttled client may go on
        self._transport: asyncio.Transport | None = None

    # -- the transport calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's, not its classes.
        self._transport = transport = cast("asyncio.Transport", transport)
        # Be told as soon as anything is left to write, and again when all of it has left.
        transport.set_write_buffer_limits(high=0)
        self.peer.host = (transport.get_extra_info("peername") or ("",))[0]
        self.peer.takes_views = self._sends_as_it_is(transport)
        self.peer.mute = self.mute
        self.last_active = self._loop.time()
        self._dispatcher.identify(self.peer, self.peer.principal)
        self._dispatcher.connections.opened(self)

    def _sends_as_it_is(self, transport: asyncio.Transport) -> bool:
        """Whether answers get to the kernel without being looked at: see `ottla.log.mapped`.

        asyncio's own transports join and copy them.
        """
        kind = type(transport)
        return kind.__module__ == "uvloop.loop" and kind.__name__ == "TCPTransport"

    def eof_received(self) -> bool:
        self._ended = True
        if not self._goes_on():
            self._dispatcher.connections.ended(self)
        return True

    def _goes_on(self) -> bool:
        """Whether pending requests must still be carried out for a closed client."""
        return (self._gate is not None and self._gate_writes) or self._turn_comes

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._error = None  # its traceback refers to this connection
        self.peer.mute = None
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        if isinstance(exc, OSError) and exc.errno == errno.EFAULT:
            self._distrust_maps()
        self.peer.lent.clear()
        for pending in self._pending:
            if isinstance(pending, Ack):
                pending.connection = None
            elif not isinstance(pending, list) and not (pending is self._gate and self._goes_on()):
                pending.cancel()
        self._pending.clear()
        self._waiting.clear()
        self._dispatcher.memory.forget(self, self._held)
        self._dispatcher.answers.release(self)
        self._dispatcher.closed(self)

    def _distrust_maps(self) -> None:
        for log in self.peer.lent:
            logger.warning(
                "a mapped file of %s could not be sent to %s; reading it from now on",
                log.directory.name,
                self.peer.host,
            )
            log.distrust_maps()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        begins = not self._frames.pending_bytes
        self.last_active = now = self._loop.time()
        frames = self._frames.buffer_updated(nbytes)
        if frames or begins:
            self._frame_began = now
        self._error = self._error or self._frames.error
        if frames or self._error is not None:
            self._waiting.extend(frames)
            self._waiting_bytes += sum(map(len, frames))
            self._serve()
        elif self._frames.announced_bytes > CHUNK_BYTES:
            self._update_reading()

    def pause_writing(self) -> None:
        self._writable = False
        self._update_reading()

    def resume_writing(self) -> None:
        self._writable = True
        self._all_is_sent()
        self._dispatcher.answers.release(self)
        self.last_active = self._loop.time()
        self._serve()

    # -- the sweeper asks -----------------------------------------------------------------------

    def frame_is_slow(self, now: float, grace: float, min_rate: float) -> bool:
        """Whether a frame began more than `grace` seconds ago and comes below `min_rate`."""
        pending, age = self._frames.pending_bytes, now - self._frame_began
        return pending > 0 and self._wants_to_read() and age > grace and pending < age * min_rate

    def idle_seconds(self, now: float) -> float:
        """How long the client has neither sent nor read anything; 0 while it waits for us."""
        if self._pending or (self._waiting and self._writable) or self._muted is not None:
            return 0.0
        return now - self.last_active

    @property
    def unsent_bytes(self) -> int:
        """Of answers that the client has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # -- serving --------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._in_turn or bool(self._pending or self._waiting)

    def leave(self) -> None:
        """Stop reading, and close after the pending answers."""
        self.leaves = True
        self.mute(0.0)
        if self.busy:
            self._update_reading()
        else:
            self.close()

    def mute(self, seconds: float) -> None:
        """Read and serve nothing for this long, for a client over its quota; 0 ends it."""
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
            if not seconds:
                self._serve()
        if seconds and self._transport is not None and not self.leaves:
            self._muted = self._loop.call_later(seconds, self.mute, 0.0)

    def close(self) -> None:
        """Once all answers have left."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once: a client that does not read would never drain."""
        if self._transport is not None:
            self._transport.abort()

    def _serve(self) -> None:
        """Serve requests until one must wait, then send the ready answers."""
        left = 0 if self._turn_comes else MAX_REQUESTS_AT_ONCE
        self._turn.begin(self._loop.time())
        self._in_turn = True
        while (
            left
            and self._waiting
            and self._gate is None
            and self._writable
            and self._muted is None
            and len(self._pending) < MAX_PIPELINED
        ):
            if self._transport is None or self._transport.is_closing():
                return
            if self._turn.is_over() or self._dispatcher.answers.is_full:
                left = 0
                break
            left -= 1
            if self._foreseen:
                self._foreseen -= 1
            frame = self._waiting.popleft()
            self._waiting_bytes -= len(frame)
            try:
                answer = self._dispatcher.dispatch(frame, self.peer)
            except WireError as error:
                self._error = error
                self._waiting.clear()
                self._waiting_bytes = self._foreseen = 0
                break
            except Exception:
                logger.exception("request failed; closing the connection of %s", self.peer.host)
                self.close()
                return
            if isinstance(answer, list) and not self._pending:
                self._take(answer)
            else:
                self._queue(answer, frame)
        self._in_turn = False
        if self._gate is not None and self._waiting:
            self._look_ahead()
        if not left and not self._turn_comes:
            self._turn_comes = True
            self._loop.call_soon(self._next_turn)
        self._send()
        if self._ended or self.leaves or self._error is not None:
            self._close_when_done()
        self._update_reading()

    def _close_when_done(self) -> None:
        if self._ended and not self._goes_on():
            self.close()
        elif (self._error is not None or self.leaves) and not self.busy:
            if self._error is not None:
                from ottla.redaction import printable

                error = printable(self._error)
                logger.info("closing the connection of %s: %s", self.peer.host, error)
                self._dispatcher.connections.hint(self.peer, self._error)
            self.close()

    def _look_ahead(self) -> None:
        for frame in islice(self._waiting, self._foreseen, MAX_FORESEEN):
            if not self._dispatcher.foresee(frame, self.peer):
                return
            self._foreseen += 1

    def _next_turn(self) -> None:
        self._turn_comes = False
        self._serve()

    def _queue(self, answer: Parts | Awaitable[Parked] | Ack | None, frame: memoryview) -> None:
        """What cannot leave yet, or has others before it."""
        if isinstance(answer, Ack):
            answer.connection = self
            self._pending.append(answer)
        elif answer is not None and not isinstance(answer, list):
            self._park(answer, frame)
        elif answer and self._pending:
            self._pending.append(answer)

    def _park(self, answer: Awaitable[Parked], frame: memoryview) -> None:
        parked = self._gate = asyncio.ensure_future(answer)
        self._gate_writes = _is_unacknowledged(frame)
        self._pending.append(parked)
        parked.add_done_callback(self._unpark)

    def _unpark(self, parked: asyncio.Future[Parked]) -> None:
        if parked is self._gate:
            self._gate = None
        if parked.cancelled():
            self.close()  # it has no answer, and those behind it could not leave
            return
        error = parked.exception()
        if self._transport is None:
            return
        if error is not None:
            if not isinstance(error, WireError):
                logger.error("request failed; closing the connection", exc_info=error)
            self.close()
            return
        result = parked.result()
        if isinstance(result, Ack):
            # In its place among the answers, but the gate is open.
            self._pending[self._pending.index(parked)] = result
            result.connection = self
        self.last_active = self._loop.time()
        self._collect()
        self._serve()

    def acked(self) -> None:
        """A sync is done for which answers wait."""
        if self._transport is not None:
            self.last_active = self._loop.time()
            self._collect()
            self._serve()

    def _collect(self) -> None:
        """Collect the answers that may be sent now, in order."""
        while self._pending:
            first = self._pending[0]
            if isinstance(first, Ack):
                if first.waits:
                    return
                answer = first.parts
            elif isinstance(first, list):
                answer = first
            elif first.done() and not first.cancelled() and first.exception() is None:
                result = first.result()
                if isinstance(result, Ack):
                    return  # its own callback is about to replace it
                answer = result or []
            else:
                return
            self._pending.popleft()
            self._take(answer)

    def _take(self, answer: Parts) -> None:
        """The next one to leave."""
        self._answers += answer
        self._answer_bytes += len(answer[0]) if len(answer) == 1 else sum(map(len, answer))
        if self._answer_bytes > MAX_ANSWER_BYTES:
            self._send()

    def _send(self) -> None:
        answers, self._answers = self._answers, []
        size, self._answer_bytes = self._answer_bytes, 0
        if not answers or self._transport is None:
            return
        if len(answers) == 1:
            self._transport.write(answers[0])
        elif size <= JOIN_BYTES:
            self._transport.write(b"".join(answers))
        else:
            self._transport.writelines(answers)
        if not self._writable:
            self._dispatcher.answers.hold(self, size)
        elif not self._transport.is_closing():
            self._all_is_sent()

    def _all_is_sent(self) -> None:
        """The kernel has all answers so far; those of later requests may have views, too."""
        if self.peer.lent and not self._pending:
            self.peer.lent.clear()

    def _update_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._account()
        wanted = self._wants_to_read()
        if wanted and not self._transport.is_reading():
            self._frame_began = self._loop.time()  # the client could not go on meanwhile
            self._transport.resume_reading()
        elif not wanted and self._transport.is_reading():
            self._transport.pause_reading()

    def _wants_to_read(self) -> bool:
        return (
            self._writable
            and self._muted is None
            and self._has_room
            and self._waiting_bytes <= MAX_WAITING_BYTES
            and self._error is None
            and not self.leaves
        )

    def _account(self) -> None:
        """Report the held bytes, and stop reading above the limit."""
        announced = self._frames.announced_bytes
        holds = self._waiting_bytes + (announced if announced > CHUNK_BYTES else 0)
        if holds == self._held:
            self._has_room = True
            return
        change = holds - self._held
        self._has_room = self._dispatcher.memory.grant(self, change, self._room)
        if self._has_room:
            self._held = holds

    def _room(self) -> None:
        self._has_room = True
        self._update_reading()


def _is_unacknowledged(frame: memoryview) -> bool:
    """Whether a frame is a produce request with acks=0: asked before any handler has read it."""
    if int.from_bytes(frame[:2], "big") != PRODUCE:
        return False
    flexible = int.from_bytes(frame[2:4], "big") >= FIRST_FLEXIBLE_PRODUCE
    client_id = int.from_bytes(frame[8:10], "big", signed=True)
    at = 10 + max(client_id, 0)
    # No tags and no transactional id come before acks; with either it is no such request.
    nothing = b"\0\0" if flexible else b"\xff\xff"
    return bytes(frame[at : at + 4]) == nothing + b"\0\0"

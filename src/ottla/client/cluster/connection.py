"""One connection to one broker: `Exchange` on a socket, and the versions both sides know.

- Requests are written at once and may overlap; responses come in order. `send` waits for the
  response; `ask` passes it to a callback, which saves a task and two turns of the loop.
- Cancelling a caller drops its response, not the connection. A request that times out closes the
  connection, because every later response would have to come after the missing one.
- Records are written without a copy. asyncio of Python 3.11 copies the bytes that a socket does not
  take at once, so this class writes slices and waits while the transport is full.
- A broker may tell the client to wait (`ottla.client.cluster.throttle`). Requests are then held,
  and go out in order when the time is over. One that times out before fails alone.
- The connection fails as a whole: all waiting callers get one `ConnectionLost` with the cause.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import deque
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from ottla.client.cluster.exchange import MAX_RESPONSE_BYTES, Exchange, api_key_of
from ottla.client.cluster.throttle import Throttled
from ottla.client.cluster.wrong_protocol import named_by_answer, named_by_probe
from ottla.client.errors import (
    BrokerUnreachable,
    ClientError,
    ClientFault,
    ConnectionLost,
    HeldByQuota,
    RequestTimedOut,
    UnsupportedApi,
    WrongProtocol,
    check,
)
from ottla.wire.error_codes import ErrorCode
from ottla.wire.messages import API_VERSIONS, message
from ottla.wire.schema import API_NAMES
from ottla.wire.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.wire.spec import Span
    from ottla.wire.writers import Part, Parts

# Looked up, not imported: the package's front page names every room, and rooms import down only.
SOFTWARE_VERSION: Final[str] = import_module("ottla").__version__

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT: Final = 10.0
REQUEST_TIMEOUT: Final = 30.0  # request.timeout.ms of Kafka's clients
CLOSE_TIMEOUT: Final = 1.0  # to send the last bytes, without waiting for a stuck peer

# What asyncio may have to copy of a part at most; sockets usually take this much at once.
SLICE_BYTES: Final = 128 * 1024
# Below this a copy is cheaper than another system call.
JOIN_BYTES: Final = 16 * 1024


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Question:
    """A waiting caller and its deadline."""

    __slots__ = ("then", "timer")

    def __init__(self, then: Callable[[Any], None]) -> None:
        self.then = then
        self.timer: asyncio.TimerHandle | None = None

    def settle(self, answer: object) -> None:
        """Pass on the first response; later calls have no effect."""
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()
            try:
                self.then(answer)
            except Exception:
                # The later responses belong to other callers.
                logger.exception("an answer could not be handed over")


class Connection(asyncio.BufferedProtocol):
    """To be opened once, and used until it is closed or fails."""

    _HINT_AT_FIRST_REQUEST = (
        " at the first request; if the listener wants a login, set security.protocol to "
        "SASL_SSL or SASL_PLAINTEXT"
    )

    def __init__(
        self,
        address: Address,
        client_id: str | None,
        *,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        max_versions: Mapping[int, int] | None = None,
        throttled: Throttled | None = None,
        advertised: bool = False,
    ) -> None:
        self.address = address
        self._advertised = advertised
        self.muted_until = -math.inf
        """Until when, by the loop's clock, the broker wants to be sent nothing."""
        self.versions: dict[int, Span] = {}
        self.features: dict[str, int] = {}
        self._exchange: Exchange[Question] = Exchange(client_id, max_response_bytes)
        self._caps = max_versions or {}
        self._throttled = throttled or Throttled()
        self._unmuting: asyncio.TimerHandle | None = None
        self._held: deque[tuple[Any, int, Question | None]] | None = None
        self._outbox: deque[Part] = deque()
        self._writable = True
        self._transport: asyncio.Transport | None = None
        self._failure: ClientError | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        """Whether versions are agreed on and requests can be sent."""
        return self._failure is None and bool(self.versions)

    @property
    def certificate_until(self) -> float | None:
        """Until when the broker's certificate is valid, in seconds since the epoch.

        None without TLS, and if the certificate is not verified.
        """
        return None

    @property
    def in_flight(self) -> int:
        """How many answers are outstanding, of held requests, too."""
        return len(self._exchange) + len(self._held or ())

    @property
    def is_muted(self) -> bool:
        """Whether the broker has told the client to wait, and the time is not over."""
        return self._unmuting is not None

    def pick_version(self, api_key: int, low: int = 0, high: int = 0x7FFF) -> int:
        """The highest version in this range that both sides know and no cap forbids."""
        ours = message(api_key, request=True).versions
        name = API_NAMES[api_key]
        if api_key not in self.versions:
            raise UnsupportedApi(f"the broker at {self.address} does not serve {name}")
        theirs = self.versions[api_key]
        version = min(ours[1], theirs[1], high, self._caps.get(api_key, high))
        if version < max(ours[0], theirs[0], low):
            raise UnsupportedApi(
                f"the broker at {self.address} serves {name} in versions {theirs[0]} to "
                f"{theirs[1]}; this call needs one from {max(ours[0], low)} to {min(ours[1], high)}"
            )
        return version

    async def open(
        self,
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        request_timeout: float = REQUEST_TIMEOUT,
    ) -> None:
        """Connect and agree on versions; if anything goes wrong, no socket stays open."""
        host, port = self.address
        try:
            async with asyncio.timeout(connect_timeout):
                await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        except TimeoutError:
            raise self._unreachable(f"no answer in {connect_timeout:g} s") from None
        except OSError as error:
            raise self._unreachable(_reason(error)) from error
        await self._greet(min(request_timeout, connect_timeout))

    async def _greet(self, within: float) -> None:
        """Agree on versions."""
        try:
            await self._negotiate(within)
        except ClientError as error:
            self.abort()
            raise await self._no_broker(error) from error
        except BaseException:
            self.abort()
            raise

    async def _no_broker(self, error: ClientError) -> BrokerUnreachable:
        """What there is in place of a broker."""
        why = f"{self.address} does not answer as a Kafka broker: "
        broken = self._exchange.error
        if broken is not None:
            return WrongProtocol(why + named_by_answer(broken))
        other = await named_by_probe(*self.address)
        return BrokerUnreachable(f"{why}{error}") if other is None else WrongProtocol(why + other)

    async def send(self, request: Any, version: int, within: float = REQUEST_TIMEOUT) -> Any:
        """The answer to a request: the response type of the same schema module."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        timer = self.ask(request, version, partial(resolve, answer), within)
        try:
            return await answer
        finally:
            timer.cancel()

    def ask(
        self,
        request: Any,
        version: int,
        then: Callable[[Any], None],
        within: float = REQUEST_TIMEOUT,
    ) -> asyncio.TimerHandle:
        """Write a request; `then` is called once, with the answer or a `ClientError` in its place.

        A caller that does not want the response any more cancels the timer; the connection stays.
        """
        if self._failure is not None:
            # Raised afresh: one exception object shared by callers would collect their tracebacks.
            raise BrokerUnreachable(str(self._failure)) from self._failure
        question = Question(then)
        self._post(request, version, question)
        # A timer of its own: `asyncio.timeout` costs as much as all the rest of a small request.
        timer = asyncio.get_running_loop().call_later(
            within, self._time_out, question, request, within
        )
        question.timer = timer
        return timer

    def _time_out(self, question: Question, request: object, within: float) -> None:
        name = API_NAMES[api_key_of(request)]
        if self._drop_held(question):
            question.settle(self._not_sent(name, within))
            return
        late = RequestTimedOut(f"no answer to {name} from {self.address} in {within:g} s")
        question.settle(late)
        self._fail(ConnectionLost(f"connection to {self.address} given up: {late}"))

    def send_unanswered(self, request: Any, version: int) -> None:
        """Write a request that gets no answer (Produce with acks=0)."""
        if self._failure is not None:
            raise BrokerUnreachable(str(self._failure)) from self._failure
        self._post(request, version, None)

    def _post(self, request: Any, version: int, question: Question | None) -> None:
        """Send a request now, or when requests are not held any more."""
        if self._held is None:
            self._send_out(request, version, question)
        else:
            self._held.append((request, version, question))

    def _send_out(self, request: Any, version: int, question: Question | None) -> None:
        """Send a request, whose answer goes to the question if it gets one."""
        if question is None:
            self._write(self._exchange.send_unanswered(request, version))
        else:
            self._write(self._exchange.send(request, version, question))

    # Requests that wait for the end of a throttle.

    def _mute(self, seconds: float) -> None:
        """Hold requests from now on, for what the broker has told."""
        now = asyncio.get_running_loop().time()
        until = now + seconds
        # Waits that overlap are counted once.
        self._throttled.seconds += max(0.0, until - max(now, self.muted_until))
        if until <= self.muted_until:
            return
        self.muted_until = until
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._unmuting = asyncio.get_running_loop().call_at(until, self._unmute)
        self._hold()

    def _unmute(self) -> None:
        self._unmuting = None
        self._release_held()

    def _hold(self) -> None:
        if self._held is None:
            self._held = deque()

    def _release_held(self) -> None:
        """Send what was held."""
        held, self._held = self._held, None
        for request, version, question in held or ():
            try:
                self._send_out(request, version, question)
            except Exception as error:
                logger.exception("a request that was held cannot be sent")
                if question is not None:
                    question.settle(ClientFault.of(f"send to {self.address}", error))

    def _drop_held(self, question: Question) -> bool:
        """Forget a request; whether it was held."""
        for at, (_, _, held) in enumerate(self._held or ()):
            if held is question:
                assert self._held is not None
                del self._held[at]
                return True
        return False

    def _not_sent(self, name: str, within: float) -> BrokerUnreachable:
        left = max(0.0, self.muted_until - asyncio.get_running_loop().time())
        return HeldByQuota(
            f"{name} was not sent to {self.address} in {within:g} s: the broker told this client "
            f"to wait {left:.1f} s more, because it is over a quota; send less, or raise the quota "
            "with ottla quota set"
        )

    async def close(self) -> None:
        """Flush, close the socket and wait until it is closed."""
        if self._failure is None:
            for request, version, question in self._held or ():
                if question is None:
                    self._send_out(request, version, None)
            self._failure = ConnectionLost(f"connection to {self.address} was closed")
            self._release_waiters()
        if self._transport is None:
            return
        if self._is_drained:
            self._hang_up(self._transport)
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await asyncio.shield(self._lost)
        except TimeoutError:
            # Not waited for: uvloop never reports the end of a connection whose opening was
            # cancelled when it was all but open.
            self._transport.abort()
        except asyncio.CancelledError:
            self._transport.abort()
            raise

    def abort(self) -> None:
        """Close the connection at once."""
        self._fail(ConnectionLost(f"connection to {self.address} was dropped"))

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods, not the base class.
        self._transport = cast("asyncio.Transport", transport)
        if self._failure is not None:
            # Closed while it was being opened. Not from in here: uvloop has not set the transport
            # up yet, and would never close it.
            asyncio.get_running_loop().call_soon(self._transport.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._exchange.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._failure is not None:
            return
        answers = self._exchange.received(nbytes)
        if self._exchange.told_wait:
            # First, so that requests that follow the answers are held.
            self._mute(self._exchange.told_wait)
            self._exchange.told_wait = 0.0
        for question, answer in answers:
            question.settle(answer)
        error = self._exchange.error
        if error is not None:
            self._fail(ConnectionLost(f"{self.address} broke the protocol: {error}"), error)

    def connection_lost(self, exc: Exception | None) -> None:
        why = f": {exc}" if exc else ""
        if self.versions and self._exchange.is_first_answer_missing:
            # A broker on whose listener one must log in first says nothing else.
            why += self._HINT_AT_FIRST_REQUEST
        self._fail(ConnectionLost(f"{self.address} closed the connection{why}"), exc)
        if not self._lost.done():
            self._lost.set_result(None)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._flush()

    async def _negotiate(self, within: float) -> None:
        """Learn which versions the broker serves; version 0 of the question always works."""
        ask = ApiVersionsRequest("ottla", SOFTWARE_VERSION)
        newest = message(API_VERSIONS, request=True).versions[1]
        version = min(newest, self._caps.get(API_VERSIONS, newest))
        answer: ApiVersionsResponse = await self.send(ask, version, within)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = await self.send(ask, 0, within)
        check(answer.error_code, f"ask {self.address} for its API versions")
        self.versions = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        self.features = {one.name: one.max_version_level for one in answer.finalized_features}

    def _unreachable(self, why: str) -> BrokerUnreachable:
        if self._advertised:
            advice = (
                "a broker tells its clients this address: set its advertised.listeners to one that "
                "they can reach"
            )
        else:
            advice = "see that a Kafka broker is up there, and that bootstrap names its address"
        return BrokerUnreachable(f"cannot connect to {self.address}: {why}; {advice}")

    def _write(self, parts: Parts) -> None:
        self._outbox.extend(_slices(parts))
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        while self._outbox and self._writable:
            transport.write(self._outbox.popleft())
        if self._failure is not None and self._is_drained:
            self._hang_up(transport)

    @property
    def _is_drained(self) -> bool:
        return not self._outbox

    def _hang_up(self, transport: asyncio.Transport) -> None:
        transport.close()

    def _fail(self, failure: ClientError, cause: BaseException | None = None) -> None:
        if self._failure is None:
            failure.__cause__ = cause
            self._failure = failure
        self._outbox.clear()
        self._release_waiters()
        if self._transport is not None:
            self._transport.abort()

    def _release_waiters(self) -> None:
        for question in self._exchange.abandon():
            lost = ConnectionLost(str(self._failure))
            lost.__cause__ = self._failure
            question.settle(lost)
        if self._unmuting is not None:
            self._unmuting.cancel()
            self._unmuting = None
        held, self._held = self._held, None
        for _, _, unsent in held or ():
            if unsent is not None:
                never = BrokerUnreachable(str(self._failure))
                never.__cause__ = self._failure
                unsent.settle(never)


def resolve(waiter: asyncio.Future[Any], answer: object) -> None:
    """Give a caller that still waits its answer."""
    if waiter.done():
        return
    if isinstance(answer, ClientError):
        waiter.set_exception(answer)
    else:
        waiter.set_result(answer)


def _slices(parts: Parts) -> list[Part]:
    """The parts with small neighbours joined and large ones cut, none of the large ones copied."""
    slices: list[Part] = []
    small: list[Part] = []
    for part in parts:
        if len(part) < JOIN_BYTES:
            small.append(part)
            continue
        if small:
            slices.append(b"".join(small))
            small = []
        view = memoryview(part)
        slices += [view[at : at + SLICE_BYTES] for at in range(0, len(view), SLICE_BYTES)]
    if small:
        slices.append(b"".join(small))
    return slices


def _reason(error: OSError) -> str:
    """The system's words; asyncio puts its own in their place. Names have negative numbers."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error)).lower()

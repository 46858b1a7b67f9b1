"""Connections before they are authenticated: who waits, who may begin, and for how long.

Pure: visitors are any hashable objects, time comes in, and `step` says what is to be done.

    arrived ── address too fast ──> held unread for at most a second, then closed
       │
       v
    silent ── longer than `authentication_seconds` ──> closed
       │   its first bytes are there
       v
    waiting ── longer than `wait_seconds` ──> closed
       │   a slot is free, and the rates of broker and listener allow it
       v
    authenticating ── longer than `authentication_seconds`, or stalled ──> closed
       │
       v
    left: authenticated, failed or gone

- A waiting visitor costs a socket and its first bytes; no TLS object is made for it.
- Slots go round by address, and to the oldest visitor of an address first. So an address that
  floods the broker makes its own clients wait, not those of others.
- A visitor that has to speak first, to shake hands or to log in, needs no slot before it does. So
  silent connections keep nobody waiting; they are closed when the time to authenticate is over.
- While others wait for a slot, a visitor that makes no progress for `STALLED_SECONDS` although it
  is its turn loses its own: a login takes far less, and whoever trickles bytes would keep all slots
  for the whole time that there is to authenticate.
- Rates are token buckets with room for a second. A visitor over the rate of the broker or of its
  listener waits.
- `Failures` counts failed authentications of an address: from the tenth within ten seconds on the
  delay of the answer doubles with each, up to five seconds. A success clears it. Users are not
  locked out: anybody could lock out anybody.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

STALLED_SECONDS: Final = 1.0  # several round trips to the other end of the world
LOOK_AGAIN_SECONDS: Final = 0.1  # at visitors that wait for this node, and may stall after that
MAX_HELD_SECONDS: Final = 1.0  # a client that is closed earlier only comes back earlier
MAX_ADDRESSES: Final = 10_000  # of which rates or failures are remembered; about 3 MB
FAILURES_BEFORE_DOUBLING: Final = 10
FAILURE_WINDOW_SECONDS: Final = 10.0
MAX_DELAY_SECONDS: Final = 5.0
FORGET_SECONDS: Final = 60.0

V = TypeVar("V", bound="Hashable")


class Bucket:
    """Tokens that come back at a rate; a second's worth of them at most."""

    __slots__ = ("_at", "_tokens", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._tokens = max(rate, 1.0)
        self._at = now

    def wait(self, now: float) -> float:
        """Seconds until there is a token; 0 if there is one."""
        gained = max(0.0, now - self._at) * self.rate
        self._tokens = min(max(self.rate, 1.0), self._tokens + gained)
        self._at = now
        # A hair less than one, so that rounding makes nobody wait twice.
        return 0.0 if self._tokens >= 1 - 1e-9 else (1 - self._tokens) / self.rate

    def take(self) -> None:
        self._tokens -= 1


class Closing(NamedTuple, Generic[V]):
    visitor: V
    reason: str


@dataclass(slots=True)
class Moves(Generic[V]):
    """What a step comes to."""

    enter: list[V] = field(default_factory=list)
    close: list[Closing[V]] = field(default_factory=list)


class _Visitor(NamedTuple):
    host: str
    listener: str
    deadline: float


class Lobby(Generic[V]):
    """Visitors that have not authenticated yet."""

    def __init__(
        self,
        *,
        slots: int,
        wait_seconds: float,
        authentication_seconds: float,
        address_rate: Callable[[str], float | None] = lambda _: None,
        waits_for_us: Callable[[V], bool] = lambda _: False,
    ) -> None:
        """`address_rate` is the limit of new connections from an address, in a second.

        `waits_for_us` says whether it is this node's turn, not the visitor's.
        """
        self._slots = slots
        self._wait_seconds = wait_seconds
        self._authentication_seconds = authentication_seconds
        self._address_rate = address_rate
        self._waits_for_us = waits_for_us
        # Each has one time limit for all, so the first in order of insertion is the first due.
        self._held: dict[V, float] = {}
        self._silent: dict[V, _Visitor] = {}
        self._waiting: dict[V, _Visitor] = {}
        self._authenticating: dict[V, float] = {}
        # When each of them made progress last; the one that did so longest ago comes first.
        self._progress: OrderedDict[V, float] = OrderedDict()
        self._queues: OrderedDict[str, OrderedDict[V, None]] = OrderedDict()
        self._broker: Bucket | None = None
        self._listeners: dict[str, Bucket] = {}
        self._addresses: OrderedDict[str, Bucket] = OrderedDict()

    @property
    def waiting(self) -> int:
        return len(self._silent) + len(self._waiting) + len(self._held)

    @property
    def authenticating(self) -> int:
        return len(self._authenticating)

    def set_rates(self, broker: float | None, listeners: Mapping[str, float], now: float) -> None:
        """New connections in a second, of all listeners and of some; None: any number."""
        if broker is None:
            self._broker = None
        elif self._broker is None or self._broker.rate != broker:
            self._broker = Bucket(broker, now)
        self._listeners = {
            name: known
            if (known := self._listeners.get(name)) is not None and known.rate == rate
            else Bucket(rate, now)
            for name, rate in listeners.items()
        }

    def arrived(
        self, visitor: V, host: str, listener: str, now: float, *, silent: bool = False
    ) -> None:
        """`silent`: it has to speak first (`spoke`)."""
        wait = self._address_wait(host, now)
        if wait > 0:
            # The order of insertion is not that of their ends; they are few, and gone in a second.
            self._held[visitor] = now + min(wait, MAX_HELD_SECONDS)
            return
        if silent:
            deadline = now + self._authentication_seconds
            self._silent[visitor] = _Visitor(host, listener, deadline)
        else:
            self._queue(visitor, host, listener, now)

    def spoke(self, visitor: V, now: float) -> None:
        """Its first bytes have come."""
        silent = self._silent.pop(visitor, None)
        if silent is not None:
            self._queue(visitor, silent.host, silent.listener, now)

    def _queue(self, visitor: V, host: str, listener: str, now: float) -> None:
        self._waiting[visitor] = _Visitor(host, listener, now + self._wait_seconds)
        self._queues.setdefault(host, OrderedDict())[visitor] = None

    def progressed(self, visitor: V, now: float) -> None:
        """It has done its part of another step."""
        if visitor in self._progress:
            self._progress[visitor] = now
            self._progress.move_to_end(visitor)

    def left(self, visitor: V) -> None:
        """It is authenticated, has failed, or is gone."""
        self._held.pop(visitor, None)
        self._silent.pop(visitor, None)
        self._authenticating.pop(visitor, None)
        self._progress.pop(visitor, None)
        waiting = self._waiting.pop(visitor, None)
        if waiting is not None:
            queue = self._queues[waiting.host]
            del queue[visitor]
            if not queue:
                del self._queues[waiting.host]

    def step(self, now: float) -> Moves[V]:
        """Who begins and who is closed now; those that are closed have left."""
        moves: Moves[V] = Moves()
        late = [visitor for visitor, until in self._held.items() if until <= now]
        moves.close += [Closing(visitor, "connection rate of the address") for visitor in late]
        for visitor, waiting in self._waiting.items():
            if waiting.deadline > now:
                break
            moves.close.append(Closing(visitor, "no free slot to authenticate"))
        for visitor, silent in self._silent.items():
            if silent.deadline > now:
                break
            moves.close.append(Closing(visitor, "timeout"))
        for visitor, deadline in self._authenticating.items():
            if deadline > now:
                break
            moves.close.append(Closing(visitor, "timeout"))
        if self._is_crowded:
            late = self._stalled(now, {closing.visitor for closing in moves.close})
            moves.close += [Closing(visitor, "stalled while others wait") for visitor in late]
        for closing in moves.close:
            self.left(closing.visitor)
        while len(self._authenticating) < self._slots:
            entering = self._next(now)
            if entering is None:
                break
            self.left(entering)
            self._authenticating[entering] = now + self._authentication_seconds
            self._progress[entering] = now
            moves.enter.append(entering)
        return moves

    def next_time(self, now: float) -> float | None:
        """When `step` has to be called again if nothing else happens."""
        times = list(self._held.values())
        if self._waiting:
            times.append(next(iter(self._waiting.values())).deadline)
            if len(self._authenticating) < self._slots:
                times.append(now + self._rate_wait(now))
        if self._silent:
            times.append(next(iter(self._silent.values())).deadline)
        if self._authenticating:
            times.append(next(iter(self._authenticating.values())))
        if self._is_crowded:
            stalled = next(iter(self._progress.values())) + STALLED_SECONDS
            times.append(max(stalled, now + LOOK_AGAIN_SECONDS))
        return min(times, default=None)

    @property
    def _is_crowded(self) -> bool:
        """Whether somebody waits for a slot, and there is none."""
        return bool(self._waiting) and len(self._authenticating) >= self._slots

    def _stalled(self, now: float, closing: set[V]) -> list[V]:
        """No more of them than there are visitors that wait, and not those that close anyway."""
        found: list[V] = []
        for visitor, last in self._progress.items():
            if now - last < STALLED_SECONDS or len(found) >= len(self._waiting) - len(closing):
                break
            if visitor not in closing and not self._waits_for_us(visitor):
                found.append(visitor)
        return found

    def _next(self, now: float) -> V | None:
        """The visitor whose turn it is; its tokens are taken."""
        if self._broker is not None and self._broker.wait(now) > 0:
            return None
        for host, queue in self._queues.items():
            visitor = next(iter(queue))
            bucket = self._listeners.get(self._waiting[visitor].listener)
            if bucket is not None:
                if bucket.wait(now) > 0:
                    continue
                bucket.take()
            if self._broker is not None:
                self._broker.take()
            self._queues.move_to_end(host)
            return visitor
        return None

    def _rate_wait(self, now: float) -> float:
        """Seconds until a token lets the next visitor in."""
        broker = 0.0 if self._broker is None else self._broker.wait(now)
        heads = (self._waiting[next(iter(queue))].listener for queue in self._queues.values())
        waits = [
            0.0 if (bucket := self._listeners.get(name)) is None else bucket.wait(now)
            for name in set(heads)
        ]
        return max(broker, min(waits, default=0.0))

    def _address_wait(self, host: str, now: float) -> float:
        rate = self._address_rate(host)
        if rate is None:
            self._addresses.pop(host, None)
            return 0.0
        bucket = self._addresses.get(host)
        if bucket is None or bucket.rate != rate:
            bucket = self._addresses[host] = Bucket(rate, now)
            if len(self._addresses) > MAX_ADDRESSES:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(host)
        wait = bucket.wait(now)
        if not wait:
            bucket.take()
        return wait


class _Address:
    """Failed authentications of an address."""

    __slots__ = ("doublings", "last", "times")

    def __init__(self) -> None:
        self.times: deque[float] = deque(maxlen=FAILURES_BEFORE_DOUBLING)
        self.doublings = 0
        self.last = 0.0


class Failures:
    """How long the answer to a failed authentication is held back."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Address] = OrderedDict()  # the oldest failure first

    def __len__(self) -> int:
        return len(self._addresses)

    def failed(self, host: str, delay: float, now: float) -> float:
        """The delay of this answer in seconds; `delay` is that of an address without failures."""
        self._forget(now)
        address = self._addresses.setdefault(host, _Address())
        self._addresses.move_to_end(host)
        if address.doublings or (
            len(address.times) == FAILURES_BEFORE_DOUBLING
            and now - address.times[0] <= FAILURE_WINDOW_SECONDS
        ):
            address.doublings += 1
        address.times.append(now)
        address.last = now
        if len(self._addresses) > MAX_ADDRESSES:
            self._addresses.popitem(last=False)
        # Thousands of doublings are possible, and a float is not that large.
        return min(max(MAX_DELAY_SECONDS, delay), delay * 2.0 ** min(address.doublings, 64))

    def succeeded(self, host: str) -> None:
        self._addresses.pop(host, None)

    def _forget(self, now: float) -> None:
        while self._addresses:
            host, oldest = next(iter(self._addresses.items()))
            if now - oldest.last < FORGET_SECONDS:
                return
            del self._addresses[host]

"""Quotas of clients: which one counts for whom, and how long a client that is over it waits.

Which quota: the first of these entities that has one, for each key by itself:

    (user, client id)          (user, default client)          (user)
    (default user, client id)  (default user, default client)  (default user)
    (client id)                (default client)

A quota belongs to the entity that gave it: all connections of a user share a quota of the user;
under a default each user or client id has a count of its own.

How long: rates are measured over `count` windows, the current one included, as Kafka does. With a
sum of S over a span of T seconds and a quota of Q a second, a client over its quota waits
`S / Q - T` seconds, which is (rate - quota) / quota * T. Topics and partitions that are created or
deleted have a bucket of tokens instead: it holds what the quota gives in all windows, and a request
is carried out while it is not in debt.

Everything here is pure: time is an argument, in seconds of a monotonic clock. Amounts are whole
numbers (bytes, nanoseconds, partitions), so that sums stay exact. There is no object for a request;
what is kept for a client is dropped after `IDLE_SECONDS`, and for the longest idle client when
there are more than `MAX_CLIENTS`.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from ottla.metadata.security.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.metadata.security.quotas import ClientQuota

MAX_CLIENTS: Final = 10_000
IDLE_SECONDS: Final = 3600.0
MAX_THROTTLE_SECONDS: Final = 3600.0
NANOSECONDS: Final = 1_000_000_000
QUIET_NANOSECONDS: Final = 10_000_000  # far shorter than a window
QUIET_PART: Final = 1000  # of what is never too much


@dataclass(frozen=True, slots=True)
class Windows:
    """How rates are measured: `quota.window.num` and `quota.window.size.seconds`."""

    count: int = 11
    seconds: int = 1


class Ring:
    """A sum over the last windows; each window's part is forgotten when the window is."""

    __slots__ = ("_latest", "_parts", "_slot", "_until", "_windows", "total")

    def __init__(self, windows: Windows) -> None:
        self.total = 0
        self._windows = windows
        self._parts = array("q", bytes(8 * windows.count))
        self._latest = 0  # number of the current window
        self._slot = 0  # its part
        self._until = 0.0  # when it ends

    def add(self, amount: int, now: float) -> int:
        """Count an amount; returns the total."""
        if now >= self._until:
            self.move(now)
        self._parts[self._slot] += amount
        self.total = total = self.total + amount
        return total

    def move(self, now: float) -> None:
        """Forget what is too old; time never goes back."""
        if now < self._until:
            return
        count, seconds = self._windows.count, self._windows.seconds
        latest = int(now // seconds)
        for window in range(max(self._latest + 1, latest - count + 1), latest + 1):
            self.total -= self._parts[window % count]
            self._parts[window % count] = 0
        self._latest = latest
        self._slot = latest % count
        self._until = float((latest + 1) * seconds)

    def span(self, now: float) -> float:
        """The time that the sum is about: all windows but the rest of the current one."""
        seconds = self._windows.seconds
        return now - (now // seconds - self._windows.count + 1) * seconds


class Meter:
    """A rate and its quota, in units a second."""

    __slots__ = ("_free", "_limit", "_longest", "_ring", "_windows")

    def __init__(self, windows: Windows, longest: float) -> None:
        self._limit = 0.0
        self._free = 0.0  # what is never too much: the sum is about no less time than this
        self._windows = windows
        self._longest = longest  # wait
        self._ring = Ring(windows)

    @property
    def limit(self) -> float:
        return self._limit

    @limit.setter
    def limit(self, limit: float) -> None:
        self._limit = limit
        self._free = limit * (self._windows.count - 1) * self._windows.seconds

    def record(self, amount: int, now: float) -> float:
        """Count an amount; returns how many seconds the client must wait."""
        total = self._ring.add(amount, now)
        return 0.0 if total <= self._free else self._wait(total, now)

    @property
    def quiet(self) -> float:
        """What need not be told at once: a small part of the quota, nothing from its half on."""
        return self._free / QUIET_PART if self._ring.total <= self._free / 2 else 0.0

    def throttle(self, now: float) -> float:
        """How many seconds the client must wait as it is."""
        self._ring.move(now)
        return self._wait(self._ring.total, now)

    def room(self, now: float) -> int:
        """What one answer may have: the rest of the quota, 0 if that is less than a window's.

        Smaller answers would cost more than they carry; a client that gets none waits `wait`.
        """
        self._ring.move(now)
        rest = self.limit * self._ring.span(now) - self._ring.total
        if rest < self._enough:
            return 0
        return max(1, int(min(rest, self._free)))

    def wait(self, now: float) -> float:
        """How many seconds pass until there is room."""
        return self._wait(self._ring.total + self._enough, now)

    @property
    def _enough(self) -> float:
        """For an answer. A single window is never a whole one."""
        return self.limit * self._windows.seconds if self._windows.count > 1 else 0.0

    def _wait(self, total: float, now: float) -> float:
        return min(max(0.0, total / self.limit - self._ring.span(now)), self._longest)


class Tokens:
    """A bucket that fills at the quota's rate; what is taken may leave a debt, to be paid."""

    __slots__ = ("_at", "_left", "_seconds", "limit")

    def __init__(self, windows: Windows) -> None:
        self.limit = 0.0
        self._seconds = windows.count * windows.seconds
        self._left: float | None = None  # full
        self._at = 0.0

    def take(self, amount: int, now: float) -> float:
        """0.0 if the amount was taken, else how many seconds the debt lasts."""
        left = self._filled(now)
        if left < 0:
            return self._debt(left)
        self._left = left - amount
        return 0.0

    def force(self, amount: int, now: float) -> float:
        """Take in any case; returns how many seconds the debt lasts."""
        self._left = self._filled(now) - amount
        return self._debt(self._left)

    def give(self, amount: int) -> None:
        """Give back what was taken for nothing."""
        if self._left is not None:
            self._left += amount

    def _filled(self, now: float) -> float:
        most = self.limit * self._seconds
        left = most if self._left is None else self._left + self.limit * (now - self._at)
        self._left, self._at = min(left, most), now
        return self._left

    def _debt(self, left: float) -> float:
        return min(max(0.0, -left / self.limit), MAX_THROTTLE_SECONDS)


Name: TypeAlias = str | None
Level: TypeAlias = tuple[bool, Name, bool, Name]
"""Whether an entity has a user and its name, None for the default; the same for the client id."""


class Quota(NamedTuple):
    """What counts for a client, and where it is counted."""

    limit: float
    counted: tuple[Name, Name]
    """User and client id; None where all of them are counted together."""


class Index:
    """The quotas of an image, to look up by user and client id."""

    __slots__ = ("_addresses", "_by_level")

    def __init__(self, quotas: Mapping[str, ClientQuota]) -> None:
        self._by_level: dict[Level, Mapping[str, float]] = {}
        self._addresses: dict[Name, float] = {}
        for one in quotas.values():
            names = dict(one.entity)
            if IP in names:
                self._addresses[names[IP]] = one.values[CONNECTION_CREATION_RATE]
                continue
            level = (USER in names, names.get(USER), CLIENT_ID in names, names.get(CLIENT_ID))
            self._by_level[level] = one.values

    @property
    def is_empty(self) -> bool:
        """Of quotas for users and client ids."""
        return not self._by_level

    def find(self, key: str, user: str, client_id: str) -> Quota | None:
        """The quota that counts for a user with this client id."""
        for level in levels(user, client_id):
            limit = self._by_level.get(level, {}).get(key)
            if limit is not None:
                has_user, _, has_client, _ = level
                return Quota(limit, (user if has_user else None, client_id if has_client else None))
        return None

    def connection_rate(self, address: str) -> float | None:
        """Connections a second that an address may open."""
        return self._addresses.get(address, self._addresses.get(None))


def levels(user: str, client_id: str) -> tuple[Level, ...]:
    """The entities whose quotas may count, the first that has one wins."""
    return (
        (True, user, True, client_id),
        (True, user, True, None),
        (True, user, False, None),
        (True, None, True, client_id),
        (True, None, True, None),
        (True, None, False, None),
        (False, None, True, client_id),
        (False, None, True, None),
    )


class Counted:
    """What is counted together: for a user, a client id, or both."""

    __slots__ = ("__weakref__", "fetch", "mutation", "produce", "request")

    def __init__(self) -> None:
        self.produce: Meter | None = None
        self.fetch: Meter | None = None
        self.request: Meter | None = None
        self.mutation: Tokens | None = None


class Client:
    """The meters of one user with one client id; None where it has no quota.

    A client that is far from its quotas costs little: what it does within `QUIET_NANOSECONDS` is
    only summed up (`bytes`, `spent`), and the meters are told then, or when it comes to more than a
    small part of a quota. Above half of a quota each request is told at once, so that nobody gets
    more than the quota, under however many client ids.
    """

    __slots__ = (
        *("bytes", "client_id", "counted", "fetch", "index", "is_node", "mutation", "produce"),
        *("quiet_bytes", "quiet_spent", "quiet_until", "request", "spent", "used", "user"),
    )

    def __init__(self, user: str, client_id: str | None) -> None:
        self.user = user
        self.client_id = client_id
        self.is_node = False  # nodes among themselves have no quotas
        self.index: Index | None = None  # of the quotas that it has
        self.used = 0.0
        self.produce: Meter | None = None
        self.fetch: Meter | None = None
        self.request: Meter | None = None
        self.mutation: Tokens | None = None
        self.counted: tuple[Counted, ...] = ()  # they live as long as somebody refers to them
        self.bytes = 0  # produced, and not told yet
        self.spent = 0  # nanoseconds in handlers, and not told yet
        self.quiet_until = 0  # on the clock that measures them
        self.quiet_bytes = 0.0
        self.quiet_spent = 0.0

    def tell(self, now: float, moment: int) -> float:
        """Tell the meters what was summed up; returns how many seconds the client must wait.

        `moment` is `now` on the clock of `quiet_until`.
        """
        wait = 0.0
        self.quiet_bytes = self.quiet_spent = math.inf
        if self.produce is not None:
            if self.bytes:
                wait = self.produce.record(self.bytes, now)
            self.quiet_bytes = self.produce.quiet
        if self.request is not None:
            wait = max(wait, self.request.record(self.spent, now))
            self.quiet_spent = self.request.quiet
        self.bytes = self.spent = 0
        self.quiet_until = moment + QUIET_NANOSECONDS
        return wait


class Quotas:
    """What a node counts. `active` is False while nobody has a quota: then nothing is asked."""

    def __init__(self, windows: Windows, controller: Windows) -> None:
        """`controller` has the windows of topics and partitions that are created or deleted."""
        self.active = False
        self._windows = windows
        self._controller = controller
        self.index = Index({})  # a client with another one has to be asked for again
        self._clients: OrderedDict[tuple[str, str | None], Client] = OrderedDict()
        # They live as long as a client that uses them, also when it gets other quotas.
        self._counted: WeakValueDictionary[tuple[Name, Name], Counted] = WeakValueDictionary()

    def __len__(self) -> int:
        """How many clients are known."""
        return len(self._clients)

    def adopt(self, quotas: Mapping[str, ClientQuota]) -> None:
        """Use these from now on; what was counted goes on."""
        self.index = Index(quotas)
        self.active = not self.index.is_empty
        if not self.active:
            self._clients.clear()

    def connection_rate(self, address: str) -> float | None:
        """Connections a second that an address may open."""
        return self.index.connection_rate(address)

    def client(self, user: str, client_id: str | None, now: float) -> Client:
        """The meters that count for a request."""
        key = (user, client_id)
        found = self._clients.get(key)
        if found is None:
            self._clients[key] = found = Client(user, client_id)
        else:
            self._clients.move_to_end(key)
        found.used = now
        if found.index is not self.index:
            self._resolve(found)
        self._forget(now)
        return found

    def _resolve(self, client: Client) -> None:
        """Give a client the meters of its quotas; those that it had go on counting."""
        kept: list[Counted] = []
        client.produce = client.fetch = client.request = client.mutation = None
        if (found := self._find(PRODUCER_BYTE_RATE, client, kept)) is not None:
            limit, place = found
            client.produce = place.produce = place.produce or self._meter()
            client.produce.limit = limit
        if (found := self._find(CONSUMER_BYTE_RATE, client, kept)) is not None:
            limit, place = found
            client.fetch = place.fetch = place.fetch or self._meter()
            client.fetch.limit = limit
        if (found := self._find(REQUEST_PERCENTAGE, client, kept)) is not None:
            limit, place = found
            client.request = place.request = place.request or self._meter(self._windows.seconds)
            # Percent of the loop's time, which is counted in nanoseconds.
            client.request.limit = limit / 100 * NANOSECONDS
        if (found := self._find(CONTROLLER_MUTATION_RATE, client, kept)) is not None:
            limit, place = found
            client.mutation = place.mutation = place.mutation or Tokens(self._controller)
            client.mutation.limit = limit
        client.counted = tuple(kept)
        client.index = self.index
        client.quiet_until = 0

    def _find(self, key: str, client: Client, kept: list[Counted]) -> tuple[float, Counted] | None:
        """The limit of a client, and where it is counted."""
        quota = self.index.find(key, client.user, client.client_id or "")
        if quota is None:
            return None
        place = self._counted.get(quota.counted)
        if place is None:
            self._counted[quota.counted] = place = Counted()
        if place not in kept:
            kept.append(place)
        return quota.limit, place

    def _meter(self, longest: float = MAX_THROTTLE_SECONDS) -> Meter:
        return Meter(self._windows, float(longest))

    def _forget(self, now: float) -> None:
        """The clients that were idle for long; the dictionary has the longest idle first."""
        clients = self._clients
        while len(clients) > MAX_CLIENTS:
            clients.popitem(last=False)
        while clients:
            oldest = next(iter(clients))
            if now - clients[oldest].used < IDLE_SECONDS:
                return
            del clients[oldest]

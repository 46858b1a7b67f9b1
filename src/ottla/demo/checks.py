"""Compare expected and actual results. Pure functions.

`Expected` follows from the seed alone. `Evidence` was read from what the parts of the demo left
behind: topics, databases, files. No figure comes from a counter of the part that it judges.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.demo.console import Shown
from ottla.demo.orders import Kind, window_of
from ottla.demo.stage import NODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.demo.orders import Order

# (shop, beginning of the window in ms) -> (orders, cents)
Sales: TypeAlias = "dict[tuple[str, int], tuple[int, int]]"
Place: TypeAlias = "tuple[int, int]"  # partition and offset
Held: TypeAlias = "tuple[str, bytes]"  # key and value


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected results of the orders of a seed."""

    values: Mapping[str, bytes]
    sound: frozenset[str]
    poison: frozenset[str]
    torn: frozenset[str]
    cents: int
    sales: Sales


@dataclass(slots=True)
class Evidence:
    """The actual results, read after the run."""

    orders: dict[Place, Held] = field(default_factory=dict)
    """The records of the topic, read through the broker."""
    shipped: list[str] = field(default_factory=list)
    repeated_deliveries: int = 0
    dead_letters: list[str] = field(default_factory=list)
    dead_letter_reasons: Counter[str] = field(default_factory=Counter)
    booked: list[str] = field(default_factory=list)
    booked_cents: int = 0
    positions: dict[int, int] = field(default_factory=dict)
    """By partition: the ledger's place; and, below, where the log ends."""
    ends: dict[int, int] = field(default_factory=dict)
    local_starts: dict[int, int] = field(default_factory=dict)
    """By partition: the first offset that is still in a local file."""
    tiered: dict[Place, Held] = field(default_factory=dict)
    """Records in the objects of the tier, read without the broker."""
    tier_objects: int = 0
    table: Sales = field(default_factory=dict)
    topic: Sales = field(default_factory=dict)
    rows: list[str] = field(default_factory=list)
    """The orders in the files of the topic's table; and, below, their worth."""
    row_cents: int = 0
    letters: list[str] = field(default_factory=list)
    """The orders in the dead letters of that table."""
    refused: dict[str, bool] = field(default_factory=dict)
    """By what strangers tried at the secured listener."""
    console: Shown = field(default_factory=Shown)
    killed: int | None = None
    """The process of the node that was killed; and, below, the one that took its place."""
    returned: int | None = None
    crashes: Counter[str] = field(default_factory=Counter)
    still_running: list[str] = field(default_factory=list)


MUST_CRASH: Final = ("ledger", "worker")


class Check(NamedTuple):
    """One line of the summary."""

    what: str
    expected: str
    found: str
    holds: bool
    by: str
    """Where the figure was read."""


def expect(orders: Iterable[Order]) -> Expected:
    """The outcome that these orders must have."""
    values: dict[str, bytes] = {}
    sound: set[str] = set()
    torn: set[str] = set()
    cents = 0
    windows: dict[tuple[str, int], tuple[int, int]] = {}
    for order in orders:
        values[order.id] = order.value
        if order.kind is Kind.SOUND:
            sound.add(order.id)
        if order.kind is Kind.TORN:
            torn.add(order.id)
        else:
            cents += order.cents
            key = (order.shop, window_of(order.at_ms))
            before, worth = windows.get(key, (0, 0))
            windows[key] = (before + 1, worth + order.cents)
    poison = frozenset(values.keys() - sound)
    return Expected(values, frozenset(sound), poison, frozenset(torn), cents, windows)


def check(expected: Expected, found: Evidence) -> list[Check]:
    """Each line of the summary; the demo has worked if all of them hold."""
    return [
        _orders(expected, found),
        _shipped(expected, found),
        _dead(expected, found),
        _accounted(expected, found),
        _booked(expected, found),
        _cents(expected, found),
        _position(found),
        _tier(expected, found),
        _rows(expected, found),
        _row_cents(expected, found),
        _letters(expected, found),
        _sales("sales table of Spark", "Parquet files", expected, found.table),
        _sales("sales topic of Spark", "topic sales", expected, found.topic),
        _strangers(found),
        _console(expected, found),
        _node(found),
        _crashes(found),
        _nothing_left(found),
    ]


def failures(checks: Sequence[Check]) -> list[str]:
    """A sentence for each line that does not hold."""
    return [
        f"{one.what}: expected {one.expected}, found {one.found} in {one.by}"
        for one in checks
        if not one.holds
    ]


def _orders(expected: Expected, found: Evidence) -> Check:
    return Check(
        "orders in the topic, byte for byte",
        _number(len(expected.values)),
        _number(len(found.orders)),
        len(found.orders) == len(expected.values)
        and dict(found.orders.values()) == expected.values,
        "topic orders",
    )


def _shipped(expected: Expected, found: Evidence) -> Check:
    return Check(
        "orders shipped by the share group",
        _number(len(expected.sound)),
        f"{_times(found.shipped)} ({_number(found.repeated_deliveries)} redeliveries)",
        _is_once(found.shipped, expected.sound),
        "warehouse.db",
    )


def _dead(expected: Expected, found: Evidence) -> Check:
    reasons = ", ".join(
        f"{_number(n)} {why}" for why, n in sorted(found.dead_letter_reasons.items())
    )
    return Check(
        "poison in the dead-letter topic",
        _number(len(expected.poison)),
        _times(found.dead_letters) + (f" ({reasons})" if reasons else ""),
        _is_once(found.dead_letters, expected.poison),
        "topic dlq.orders",
    )


def _accounted(expected: Expected, found: Evidence) -> Check:
    ends = Counter(set(found.shipped)) + Counter(set(found.dead_letters))
    once = sum(1 for order, count in ends.items() if count == 1 and order in expected.values)
    return Check(
        "shipped or dead, never both",
        _number(len(expected.values)),
        _number(once),
        once == len(expected.values) == len(ends),
        "both",
    )


def _booked(expected: Expected, found: Evidence) -> Check:
    return Check(
        "orders booked exactly once",
        _number(len(expected.values)),
        _times(found.booked),
        _is_once(found.booked, expected.values.keys()),
        "ledger.db",
    )


def _cents(expected: Expected, found: Evidence) -> Check:
    return Check(
        "worth of the orders booked",
        _money(expected.cents),
        _money(found.booked_cents),
        found.booked_cents == expected.cents,
        "ledger.db",
    )


def _position(found: Evidence) -> Check:
    return Check(
        "offsets in SQLite at the log's end",
        _places(found.ends),
        _places(found.positions),
        found.positions == found.ends,
        "ledger.db",
    )


def _tier(expected: Expected, found: Evidence) -> Check:
    """What no local file has any more: in the tier's objects, and served by the broker."""
    gone = [
        (partition, offset)
        for partition, start in found.local_starts.items()
        for offset in range(start)
    ]
    back = sum(
        1
        for place in gone
        if (held := found.tiered.get(place)) is not None
        and held == found.orders.get(place)
        and expected.values.get(held[0]) == held[1]
    )
    return Check(
        "records read back from the tier",
        _number(len(gone)),
        f"{_number(back)} ({_number(found.tier_objects)} segments)",
        bool(gone) and back == len(gone),
        "tier/, broker",
    )


def _rows(expected: Expected, found: Evidence) -> Check:
    wanted = expected.values.keys() - expected.torn
    return Check(
        "rows of the Iceberg table",
        _number(len(wanted)),
        _times(found.rows),
        _is_once(found.rows, wanted),
        "tables/",
    )


def _row_cents(expected: Expected, found: Evidence) -> Check:
    return Check(
        "worth of the rows",
        _money(expected.cents),
        _money(found.row_cents),
        found.row_cents == expected.cents,
        "tables/",
    )


def _letters(expected: Expected, found: Evidence) -> Check:
    return Check(
        "torn orders beside the table",
        _number(len(expected.torn)),
        _times(found.letters),
        _is_once(found.letters, expected.torn),
        "tables/",
    )


def _strangers(found: Evidence) -> Check:
    """Who has no certificate's trust, no password or no right does not get in."""
    came_in = [what for what, is_refused in found.refused.items() if not is_refused]
    return Check(
        "strangers refused at the secured listener",
        f"{len(found.refused)} of {len(found.refused)}",
        f"{len(found.refused) - len(came_in)} of {len(found.refused)}"
        + (f" (came in: {', '.join(came_in)})" if came_in else ""),
        bool(found.refused) and not came_in,
        "their errors",
    )


def shown_at_the_end(expected: Expected) -> Shown:
    """What the console must show: all orders, nothing left to ship, all nodes."""
    return Shown(len(expected.values), 0, NODES)


def _console(expected: Expected, found: Evidence) -> Check:
    wanted = shown_at_the_end(expected)
    return Check(
        "orders, lag and nodes in the console",
        _shown(wanted),
        _shown(found.console),
        found.console == wanted,
        "its JSON API",
    )


def _node(found: Evidence) -> Check:
    """A node was killed, and another process has its directory."""
    came_back = found.killed is not None and found.returned not in (None, found.killed)
    return Check(
        "a node killed, and back",
        "1 of 1",
        f"{int(came_back)} of {int(found.killed is not None)}",
        came_back,
        "process table",
    )


def _sales(what: str, by: str, expected: Expected, found: Sales) -> Check:
    return Check(
        what,
        _totals(expected.sales),
        _totals(found),
        found == expected.sales,
        by,
    )


def _crashes(found: Evidence) -> Check:
    """Check that the planned crashes happened."""
    return Check(
        "crashes on purpose, survived",
        "at least 1 of each",
        ", ".join(f"{found.crashes[role]} {role}" for role in MUST_CRASH),
        all(found.crashes[role] for role in MUST_CRASH),
        "exit codes",
    )


def _nothing_left(found: Evidence) -> Check:
    return Check(
        "processes left running",
        "none",
        ", ".join(found.still_running) or "none",
        not found.still_running,
        "process table",
    )


def _is_once(found: Sequence[str], wanted: Iterable[str]) -> bool:
    return Counter(found) == Counter(wanted)


def _times(found: Sequence[str]) -> str:
    twice = len(found) - len(set(found))
    return _number(len(found)) + (f", {_number(twice)} of them again" if twice else "")


def _number(number: int) -> str:
    return f"{number:,}"


def _shown(shown: Shown) -> str:
    return ", ".join("not known" if one is None else _number(one) for one in shown)


def _money(cents: int) -> str:
    return f"{cents / 100:,.2f} €"


def _places(places: Mapping[int, int]) -> str:
    return " ".join(str(places[partition]) for partition in sorted(places)) or "none"


def _totals(sales: Sales) -> str:
    orders = sum(count for count, _ in sales.values())
    return f"{_number(orders)} in {_number(len(sales))} windows"

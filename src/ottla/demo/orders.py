"""Orders of a few shops, made from a seed: the same seed gives the same orders.

Most are valid. A few cannot be processed: `TORN` ones are incomplete JSON, as if a writer had been
cut off; `UNKNOWN_ITEM` ones are well-formed, but order an item that the warehouse does not have, so
every attempt to ship them fails.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOPS: Final = ("Berlin", "Kraków", "Lisboa", "Praha", "Wien")
ITEMS: Final = {
    "espresso cup": 1250,
    "french press": 3490,
    "grinder": 8900,
    "kettle": 5400,
    "milk jug": 1890,
    "moka pot": 2790,
    "paper filters": 450,
    "scale": 2990,
    "single origin, 1 kg": 2890,
    "tamper": 1990,
}
GHOST_ITEM: Final = "perpetuum mobile"

TORN_SHARE: Final = 0.005
UNKNOWN_ITEM_SHARE: Final = 0.005
# One order every 200 ms on average, by the shops' clocks: 20,000 orders are a little over an hour.
MEAN_GAP_MS: Final = 200
WINDOW_MS: Final = 5 * 60 * 1000

_STREETS: Final = ("Mill Lane", "Harbour Street", "Station Road", "Market Square", "Castle Hill")
_NOTES: Final = ("", "", "", "please ring twice", "leave it with the neighbours", "it is a gift")


class Kind(Enum):
    """The expected outcome of an order."""

    SOUND = "sound"
    TORN = "torn"
    UNKNOWN_ITEM = "unknown item"


class Order(NamedTuple):
    """An order and the bytes that are sent; `id` is the record's key, also where it is torn."""

    id: str
    kind: Kind
    shop: str
    at_ms: int
    cents: int
    value: bytes


class Unreadable(ValueError):
    """The value is not an order."""


class UnknownItem(ValueError):
    """An order for something that the warehouse does not have."""


def make_orders(count: int, *, seed: int, begin_ms: int) -> Iterator[Order]:
    """Generate orders; the first is just after `begin_ms`."""
    dice = random.Random(seed)
    at_ms = begin_ms
    for number in range(count):
        at_ms += int(dice.expovariate(1 / MEAN_GAP_MS))
        yield _make_order(dice, f"order-{number:07d}", at_ms)


def _make_order(dice: random.Random, order_id: str, at_ms: int) -> Order:
    kind = _kind(dice.random())
    shop = dice.choice(SHOPS)
    items = dice.sample(sorted(ITEMS), dice.randint(1, 4))
    if kind is Kind.UNKNOWN_ITEM:
        items.append(GHOST_ITEM)
    lines = [(item, dice.randint(1, 3), ITEMS.get(item, 100)) for item in items]
    cents = sum(quantity * price for _, quantity, price in lines)
    document = {
        "order": order_id,
        "shop": shop,
        "at": datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "customer": f"customer-{dice.randrange(5000):04d}",
        "address": {
            "street": f"{dice.choice(_STREETS)} {dice.randint(1, 120)}",
            "city": shop,
            "code": f"{dice.randint(10_000, 99_999)}",
        },
        "lines": [
            {"item": item, "quantity": quantity, "cents": price} for item, quantity, price in lines
        ],
        "cents": cents,
        "note": dice.choice(_NOTES),
    }
    value = json.dumps(document, ensure_ascii=False).encode()
    if kind is Kind.TORN:
        value = value[: len(value) // 2]
    return Order(order_id, kind, shop, at_ms, cents, value)


def _kind(drawn: float) -> Kind:
    if drawn < TORN_SHARE:
        return Kind.TORN
    if drawn < TORN_SHARE + UNKNOWN_ITEM_SHARE:
        return Kind.UNKNOWN_ITEM
    return Kind.SOUND


def cents_of(value: bytes) -> int:
    """The price of an order; a torn one raises `Unreadable`."""
    try:
        return int(json.loads(value)["cents"])
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"no order: {error}") from error


def check_shippable(value: bytes) -> None:
    """Return if the warehouse can ship an order; else `Unreadable` or `UnknownItem`."""
    try:
        items = [line["item"] for line in json.loads(value)["lines"]]
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"no order: {error}") from error
    unknown = [item for item in items if item not in ITEMS]
    if unknown:
        raise UnknownItem(f"the warehouse has no {', '.join(unknown)}")


def window_of(at_ms: int) -> int:
    """The beginning of the window that a time falls into, in milliseconds since 1970."""
    return at_ms - at_ms % WINDOW_MS

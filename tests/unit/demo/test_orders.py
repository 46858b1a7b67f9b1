"""Orders: a seed says all, and poison is what the warehouse takes it for."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from ottla.demo.orders import (
    WINDOW_MS,
    Kind,
    UnknownItem,
    Unreadable,
    cents_of,
    check_shippable,
    make_orders,
    window_of,
)

BEGIN = 1_700_000_000_000
ORDERS = list(make_orders(5000, seed=3, begin_ms=BEGIN))


def test_a_seed_gives_the_same_orders_and_another_seed_others() -> None:
    assert list(make_orders(50, seed=3, begin_ms=BEGIN)) == ORDERS[:50]
    assert list(make_orders(50, seed=4, begin_ms=BEGIN)) != ORDERS[:50]


def test_ids_are_unique_and_time_does_not_go_back() -> None:
    assert len({order.id for order in ORDERS}) == len(ORDERS)
    times = [order.at_ms for order in ORDERS]
    assert times == sorted(times)
    assert times[0] >= BEGIN


def test_each_kind_is_there_and_most_orders_are_sound() -> None:
    kinds = Counter(order.kind for order in ORDERS)
    assert kinds.keys() == set(Kind)
    assert kinds[Kind.SOUND] > 0.98 * len(ORDERS)


def test_the_warehouse_takes_each_kind_for_what_it_is() -> None:
    for order in ORDERS:
        if order.kind is Kind.SOUND:
            check_shippable(order.value)
        else:
            wrong = Unreadable if order.kind is Kind.TORN else UnknownItem
            with pytest.raises(wrong):
                check_shippable(order.value)


def test_an_order_comes_to_the_sum_of_its_lines() -> None:
    for order in ORDERS:
        if order.kind is Kind.TORN:
            with pytest.raises(Unreadable):
                cents_of(order.value)
        else:
            lines = json.loads(order.value)["lines"]
            worth = sum(line["quantity"] * line["cents"] for line in lines)
            assert cents_of(order.value) == worth == order.cents


def test_a_window_begins_at_or_before_its_times() -> None:
    assert window_of(0) == window_of(WINDOW_MS - 1) == 0
    assert window_of(WINDOW_MS) == WINDOW_MS

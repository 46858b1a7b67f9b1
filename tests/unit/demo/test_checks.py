"""Each check holds for what must come out, and fails for the fault it is there to find."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ottla.demo.checks import Evidence, check, expect, failures, shown_at_the_end
from ottla.demo.console import Shown
from ottla.demo.orders import make_orders

if TYPE_CHECKING:
    from collections.abc import Callable

EXPECTED = expect(make_orders(2000, seed=5, begin_ms=1_700_000_000_000))
LOCAL_START = 1500


def flawless() -> Evidence:
    """What is found when everything went well: one partition, of which most is in the tier."""
    records = {(0, offset): held for offset, held in enumerate(EXPECTED.values.items())}
    return Evidence(
        orders=records,
        shipped=sorted(EXPECTED.sound),
        repeated_deliveries=7,
        dead_letters=sorted(EXPECTED.poison),
        dead_letter_reasons=Counter(rejected=len(EXPECTED.poison)),
        booked=list(EXPECTED.values),
        booked_cents=EXPECTED.cents,
        positions={0: len(records)},
        ends={0: len(records)},
        local_starts={0: LOCAL_START},
        tiered=dict(records),
        tier_objects=3,
        table=dict(EXPECTED.sales),
        topic=dict(EXPECTED.sales),
        rows=sorted(EXPECTED.values.keys() - EXPECTED.torn),
        row_cents=EXPECTED.cents,
        letters=sorted(EXPECTED.torn),
        refused={"without TLS": True, "wrong password": True},
        console=shown_at_the_end(EXPECTED),
        killed=4711,
        returned=4712,
        crashes=Counter(worker=3, ledger=2),
    )


def failed(spoil: Callable[[Evidence], object]) -> set[str]:
    """The lines that do not hold once the evidence is spoiled."""
    found = copy.deepcopy(flawless())
    spoil(found)
    return {one.what for one in check(EXPECTED, found) if not one.holds}


def test_everything_holds_when_everything_went_well() -> None:
    assert failures(check(EXPECTED, flawless())) == []


def test_there_is_poison_to_be_found() -> None:
    assert EXPECTED.poison
    assert EXPECTED.sound.isdisjoint(EXPECTED.poison)
    assert len(EXPECTED.sound) + len(EXPECTED.poison) == 2000


ORDERS = "orders in the topic, byte for byte"
SHIPPED = "orders shipped by the share group"
DEAD = "poison in the dead-letter topic"
ACCOUNTED = "shipped or dead, never both"
BOOKED = "orders booked exactly once"
TIER = "records read back from the tier"
ROWS = "rows of the Iceberg table"
STRANGERS = "strangers refused at the secured listener"
CONSOLE = "orders, lag and nodes in the console"
NODE = "a node killed, and back"


@pytest.mark.parametrize(
    ("spoil", "lines"),
    [
        (lambda found: found.orders.pop((0, 1999)), {ORDERS}),
        (lambda found: found.orders.update({(0, 1999): ("order-0001999", b"other")}), {ORDERS}),
        (lambda found: found.shipped.pop(), {SHIPPED, ACCOUNTED}),
        (lambda found: found.shipped.append(found.shipped[0]), {SHIPPED}),
        (lambda found: found.shipped.append(found.dead_letters[0]), {SHIPPED, ACCOUNTED}),
        (lambda found: found.shipped.append("order-unknown"), {SHIPPED, ACCOUNTED}),
        (lambda found: found.dead_letters.pop(), {DEAD, ACCOUNTED}),
        (lambda found: found.dead_letters.append(found.dead_letters[0]), {DEAD}),
        (lambda found: found.booked.append(found.booked[0]), {BOOKED}),
        (lambda found: found.booked.pop(), {BOOKED}),
        (lambda found: setattr(found, "booked_cents", 1), {"worth of the orders booked"}),
        (
            lambda found: found.positions.update({0: 1999}),
            {"offsets in SQLite at the log's end"},
        ),
        (lambda found: found.tiered.pop((0, LOCAL_START - 1)), {TIER}),
        (lambda found: found.tiered.update({(0, 0): ("order-0000000", b"other")}), {TIER}),
        (lambda found: found.local_starts.update({0: 0}), {TIER}),
        (lambda found: found.table.popitem(), {"sales table of Spark"}),
        (lambda found: found.topic.clear(), {"sales topic of Spark"}),
        (lambda found: found.rows.pop(), {ROWS}),
        (lambda found: found.rows.append(found.rows[0]), {ROWS}),
        (lambda found: found.rows.append(found.letters[0]), {ROWS}),
        (lambda found: setattr(found, "row_cents", 1), {"worth of the rows"}),
        (lambda found: found.letters.pop(), {"torn orders beside the table"}),
        (lambda found: found.refused.update({"without TLS": False}), {STRANGERS}),
        (lambda found: found.refused.clear(), {STRANGERS}),
        (lambda found: setattr(found, "console", Shown(1999, 0, 3)), {CONSOLE}),
        (lambda found: setattr(found, "console", Shown()), {CONSOLE}),
        (lambda found: setattr(found, "killed", None), {NODE}),
        (lambda found: setattr(found, "returned", 4711), {NODE}),
        (lambda found: setattr(found, "returned", None), {NODE}),
        (lambda found: found.crashes.clear(), {"crashes on purpose, survived"}),
        (lambda found: found.still_running.append("ledger"), {"processes left running"}),
    ],
)
def test_a_fault_is_found(spoil: Callable[[Evidence], object], lines: set[str]) -> None:
    assert failed(spoil) == lines


def test_what_the_tier_has_beyond_the_local_start_is_not_asked_for() -> None:
    assert failed(lambda found: found.tiered.pop((0, LOCAL_START))) == set()


def test_a_failure_is_a_sentence_with_both_figures() -> None:
    found = flawless()
    found.booked_cents -= 100
    [sentence] = failures(check(EXPECTED, found))
    assert sentence.startswith("worth of the orders booked: expected ")
    assert sentence.endswith(" in ledger.db")

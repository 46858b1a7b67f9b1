"""Positions as text, troubles of tables, and what a failed commit means."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.tables.errors import TableError
from ottla.tables.format import Commit, Hole
from ottla.tables.position import (
    Verdict,
    dump_holes,
    dump_offsets,
    load_holes,
    load_offsets,
    resumption,
    settle,
    trouble,
)
from tests.support.table_model import TOPIC_ID, columns, table_state

MINE = Commit("mine", {0: 10}, {0: 20}, {0: 0}, (), ())
OTHER_ID = "BBBBBBBBBBBBBBBBBBBBBB"


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (table_state(next={0: 20}, commit="mine"), Verdict.DONE),
        (table_state(next={0: 40}, commit="x", commits=frozenset({"mine", "x"})), Verdict.DONE),
        (table_state(next={0: 10}, snapshot=7), Verdict.AGAIN),
        (table_state(next={0: 20}, commit="other"), Verdict.TAKEN),
        (table_state(next={0: 10, 1: 0}, commit="other"), Verdict.TAKEN),
        (table_state(next={0: 5}), Verdict.ROLLED_BACK),
        (table_state(next={}), Verdict.ROLLED_BACK),
        (table_state(next={0: 10}, line_next={0: 4}), Verdict.ROLLED_BACK),
        (table_state(next={0: 10}, line_next={1: 3}), Verdict.ROLLED_BACK),
        (table_state(next={0: 10}, topic_id=OTHER_ID), Verdict.TOPIC_REPLACED),
    ],
)
def test_case_46_what_the_table_says_decides(state: object, verdict: Verdict) -> None:
    assert settle(state, MINE, TOPIC_ID) is verdict  # type: ignore[arg-type]  # a TableState


@pytest.mark.parametrize(
    ("given", "name", "said"),
    [
        ({}, None, ""),
        ({"line_next": {0: 10}, "next": {0: 10}}, None, ""),
        ({"topic_id": OTHER_ID}, "TopicReplaced", f"{OTHER_ID}, and topic orders is {TOPIC_ID}"),
        ({"topic_id": "", "topic": ""}, "TopicReplaced", "is not a topic's"),
        ({"line_next": {0: 4}, "next": {0: 10}}, "RolledBack", 'is {"0":10}'),
        ({"has_deletes": True}, "ForeignDeletes", "delete files"),
        ({"partition": None}, "PartitionChanged", "partition spec"),
        ({"columns": columns().remove(1)}, "ColumnsChanged", "_partition"),
        ({"columns": columns().append(pa.field("more", pa.int32()))}, None, ""),
    ],
)
def test_troubles_have_a_name_and_a_sentence(
    given: dict[str, object], name: str | None, said: str
) -> None:
    found = trouble(table_state(**given), TOPIC_ID)
    assert (None if found is None else found.name) == name
    assert found is None or said in found.sentence


@given(st.dictionaries(st.integers(0, 2**31), st.integers(0, 2**63 - 1)))
def test_offsets_survive_as_text(offsets: dict[int, int]) -> None:
    assert load_offsets(dump_offsets(offsets)) == offsets


def test_offsets_are_in_numeric_order() -> None:
    assert dump_offsets({10: 3, 2: 1}) == '{"2":1,"10":3}'


@pytest.mark.parametrize(
    "text",
    ["", "[]", "1", '{"a":1}', '{"0":"1"}', '{"0":-1}', '{"-1":1}', '{"0":true}', "[" * 100_000],
)
def test_what_is_no_offsets_is_refused(text: str) -> None:
    with pytest.raises(TableError, match="expected offsets like"):
        load_offsets(text)


def test_holes_survive_as_text() -> None:
    holes = (Hole(0, 1, 5, "deleted"), Hole(3, 0, 9, "rolled back"))
    assert load_holes(dump_holes(holes)) == holes


@pytest.mark.parametrize("text", ["", "{", "[1]", "[[1,2,3]]", '[["a",1,2,"x"]]', "[" * 100_000])
def test_what_is_no_holes_is_refused(text: str) -> None:
    with pytest.raises(TableError, match="expected holes like"):
        load_holes(text)


def test_case_52_a_table_goes_on_with_or_without_the_rows_that_are_gone() -> None:
    state = table_state(first={0: 0, 1: 2}, next={0: 10, 1: 5}, line_next={0: 4})
    again = resumption(state, "c", replay=True)
    assert (again.next, again.holes) == ({0: 4, 1: 2}, ())
    without = resumption(state, "c", replay=False)
    assert without.next == state.next
    assert without.holes == (Hole(0, 4, 10, "rolled back"), Hole(1, 2, 5, "rolled back"))

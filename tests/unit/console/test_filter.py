"""`where`: CEL, bounded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ottla.client.reader.types import Record
from ottla.console.decode.mask import Rules
from ottla.console.decode.reading import Decoder
from ottla.console.filter import BadWhere, compile_where

if TYPE_CHECKING:
    from ottla.console.views.messages import Message

DECODER = Decoder(Rules(), 4096, trees=True)


def message(value: bytes, key: bytes | None = None, offset: int = 7) -> Message:
    headers = (("source", b"web"),)
    return DECODER.read(Record("t", 3, offset, 1_700_000_000_000, 0, key, value, headers))


@pytest.mark.parametrize(
    ("where", "matches"),
    [
        ("value.amount > 100.0", True),
        ("value.amount > 200.0", False),
        ('value.amount > 100.0 && headers.source == "web"', True),
        ("partition == 3 && offset == 7", True),
        ('key == "A-77"', True),
        ("size > 1000", False),
        ('timestamp > timestamp("2023-11-14T00:00:00Z")', True),
        ('value.items.exists(one, one == "b")', True),
        ('value.shop.matches("^ber.*")', True),
        ('value.shop.contains("erl")', True),
        ("value.shop", False),
    ],
)
def test_expressions(where: str, matches: bool) -> None:
    one = message(b'{"shop": "berlin", "amount": 120.5, "items": ["a", "b"]}', b"A-77")
    assert compile_where(where).matches(one) is matches


def test_case_41_a_syntax_error_is_told_with_its_place() -> None:
    with pytest.raises(BadWhere, match="where is not an expression") as caught:
        compile_where("value.amount >")
    assert "value.amount >" in str(caught.value)


def test_case_41_a_missing_field_is_no_match_and_counted() -> None:
    where = compile_where("value.amount > 1")
    assert not where.matches(message(b'{"shop": "berlin"}'))
    assert not where.matches(message(b"text"))
    assert where.matches(message(b'{"amount": 2}'))
    assert where.errors == 2
    assert where.first_error


def test_case_41_nested_macros_and_long_texts_are_refused() -> None:
    with pytest.raises(BadWhere, match="more than one of exists"):
        compile_where("[1, 2].map(a, [1, 2].map(b, a * b)).size() > 1")
    compile_where('value.name == ".map(" && value.items.all(one, one > 0)')
    with pytest.raises(BadWhere, match="513 characters"):
        compile_where("a" * 513)


def test_case_41_a_regex_that_backtracks_elsewhere_does_not_here() -> None:
    text = b'{"text": "' + b"a" * 50_000 + b'!"}'
    where = compile_where('value.text.matches("^(a+)+$")')
    assert not where.matches(message(text))
    assert where.errors == 0


def test_no_names_but_ours() -> None:
    where = compile_where("__import__")
    assert not where.matches(message(b"1"))
    assert re.search("(?i)undeclared|not found|unknown|undefined", where.first_error or "")

"""Java's properties format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=b=c", {"a": "b=c"}),
        ("a\\:b:c", {"a:b": "c"}),
        ("a b c", {"a": "b c"}),
        ("a", {"a": ""}),
        ("a=\\\\\nb=c", {"a": "\\", "b": "c"}),
        ("a=\\t\\x", {"a": "\tx"}),
        ("  a = 1\r\n\r\n  # c\r\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\n  # not a comment", {"a": "1# not a comment"}),
        ("a=1\na=2", {"a": "2"}),
        ("=x", {"": "x"}),
        ("a=1\u20282\x0b3", {"a": "1\u20282\x0b3"}),
    ],
)
def test_properties_as_java_reads_them(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


@given(st.text())
def test_any_text_is_properties(text: str) -> None:
    parse_properties(text)

"""The hash that routes groups and transactions."""

from __future__ import annotations

import pytest

from ottla.coordination.partitioner import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("my-group", -1906497762),
        ("polygenelubricants", -(2**31)),
        ("\N{GRINNING FACE}", 0xD83D * 31 + 0xDE00),
    ],
)
def test_hash_is_javas(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_negative_hashes_are_made_positive() -> None:
    assert partition_for("my-group", 50) == 12
    assert partition_for("hello", 50) == 22


def test_the_smallest_int_goes_to_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0

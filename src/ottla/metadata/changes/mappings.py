"""Copies of an image's mappings with one entry set or removed; the original stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

_K = TypeVar("_K")
_V = TypeVar("_V")


def with_entry(mapping: Mapping[_K, _V], key: _K, value: _V) -> dict[_K, _V]:
    return {**mapping, key: value}


def without_entry(mapping: Mapping[_K, _V], key: _K) -> Mapping[_K, _V]:
    if key not in mapping:
        return mapping
    return {other: value for other, value in mapping.items() if other != key}

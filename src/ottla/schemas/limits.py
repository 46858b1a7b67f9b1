"""Bounds on columns, and how equal names are told apart.

Every way to columns (DDL, Avro, JSON Schema, Protobuf) ends in `finished`.
"""

from __future__ import annotations

import pyarrow as pa

from ottla.schemas import names
from ottla.schemas.bounds import MAX_DEPTH, MAX_LEAVES
from ottla.schemas.model import SchemaTooLarge


def finished(fields: list[pa.Field]) -> pa.Schema:
    """The columns, within the limits, with names that differ beyond case."""
    leaves = sum(_leaves(each, 1) for each in fields)
    if leaves > MAX_LEAVES:
        raise SchemaTooLarge(f"expected at most {MAX_LEAVES} leaf columns, got {leaves}")
    return pa.schema(distinct([_renamed(each) for each in fields]))


def distinct(fields: list[pa.Field]) -> list[pa.Field]:
    """The later of two names that differ in case alone gets `__2`, the next `__3`: Spark and other
    engines do not tell them apart."""
    taken: set[str] = set()
    found = []
    for each in fields:
        name = free_name(each.name, taken)
        taken.add(name.lower())
        if name != each.name:
            metadata = {names.SOURCE: names.source_of(each).encode()}
            each = each.with_metadata((each.metadata or {}) | metadata).with_name(name)  # noqa: PLW2901
        found.append(each)
    return found


def free_name(name: str, taken: set[str]) -> str:
    """`name`, or `name__2`, ... if `taken` has it in lower case."""
    number = 1
    made = name
    while made.lower() in taken:
        number += 1
        made = f"{name}__{number}"
    return made


def _renamed(column: pa.Field) -> pa.Field:
    below = [_renamed(each) for each in names.children(column.type)]
    if pa.types.is_struct(column.type):
        below = distinct(below)
    return column.with_type(names.with_children(column.type, below))


def _leaves(column: pa.Field, depth: int) -> int:
    if depth > MAX_DEPTH:
        raise SchemaTooLarge(f"expected columns at most {MAX_DEPTH} deep, got deeper ones")
    below = names.children(column.type)
    return sum(_leaves(each, depth + 1) for each in below) if below else 1

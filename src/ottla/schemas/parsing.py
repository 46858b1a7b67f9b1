"""Parse a schema of any format: the one door to `avro`, `json_schema`, `protobuf`.

Pure but for Protobuf, whose compiler wants files in a temporary directory. Not for an event loop:
a hostile schema takes long, so a server asks `parsing_child`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.schemas.model import (
    MAX_BYTES,
    MAX_REFERENCES,
    InvalidSchema,
    Kind,
    Parsed,
    Reference,
    Schema,
    SchemaTooLarge,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def parse(schema: Schema, resolved: Mapping[str, str]) -> Parsed:
    """The parsed schema; `resolved` has the texts of all references, those of references included.

    Raises InvalidSchema.
    """
    check_limits(schema, resolved)
    try:
        return _parse(schema, resolved)
    except RecursionError:
        raise SchemaTooLarge("the schema is nested too deeply") from None


def _parse(schema: Schema, resolved: Mapping[str, str]) -> Parsed:
    if schema.kind is Kind.AVRO:
        from ottla.schemas import avro

        return avro.parse(schema.text, resolved)
    if schema.kind is Kind.JSON:
        from ottla.schemas import json_schema

        return json_schema.parse(schema.text, resolved)
    from ottla.schemas import protobuf

    return protobuf.parse(schema.text, resolved)


def check_limits(schema: Schema, resolved: Mapping[str, str]) -> None:
    """Refuse what is beyond `MAX_BYTES` or `MAX_REFERENCES`, and a reference without a text."""
    if len(schema.references) > MAX_REFERENCES or len(resolved) > MAX_REFERENCES:
        raise SchemaTooLarge(f"the schema has more than {MAX_REFERENCES} references")
    missing = [one.name for one in schema.references if one.name not in resolved]
    if missing:
        raise InvalidSchema(f"the reference {missing[0]!r} is not resolved")
    size = len(schema.text) + sum(map(len, resolved.values()))
    if size <= MAX_BYTES:  # characters; bytes cost a copy
        size = sum(len(encode(text)) for text in (schema.text, *resolved.values()))
    if size > MAX_BYTES:
        raise SchemaTooLarge(
            f"the schema and its references have more than {MAX_BYTES // 2**20} MiB"
        )


def resolve(schema: Schema, find: Callable[[Reference], Schema | None]) -> dict[str, str]:
    """Texts of all references by name, those of references included and before their users.

    `find` knows the schema that a reference means. Raises InvalidSchema for a missing one, a
    cycle and too many of them.
    """
    texts: dict[str, str] = {}
    size = len(schema.text)
    around: dict[tuple[str, int], str] = {}
    """Subject and version of the references whose references are being followed, with the name."""
    left: list[Reference | tuple[Reference, Schema]] = [*reversed(schema.references)]
    while left:
        step = left.pop()
        if isinstance(step, tuple):  # all that this one refers to is there
            reference, target = step
            texts[around.pop((reference.subject, reference.version))] = target.text
            continue
        if step.name in texts:
            continue
        if (step.subject, step.version) in around:
            circle = " -> ".join((*around.values(), step.name))
            raise InvalidSchema(f"references form a cycle: {circle[:500]}")
        found = find(step)
        if found is None:
            raise InvalidSchema(
                f"the reference {step.name!r} means version {step.version} of subject"
                f" {step.subject!r}, which does not exist"
            )
        size += len(found.text)
        if len(texts) + len(around) >= MAX_REFERENCES or size > MAX_BYTES:
            raise SchemaTooLarge(
                f"the schema has more than {MAX_REFERENCES} references, or they have more than"
                f" {MAX_BYTES // 2**20} MiB"
            )
        around[step.subject, step.version] = step.name
        left.append((step, found))
        left += reversed(found.references)
    return texts

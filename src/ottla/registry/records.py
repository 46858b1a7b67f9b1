"""Records of `_schemas`, in the format that other registries read and write.

- Keys are compact JSON with their fields in a fixed order: compaction compares bytes.
- A key whose fields have another order or other spaces is read. It is never written, but for its
  tombstone: whoever replaces such a record ends it first, or compaction would keep it for ever.
- What cannot be understood is `None`, and is passed over: a garbled record stops nobody.
- Two fields are ours. `highest` of a schema: the highest version that its subject ever had, where
  that one was hard-deleted. `highestIds` of a NOOP: the same for the ids of contexts. Without them
  compaction would forget these numbers, and they would be given twice.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.schemas.model import Kind, Reference, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_INT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema
    deleted: bool = False
    """Soft-deleted."""
    guid: str = ""
    highest: int = 0


@dataclass(frozen=True, slots=True)
class SchemaTombstone:
    """A hard delete."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SubjectDeleted:
    """Soft delete of all versions up to this one."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """The level and other settings of a subject, or of all (None); no values: they are removed."""

    subject: str | None
    values: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ModeRecord:
    subject: str | None
    mode: str | None


@dataclass(frozen=True, slots=True)
class Noop:
    highest_ids: Mapping[str, int] = field(default_factory=dict)
    """By context."""


@dataclass(frozen=True, slots=True)
class ForeignKeyEnded:
    """The tombstone of a key that was written in another form; its subject goes on with ours."""

    key: bytes


Known: TypeAlias = (
    SchemaRecord | SchemaTombstone | SubjectDeleted | ConfigRecord | ModeRecord | Noop
)
Record: TypeAlias = Known | ForeignKeyEnded


def guid_of(schema: Schema) -> str:
    """Equal for equal schemas, in every subject and context."""
    parts = [
        schema.kind,
        schema.text,
        [[one.name, one.subject, one.version] for one in schema.references],
        schema.metadata,
        schema.rules,
    ]
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"


# -- writing --------------------------------------------------------------------------------------


def key_of(record: Known) -> bytes:
    if isinstance(record, SchemaRecord | SchemaTombstone):
        fields = {"subject": record.subject, "version": record.version, "magic": 1}
        return _key("SCHEMA", fields)
    if isinstance(record, SubjectDeleted):
        return _key("DELETE_SUBJECT", {"subject": record.subject, "magic": 0})
    if isinstance(record, ConfigRecord):
        return _key("CONFIG", {"subject": record.subject, "magic": 0})
    if isinstance(record, ModeRecord):
        return _key("MODE", {"subject": record.subject, "magic": 0})
    return _key("NOOP", {"magic": 0})


def encode(record: Record) -> tuple[bytes, bytes | None]:
    if isinstance(record, ForeignKeyEnded):
        return record.key, None
    value = _value(record)
    return key_of(record), None if value is None else _json(value)


def _key(kind: str, fields: Mapping[str, object]) -> bytes:
    return _json({"keytype": kind, **fields})


def _json(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a character, which JSON can name and UTF-8 cannot
        return json.dumps(value, separators=(",", ":")).encode()


def _value(record: Known) -> dict[str, Any] | None:
    match record:
        case SchemaRecord():
            return _schema_value(record)
        case SubjectDeleted():
            return {"subject": record.subject, "version": record.version}
        case ConfigRecord(values=values) if values is not None:
            return dict(values)
        case ModeRecord(mode=mode) if mode is not None:
            return {"mode": mode}
        case Noop(highest_ids=highest) if highest:
            return {"highestIds": dict(highest)}
        case _:
            return None


def _schema_value(record: SchemaRecord) -> dict[str, Any]:
    schema = record.schema
    found: dict[str, Any] = {
        "subject": record.subject,
        "version": record.version,
        "id": record.id,
    }
    if schema.kind is not Kind.AVRO:
        found["schemaType"] = schema.kind.value
    if schema.references:
        found["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version}
            for one in schema.references
        ]
    if schema.metadata is not None:
        found["metadata"] = schema.metadata
    if schema.rules is not None:
        found["ruleSet"] = schema.rules
    found |= {"schema": schema.text, "deleted": record.deleted, "guid": record.guid}
    if record.highest:
        found["highest"] = record.highest
    return found


# -- reading --------------------------------------------------------------------------------------


def decode(key: bytes, value: bytes | None) -> Known | None:
    """None if it cannot be understood."""
    try:
        fields = json.loads(key)
        content = None if value is None else json.loads(value)
        return _record(fields, content)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _record(key: Mapping[str, Any], value: Any) -> Known | None:
    kind = key["keytype"]
    if kind == "NOOP":
        marks = value.get("highestIds", {}) if isinstance(value, dict) else {}
        return Noop({str(context): _number(one) for context, one in marks.items()})
    if value is not None and not isinstance(value, dict):
        return None
    if kind == "SCHEMA":
        subject, version = _text(key["subject"]), _number(key["version"])
        if value is None:
            return SchemaTombstone(subject, version)
        return _schema_record(subject, version, value)
    if kind == "DELETE_SUBJECT":
        subject = _text(key["subject"])
        return SubjectDeleted(subject, 0 if value is None else _number(value["version"]))
    subject_or_all = _text(key["subject"]) if key.get("subject") else None
    if kind == "CONFIG":
        if value is None:
            return ConfigRecord(subject_or_all, None)
        values = {name: one for name, one in value.items() if name != "subject"}
        return ConfigRecord(subject_or_all, values)
    if kind == "MODE":
        return ModeRecord(subject_or_all, None if value is None else _text(value["mode"]))
    return None


def _schema_record(subject: str, version: int, value: Mapping[str, Any]) -> SchemaRecord:
    references = tuple(
        Reference(_text(one["name"]), _text(one["subject"]), _number(one["version"]))
        for one in value.get("references") or ()
    )
    schema = Schema(
        Kind(value.get("schemaType") or Kind.AVRO),
        _text(value["schema"]),
        references,
        value.get("metadata"),
        value.get("ruleSet"),
    )
    return SchemaRecord(
        subject,
        version,
        _number(value["id"]),
        schema,
        deleted=bool(value.get("deleted", False)),
        guid=_text(value.get("guid") or ""),
        highest=_number(value.get("highest", 0)),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_INT:
        raise ValueError(value)
    return value

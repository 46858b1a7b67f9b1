"""Can a reader's Protobuf schema read what a writer's schema has written? If not, why?

Rules, which are those of Confluent's registry unless something else is said:

- Messages match by name, fields by number. Names of fields do not matter.
- Numbers of one family (int32, uint32, int64, uint64, bool and enums; sint32 and sint64; fixed32
  and sfixed32; fixed64 and sfixed64; string and bytes) may take each other's place.
- A message that is gone, another package, a required field that is new or gone are refused.
- One field may move into a new oneof. Two, or one into a oneof that had fields, may not: a reader
  keeps only the last field of a oneof. A field may not leave a oneof that stays.
- A list of packed numbers cannot be read as a single number; this is our own rule.
- Values of enums may come and go: unknown ones are kept.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ottla.schemas.proto_print import GROUP, MESSAGE, REPEATED, REQUIRED, TYPES, map_entry

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )

FAMILIES = (
    {"int32", "uint32", "int64", "uint64", "bool", "enum"},
    {"sint32", "sint64"},
    {"fixed32", "sfixed32"},
    {"fixed64", "sfixed64"},
    {"string", "bytes"},
)
LEGACY_REQUIRED = 3
EXPANDED = 2
"""Of `features`, in editions."""

Found = list[tuple[str, str, str]]
"""Kind, path and message of each difference."""


def differences(reader: bytes, writer: bytes) -> Found:
    """All reasons why the reader cannot read; both are serialised descriptor sets."""
    return list(dict.fromkeys(_Diff(reader, writer).compare()))


class _Side:
    """One of both schemas."""

    def __init__(self, data: bytes) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        files = FileDescriptorSet.FromString(data).file
        self.own = files[-1]
        self.messages: dict[str, tuple[DescriptorProto, FileDescriptorProto]] = {}
        """By full name, with the dot that type names have."""
        for file in files:
            around = f".{file.package}" if file.package else ""
            left = [(around, message) for message in file.message_type]
            while left:
                prefix, message = left.pop()
                name = f"{prefix}.{message.name}"
                self.messages[name] = message, file
                left += [(name, nested) for nested in message.nested_type]

    def local(self, type_name: str) -> str:
        """The name of a type without its package."""
        _, file = self.messages[type_name]
        return type_name.removeprefix(f".{file.package}." if file.package else ".")


class _Diff:
    def __init__(self, reader: bytes, writer: bytes) -> None:
        self._reader, self._writer = _Side(reader), _Side(writer)
        self._done: set[tuple[str, str]] = set()

    def compare(self) -> Found:
        ours, theirs = self._reader.own, self._writer.own
        found: Found = []
        if ours.package != theirs.package:
            message = f"the package is {ours.package!r} and was {theirs.package!r}"
            found.append(("PACKAGE_CHANGED", "#/", message))
        prefixes = [f".{one.package}" if one.package else "" for one in (ours, theirs)]
        return found + self._messages(ours.message_type, theirs.message_type, *prefixes)

    def _messages(self, ours: Any, theirs: Any, our_prefix: str, their_prefix: str) -> Found:
        found: Found = []
        known = {message.name: message for message in ours}
        for message in theirs:
            if message.options.map_entry:
                continue
            name = f"{their_prefix}.{message.name}"
            if message.name not in known:
                text = f"message {name[1:]!r} was removed"
                found.append(("MESSAGE_REMOVED", f"#/{name[1:]}", text))
            else:
                found += self._message(f"{our_prefix}.{message.name}", name)
        return found

    def _message(self, ours: str, theirs: str) -> Found:
        """Two messages by their full names, each pair once."""
        if (ours, theirs) in self._done:
            return []
        self._done.add((ours, theirs))
        reader, writer = self._reader.messages[ours][0], self._writer.messages[theirs][0]
        path = f"#/{theirs[1:]}"
        found = self._oneofs(reader, writer, path)
        read = {field.number: field for field in reader.field}
        written = {field.number: field for field in writer.field}
        for number in dict.fromkeys((*written, *read)):
            here = f"{path}/{number}"
            if number not in read:
                found += _gone(written[number], here)
            elif number not in written:
                found += _new(read[number], here)
            else:
                found += self._field(reader, read[number], writer, written[number], here)
        return found + self._messages(reader.nested_type, writer.nested_type, ours, theirs)

    def _oneofs(self, reader: DescriptorProto, writer: DescriptorProto, path: str) -> Found:
        found: Found = []
        before = {field.number: _oneof(field, writer) for field in writer.field}
        moved: Counter[str] = Counter()
        stayed: Counter[str] = Counter()
        now: dict[int, str] = {}
        for field in reader.field:
            if name := _oneof(field, reader):
                now[field.number] = name
                if field.number in before:
                    (stayed if before[field.number] else moved)[name] += 1
        for name, count in moved.items():
            if count > 1:
                text = f"{count} fields were moved into oneof {name!r}"
                found.append(("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{name}", text))
            elif stayed[name]:
                text = f"a field was moved into oneof {name!r}, which has others already"
                found.append(("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}/{name}", text))
        for number, old in before.items():
            if old and old in now.values() and now.get(number) != old:
                text = f"field {number} is not in oneof {old!r} any more"
                found.append(("ONEOF_FIELD_REMOVED", f"{path}/{old}/{number}", text))
        return found

    def _field(
        self,
        reader: DescriptorProto,
        ours: FieldDescriptorProto,
        writer: DescriptorProto,
        theirs: FieldDescriptorProto,
        path: str,
    ) -> Found:
        found: Found = []
        if _is_required(ours) and not _is_required(theirs):
            found.append(("REQUIRED_FIELD_ADDED", path, f"field {ours.name!r} is required now"))
        our_map, their_map = (
            map_entry(reader.nested_type, ours),
            map_entry(writer.nested_type, theirs),
        )
        if our_map is not None and their_map is not None:
            for one, other in zip(our_map.field, their_map.field, strict=True):
                found += self._types(one, other, ours.name, path)
            return found
        if our_map is not None or their_map is not None:
            text = f"field {ours.name!r} is a map in one of both only"
            return [*found, ("FIELD_KIND_CHANGED", path, text)]
        if theirs.label == REPEATED != ours.label and _is_packed(theirs, self._writer):
            text = f"field {ours.name!r} was a list of packed numbers and is a single one"
            found.append(("FIELD_LABEL_CHANGED", path, text))
        return found + self._types(ours, theirs, ours.name, path)

    def _types(
        self, ours: FieldDescriptorProto, theirs: FieldDescriptorProto, name: str, path: str
    ) -> Found:
        one, other = _kind(ours), _kind(theirs)
        if one == other and one in ("message", "group"):
            return self._named(ours.type_name, theirs.type_name, name, path)
        if one == other or any(one in family and other in family for family in FAMILIES):
            return []
        is_kind = "message" in (one, other) or "group" in (one, other)
        kind = "FIELD_KIND_CHANGED" if is_kind else "FIELD_SCALAR_KIND_CHANGED"
        return [(kind, path, f"field {name!r} is {one} and was {other}")]

    def _named(self, ours: str, theirs: str, name: str, path: str) -> Found:
        if self._reader.local(ours) != self._writer.local(theirs):
            text = f"field {name!r} is {ours[1:]} and was {theirs[1:]}"
            return [("FIELD_NAMED_TYPE_CHANGED", path, text)]
        return self._message(ours, theirs)


def _kind(field: FieldDescriptorProto) -> str:
    if field.type == GROUP:
        return "group"
    return "message" if field.type == MESSAGE else TYPES.get(field.type, "enum")


def _oneof(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    """The oneof that a field is in; none for one that is only `optional`."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return message.oneof_decl[field.oneof_index].name


def _is_required(field: FieldDescriptorProto) -> bool:
    return field.label == REQUIRED or field.options.features.field_presence == LEGACY_REQUIRED


def _is_packed(field: FieldDescriptorProto, side: _Side) -> bool:
    if _kind(field) in ("message", "group", "string", "bytes"):
        return False
    if field.options.HasField("packed"):
        return field.options.packed
    if side.own.syntax == "editions":
        features = field.options.features.repeated_field_encoding
        return (features or side.own.options.features.repeated_field_encoding) != EXPANDED
    return side.own.syntax == "proto3"


def _gone(field: FieldDescriptorProto, path: str) -> Found:
    if not _is_required(field):
        return []
    return [("REQUIRED_FIELD_REMOVED", path, f"required field {field.name!r} was removed")]


def _new(field: FieldDescriptorProto, path: str) -> Found:
    if not _is_required(field):
        return []
    return [("REQUIRED_FIELD_ADDED", path, f"required field {field.name!r} was added")]

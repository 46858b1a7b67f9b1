"""Protobuf's messages as objects, from the serialised `FileDescriptorSet` that `protobuf.parse`
gives (dependencies first, the schema's own file last).

A recursive message is met again below itself: the messages form a graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.schemas.model import InvalidSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

_KINDS: Final = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    10: "group",
    11: "message",
    12: "bytes",
    13: "uint32",
    14: "enum",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
_REQUIRED: Final = 2
_REPEATED: Final = 3


class UnknownMessage(InvalidSchema):
    """The schema has no message of that name or those indexes."""


@dataclass(frozen=True, slots=True)
class Field:
    """`is_present` tells an absent field from one with the default value: null against zero."""

    name: str
    number: int
    kind: str
    is_repeated: bool
    is_present: bool
    message: Message | None = None
    symbols: tuple[tuple[int, str], ...] = ()
    oneof: int = -1
    is_required: bool = False


@dataclass(slots=True, eq=False)
class Message:
    """Compared by identity, since it may contain itself."""

    name: str
    is_map_entry: bool
    fields: list[Field] = field(default_factory=list)


def message_of(files: bytes, message: str | Sequence[int] | None = None) -> Message:
    """A message of the last file: by full or short name, by indexes, or the first one.

    Raises UnknownMessage.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    parsed = FileDescriptorSet.FromString(files)
    builder = _Builder(parsed)
    own = parsed.file[-1]
    if isinstance(message, str):
        full = f"{own.package}.{message}" if own.package else message
        found = builder.find(message) or builder.find(full)
        if found is None:
            raise UnknownMessage(f"expected a message of the schema, got {message!r}")
        return found
    indexes = list(message or (0,))
    level: Any = own.message_type
    name = own.package
    for index in indexes:
        if index >= len(level):
            raise UnknownMessage(f"expected message indexes within the schema, got {indexes}")
        name = f"{name}.{level[index].name}" if name else level[index].name
        level = level[index].nested_type
    found = builder.find(name)
    assert found is not None
    return found


class _Builder:
    def __init__(self, files: Any) -> None:
        self._protos: dict[str, tuple[DescriptorProto, bool]] = {}
        self._enums: dict[str, tuple[tuple[int, str], ...]] = {}
        self._made: dict[str, Message] = {}
        for file in files.file:
            prefix = f"{file.package}." if file.package else ""
            self._enter(prefix, file.message_type, file.enum_type, file.syntax == "proto3")

    def _enter(self, prefix: str, messages: Any, enums: Any, is_implicit: bool) -> None:
        for each in enums:
            symbols: dict[int, str] = {}
            for value in each.value:
                symbols.setdefault(value.number, value.name)  # an alias comes later
            self._enums[prefix + each.name] = tuple(symbols.items())
        for each in messages:
            name = prefix + each.name
            self._protos[name] = each, is_implicit
            self._enter(f"{name}.", each.nested_type, each.enum_type, is_implicit)

    def find(self, name: str) -> Message | None:
        if name in self._made:
            return self._made[name]
        if name not in self._protos:
            return None
        proto, is_implicit = self._protos[name]
        made = self._made[name] = Message(name, proto.options.map_entry)
        made.fields.extend(self._field(each, is_implicit) for each in proto.field)
        return made

    def _field(self, proto: FieldDescriptorProto, is_implicit: bool) -> Field:
        kind = _KINDS[proto.type]
        target = proto.type_name.removeprefix(".")
        in_oneof = proto.HasField("oneof_index")
        is_message = kind in ("message", "group")
        return Field(
            proto.name,
            proto.number,
            kind,
            proto.label == _REPEATED,
            in_oneof or is_message or not is_implicit,
            self.find(target) if is_message else None,
            self._enums.get(target, ()) if kind == "enum" else (),
            proto.oneof_index if in_oneof and not proto.proto3_optional else -1,
            proto.label == _REQUIRED,
        )

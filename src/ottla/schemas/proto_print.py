"""A Protobuf descriptor as text: the canonical form of a schema.

Rules:

- The text compiles to the descriptor it was printed from. Comments are gone, types have full names
  with a dot before them, nothing that is a default is printed.
- Messages, enums, fields and imports keep their order: a message is found by its index. Normalised,
  imports and options are sorted.
- Options of users are printed by the definitions that the descriptor set has.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
        FileDescriptorSet,
        ServiceDescriptorProto,
    )

OPTIONS = "google/protobuf/descriptor.proto"
"""A file that defines options imports this one."""
MAX_NUMBER = 2**29 - 1
"""The greatest number of a field."""
MAX_ENUM = 2**31 - 1
GROUP, MESSAGE, STRING, BYTES = 10, 11, 9, 12
REQUIRED, REPEATED = 2, 3
TYPES = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32",
    8: "bool", STRING: "string", BYTES: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64",
    17: "sint32", 18: "sint64",
}  # fmt: skip
"""Numbers of FieldDescriptorProto.Type; the others have names of their own."""

Lines = list[str]


def printed(files: FileDescriptorSet, *, normalize: bool = False) -> str:
    """The text of the last file of a set, whose other files are what it imports."""
    return "\n".join(_Printer(files, normalize).file(files.file[-1])) + "\n"


def map_entry(
    nested: Iterable[DescriptorProto], field: FieldDescriptorProto
) -> DescriptorProto | None:
    """The entry type of a map field, which is among the types beside it."""
    if field.type != MESSAGE or field.label != REPEATED:
        return None
    name = field.type_name.rpartition(".")[2]
    for one in nested:
        if one.name == name and one.options.map_entry:
            return one
    return None


class _Printer:
    def __init__(self, files: FileDescriptorSet, normalize: bool) -> None:
        self._normalize = normalize
        self._syntax = ""
        self._pool: Any = None
        if any(file.name == OPTIONS for file in files.file):  # else users cannot have defined any
            from google.protobuf.descriptor_pool import DescriptorPool

            self._pool = DescriptorPool()
            for file in files.file:
                self._pool.AddSerializedFile(file.SerializeToString())

    def file(self, file: FileDescriptorProto) -> Lines:
        self._syntax = file.syntax or "proto2"
        if self._syntax == "editions":
            lines = [f'edition = "{_edition(file)}";']
        else:
            lines = [f'syntax = "{self._syntax}";']
        if file.package:
            lines.append(f"package {file.package};")
        imports = [*_imports(file)]
        options = [f"option {name} = {value};" for name, value in self._options(file.options)]
        for block in (sorted(imports) if self._normalize else imports, options):
            if block:
                lines += ["", *block]
        for message in file.message_type:
            lines += ["", *self._message(message)]
        for enum in file.enum_type:
            lines += ["", *self._enum(enum)]
        if file.extension:
            lines += ["", *self._extensions(file.extension, file)]
        for service in file.service:
            lines += ["", *self._service(service)]
        return lines

    # -- messages

    def _message(self, message: DescriptorProto) -> Lines:
        return [f"{_visible(message)}message {message.name} {{", *self._body(message), "}"]

    def _body(self, message: DescriptorProto) -> Lines:
        hidden = {
            field.type_name.rpartition(".")[2]
            for field in (*message.field, *message.extension)
            if field.type == GROUP
        }
        lines = self._option_lines(message.options, skip="map_entry")
        lines += self._fields(message)
        for nested in message.nested_type:
            if not nested.options.map_entry and nested.name not in hidden:
                lines += self._message(nested)
        for enum in message.enum_type:
            lines += self._enum(enum)
        lines += self._extensions(message.extension, message)
        for span in message.extension_range:
            options = self._bracketed(self._options(span.options))
            lines.append(f"extensions {_span(span.start, span.end - 1, MAX_NUMBER)}{options};")
        for reserved in message.reserved_range:
            lines.append(f"reserved {_span(reserved.start, reserved.end - 1, MAX_NUMBER)};")
        return _indented([*lines, *self._reserved_names(message.reserved_name)])

    def _fields(self, message: DescriptorProto) -> Lines:
        lines: Lines = []
        done: set[int] = set()
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                lines += self._field(field, message)
            elif field.oneof_index not in done:
                done.add(field.oneof_index)
                lines += self._oneof(field.oneof_index, message)
        return lines

    def _oneof(self, index: int, message: DescriptorProto) -> Lines:
        oneof = message.oneof_decl[index]
        inside = self._option_lines(oneof.options)
        for field in message.field:
            if field.HasField("oneof_index") and field.oneof_index == index:
                inside += self._field(field, message, is_in_oneof=True)
        return [f"oneof {oneof.name} {{", *_indented(inside), "}"]

    def _field(
        self,
        field: FieldDescriptorProto,
        around: DescriptorProto | FileDescriptorProto,
        *,
        is_in_oneof: bool = False,
    ) -> Lines:
        options = self._bracketed([*_special(field), *self._options(field.options)])
        if field.type == GROUP:
            name = field.type_name.rpartition(".")[2]
            nested = _types_in(around)
            group = next(one for one in nested if one.name == name)
            label = "" if is_in_oneof else self._label(field)
            return [f"{label}group {name} = {field.number}{options} {{", *self._body(group), "}"]
        entry = map_entry(_types_in(around), field)
        if entry is not None:
            kind = f"map<{_type(entry.field[0])}, {_type(entry.field[1])}>"
        else:
            kind = ("" if is_in_oneof else self._label(field)) + _type(field)
        return [f"{kind} {field.name} = {field.number}{options};"]

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == REPEATED:
            return "repeated "
        if self._syntax == "proto2":
            return "required " if field.label == REQUIRED else "optional "
        return "optional " if field.proto3_optional else ""

    def _extensions(
        self, fields: Iterable[FieldDescriptorProto], around: DescriptorProto | FileDescriptorProto
    ) -> Lines:
        lines: Lines = []
        extended = ""
        for field in fields:
            if field.extendee != extended:
                lines += ["}"] if extended else []
                lines.append(f"extend {field.extendee} {{")
                extended = field.extendee
            lines += _indented(self._field(field, around))
        return [*lines, "}"] if extended else lines

    # -- enums and services

    def _enum(self, enum: EnumDescriptorProto) -> Lines:
        lines = self._option_lines(enum.options)
        for value in enum.value:
            options = self._bracketed(self._options(value.options))
            lines.append(f"{value.name} = {value.number}{options};")
        for reserved in enum.reserved_range:
            lines.append(f"reserved {_span(reserved.start, reserved.end, MAX_ENUM)};")
        lines += self._reserved_names(enum.reserved_name)
        return [f"{_visible(enum)}enum {enum.name} {{", *_indented(lines), "}"]

    def _service(self, service: ServiceDescriptorProto) -> Lines:
        lines = self._option_lines(service.options)
        for method in service.method:
            taken = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
            given = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            head = f"rpc {method.name} ({taken}) returns ({given})"
            options = self._option_lines(method.options)
            lines += [f"{head} {{", *_indented(options), "}"] if options else [f"{head};"]
        return [f"service {service.name} {{", *_indented(lines), "}"]

    def _reserved_names(self, names: Iterable[str]) -> Lines:
        is_bare = self._syntax == "editions"
        return [f"reserved {name if is_bare else quoted(name)};" for name in names]

    # -- options

    def _option_lines(self, options: Any, skip: str = "") -> Lines:
        return [
            f"option {name} = {value};" for name, value in self._options(options) if name != skip
        ]

    def _options(self, options: Any) -> list[tuple[str, str]]:
        """Names and values of options; those of users by their definitions."""
        if not options.ByteSize():
            return []
        message = self._as_defined(options)
        found = [
            (f"(.{field.full_name})" if field.is_extension else field.name, value)
            for field, values in message.ListFields()
            for value in self._values(field, values)
        ]
        return sorted(found) if self._normalize else found

    def _as_defined(self, options: Any) -> Any:
        from google.protobuf.message_factory import GetMessageClass

        if self._pool is None:
            return options
        known = self._pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
        return GetMessageClass(known).FromString(options.SerializeToString())

    def _values(self, field: Any, values: Any) -> list[str]:
        return [self._value(field, one) for one in (values if field.is_repeated else [values])]

    def _value(self, field: Any, value: Any) -> str:
        if field.message_type is not None:
            from google.protobuf.text_format import MessageToString

            text = MessageToString(value, as_one_line=True, descriptor_pool=self._pool)
            return f"{{ {text} }}" if text else "{}"
        if field.enum_type is not None:
            return str(field.enum_type.values_by_number[value].name)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str | bytes):
            return quoted(value)
        return _number(value) if isinstance(value, float) else str(value)

    def _bracketed(self, options: list[tuple[str, str]]) -> str:
        shown = sorted(options) if self._normalize else options
        return f" [{', '.join(f'{name} = {value}' for name, value in shown)}]" if shown else ""


def _imports(file: FileDescriptorProto) -> Iterator[str]:
    for index, name in enumerate(file.dependency):
        word = "public " if index in file.public_dependency else ""
        word = "weak " if index in file.weak_dependency else word
        yield f"import {word}{quoted(name)};"
    for name in getattr(file, "option_dependency", ()):  # since edition 2024
        yield f"import option {quoted(name)};"


def _edition(file: FileDescriptorProto) -> str:
    from google.protobuf.descriptor_pb2 import Edition

    return Edition.Name(file.edition).removeprefix("EDITION_")


def _visible(node: Any) -> str:
    """`export` or `local`, since edition 2024."""
    return ("", "local ", "export ")[getattr(node, "visibility", 0)]


def _types_in(around: Any) -> Any:
    return around.nested_type if hasattr(around, "nested_type") else around.message_type


def _type(field: FieldDescriptorProto) -> str:
    return TYPES.get(field.type) or field.type_name


def _special(field: FieldDescriptorProto) -> Iterator[tuple[str, str]]:
    """What is written like an option and is none."""
    if field.HasField("default_value"):
        value = field.default_value
        if field.type == STRING:
            value = quoted(value)
        elif field.type == BYTES:
            value = f'"{value}"'  # is escaped already
        yield "default", value
    if field.json_name and field.json_name != _camel(field.name) and not field.extendee:
        yield "json_name", quoted(field.json_name)


def _camel(name: str) -> str:
    """The name that JSON has for a field unless it says another."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _span(start: int, end: int, most: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end >= most else end}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return repr(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def quoted(value: str | bytes) -> str:
    from google.protobuf.text_encoding import CEscape

    data = value if isinstance(value, bytes) else value.encode()
    return f'"{CEscape(data, isinstance(value, str))}"'


def _indented(lines: Iterable[str]) -> Lines:
    return [f"  {line}" for line in lines]

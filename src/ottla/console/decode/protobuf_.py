"""Protobuf, read within limits, by the message that wrote it.

Fields have the names of the schema. An absent field that knows absence is left out; others have
their default value. Enums are names, bytes are hex, `Timestamp` is a time, wrappers their value.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ottla.console.decode.tree import MAX_BYTES, MAX_DEPTH, MAX_NODES, Number, Tree, Unreadable
from ottla.schemas.proto_tree import UnknownMessage, message_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)


class Protobuf:
    """Reads values of the messages of one schema, given as a serialised `FileDescriptorSet`."""

    def __init__(self, files: bytes) -> None:
        from google.protobuf import descriptor_pool
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        self._files = files
        self._pool = descriptor_pool.DescriptorPool()
        for file in FileDescriptorSet.FromString(files).file:
            self._pool.AddSerializedFile(file.SerializeToString())
        self._classes: dict[object, Any] = {}

    def read(self, data: bytes, message: str | Sequence[int] | None = None) -> Tree:
        """The document of a message, by name or indexes, or the first; raises `Unreadable`."""
        from google.protobuf.message import DecodeError

        if len(data) > MAX_BYTES:
            raise Unreadable(f"Protobuf of more than {MAX_BYTES:,} bytes")
        kind = self._class(message if message is None or isinstance(message, str) else (*message,))
        try:
            value = kind.FromString(data)
        except (DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unreadable(f"not of this schema: {str(error) or type(error).__name__}") from None
        return _Budget().message(value, 0)

    def _class(self, message: str | tuple[int, ...] | None) -> Any:
        from google.protobuf import message_factory

        found = self._classes.get(message)
        if found is None:
            try:
                name = message_of(self._files, message).name
            except UnknownMessage as error:
                raise Unreadable(str(error)) from None
            descriptor = self._pool.FindMessageTypeByName(name)
            found = self._classes[message] = message_factory.GetMessageClass(descriptor)
        return found


class _Budget:
    """Counts nodes while it makes the tree."""

    def __init__(self) -> None:
        self._left = MAX_NODES

    def message(self, value: Any, depth: int) -> Tree:
        if depth > MAX_DEPTH:
            raise Unreadable(f"Protobuf nested more than {MAX_DEPTH} deep")
        name = value.DESCRIPTOR.full_name
        if name == _TIMESTAMP:
            return _time(value)
        if name in _WRAPPERS:
            return self._one(value.DESCRIPTOR.fields[0], value.value, depth)
        found: dict[str, Tree] = {}
        for field in value.DESCRIPTOR.fields:
            if field.has_presence and not value.HasField(field.name):
                continue
            found[field.name] = self._field(field, getattr(value, field.name), depth + 1)
        return found

    def _field(self, field: Any, value: Any, depth: int) -> Tree:
        if not field.is_repeated:
            return self._one(field, value, depth)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            of = entry.fields_by_name["value"]
            return {str(key): self._one(of, value[key], depth) for key in value}
        return [self._one(field, one, depth) for one in value]

    def _one(self, field: Any, value: Any, depth: int) -> Tree:
        self._left -= 1
        if self._left < 0:
            raise Unreadable(f"Protobuf of more than {MAX_NODES:,} nodes")
        if field.message_type is not None:
            return self.message(value, depth)
        if field.enum_type is not None:
            symbol = field.enum_type.values_by_number.get(value)
            return Number(value) if symbol is None else str(symbol.name)
        if isinstance(value, bool | str):
            return value
        if isinstance(value, bytes):
            return f"0x{value.hex()}"
        shown = repr(value)
        return shown if shown in ("nan", "inf", "-inf") else Number(shown)


def _time(value: Any) -> Tree:
    try:
        at = _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
    except OverflowError:
        return {"seconds": Number(value.seconds), "nanos": Number(value.nanos)}
    return at.isoformat().replace("+00:00", "Z")

"""Readers: for each message and version one function, compiled on first use from its field table.

The function turns bytes into the message's NamedTuple. Runs of fixed-size fields are one `unpack`,
records stay a slice of the buffer (the broker patches batches in place), unknown tagged fields are
skipped at every level, and an array can never claim more elements than bytes are left. A string has
at most `MAX_STRING_BYTES` in every form, as in Kafka: code that stores strings in records relies on
it.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from ottla.wire.errors import MalformedMessage, UnsupportedVersion
from ottla.wire.spec import FIXED, MAX_STRING_BYTES, Field, Message, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Reader: TypeAlias = "Callable[[memoryview, int], tuple[Any, int]]"

MAX_UVARINT_BYTES: Final = 5


class _Malformed(Exception):
    """Raised by compiled code, which does not know its message."""


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """The varint at this position, and where it ends. IndexError when the buffer ends first."""
    value = 0
    for shift in range(0, 7 * MAX_UVARINT_BYTES, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    where = f"byte {position}"
    raise MalformedMessage(f"a varint of at most {MAX_UVARINT_BYTES} bytes", "a longer one", where)


def _null(position: int) -> NoReturn:
    raise _Malformed("a value", "null", position)


def _too_long(length: int, left: int, position: int) -> NoReturn:
    raise _Malformed(f"at most the {left} bytes that are left", f"length {length}", position)


def _long_string(length: int, position: int) -> NoReturn:
    raise _Malformed(f"a string of at most {MAX_STRING_BYTES} bytes", f"length {length}", position)


def _tag_size(expected: int, got: int) -> NoReturn:
    raise _Malformed(f"a tagged field that ends at byte {expected}", f"byte {got}", got)


class _Source:
    """Collects the lines of one compiled module and the constants they use."""

    def __init__(self, message: Message, version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = message.flexible(version)
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "_uvarint": read_uvarint,
            "_null": _null,
            "_too_long": _too_long,
            "_long_string": _long_string,
            "_tag_size": _tag_size,
            "_unpack": struct.unpack_from,
            "_new": tuple.__new__,
        }

    def constant(self, prefix: str, value: object) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def emit(self, depth: int, *lines: str) -> None:
        self.lines += ["    " * depth + line for line in lines]

    def struct(self, cls: Struct) -> None:
        """`read_X(b, p, e)`: the struct at position p of buffer b up to e, and its end."""
        fields = [f for f in self.message.structs[cls] if f.in_version(self.version)]
        plain = [f for f in fields if not f.tagged_in(self.version)]
        tagged = [f for f in fields if f.tagged_in(self.version)]
        self.emit(0, f"def read_{cls.__name__}(b, p, e):")
        for run in _runs(plain):
            if len(run) > 1 or (not run[0].array and run[0].type in FIXED):
                self.fixed(run)
            else:
                self.value(run[0], 1, nullable=run[0].nullable_in(self.version))
        if self.flexible:
            self.tags(cls, tagged)
        present = {f.name for f in fields}
        values = [
            f"v_{name}" if name in present else self.constant("D", cls._field_defaults[name])
            for name in cls._fields
        ]
        self.names[cls.__name__] = cls
        self.emit(1, f"return _new({cls.__name__}, ({', '.join(values)}{',' * bool(values)})), p")

    def fixed(self, run: list[Field]) -> None:
        packer = struct.Struct(">" + "".join(FIXED[str(f.type)] for f in run))
        unpack = self.constant("S", packer.unpack_from)
        names = ", ".join(f"v_{f.name}" for f in run)
        self.emit(1, f"{names}, = {unpack}(b, p)", f"p += {packer.size}")

    def length(self, depth: int, *, wide: bool) -> None:
        """n = the length (-1 for null) of what follows; `wide` is all but strings."""
        if self.flexible:
            self.emit(depth, "n = b[p]", "if n < 128: p += 1", "else:", "    n, p = _uvarint(b, p)")
            if not wide:
                self.emit(depth + 1, f"if n > {MAX_STRING_BYTES} + 1: _long_string(n - 1, p)")
            self.emit(depth, "n -= 1")
        else:
            code, size = ("i", 4) if wide else ("h", 2)
            unpack = self.constant("S", struct.Struct(f">{code}").unpack_from)
            self.emit(depth, f"n, = {unpack}(b, p)", f"p += {size}")

    def value(self, field: Field, depth: int, *, nullable: bool) -> None:
        """Statements that leave the field's value in v_<name> and advance p."""
        name = f"v_{field.name}"
        if field.array:
            self.array(field, name, depth, nullable=nullable)
        elif field.type in ("string", "bytes", "records"):
            self.blob(str(field.type), name, depth, nullable=nullable)
        elif isinstance(field.type, str):
            packer = struct.Struct(">" + FIXED[field.type])
            unpack = self.constant("S", packer.unpack_from)
            self.emit(depth, f"{name}, = {unpack}(b, p)", f"p += {packer.size}")
        else:
            read = f"{name}, p = read_{field.type.__name__}(b, p, e)"
            if nullable:
                self.emit(depth, "n = b[p]", "p += 1", f"if n == 255: {name} = None")
                self.emit(depth, "else:", "    " + read)
            else:
                self.emit(depth, read)

    def blob(self, kind: str, name: str, depth: int, *, nullable: bool) -> None:
        self.length(depth, wide=kind != "string")
        self.emit(depth, "if n < 0:")
        self.emit(depth + 1, "if n != -1: _too_long(n, e - p, p)")
        self.emit(depth + 1, f"{name} = None" if nullable else "_null(p)")
        self.emit(depth, "else:")
        depth += 1
        self.emit(depth, "q = p + n", "if q > e: _too_long(n, e - p, p)")
        form = {"string": 'str(b[p:q], "utf-8")', "bytes": "bytes(b[p:q])", "records": "b[p:q]"}
        self.emit(depth, f"{name} = {form[kind]}", "p = q")

    def array(self, field: Field, name: str, depth: int, *, nullable: bool) -> None:
        self.length(depth, wide=True)
        self.emit(depth, "if n < 0:")
        self.emit(depth + 1, "if n != -1: _too_long(n, e - p, p)")
        self.emit(depth + 1, f"{name} = None" if nullable else "_null(p)")
        code = FIXED.get(field.type) if isinstance(field.type, str) else None
        if code is not None and code != "16s":
            size = struct.calcsize(">" + code)
            self.emit(depth, "else:", f"    q = p + n * {size}")
            self.emit(depth + 1, "if q > e: _too_long(n, e - p, p)")
            self.emit(depth + 1, f"{name} = _unpack(f'>{{n}}{code}', b, p)", "p = q")
            return
        # Every element takes at least one byte, so a false count is refused before it costs memory.
        self.emit(depth, "elif n > e - p: _too_long(n, e - p, p)", "else:")
        items, item = f"l_{field.name}", Field(f"{field.name}_item", field.type)
        self.emit(depth + 1, f"{items} = []", "for _ in range(n):")
        self.value(item, depth + 2, nullable=False)
        self.emit(depth + 2, f"{items}.append(v_{item.name})")
        self.emit(depth + 1, f"{name} = tuple({items})")

    def tags(self, cls: Struct, tagged: list[Field]) -> None:
        for field in tagged:
            default = self.constant("D", cls._field_defaults[field.name])
            self.emit(1, f"v_{field.name} = {default}")
        self.emit(1, "t, p = (b[p], p + 1) if b[p] < 128 else _uvarint(b, p)", "for _ in range(t):")
        self.emit(2, "g, p = _uvarint(b, p)", "n, p = _uvarint(b, p)", "x = p + n")
        self.emit(2, "if x > e: _too_long(n, e - p, p)")
        for field in tagged:
            self.emit(2, f"if g == {field.tag}:")
            self.value(field, 3, nullable=field.nullable_in(self.version))
            self.emit(3, "if p != x: _tag_size(x, p)")
        self.emit(2, "p = x")


def _runs(fields: list[Field]) -> Iterator[list[Field]]:
    """Group adjacent fixed-size fields; each other field is alone."""
    run: list[Field] = []
    for field in fields:
        if not field.array and isinstance(field.type, str) and field.type in FIXED:
            run.append(field)
            continue
        if run:
            yield run
            run = []
        yield [field]
    if run:
        yield run


@cache
def compile_reader(message: Message, version: int) -> Reader:
    """The reader of this message in this version: `read(buffer, position) -> (value, end)`."""
    low, high = message.versions
    if not low <= version <= high:
        raise UnsupportedVersion(f"{low} to {high}", version, message.root.__name__)
    source = _Source(message, version)
    for cls in message.structs:
        if any(field.in_version(version) for field in message.structs[cls]) or cls is message.root:
            source.struct(cls)
    where = f"{message.root.__name__} v{version}"
    exec(compile("\n".join(source.lines), f"<reader of {where}>", "exec"), source.names)
    read_root = source.names[f"read_{message.root.__name__}"]

    def read(buffer: memoryview, position: int = 0) -> tuple[Any, int]:
        try:
            result: tuple[Any, int] = read_root(buffer, position, len(buffer))
        except _Malformed as error:
            expected, got, at = error.args
            raise MalformedMessage(expected, got, f"{where} at byte {at}") from None
        except (IndexError, struct.error):
            raise MalformedMessage("more bytes", f"end at byte {len(buffer)}", where) from None
        except UnicodeDecodeError as error:
            got = f"byte {error.object[error.start]:#04x}"
            raise MalformedMessage("UTF-8", got, where) from None
        return result

    return read

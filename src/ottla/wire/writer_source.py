"""The source text of a straight-line writer for one message in one version.

The shape of the generated code:

- Neighbouring fields of fixed size become one call of a prebuilt `Struct.pack`. Legacy lengths are
  fixed-size too, so they join the run before their data. An empty tag section is a pad byte.
- Arrays of integers join the run as well: its `Struct` then depends on the lengths, and comes from
  a bounded cache keyed by them (`RunCache`).
- Everything else is appended to the list `out`: lengths from a table, strings, other arrays as
  inline loops.
- A records field ends the piece: what is in `out` is joined to one part, the records become parts
  of their own, untouched.

Values come from the message's NamedTuples, unpacked whole into locals: no attribute look-ups.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.wire.spec import FIXED, INTEGERS, MAX_STRING_BYTES
from ottla.wire.varints import UVARINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.wire.spec import Field, Message, Struct

EMPTY: Final = "b'\\0'"  # a null compact length, and a tag section with no tags
NULL_STRUCT: Final = "b'\\xff'"


@cache
def packer(formats: str) -> Callable[..., bytes]:
    return struct.Struct(f">{formats}").pack


class RunCache(dict["int | tuple[int, ...]", "tuple[object, ...]"]):
    """`Struct`s of one run with arrays, by the arrays' lengths.

    A value is the pack function followed by the arrays' encoded lengths. Real clusters have a few
    replica counts, so few entries; requests can ask for arbitrary ones, so the cache is emptied
    when it is full.
    """

    MAX_ENTRIES: ClassVar[int] = 256

    __slots__ = ("_flexible", "_template")

    def __init__(self, template: Sequence[str], *, flexible: bool) -> None:
        self._template = template  # formats; an array's is marked by a leading *
        self._flexible = flexible

    def __missing__(self, key: int | tuple[int, ...]) -> tuple[object, ...]:
        lengths = key if isinstance(key, tuple) else (key,)
        prefixes = [UVARINTS[n + 1] if self._flexible else n for n in lengths]
        remaining = iter(zip(lengths, prefixes, strict=True))
        formats = []
        for item in self._template:
            if item[0] != "*":
                formats.append(item)
                continue
            length, prefix = next(remaining)
            formats.append(f"{len(prefix)}s" if isinstance(prefix, bytes) else "i")
            formats.append(f"{length}{item[1:]}")
        if len(self) >= self.MAX_ENTRIES:
            self.clear()
        entry = self[key] = (packer("".join(formats)), *prefixes)
        return entry


class WriterSource:
    """Emits the body of one writer; `constants` are the names that the body expects to exist."""

    def __init__(self, message: Message, version: int) -> None:
        self.constants: dict[str, Any] = {}
        self._message = message
        self._version = version
        self._flexible = message.flexible(version)
        self._has_records = False
        self._lines: list[str] = []
        self._indent = 2
        self._names = 0
        self._out = "out"
        # The open run: (format, argument), with an array's format marked by a leading *.
        self._run: list[tuple[str, str]] = []

    def source(self) -> str:
        """The whole function, named `write`."""
        self._struct(self._message.root, "entity")
        self._flush()
        if self._has_records:
            self._line("if out: parts.append(join(out))")
            head, result = "out = []; parts = []", "parts"
        else:
            head, result = "out = []", "[join(out)]"
        return "\n".join(
            [
                "def write(entity):",
                f"    {head}",
                "    try:",
                *self._lines,
                "    except failures as error:",
                "        raise unwritable(error) from error",
                f"    return {result}",
            ]
        )

    # -- text ------------------------------------------------------------------------------------

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _constant(self, prefix: str, value: object) -> str:
        name = self._name(prefix)
        self.constants[name] = value
        return name

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def _append(self, expression: str) -> None:
        self._flush()
        self._line(f"{self._out}.append({expression})")

    # -- runs of fixed size ----------------------------------------------------------------------

    def _fixed(self, code: str, argument: str = "") -> None:
        self._run.append((code, argument))

    def _flush(self) -> None:
        """Write the open run. Every append and every branch in the generated code does so first."""
        run, self._run = self._run, []
        if not run:
            return
        codes = [code for code, _ in run]
        if all(code == "x" for code in codes):
            expression = repr(bytes(len(codes)))
        elif any(code[0] == "*" for code in codes):
            expression = self._array_run(run)
        else:
            name = self._constant("pack", packer("".join(codes)))
            expression = f"{name}({', '.join(arg for code, arg in run if code != 'x')})"
        self._line(f"{self._out}.append({expression})")

    def _array_run(self, run: list[tuple[str, str]]) -> str:
        template = [code for code, _ in run]
        runs = self._constant("runs", RunCache(template, flexible=self._flexible))
        pack = self._name("pack")
        lengths = {arg: self._name("n") for code, arg in run if code[0] == "*"}
        key = ", ".join(f"len({array})" for array in lengths)
        self._line(f"{pack}, {', '.join(lengths.values())} = {runs}[{key}]")
        arguments = [
            f"{lengths[arg]}, *{arg}" if code[0] == "*" else arg for code, arg in run if code != "x"
        ]
        return f"{pack}({', '.join(arguments)})"

    # -- structs ---------------------------------------------------------------------------------

    def _unpacked(self, cls: Struct) -> tuple[str, str]:
        """The target that unpacks a struct, and the prefix of the names it binds."""
        prefix = self._name("e")
        return "".join(f"{prefix}_{name}, " for name in cls._fields), prefix

    def _struct(self, cls: Struct, value: str) -> None:
        target, prefix = self._unpacked(cls)
        if target:
            self._line(f"{target}= {value}")
        self._fields(cls, prefix)

    def _fields(self, cls: Struct, prefix: str) -> None:
        fields = [f for f in self._message.structs[cls] if f.in_version(self._version)]
        tagged = [f for f in fields if f.tagged_in(self._version)]
        for field in fields:
            if field not in tagged:
                self._field(field, f"{prefix}_{field.name}")
        if tagged:
            self._tags(cls, sorted(tagged, key=lambda field: field.tag or 0), prefix)
        elif self._flexible:
            self._fixed("x")

    def _tags(self, cls: Struct, tagged: list[Field], prefix: str) -> None:
        """The tag section, built in a list of its own since count and sizes come first."""
        defaults = [self._constant("default", cls._field_defaults[f.name]) for f in tagged]
        values = [f"{prefix}_{field.name}" for field in tagged]
        unset = [f"{v} is {d} or {v} == {d}" for v, d in zip(values, defaults, strict=True)]
        section, tags = self._name("section"), self._name("tags")
        outer = self._out, self._run
        self._line(f"if {' and '.join(f'({test})' for test in unset)}: {section} = {EMPTY}")
        self._line("else:")
        self._indent += 1
        self._line(f"{tags} = []")
        for field, value, test in zip(tagged, values, unset, strict=True):
            self._out, self._run = self._name("tag"), []
            self._line(f"if not ({test}):")
            self._indent += 1
            self._line(f"{self._out} = []")
            self._field(field, value)
            self._flush()
            self._line(f"{self._out} = join({self._out})")
            tag = self._constant("tag", UVARINTS[field.tag or 0])
            self._line(f"{tags} += ({tag}, uvarints[len({self._out})], {self._out})")
            self._indent -= 1
        self._line(f"{section} = join((uvarints[len({tags}) // 3], *{tags}))")
        self._indent -= 1
        self._out, self._run = outer
        self._append(section)

    # -- fields ----------------------------------------------------------------------------------

    def _field(self, field: Field, value: str) -> None:
        nullable = field.nullable_in(self._version)
        if field.array:
            self._array(field, value, nullable=nullable)
        elif nullable and not isinstance(field.type, str):
            self._nullable_struct(field.type, value)
        else:
            self._value(field, value, nullable=nullable)

    def _value(self, field: Field, value: str, *, nullable: bool) -> None:
        """A field's value, or one element of an array."""
        if not isinstance(field.type, str):
            self._struct(field.type, value)
        elif field.type in FIXED:
            self._fixed(FIXED[field.type], value)
        elif field.type == "records":
            self._records(field, value, nullable=nullable)
        else:
            self._sized(field, value, nullable=nullable)

    def _nullable_struct(self, cls: Struct, value: str) -> None:
        self._flush()
        self._line(f"if {value} is None: {self._out}.append({NULL_STRUCT})")
        self._line("else:")
        self._indent += 1
        self._fixed("b", "1")
        self._struct(cls, value)
        self._flush()
        self._indent -= 1

    def _sized(self, field: Field, value: str, *, nullable: bool) -> None:
        """A string or bytes: the length, then the data."""
        text = field.type == "string"
        data, length = self._name("s"), self._name("n")
        encoded = f"{value}.encode()" if text else value
        measured = f"uvarints[len({data}) + 1]" if self._flexible else f"len({data})"
        null = EMPTY if self._flexible else "-1"
        if nullable:
            self._line(f"if {value} is None: {data} = b''; {length} = {null}")
            self._line(f"else: {data} = {encoded}; {length} = {measured}")
        else:
            self._line(f"{data} = {encoded}; {length} = {measured}")
        if self._flexible:
            self._append(length)
        elif text:
            self._line(
                f"if {length} > {MAX_STRING_BYTES}: raise too_long({field.name!r}, {length})"
            )
            self._fixed("h", length)
        else:
            self._fixed("i", length)
        self._append(data)

    def _records(self, field: Field, value: str, *, nullable: bool) -> None:
        self._has_records = True
        size = self._name("n")
        self._line(f"{size} = -1 if {value} is None else records_size({value})")
        if not nullable:
            self._line(f"if {size} < 0: raise null({field.name!r})")
        if self._flexible:
            self._append(f"uvarints[{size} + 1]")
        else:
            self._fixed("i", size)
            self._flush()
        self._line(f"if {size} > 0: parts.append(join(out)); out.clear(); add(parts, {value})")

    # -- arrays ----------------------------------------------------------------------------------

    def _array(self, field: Field, value: str, *, nullable: bool) -> None:
        if isinstance(field.type, str) and field.type in INTEGERS:
            self._integers(field.type, value, nullable=nullable)
            return
        length = self._name("n")
        measured = f"uvarints[len({value}) + 1]" if self._flexible else f"len({value})"
        if nullable:
            null = EMPTY if self._flexible else "-1"
            self._line(f"if {value} is None: {value} = (); {length} = {null}")
            self._line(f"else: {length} = {measured}")
        else:
            self._line(f"{length} = {measured}")
        if self._flexible:
            self._append(length)
        else:
            self._fixed("i", length)
            self._flush()
        self._loop(field, value)

    def _loop(self, field: Field, value: str) -> None:
        item = self._name("i")
        if isinstance(field.type, str):
            self._line(f"for {item} in {value}:")
            self._indent += 1
            self._value(field, item, nullable=False)
        else:
            target, item = self._unpacked(field.type)
            self._line(f"for {target}in {value}:")
            self._indent += 1
            self._fields(field.type, item)
        self._flush()
        self._indent -= 1

    def _integers(self, kind: str, value: str, *, nullable: bool) -> None:
        code = f"*{FIXED[kind]}"
        if not nullable:
            self._fixed(code, value)
            return
        self._flush()
        null = self._constant("null", b"\0" if self._flexible else b"\xff\xff\xff\xff")
        self._line(f"if {value} is None: {self._out}.append({null})")
        self._line("else:")
        self._indent += 1
        self._fixed(code, value)
        self._flush()
        self._indent -= 1

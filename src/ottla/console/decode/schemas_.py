"""Values that name their schema (Confluent's wire format), read by a schema registry.

Runs in threads: a schema that is not known yet is asked for, and waited for. So that a page does
not wait for each of its records,

- a registry that did not answer is not asked again for `PAUSE`;
- after `MOST_UNKNOWN` ids that it does not know, others are not asked for until `PAUSE` is over:
  bytes that only look like a schema id are no reason for a request each.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.console.decode import json_
from ottla.console.decode.tree import Tree, Unreadable
from ottla.schemas.framing import KEY_HEADER, VALUE_HEADER, NotFramed, split
from ottla.schemas.model import Kind, Schema, SchemaError
from ottla.schemas.parsing import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.console.decode.avro_ import Avro
    from ottla.console.decode.protobuf_ import Protobuf
    from ottla.console.views.messages import Form
    from ottla.schemas.framing import Frame

PAUSE: Final = 10.0
"""Seconds."""
MOST_UNKNOWN: Final = 20
MOST_READERS: Final = 500
"""Parsed schemas that are kept: some 10 KB each."""


class Resolver(Protocol):
    """`ottla.schemas.cache.SchemaCache`."""

    def by_id(self, number: int) -> Schema | None: ...

    def by_guid(self, guid: bytes) -> Schema | None: ...

    def references(self, schema: Schema) -> Mapping[str, str]: ...


class Document(NamedTuple):
    """What a value says, and by which schema."""

    tree: Tree
    form: Form
    schema: str
    """Its name, if it is one of a registry or a file."""


class Reader:
    """Reads values of one schema."""

    def __init__(self, schema: Schema, references: Mapping[str, str], name: str) -> None:
        self.kind = schema.kind
        self.name = name
        self._avro: Avro | None = None
        self._protobuf: Protobuf | None = None
        if schema.kind is Kind.AVRO:
            from ottla.console.decode.avro_ import Avro

            self._avro = Avro(parse(schema, references).tree)
        elif schema.kind is Kind.PROTOBUF:
            from ottla.console.decode.protobuf_ import Protobuf

            self._protobuf = Protobuf(parse(schema, references).tree)

    def read(self, payload: bytes, message: str | Sequence[int] | None = None) -> Document:
        if self._avro is not None:
            return Document(self._avro.read(payload), "avro", self.name)
        if self._protobuf is not None:
            return Document(self._protobuf.read(payload, message), "protobuf", self.name)
        return Document(json_.read(payload), "json", self.name)


def is_framed(data: bytes, headers: Sequence[tuple[str, bytes | None]], *, is_key: bool) -> bool:
    """Whether the value seems to name its schema."""
    wanted = KEY_HEADER if is_key else VALUE_HEADER
    return (
        (data[:1] == b"\0" and len(data) >= 5)
        or (data[:1] == b"\1" and len(data) >= 17)
        or any(name == wanted for name, _ in headers)
    )


class Schemas:
    """The schemas of one registry; shared by threads."""

    def __init__(self, resolver: Resolver, clock: Callable[[], float]) -> None:
        self._resolver = resolver
        self._clock = clock
        self._lock = threading.Lock()
        self._readers: dict[int | bytes, Reader | str] = {}
        """By id or GUID; a text says why the schema cannot be used."""
        self._silent_until = 0.0
        self._why = ""
        self._unknown: dict[int | bytes, float] = {}

    def read(
        self, data: bytes, headers: Sequence[tuple[str, bytes | None]], *, is_key: bool
    ) -> Document:
        """The document; raises `Unreadable`."""
        try:
            frame = split(data, headers, is_key=is_key)
            reader = self._reader(frame)
            if reader.kind is not Kind.PROTOBUF:
                return reader.read(data[frame.start :])
            frame = split(data, headers, is_key=is_key, has_indexes=True)
        except NotFramed as error:
            raise Unreadable(str(error)) from None
        return reader.read(data[frame.start :], frame.indexes)

    def _reader(self, frame: Frame) -> Reader:
        key = frame.guid if frame.guid is not None else frame.id
        assert key is not None  # a frame has one of them
        found = self._readers.get(key)
        if found is None:
            with self._lock:
                found = self._readers.get(key) or self._asked(key)
        if isinstance(found, str):
            raise Unreadable(found)
        return found

    def _asked(self, key: int | bytes) -> Reader | str:
        now = self._clock()
        name = f"schema {key}" if isinstance(key, int) else f"schema {key.hex()}"
        if now < self._silent_until:
            return self._why
        self._unknown = {one: until for one, until in self._unknown.items() if until > now}
        if key in self._unknown:
            return f"the registry has no {name}"
        if len(self._unknown) >= MOST_UNKNOWN:
            return f"{name} was not asked for: the registry knows none of the last {MOST_UNKNOWN}"
        try:
            schema = (
                self._resolver.by_id(key) if isinstance(key, int) else self._resolver.by_guid(key)
            )
            if schema is None:
                self._unknown[key] = now + PAUSE
                return f"the registry has no {name}"
            references = self._resolver.references(schema) if schema.references else {}
        except SchemaError as error:
            self._silent_until, self._why = now + PAUSE, str(error)
            return self._why
        made: Reader | str
        try:
            made = Reader(schema, references, f"{schema.kind.value} {name}")
        except SchemaError as error:
            made = f"{name} cannot be used: {error}"
        if len(self._readers) >= MOST_READERS:
            del self._readers[next(iter(self._readers))]
        self._readers[key] = made
        return made


@lru_cache(maxsize=100)
def of_file(form: str) -> tuple[Reader, str | None]:
    """The reader of a form such as `avro:FILE` or `protobuf:FILE#Message`, and the message.

    Raises `Unreadable`.
    """
    kind, _, place = form.partition(":")
    path, _, message = place.partition("#") if kind == "protobuf" else (place, "", "")
    try:
        schema = Schema(Kind(kind.upper()), Path(path).read_text(encoding="utf-8"))
        return Reader(schema, {}, Path(path).name), message or None
    except (OSError, UnicodeDecodeError, SchemaError) as error:
        raise Unreadable(f"the schema {path} cannot be used: {error}") from None

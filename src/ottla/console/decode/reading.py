"""Which decoder shows a record, and masks before anything else.

Automatically a value that names a schema is read by the registry, a JSON object or list is shown as
JSON, text as text, everything else in hex. A form that was asked for and does not fit falls back to
text, then hex, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ottla.console.decode import json_, msgpack_, text_
from ottla.console.decode.schemas_ import Document, is_framed, of_file
from ottla.console.decode.tree import Unreadable, compact, pretty
from ottla.console.views.messages import Header, Message, Shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.reader.types import Record
    from ottla.console.decode.mask import Part, Rules
    from ottla.console.decode.schemas_ import Schemas
    from ottla.console.views.messages import State

NULL: Final = Shown("null", "", None)
_FILES: Final = ("avro:", "protobuf:")
_SPACE: Final = b" \t\r\n"
HEADER_BYTES: Final = 4096
"""Of a header's value this much is shown."""
MOST_HEADERS: Final = 200
"""Headers of a record that are shown: a megabyte has room for 300,000, which take 100 MiB."""
ENCODED_BYTES: Final = 64 * 1024
"""Encoded documents up to this size are read for a list: their first bytes would say nothing."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """Shows the records of one topic, for a list or, with `whole`, for a page of one record."""

    rules: Rules
    preview: int
    form: str = "auto"
    """Chosen on the page; "auto" leaves it to the settings of the topic."""
    whole: bool = False
    trees: bool = False
    """Whether documents are needed although only a preview is shown: for expressions and JSON."""
    schemas: Schemas | None = None
    """The cluster's schema registry; reading may wait for it, so this is for threads."""

    def read(self, record: Record, state: State = "committed") -> Message:
        headers = tuple(
            Header(name[:HEADER_BYTES], self._header(name, raw))
            for name, raw in record.headers[:MOST_HEADERS]
        )
        size = len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(raw or b"") for name, raw in record.headers)
        return Message(
            record.partition,
            record.offset,
            record.timestamp_ms,
            "LogAppendTime" if record.timestamp_type else "CreateTime",
            self.part("key", record.key, record.headers),
            self.part("value", record.value, record.headers),
            headers,
            size,
            state,
            max(0, len(record.headers) - MOST_HEADERS),
        )

    def part(
        self, part: Part, data: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()
    ) -> Shown:
        """A key or a value."""
        if data is None:
            return NULL
        asked = self.form
        if asked == "auto":
            asked = self.rules.key_form if part == "key" else self.rules.value_form
        if self.rules.reaches(part):
            return self._masked(part, data, asked, headers)
        return self._shown(part, data, asked, headers)

    def _document(
        self, part: Part, data: bytes, asked: str, headers: Sequence[tuple[str, bytes | None]]
    ) -> Document | None:
        """The value as a document; None if it is to be text. Raises `Unreadable`."""
        is_key = part == "key"
        if asked == "json":
            return Document(json_.read(data), "json", "")
        if asked == "msgpack":
            return Document(msgpack_.read(data), "msgpack", "")
        if asked.startswith(_FILES):
            reader, message = of_file(asked)
            return reader.read(data, message)
        if asked == "registry" and self.schemas is None:
            raise Unreadable("no schema registry is known; set registry in the settings")
        if self.schemas is not None and (
            asked == "registry" or (asked == "auto" and is_framed(data, headers, is_key=is_key))
        ):
            return self.schemas.read(data, headers, is_key=is_key)
        if asked == "auto" and data[:64].lstrip(_SPACE)[:1] in (b"{", b"["):
            return Document(json_.read(data), "json", "")
        return None

    def _masked(
        self, part: Part, data: bytes, asked: str, headers: Sequence[tuple[str, bytes | None]]
    ) -> Shown:
        text = self.rules.whole(part)
        if text is not None:
            return Shown("masked", text, len(data))
        try:
            form = "auto" if asked in ("text", "hex") else asked
            found = self._document(part, data, form, headers)
            if found is None:
                found = Document(json_.read(data), "json", "")
            tree = self.rules.apply(part, found.tree)
        except Unreadable as error:
            return Shown("masked", f"{len(data):,} bytes", len(data), f"masked; {error}")
        return self._tree(found._replace(tree=tree), len(data))

    def _shown(
        self, part: Part, data: bytes, asked: str, headers: Sequence[tuple[str, bytes | None]]
    ) -> Shown:
        is_long = len(data) > self.preview
        if asked == "hex":
            return self._hex(data, None)
        if asked == "text" and not is_long:
            return self._text(text_.read_loosely(data), data, None)
        reason = None
        is_encoded = asked == "registry" or asked.startswith(_FILES) or data[:1] in (b"\0", b"\1")
        if self.trees or not is_long or (is_encoded and len(data) <= ENCODED_BYTES):
            try:
                found = self._document(part, data, asked, headers)
                if found is not None:
                    return self._tree(found, len(data))
            except Unreadable as error:
                reason = str(error)
        if is_long:
            return replace(self._cut_text(data), reason=reason)
        try:
            return self._text(text_.read(data), data, reason)
        except Unreadable as error:
            return self._hex(data, reason or (None if asked == "auto" else str(error)))

    def _tree(self, found: Document, size: int) -> Shown:
        tree = found.tree
        text = pretty(tree) if self.whole else compact(tree)
        cut = not self.whole and len(text) > self.preview
        return Shown(
            found.form,
            text[: self.preview] if cut else text,
            size,
            cut=cut,
            tree=tree,
            has_tree=True,
            schema=found.schema,
        )

    def _cut_text(self, data: bytes) -> Shown:
        """The beginning of something long, without reading the rest of it."""
        begin = data[: self.preview]
        # The cut may have parted a character of up to four bytes.
        for end in range(len(begin), max(len(begin) - 4, 0), -1):
            try:
                return Shown("text", text_.read(begin[:end]), len(data), cut=True)
            except Unreadable:
                continue
        return Shown("hex", text_.in_hex(begin[: self.preview // 4]), len(data), cut=True)

    def _text(self, text: str, data: bytes, reason: str | None) -> Shown:
        return Shown("text", text, len(data), reason)

    def _hex(self, data: bytes, reason: str | None) -> Shown:
        if self.whole:
            cut = len(data) > self.preview
            return Shown("hex", text_.dump(data[: self.preview]), len(data), reason, cut)
        most = self.preview // 4
        return Shown("hex", text_.in_hex(data[:most]), len(data), reason, len(data) > most)

    def _header(self, name: str, raw: bytes | None) -> Shown:
        if raw is None:
            return NULL
        masked = self.rules.header(name)
        if masked is not None:
            return Shown("masked", masked, len(raw))
        data = raw[:HEADER_BYTES]
        cut = len(raw) > HEADER_BYTES
        try:
            return Shown("text", text_.read(data), len(raw), cut=cut)
        except Unreadable:
            return Shown("hex", text_.in_hex(data), len(raw), cut=cut)

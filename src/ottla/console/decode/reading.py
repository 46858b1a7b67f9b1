"""Which decoder shows a record, and masks before anything else.

Automatically a value is shown as JSON if it is a JSON object or list, as text if it is text, else
in hex. A form that was asked for and does not fit falls back to text, then hex, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ottla.console.decode import json_, msgpack_, text_
from ottla.console.decode.tree import Tree, Unreadable, compact, pretty
from ottla.console.views.messages import Header, Message, Shown

if TYPE_CHECKING:
    from ottla.client.reader.types import Record
    from ottla.console.decode.mask import Part, Rules
    from ottla.console.views.messages import Form, State

NULL: Final = Shown("null", "", None)
_TREES: Final = {"json": json_.read, "msgpack": msgpack_.read}
_SPACE: Final = b" \t\r\n"
HEADER_BYTES: Final = 4096
"""Of a header's value this much is shown."""


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

    def read(self, record: Record, state: State = "committed") -> Message:
        headers = tuple(Header(name, self._header(name, raw)) for name, raw in record.headers)
        size = len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(raw or b"") for name, raw in record.headers)
        return Message(
            record.partition,
            record.offset,
            record.timestamp_ms,
            "LogAppendTime" if record.timestamp_type else "CreateTime",
            self.part("key", record.key),
            self.part("value", record.value),
            headers,
            size,
            state,
        )

    def part(self, part: Part, data: bytes | None) -> Shown:
        """A key or a value."""
        if data is None:
            return NULL
        asked = self.form
        if asked == "auto":
            asked = self.rules.key_form if part == "key" else self.rules.value_form
        if self.rules.reaches(part):
            return self._masked(part, data, asked)
        return self._shown(data, asked)

    def _masked(self, part: Part, data: bytes, asked: str) -> Shown:
        text = self.rules.whole(part)
        if text is not None:
            return Shown("masked", text, len(data))
        form = "msgpack" if asked == "msgpack" else "json"
        try:
            tree = self.rules.apply(part, _TREES[form](data))
        except Unreadable as error:
            return Shown("masked", f"{len(data):,} bytes", len(data), f"masked; {error}")
        return self._tree(tree, form, len(data))

    def _shown(self, data: bytes, asked: str) -> Shown:
        is_long = len(data) > self.preview
        if asked == "hex":
            return self._hex(data, None)
        if asked == "text" and not is_long:
            return self._text(text_.read_loosely(data), data, None)
        looks_like_json = data[:64].lstrip(_SPACE)[:1] in (b"{", b"[")
        reason = None
        if (asked in _TREES or (asked == "auto" and looks_like_json)) and (
            self.trees or not is_long
        ):
            form = "json" if asked == "auto" else asked
            try:
                return self._tree(_TREES[form](data), form, len(data))
            except Unreadable as error:
                reason = str(error)
        if is_long:
            return replace(self._cut_text(data), reason=reason)
        try:
            return self._text(text_.read(data), data, reason)
        except Unreadable as error:
            return self._hex(data, reason or (None if asked == "auto" else str(error)))

    def _tree(self, tree: Tree, form: str, size: int) -> Shown:
        text = pretty(tree) if self.whole else compact(tree)
        cut = not self.whole and len(text) > self.preview
        shown = text[: self.preview] if cut else text
        kind: Form = "msgpack" if form == "msgpack" else "json"
        return Shown(kind, shown, size, cut=cut, tree=tree, has_tree=True)

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

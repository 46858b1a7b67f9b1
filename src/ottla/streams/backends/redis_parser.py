"""A RESP2 parser for large replies, plugged into redis-py as the `parser_class` of readers.

redis-py's own parser awaits every element of a reply, five per entry. This one walks the bytes that
have arrived in one plain loop, and where a reply is cut it goes on at the element it stopped at,
so that no byte is looked at twice. Entries of one field, as producers here write them, are taken
whole. With hiredis installed that is used instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from redis import exceptions
from redis._parsers.base import AsyncBaseParser

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

READ_SIZE: Final = 65536

_BULK, _ARRAY, _INTEGER, _SIMPLE, _ERROR = b"$*:+-"
_END: Final = b"\r\n"

_entry = re.compile(
    rb"\*2\r\n\$(\d+)\r\n(\d+-\d+)\r\n\*2\r\n\$(\d+)\r\n([^\r\n]*)\r\n\$(\d+)\r\n"
).match
"""An entry with one field, up to where its value begins: id, name and value with their sizes."""


class Unfinished(Exception):
    """The reply is incomplete; at least `missing` bytes are needed."""

    def __init__(self, missing: int) -> None:
        super().__init__(missing)
        self.missing = missing


class ReplyReader:
    """`feed` it bytes, `take` replies."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        self._open: list[tuple[list[object], int]] = []  # arrays begun, with their sizes

    @property
    def has_data(self) -> bool:
        return self._at < len(self._data)

    def feed(self, data: bytes) -> None:
        self._data = self._data[self._at :] + data
        self._at = 0

    def take(self) -> object:
        """The next reply; an error reply is returned as an exception."""
        arrays = self._open
        while True:
            if arrays and self._take_entries(*arrays[-1]):
                value: object = arrays.pop()[0]
            else:
                value = self._element()
                if type(value) is _Array:
                    if value.size > 0:
                        arrays.append(([], value.size))
                        continue
                    value = None if value.size < 0 else []
            while arrays:
                items, size = arrays[-1]
                items.append(value)
                if len(items) < size:
                    break
                value = arrays.pop()[0]
            else:
                return value

    def _take_entries(self, items: list[object], size: int) -> bool:
        """Fill an array with the entries that are all there; whether it is full then."""
        data, at, end = self._data, self._at, len(self._data)
        while found := _entry(data, at):
            id_size, id_, name_size, name, value_size = found.groups()
            start = found.end()
            at = start + int(value_size) + 2
            if at > end or int(id_size) != len(id_) or int(name_size) != len(name):
                break
            items.append([id_, [name, data[start : at - 2]]])
            self._at = at
            if len(items) == size:
                return True
        return False

    def _element(self) -> object:
        data, at = self._data, self._at
        end = data.find(_END, at)
        if end < 0:
            raise Unfinished(1)
        kind = data[at]
        if kind == _BULK:
            stop = end + 2 + int(data[at + 1 : end])
            if stop < end + 2:  # a size of -1 stands for nothing
                self._at = end + 2
                return None
            if len(data) < stop + 2:
                raise Unfinished(stop + 2 - len(data))
            self._at = stop + 2
            return data[end + 2 : stop]
        self._at = end + 2
        line = data[at + 1 : end]
        if kind == _ARRAY:
            return _Array(int(line))
        if kind == _INTEGER:
            return int(line)
        if kind == _SIMPLE:
            return line
        if kind == _ERROR:
            said = line.decode("utf-8", "replace")
            return AsyncBaseParser.parse_error(said)  # type: ignore[no-untyped-call]  # of redis-py
        raise exceptions.InvalidResponse(
            f"the server sent {data[at : at + 20]!r}, which is not RESP2"
        )


class _Array:
    """The head of an array."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


class StreamParser(AsyncBaseParser):
    """The parser interface of redis-py connections."""

    def __init__(self, socket_read_size: int) -> None:
        super().__init__(socket_read_size)
        self._replies = ReplyReader()

    def on_connect(self, connection: AbstractConnection) -> None:
        self._stream = connection._reader
        self._replies = ReplyReader()

    def on_disconnect(self) -> None:
        self._stream = None

    async def can_read(self) -> bool:
        return self._replies.has_data

    async def can_read_destructive(self) -> bool:
        return self._replies.has_data

    async def read_response(  # type: ignore[override]  # as the parsers of redis-py themselves do
        self,
        disable_decoding: bool = False,  # redis-py's signature
        push_request: bool | None = False,  # the same
    ) -> object:
        while True:
            try:
                reply = self._replies.take()
            except Unfinished as cut:
                await self._read(cut.missing)
            else:
                if isinstance(reply, exceptions.ConnectionError):
                    raise reply
                return reply

    async def _read(self, missing: int) -> None:
        """At least that many bytes, joined once: a payload may be large."""
        parts = []
        while missing > 0:
            if self._stream is None:
                raise exceptions.ConnectionError("the connection is closed")
            part = await self._stream.read(READ_SIZE)
            if not part:
                raise exceptions.ConnectionError("the server closed the connection")
            parts.append(part)
            missing -= len(part)
        self._replies.feed(b"".join(parts))

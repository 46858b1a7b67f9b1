"""Entries as messages, and messages as entries.

The payload is one field of an entry (`msg` unless configured); `key` is the message's key, and all
other fields are its headers, so that entries of other programs lose nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.streams.errors import FormatError
from ottla.streams.types import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.streams.backends.redis_ids import IdFormat
    from ottla.streams.backends.redis_replies import Fields, RawEntry
    from ottla.streams.types import Outgoing

KEY_FIELD: Final = "key"


class EntryFormat:
    """How payload, key and headers are laid out in the fields of an entry."""

    def __init__(self, ids: IdFormat, field: str) -> None:
        self.ids = ids
        self._field = field
        self._payload = field.encode()
        self._key = KEY_FIELD.encode()

    def message(self, stream: str, shard: int, entry: RawEntry, delivery: int) -> Message:
        native, fields = entry
        seq = self.ids.to_seq(native)
        time_ns = self.ids.timestamp_ns(seq)
        if len(fields) == 2 and type(fields) is list and fields[0] == self._payload:
            return Message(stream, shard, seq, time_ns, fields[1], None, (), native, delivery)
        payload = key = None
        headers = []
        for name, value in pairs(fields):
            if name == self._payload:
                payload = value
            elif name == self._key:
                key = value
            else:
                headers.append((name.decode("utf-8", "replace"), value))
        if payload is None:
            raise FormatError(
                f"the entry {native} has no field {self._field!r}; connect with "
                "RedisOptions(field=...) or choose on_bad_entry",
                stream=stream,
            )
        return Message(stream, shard, seq, time_ns, payload, key, tuple(headers), native, delivery)

    def fields(self, message: Outgoing) -> list[str | bytes]:
        """Names and values in turn, the payload first."""
        laid: list[str | bytes] = [self._field, message.payload]
        if message.key is not None:
            laid += (KEY_FIELD, message.key)
        for name, value in message.headers:
            if name in {self._field, KEY_FIELD}:
                raise FormatError(
                    f"header {name!r}: this name is reserved for a field of its own on Redis",
                    stream=message.stream,
                )
            assert value is not None  # producers have refused it
            laid += (name, value)
        return laid


def pairs(fields: Fields) -> Iterable[tuple[bytes, bytes]]:
    if isinstance(fields, Mapping):
        return fields.items()
    return zip(fields[::2], fields[1::2], strict=True)

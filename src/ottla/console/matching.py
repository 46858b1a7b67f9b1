"""Which records a query lets through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.console.decode.tree import compact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.reader.types import Record
    from ottla.console.decode.reading import Decoder
    from ottla.console.query import Query
    from ottla.console.views.messages import Message


def matching(query: Query, decoder: Decoder, records: Sequence[Record]) -> list[Message]:
    """Those of the records that the query's filters let through, decoded and masked."""
    found = []
    # What is masked must not be asked out letter by letter: there the shown text counts.
    is_raw = not decoder.rules.masked
    for record in records:
        if query.contains and is_raw and not _contains(record, query.contains):
            continue
        message = decoder.read(record)
        if query.contains and not is_raw and not _shows(message, query.contains):
            continue
        if query.where is None or query.where.matches(message):
            found.append(message)
    return found


def _contains(record: Record, needle: bytes) -> bool:
    return (
        (record.value is not None and needle in record.value)
        or (record.key is not None and needle in record.key)
        or any(value is not None and needle in value for _, value in record.headers)
    )


def _shows(message: Message, needle: bytes) -> bool:
    text = needle.decode("utf-8", "surrogateescape")
    shown = (message.key, message.value, *(one.value for one in message.headers))
    return any(text in (compact(one.tree) if one.has_tree else one.text) for one in shown)

"""Records as a file: JSON lines or CSV, streamed, with the filters and masks of the page.

A file that a limit cuts says so in its last line.
"""

from __future__ import annotations

import asyncio
import csv
import io
from typing import TYPE_CHECKING, Final

from ottla.console.browse import READ_AT_ONCE, matching
from ottla.console.decode.tree import compact
from ottla.console.text import csv_cell
from ottla.console.views.messages import line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ottla.console.browse import Browser, Query
    from ottla.console.decode.reading import Decoder
    from ottla.console.views.messages import Message, Shown

COLUMNS: Final = ("partition", "offset", "timestamp", "time", "key", "value", "headers")
FORMATS: Final = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}


async def stream(
    browser: Browser, query: Query, decoder: Decoder, form: str, max_bytes: int
) -> AsyncIterator[bytes]:
    """The file, piece by piece."""
    starts, stops = await browser.span(query)
    if form == "csv":
        yield _csv([COLUMNS])
    write = _csv_of if form == "csv" else _lines_of
    left = max_bytes
    async with browser.reader(query.topic, query.isolation, starts, stops) as reader:
        while records := await reader.read_many(READ_AT_ONCE):
            messages = await asyncio.to_thread(matching, query, decoder, records)
            piece = await asyncio.to_thread(write, messages)
            if len(piece) > left:
                yield _cut(form, max_bytes)
                return
            left -= len(piece)
            if piece:
                yield piece


def _lines_of(messages: Sequence[Message]) -> bytes:
    return "".join(f"{line(one)}\n" for one in messages).encode("utf-8", "backslashreplace")


def _csv_of(messages: Sequence[Message]) -> bytes:
    return _csv([_row(one) for one in messages])


def _row(one: Message) -> list[object]:
    time = one.time
    return [
        one.partition,
        one.offset,
        one.timestamp_ms,
        "" if time is None else time.isoformat(timespec="milliseconds"),
        csv_cell(_text(one.key)),
        csv_cell(_text(one.value)),
        csv_cell("; ".join(f"{header.name}={_text(header.value)}" for header in one.headers)),
    ]


def _text(shown: Shown) -> str:
    return compact(shown.tree) if shown.has_tree else shown.text


def _csv(rows: Sequence[Sequence[object]]) -> bytes:
    made = io.StringIO()
    csv.writer(made).writerows(rows)
    return made.getvalue().encode("utf-8", "backslashreplace")


def _cut(form: str, max_bytes: int) -> bytes:
    said = f"stopped at the limit of {max_bytes >> 20} MiB (download_max_mib)"
    return _csv([[f"# {said}"]]) if form == "csv" else f'{{"limit":"{said}"}}\n'.encode()

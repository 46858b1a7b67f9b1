"""Records as a file: JSON lines, CSV or Parquet, streamed, with the filters and masks of the page.

A file that a limit cuts says so in its last line; Parquet in the metadata key `ottla.limit`.
"""

from __future__ import annotations

import asyncio
import csv
import io
from typing import TYPE_CHECKING, Final, Protocol

from ottla.console.decode.tree import compact
from ottla.console.matching import matching
from ottla.console.paging import READ_AT_ONCE
from ottla.console.problem import Refused
from ottla.console.text import csv_cell
from ottla.console.views.messages import line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from ottla.console.browse import Browser
    from ottla.console.decode.reading import Decoder
    from ottla.console.query import Query
    from ottla.console.views.messages import Message, Shown

GROUP_ROWS: Final = 10_000
GROUP_BYTES: Final = 8 << 20
"""A row group of Parquet has so many records, or bytes, and is held while it is made."""
COLUMNS: Final = ("partition", "offset", "timestamp", "time", "key", "value", "headers")
FORMATS: Final = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}


async def stream(
    browser: Browser, query: Query, decoder: Decoder, form: str, max_bytes: int
) -> AsyncIterator[bytes]:
    """The file, piece by piece."""
    starts, stops = await browser.span(query)
    file = await asyncio.to_thread(_FILES[form])
    yield file.first()
    left = max_bytes
    async with browser.reader(query.topic, query.isolation, starts, stops) as reader:
        while records := await reader.read_many(READ_AT_ONCE):
            messages = await asyncio.to_thread(matching, query, decoder, records)
            piece = await asyncio.to_thread(file.piece, messages)
            if len(piece) > left:
                said = f"stopped at the limit of {max_bytes >> 20} MiB (download_max_mib)"
                yield await asyncio.to_thread(file.cut, piece, said)
                return
            left -= len(piece)
            if piece:
                yield piece
    yield await asyncio.to_thread(file.end)


class File(Protocol):
    """Writes one format. It ends with `end`, or with `cut`, which gets the piece too many."""

    def first(self) -> bytes: ...

    def piece(self, messages: Sequence[Message]) -> bytes: ...

    def cut(self, piece: bytes, said: str) -> bytes: ...

    def end(self) -> bytes: ...


class _Lines:
    def first(self) -> bytes:
        return b""

    def piece(self, messages: Sequence[Message]) -> bytes:
        return "".join(f"{line(one)}\n" for one in messages).encode("utf-8", "backslashreplace")

    def cut(self, piece: bytes, said: str) -> bytes:
        del piece
        return f'{{"limit":"{said}"}}\n'.encode()

    def end(self) -> bytes:
        return b""


class _Csv:
    def first(self) -> bytes:
        return _csv([COLUMNS])

    def piece(self, messages: Sequence[Message]) -> bytes:
        return _csv([_row(one) for one in messages])

    def cut(self, piece: bytes, said: str) -> bytes:
        del piece
        return _csv([[f"# {said}"]])

    def end(self) -> bytes:
        return b""


class _Parquet:
    """A row group for each `GROUP_ROWS` records, so that little is held.

    Keys and values are texts as the page shows them, documents as JSON; `key_form` and `value_form`
    say what they were. The group that goes beyond the limit is still in the file, since its footer
    names it.
    """

    def __init__(self) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise Refused(400, "Parquet needs pip install 'ottla[arrow]'.") from None
        self._pa = pa
        header = pa.struct([("name", pa.string()), ("value", pa.string())])
        self._schema = pa.schema(
            [
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("ms", "UTC")),
                ("key", pa.string()),
                ("key_form", pa.string()),
                ("value", pa.string()),
                ("value_form", pa.string()),
                ("headers", pa.list_(header)),
                ("state", pa.string()),
            ]
        )
        self._sink = io.BytesIO()
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd")
        self._rows: list[Message] = []

    def first(self) -> bytes:
        return self._taken()

    def piece(self, messages: Sequence[Message]) -> bytes:
        self._rows += messages
        if len(self._rows) < GROUP_ROWS and sum(one.size for one in self._rows) < GROUP_BYTES:
            return b""
        return self._group()

    def cut(self, piece: bytes, said: str) -> bytes:
        self._writer.add_key_value_metadata({"ottla.limit": said})
        self._writer.close()
        return piece + self._taken()

    def end(self) -> bytes:
        if self._rows:
            self._write()
        self._writer.close()
        return self._taken()

    def _group(self) -> bytes:
        self._write()
        return self._taken()

    def _write(self) -> None:
        rows = [
            {
                "partition": one.partition,
                "offset": one.offset,
                "timestamp": one.timestamp_ms,
                "key": _text_or_none(one.key),
                "key_form": one.key.form,
                "value": _text_or_none(one.value),
                "value_form": one.value.form,
                "headers": [
                    {"name": _valid(each.name), "value": _text_or_none(each.value)}
                    for each in one.headers
                ],
                "state": one.state,
            }
            for one in self._rows
        ]
        self._writer.write_batch(self._pa.RecordBatch.from_pylist(rows, self._schema))
        self._rows.clear()

    def _taken(self) -> bytes:
        """What was written since; the writer counts on its own where it is."""
        made = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return made


_FILES: Final[Mapping[str, Callable[[], File]]] = {
    "jsonl": _Lines,
    "csv": _Csv,
    "parquet": _Parquet,
}


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


def _text_or_none(shown: Shown) -> str | None:
    return None if shown.form == "null" else _valid(_text(shown))


def _valid(text: str) -> str:
    """Half of a surrogate pair has no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()

"""`ottla consume`: print the records of a topic, as lines for people, JSON lines, or raw values."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Source,
    Timeout,
    parse_source,
    security,
    sentences,
)
from ottla.cli.records import JsonLines, Key, Printer, Raw, ShowHeaders

if TYPE_CHECKING:
    from ottla.client.reader.types import Position, Record

ENDS: dict[str, Position] = {"earliest": "earliest", "latest": "latest"}

# Rows that are formatted and printed at a time; smaller batches are printed as they arrive.
ROWS_AT_ONCE = 1000

EXAMPLES = """\b
Examples:
    ottla consume orders
    ottla consume orders --from latest --key --headers
    ottla consume orders --from 2026-01-31T12:00 --until-end --json
    ottla consume kafka://127.0.0.1:9092/orders --partition 0 --from 500 --max-records 10
"""


def consume(
    source: Source,
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="PLACE", help="earliest, latest, an offset, or a time (ISO 8601)."
        ),
    ] = "earliest",
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", metavar="N", min=0, help="Read only this partition. May be repeated."
        ),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after N records.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the current end.")
    ] = False,
    key: Key = False,
    headers: ShowHeaders = False,
    as_json: JsonLines = False,
    raw: Raw = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Print the records of a topic, and wait for more."""
    printer: Printer[Record] = Printer(as_json=as_json, raw=raw, key=key, headers=headers, extra={})
    where, topic = parse_source(source, bootstrap)
    place = parse_place(start)
    _read(where, topic, place, partition or None, max_records, until_end, timeout, printer)


def _read(
    bootstrap: str,
    topic: str,
    place: Position,
    partitions: list[int] | None,
    max_records: int | None,
    until_end: bool,
    timeout: float,
    printer: Printer[Record],
) -> None:
    """Read and print; an error ends the program with a sentence, an interrupt does not."""
    import asyncio

    from ottla.client.cluster.cluster import Client
    from ottla.client.reader.reader import Reader

    async def run() -> None:
        left = sys.maxsize if max_records is None else max_records
        async with Client(bootstrap, api_timeout=timeout, security=security()) as client:
            # Fail at once if no broker is running.
            await client.connection_to("any")
            async with Reader(
                client,
                topic,
                start=place,
                stop="latest" if until_end else None,
                partitions=partitions,
            ) as reader:
                while left and (records := await reader.read_many(min(left, ROWS_AT_ONCE))):
                    printer.records(records)
                    left -= len(records)

    with sentences(), suppress(KeyboardInterrupt):
        asyncio.run(run())


def parse_place(text: str) -> Position:
    """Where --from points; a time without a zone is local."""
    if text in ENDS:
        return ENDS[text]
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not earliest, latest, an offset or a time such as 2026-01-31T12:00",
            param_hint="--from",
        ) from None

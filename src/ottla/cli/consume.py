"""`ottla consume`: print the records of a topic, as lines for people, JSON lines, or raw values."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, Bootstrap, Timeout, fail

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cli.output import Value
    from ottla.client.reader_types import Position, Record

SCHEME = "kafka://"
MS = 1000
ENDS: dict[str, Position] = {"earliest": "earliest", "latest": "latest"}

# Rows that are made and printed at a time; what comes in smaller pieces is printed as it comes.
ROWS_AT_ONCE = 1000

EXAMPLES = """\b
Examples:
    ottla consume orders
    ottla consume orders --from latest --key --headers
    ottla consume orders --from 2026-01-31T12:00 --until-end --json
    ottla consume kafka://127.0.0.1:9092/orders --partition 0 --from 500 --max-records 10
"""


def consume(
    source: Annotated[
        str, typer.Argument(metavar="TOPIC|URL", help="A topic, or kafka://HOST:PORT,.../TOPIC.")
    ],
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="PLACE", help="earliest, latest, an offset, or a time (ISO 8601)."
        ),
    ] = "earliest",
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="N", min=0, help="Only this. May be repeated."),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after so many.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at what is the end now; do not wait for more.")
    ] = False,
    key: Annotated[bool, typer.Option("--key", help="Print keys, too.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Print headers, too.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each record whole, as one line of JSON.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print values as they are, each with a newline.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Print the records of a topic, and wait for more."""
    if as_json and raw:
        raise typer.BadParameter("choose one of --json and --raw", param_hint="--raw")
    if raw and headers:
        raise typer.BadParameter("headers need --json or lines", param_hint="--headers")
    where, topic = parse_source(source, bootstrap)
    place = parse_place(start)
    if as_json:
        show: Callable[[Record], bytes] = json_line
    elif raw:
        show = raw_with_key if key else raw_value
    else:
        show = text_line(key=key, headers=headers)
        sys.stdout.buffer.write(text_title(key=key, headers=headers))
        sys.stdout.buffer.flush()

    def write(records: list[Record]) -> None:
        sys.stdout.buffer.write(b"".join(map(show, records)))
        sys.stdout.buffer.flush()

    _read(where, topic, place, partition or None, max_records, until_end, timeout, write)


def _read(
    bootstrap: str,
    topic: str,
    place: Position,
    partitions: list[int] | None,
    max_records: int | None,
    until_end: bool,
    timeout: float,
    write: Callable[[list[Record]], None],
) -> None:
    """Read and write; what goes wrong ends the program with a sentence, an interrupt does not."""
    import asyncio

    from ottla.client.bootstrap import BadBootstrap
    from ottla.client.cluster import Client
    from ottla.client.errors import BrokerUnreachable, ClientError
    from ottla.client.reader import Reader
    from ottla.client.reader_decode import ALL_COLUMNS, to_records

    async def run() -> None:
        left = sys.maxsize if max_records is None else max_records
        async with Client(bootstrap, api_timeout=timeout) as client:
            # Whoever has forgotten to start a broker is told so at once.
            await client.connection_to("any")
            async with Reader(
                client,
                topic,
                start=place,
                stop="latest" if until_end else None,
                partitions=partitions,
                columns=ALL_COLUMNS,
                max_batch_rows=min(left, ROWS_AT_ONCE),
            ) as reader:
                async for batch in reader:
                    write(to_records(batch.slice(0, left)))
                    left -= batch.num_rows
                    if left <= 0:
                        return

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        return
    except BadBootstrap as error:
        raise typer.BadParameter(str(error), param_hint="--bootstrap") from None
    except BrokerUnreachable as error:
        fail(f"{error}; is a broker running there? --bootstrap names another")
    except BrokenPipeError:
        raise  # the command line's own way to end when nobody reads on
    except (ClientError, ValueError, OSError) as error:
        fail(error)


def parse_source(source: str, bootstrap: str) -> tuple[str, str]:
    """The brokers and the topic that an argument names."""
    if not source.startswith(SCHEME):
        return bootstrap, source
    brokers, _, topic = source.removeprefix(SCHEME).partition("/")
    if not brokers or not topic:
        raise typer.BadParameter(f"{source!r} is not {SCHEME}HOST:PORT/TOPIC", param_hint="URL")
    return brokers, topic


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
            f"{text!r} is none of earliest, latest, an offset and a time such as 2026-01-31T12:00",
            param_hint="--from",
        ) from None


def json_line(record: Record) -> bytes:
    """The whole record; bytes that are no UTF-8 text go as base64 under a name that says so."""
    found: dict[str, Value] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [{"key": name, **_field("value", value)} for name, value in record.headers],
    }
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def raw_value(record: Record) -> bytes:
    """The value alone."""
    return (record.value or b"") + b"\n"


def raw_with_key(record: Record) -> bytes:
    """The key, a tab, the value."""
    return (record.key or b"") + b"\t" + raw_value(record)


def text_title(*, key: bool, headers: bool) -> bytes:
    """What the columns of `text_line` are."""
    columns = ["partition", "    offset", "timestamp               "]
    columns += ["key"] * key + ["headers"] * headers + ["value"]
    return "  ".join(columns).encode() + b"\n"


def text_line(*, key: bool, headers: bool) -> Callable[[Record], bytes]:
    """A line for people: whatever would upset a terminal is escaped."""

    def show(record: Record) -> bytes:
        cells = [f"{record.partition:9}", f"{record.offset:10}", _time(record.timestamp)]
        if key:
            cells.append(_text(record.key))
        if headers:
            cells.append(
                " ".join(f"{name}={_text(value)}" for name, value in record.headers) or "-"
            )
        return "  ".join([*cells, _text(record.value)]).encode() + b"\n"

    return show


def _field(name: str, data: bytes | None) -> dict[str, Value]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        import base64

        assert data is not None
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _time(ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ms / MS, UTC):%Y-%m-%dT%H:%M:%S}.{ms % MS:03}Z"
    except (ValueError, OverflowError, OSError):
        return f"{ms:<24}"  # no producer's clock is that wrong, but its data may be


def _text(data: bytes | None) -> str:
    if data is None:
        return "-"
    said = data.decode(errors="backslashreplace")
    if said.isprintable():
        return said
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in said
    )

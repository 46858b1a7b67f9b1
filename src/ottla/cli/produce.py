"""`ottla produce`: write lines, or records as JSON lines, to a topic.

Input is sent as it arrives, so that endless pipes work. If the command ends early, it prints how
many records are acknowledged.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, NamedTuple

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Source,
    Timeout,
    complain,
    parse_source,
    security,
    sentences,
)
from ottla.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.client.producer.types import ProducerRecord

# Bytes that are read, parsed and sent at a time.
CHUNK_BYTES = 1024 * 1024
# Longer than any line a broker takes by default; beyond it the input is no lines of text.
MAX_LINE_BYTES = 64 * CHUNK_BYTES

PROGRESS_SECONDS = 0.5
INTERRUPTED = 130  # the status shells know for Ctrl-C

EXAMPLES = """\b
Examples:
    echo hello | ottla produce orders
    ottla produce orders --key-separator : --file orders.txt --codec zstd
    ottla produce orders --format json --file orders.jsonl
    ottla consume orders --until-end --json | ottla produce copy --format json
"""


def produce(
    source: Source,
    input_format: Annotated[
        Literal["lines", "json"],
        typer.Option(
            "--format",
            help="lines: each line is a value. json: each line is an object with value and "
            "optionally key, headers, partition, timestamp_ms; value_base64, key_base64 for bytes.",
        ),
    ] = "lines",
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Text between key and value in each line."),
    ] = None,
    file: Annotated[
        typer.FileBinaryRead | None, typer.Option("--file", help="Read this file instead of stdin.")
    ] = None,
    codec: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"],
        typer.Option("--codec", help="Compression of batches."),
    ] = "none",
    acks: Annotated[
        Literal["all", "1", "0"],
        typer.Option("--acks", help="When a record is acknowledged; 0: do not wait."),
    ] = "all",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the count as JSON.")] = False,
) -> None:
    """Write the lines of stdin, or of a file, to a topic."""
    if key_separator == "":
        raise typer.BadParameter(
            "--key-separator is empty; give at least one character", param_hint="--key-separator"
        )
    if key_separator is not None and input_format == "json":
        raise typer.BadParameter(
            "--key-separator cannot be used with --format json: each object has its own key",
            param_hint="--key-separator",
        )
    where, topic = parse_source(source, bootstrap)
    separator = None if key_separator is None else key_separator.encode()
    parse = parse_json if input_format == "json" else lambda line: parse_line(line, separator)
    count = Count()
    status = 0
    stream = sys.stdin.buffer if file is None else file
    try:
        _send(where, topic, codec, acks, timeout, chunks(stream, parse), count)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except typer.Exit as ended:
        status = ended.exit_code
    count.clear()
    if as_json:
        print_json({"topic": topic, "records": count.records})
    else:
        bound = "" if count.is_exact else "at least "
        typer.echo(f"{bound}{count.records} record(s) written to {topic}")
    raise typer.Exit(status)


class Chunk(NamedTuple):
    """Records that were read together, and what is wrong with the line after them."""

    records: list[ProducerRecord]
    problem: str | None


class Count:
    """The number of acknowledged records; shown from time to time on a terminal."""

    def __init__(self) -> None:
        self.records = 0
        self.is_exact = True
        self._is_seen = sys.stderr.isatty() and not sys.stdin.isatty()
        self._next = time.monotonic() + PROGRESS_SECONDS
        self._is_shown = False

    @contextmanager
    def adding(self, records: int) -> Iterator[None]:
        """While they are sent, some of them may be written."""
        self.is_exact = False
        yield
        self.is_exact = True
        self.records += records
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if self._is_seen and now >= self._next:
            self._next = now + PROGRESS_SECONDS
            self._is_shown = True
            typer.echo(f"\r{self.records:,} records", nl=False, err=True)

    def clear(self) -> None:
        if self._is_shown:
            typer.echo("\r\x1b[K", nl=False, err=True)


def _send(
    bootstrap: str,
    topic: str,
    codec: str,
    acks: str,
    timeout: float,
    found: Iterator[Chunk],
    count: Count,
) -> None:
    """Send the records; this thread reads, so that Ctrl-C ends a read at once."""
    from ottla.sync import Producer

    with (
        sentences(),
        Producer(
            bootstrap,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=acks == "all",
            compression_type=codec,
            delivery_timeout_ms=timeout * 1000,
            request_timeout_ms=timeout * 1000,
            max_block_ms=timeout * 1000,
            security=security(),
        ) as producer,
    ):
        # Fail at once if no broker is running.
        producer.connect()
        for records, problem in found:
            with count.adding(len(records)):
                producer.send_many(topic, records)
            if problem is not None:
                complain(problem)
                raise typer.Exit(1)


def chunks(stream: BinaryIO, parse: Callable[[bytes], ProducerRecord | None]) -> Iterator[Chunk]:
    """The lines of a stream as records, as they arrive; ends at the first bad line."""
    number = 0
    for lines in _lines(stream):
        records = []
        problem = None
        for line in lines:
            number += 1
            try:
                record = parse(line)
            except ValueError as error:
                problem = f"line {number}: {error}"
                break
            if record is not None:
                records.append(record)
        yield Chunk(records, problem)
        if problem is not None:
            return


def _lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Complete lines without line ends, in the groups in which they arrived."""
    rest = b""
    # What a pipe or a terminal has, without waiting for a full buffer.
    read = getattr(stream, "read1", stream.read)
    while data := read(CHUNK_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise ValueError(f"a line has more than {MAX_LINE_BYTES} bytes; is the input text?")
        if lines:
            yield lines
    if rest:
        yield [rest]


def parse_line(line: bytes, separator: bytes | None) -> ProducerRecord:
    """The line as a value, or as key and value."""
    from ottla.client.producer.types import ProducerRecord

    if separator is None:
        return ProducerRecord(line)
    key, found, value = line.partition(separator)
    if not found:
        raise ValueError(
            f"expected KEY{separator.decode()}VALUE, but the line has no {separator.decode()!r}"
        )
    return ProducerRecord(value, key)


# What `ottla consume --json` and `ottla share-consume --json` say beyond the record itself.
_IGNORED = frozenset(("topic", "offset", "delivery_count"))
_FIELDS = ("key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp_ms")


def parse_json(line: bytes) -> ProducerRecord | None:
    """The record of a line as `ottla consume --json` writes it; None for an empty line."""
    from ottla.client.producer.types import ProducerRecord

    if not line.strip():
        return None
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("not a record: the JSON is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError('expected an object such as {"key": "k", "value": "v"}')  # noqa: TRY004  # bad input, not a bad call
    unknown = [name for name in found if name not in _FIELDS and name not in _IGNORED]
    if unknown:
        raise ValueError(f"expected fields of {', '.join(_FIELDS)}, got {unknown[0]!r}")
    return ProducerRecord(
        _field(found, "value"),
        _field(found, "key"),
        _headers(found.get("headers")),
        _number(found, "timestamp_ms"),
        _number(found, "partition"),
    )


def _field(found: dict[str, object], name: str) -> bytes | None:
    """The bytes of a field, or of the field with the suffix _base64."""
    import base64
    import binascii

    encoded = found.get(f"{name}_base64")
    if encoded is None:
        return _bytes(found.get(name))
    try:
        return base64.b64decode(str(encoded), validate=True)
    except binascii.Error:
        raise ValueError(f"{name}_base64 is not valid base64") from None


def _bytes(given: object) -> bytes | None:
    """Text as UTF-8, other JSON values as their text."""
    if given is None:
        return None
    if not isinstance(given, str):
        given = json.dumps(given, ensure_ascii=False, separators=(",", ":"))
    return given.encode()


def _headers(given: object) -> tuple[tuple[str, bytes | None], ...]:
    """A mapping, or a list of {"key": ..., "value": ...} where a name may come twice."""
    if given is None:
        return ()
    if isinstance(given, dict):
        return tuple((name, _bytes(value)) for name, value in given.items())
    if isinstance(given, list) and all(
        isinstance(one, dict) and isinstance(one.get("key"), str) for one in given
    ):
        return tuple((one["key"], _field(one, "value")) for one in given)
    raise ValueError('headers: expected [{"key": "k", "value": "v"}] or {"k": "v"}')


def _number(found: dict[str, object], name: str) -> int | None:
    given = found.get(name)
    if given is None:
        return None
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**63:
        return given
    raise ValueError(f"{name}: expected a number of 0 or more, got {given!r:.50}")

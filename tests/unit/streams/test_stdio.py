"""The Stdio backend: the line format, pipes, groups."""

from __future__ import annotations

import io
import os
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.streams import (
    At,
    AutoCommit,
    ConnectOptions,
    ConsumerOptions,
    Message,
    Mode,
    StdioOptions,
    Streamer,
    connect,
)
from ottla.streams.errors import DeliveryError, FormatError, StreamEnded, Unsupported
from ottla.streams.lines import Line, NotOneLine, format_line, parse_line
from ottla.streams.types import Receipt

NS = 1_641_081_600_000_000_000 + 45_296 * 1_000_000_000
TS = "2022-01-02T12:34:56"
GROUP = ConsumerOptions(mode=Mode.LOAD_BALANCED, group="g")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"[{TS}] p", Line("p", NS)),
        (f"[{TS} | s] p", Line("p", NS, "s")),
        (f"[{TS}.5 | s | 7] p", Line("p", NS + 500_000_000, "s", 7)),
        (f"[{TS}.123456789|s|7|2]  p q ", Line("p q", NS + 123_456_789, "s", 7, 2)),
        ("[s] p", Line("p", None, "s")),
        ("[s | 7] p", Line("p", None, "s", 7)),
        ("[s | 7 | 2] p", Line("p", None, "s", 7, 2)),
        ("  raw line ", Line("  raw line ")),
        ("[123]", Line("", None, "123")),
        ("[2022-01-02] x", Line("x", None, "2022-01-02")),
    ],
)
def test_t58_header_forms(text: str, line: Line) -> None:
    assert parse_line(text) == line


@pytest.mark.parametrize(
    "text",
    [
        "[ ]",
        "[]",
        '["a"]',
        '["json", "array"]',
        "[s | x] p",
        "[s|1|2|3] p",
        "[open",
        f"[{TS}x]",
        "[2022-13-02T00:00:00] p",
    ],
)
def test_t58_d15_lines_that_are_no_headers(text: str) -> None:
    with pytest.raises(FormatError):
        parse_line(text)


def test_t59_newlines() -> None:
    receipt = Receipt("s", 0, 5, NS)
    for payload in (b"a\nb", b"a\rb", b"\xff"):
        with pytest.raises(NotOneLine):
            format_line(receipt, payload)
    assert format_line(receipt, b"x") == f"[{TS}.000 | s | 5] x\n".encode()
    assert format_line(Receipt("s", 3, 5, NS), b"x") == f"[{TS}.000 | s | 5 | 3] x\n".encode()


@given(st.text(), st.integers(0, 3), st.integers(0, 2**64))
def test_t59_escaped_payloads_come_back(text: str, shard: int, seq: int) -> None:
    line = format_line(Receipt("s", shard, seq, NS), text.encode(), escape=True)
    assert line.count(b"\n") == 1
    parsed = parse_line(line.decode().removesuffix("\n"), escaped=True)
    assert parsed == Line(text, NS, "s", seq, *([shard] if shard else []))


def pipes(data: bytes = b"", **options: object) -> tuple[Streamer, io.BytesIO]:
    target = io.BytesIO()
    stdio = StdioOptions(source=io.BytesIO(data), target=target, **options)  # type: ignore[arg-type]  # options by name
    return connect("stdio:///a", ConnectOptions(stdio=stdio)), target


async def read(data: bytes, *streams: str, **options: object) -> list[Message]:
    streamer, _ = pipes(data, **options)
    async with streamer, streamer.consumer(*streams) as consumer:
        return [message async for message in consumer]


async def test_t58_lines_become_messages() -> None:
    found = await read(b'raw\r\n[a] one\n[b] not mine\n[a | 5 | 1] two\n\n["j"]\nlast', "a")
    assert [(m.stream, m.shard, m.seq, m.payload) for m in found] == [
        ("broadcast", 0, 0, b"raw"),
        ("a", 0, 0, b"one"),
        ("a", 1, 5, b"two"),
        ("broadcast", 0, 1, b""),
        ("broadcast", 0, 2, b'["j"]'),
        ("broadcast", 0, 3, b"last"),
    ]
    assert all(m.native_id is None for m in found)


async def test_t59_d14_explicit_sequences_set_the_counter() -> None:
    found = await read(b"[a | 5] x\n[a] y\n[a] z\n", "a")
    assert [m.seq for m in found] == [5, 6, 7]


async def test_t58_bad_lines_by_option() -> None:
    found = await read(b"[]\n[a] x\n", "a", on_bad_line="skip")
    assert [m.payload for m in found] == [b"x"]
    with pytest.raises(FormatError):
        await read(b"[]\n", "a", on_bad_line="raise")


async def test_lines_of_streams_that_nobody_reads_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = b"[info] started\n[error] disk full\nplain\n"
    assert [m.payload for m in await read(data, "log")] == [b"plain"]
    [told] = caplog.messages
    assert "stream 'info'" in told
    assert "headers=False" in told
    with pytest.raises(FormatError, match="nobody reads that"):
        await read(data, "log", on_bad_line="raise")


async def test_without_headers_lines_are_what_they_are() -> None:
    data = b"[info] started\r\n[log] hi\n  [x | 1]  \n"
    found = await read(data, "log", headers=False)
    assert [m.payload for m in found] == [b"[info] started\r", b"[log] hi", b"  [x | 1]  "]
    assert format_line(Receipt("log", 0, 5, 0), b"[log] hi", header=False) == b"[log] hi\n"


async def test_t59_d16_receipts_carry_the_printed_sequence() -> None:
    streamer, target = pipes()
    async with streamer, streamer.producer() as producer:
        receipts = [await (await producer.send(f"p{i}")) for i in range(3)]
        other = await (await producer.send("q", stream="b", shard=2))
        bad = await producer.send(b"two\nlines")
        with pytest.raises(ValueError, match="one line"):
            await bad
    assert [r.seq for r in receipts] == [0, 1, 2]
    assert (other.seq, other.shard) == (0, 2)
    lines = target.getvalue().decode().splitlines()
    assert [line.partition("|")[2] for line in lines] == [
        " a | 0] p0",
        " a | 1] p1",
        " a | 2] p2",
        " b | 0 | 2] q",
    ]


async def test_t60_the_end_of_input_ends_iteration() -> None:
    streamer, _ = pipes(b"[a] 1\n")
    async with streamer, streamer.consumer() as consumer:
        assert [m.payload async for m in consumer] == [b"1"]
        with pytest.raises(StreamEnded):
            await consumer.next()


async def test_t60_a_closed_pipe_fails_deliveries() -> None:
    back, front = os.pipe()
    os.close(back)
    with os.fdopen(front, "wb", buffering=0) as target:
        options = ConnectOptions(stdio=StdioOptions(source=io.BytesIO(), target=target))
        async with connect("stdio:///a", options) as streamer:
            producer = await streamer.producer().__aenter__()
            delivery = await producer.send("x")
            with pytest.raises(DeliveryError, match="closed"):
                await delivery


async def test_t60_groups_take_turns_and_broadcasts_reach_all() -> None:
    options = ConnectOptions(stdio=StdioOptions(loopback=True))
    async with (
        connect("stdio:///a", options) as streamer,
        streamer.producer() as producer,
        streamer.consumer(options=GROUP) as one,
    ):
        await (await producer.send("0"))
        assert (await one.next(5)).payload == b"0"
        async with streamer.consumer(options=GROUP) as two:
            for i in range(1, 5):
                await (await producer.send(str(i)))
            assert [(await one.next(5)).seq for _ in range(2)] == [2, 4]
            assert [(await two.next(5)).seq for _ in range(2)] == [1, 3]
            await (await producer.send("5"))
        assert (await one.next(5)).seq == 5, "what a leaver had not read goes to the rest"
        streamer.driver._hub.feed(b"to all\n")  # type: ignore[attr-defined]  # the stdio driver
        assert (await one.next(5)).payload == b"to all"


async def test_what_a_pipe_cannot_do() -> None:
    options = ConnectOptions(stdio=StdioOptions(loopback=True))
    async with connect("stdio:///a", options) as streamer, streamer.consumer() as consumer:
        for choose in (consumer.assign, consumer.unassign):
            with pytest.raises(Unsupported, match="cannot be replayed"):
                choose("a", 0)
        for call in (
            consumer.rewind(At(1)),
            consumer.seek(datetime.now(UTC)),
            consumer.lag(),
        ):
            with pytest.raises(Unsupported):
                await call


async def test_rolling_acks_work_without_a_position() -> None:
    options = ConnectOptions(stdio=StdioOptions(loopback=True))
    rolling = ConsumerOptions(auto_commit=AutoCommit.ROLLING)
    async with (
        connect("stdio:///a", options) as streamer,
        streamer.producer() as producer,
        streamer.consumer(options=rolling) as consumer,
    ):
        await (await producer.send("x"))
        first = await consumer.next(5)
        consumer.nack(first)
        again = await consumer.next(5)
        assert again.delivery == 2
        consumer.ack(again)

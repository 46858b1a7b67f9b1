"""Streams in a file, for tests of one process and of several."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ottla.streams import (
    WILDCARD,
    ConnectOptions,
    ConsumerOptions,
    Create,
    FileOptions,
    Reset,
    Streamer,
    connect,
    pump,
)
from ottla.streams.ss import watch
from ottla.streams.ss.decoder import Decoder
from ottla.streams.ss.encoder import Entry
from ottla.streams.ss.format import HEADER_SIZE, Beacon, decode_header

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.streams.types import Message

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the watcher is inotify")
REPLAY = ConsumerOptions(reset=Reset.EARLIEST, file=FileOptions(follow=False))


def open_file(path: Path, **options: object) -> Streamer:
    file = FileOptions(create=Create.IF_MISSING, beacon_interval=1024, **options)  # type: ignore[arg-type]  # options by name
    return connect(f"file://{path}", ConnectOptions(file=file))


async def write(path: Path, payloads: list[str], stream: str = "a", **options: object) -> None:
    async with open_file(path, **options) as streamer, streamer.producer(stream) as producer:
        for payload in payloads:
            await producer.send(payload)


async def replay(path: Path, *streams: str) -> list[Message]:
    async with (
        open_file(path) as streamer,
        streamer.consumer(*(streams or (WILDCARD,)), options=REPLAY) as consumer,
    ):
        return [message async for message in consumer]


def poll_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the reader nor the pump that asks it looks again unless it is told to."""
    monkeypatch.setattr(watch, "POLL_FIRST", 3600.0)
    monkeypatch.setattr(pump, "FETCH_WAIT", 3600.0)


def decode(data: bytes, chunk: int = 1 << 20) -> tuple[list[Message], list[tuple[int, Beacon]]]:
    beacons: list[tuple[int, Beacon]] = []
    decoder = Decoder(
        decode_header(data[:HEADER_SIZE]).interval,
        on_beacon=lambda offset, beacon: beacons.append((offset, beacon)),
    )
    found: list[Message] = []
    for at in range(HEADER_SIZE, len(data), chunk):
        decoder.feed(data[at : at + chunk])
        while more := decoder.take(1 << 30):
            found += more
    assert decoder.clean
    return found, beacons


def entries(messages: list[Message]) -> list[Entry]:
    return [
        Entry(m.stream.encode(), m.shard, m.seq, m.timestamp_ns // 1_000_000, m.payload)
        for m in messages
    ]

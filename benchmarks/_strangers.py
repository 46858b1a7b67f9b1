"""A process that knocks at a SASL listener with wrong passwords, so many times a second."""

from __future__ import annotations

import asyncio
import multiprocessing
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized
    from multiprocessing.synchronize import Event

STOP_SECONDS: Final = 20.0
_HEADER: Final = struct.Struct(">hhih")


class Strangers:
    """From `start` to `stop`."""

    def __init__(self, address: str, per_second: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._count = context.Value("q", 0)
        self._end = context.Event()
        self._process = context.Process(
            target=_knock, args=(address, per_second, self._count, self._end), daemon=True
        )

    def start(self) -> None:
        self._process.start()

    def stop(self) -> None:
        self._end.set()
        self._process.join(STOP_SECONDS)
        self._process.kill()

    def tried(self) -> int:
        """How many have shown a wrong password."""
        found: int = self._count.value
        return found


def _knock(address: str, per_second: float, count: Synchronized[int], end: Event) -> None:
    asyncio.run(_knock_on(address, per_second, count, end))


async def _knock_on(address: str, per_second: float, count: Synchronized[int], end: Event) -> None:
    host, _, port = address.rpartition(":")
    tasks: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    due = loop.time()
    while not end.is_set():
        task = asyncio.create_task(_once(host, int(port), count))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        due += 1 / per_second  # by the clock, or the time of a knock would make the rate lower
        await asyncio.sleep(max(0, due - loop.time()))
    for task in tasks:
        task.cancel()


async def _once(host: str, port: int, count: Synchronized[int]) -> None:
    with suppress(OSError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(_frame(17, 1, b"\x00\x05PLAIN"))
            await _answer(reader)
            token = b"\0stranger\0wrong"
            writer.write(_frame(36, 1, struct.pack(">i", len(token)) + token))
            count.value += 1
            await _answer(reader)  # it is held back
        finally:
            writer.close()


def _frame(api_key: int, version: int, body: bytes) -> bytes:
    request = _HEADER.pack(api_key, version, 1, -1) + body
    return struct.pack(">i", len(request)) + request


async def _answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)

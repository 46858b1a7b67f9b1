"""A door before a server: shut it, or let it fail every so many HTTP requests. In a thread."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Opener = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

CHUNK: Final = 1 << 16
METHODS: Final = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")


class Gate:
    """Listens on `port` of this machine and forwards to `server`: a port, or a Unix socket."""

    def __init__(self, server: int | str, *, fails_every: int = 0) -> None:
        self._server_at = server
        self._fails_every = fails_every
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_shut = False
        self.requests = 0
        self.failed = 0
        self.turned_away = 0

    def __enter__(self) -> Self:
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(self._start(), self._loop)
        self.port = started.result()
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def shut(self) -> None:
        """End all connections, and every new one at once."""
        self.is_shut = True
        done = asyncio.run_coroutine_threadsafe(self._cut(), self._loop)
        done.result()

    def open(self) -> None:
        self.is_shut = False

    async def _start(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _stop(self) -> None:
        self._server.close()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _cut(self) -> None:
        for one in self._writers:
            one.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self.is_shut:
            self.turned_away += 1
            writer.transport.abort()
            return
        with suppress(OSError):
            if isinstance(self._server_at, int):
                there = await asyncio.open_connection("127.0.0.1", self._server_at)
            else:
                there = await asyncio.open_unix_connection(self._server_at)
            both = {writer, there[1]}
            self._writers |= both
            ways = [
                asyncio.ensure_future(self._forward(reader, there[1], both)),
                asyncio.ensure_future(self._back(there[0], writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for one in ways:
                one.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for each in both:
                each.transport.abort()
            self._writers -= both

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        both: set[asyncio.StreamWriter],
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                if self._fails_every and data.startswith(METHODS):
                    self.requests += 1
                    if self.requests % self._fails_every == 0:
                        self.failed += 1
                        if self.failed % 2:  # every other one is done, and its answer lost
                            writer.write(data)
                            await writer.drain()
                        for one in both:
                            one.transport.abort()
                        return
                writer.write(data)
                await writer.drain()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                writer.write(data)
                await writer.drain()

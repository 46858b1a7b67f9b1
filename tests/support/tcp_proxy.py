"""A TCP proxy before a broker, which forwards until it is told to do worse.

Requests pass as whole frames, so that those of one API can be swallowed; answers pass as bytes, so
that a connection can be cut in the middle of one.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from contextlib import suppress
from typing import Self

CHUNK = 1 << 16


class TcpProxy:
    """Listens on `port`; `upstream` is the port of the broker, both on this host."""

    def __init__(self) -> None:
        self.upstream = 0
        self.swallowed_api: int | None = None
        """Requests of this API vanish."""
        self.cut_after: int | None = None
        """After so many bytes of answers all connections end, once."""
        self.cuts = 0
        self.seen: Counter[int] = Counter()
        """Requests that came, by API."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """End all connections, without a word."""
        self.cut_after = None
        self.cuts += 1
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, EOFError):
                there = await asyncio.open_connection("127.0.0.1", self.upstream)
                self._writers |= {writer, there[1]}
                try:
                    await self._both_ways((reader, writer), there)
                finally:
                    self._writers -= {writer, there[1]}
                    there[1].transport.abort()
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _both_ways(
        self,
        here: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        there: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        ways = [
            asyncio.create_task(self._requests(here[0], there[1])),
            asyncio.create_task(self._answers(there[0], here[1])),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(6)
            size, api_key = struct.unpack(">ih", head)
            rest = await reader.readexactly(size - 2)
            self.seen[api_key] += 1
            if api_key != self.swallowed_api:
                writer.write(head + rest)

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if self.cut_after is not None:
                if len(data) > self.cut_after:
                    writer.write(data[: self.cut_after])
                    # Let the half of it leave.
                    await asyncio.sleep(0)
                    self.cut()
                    return
                self.cut_after -= len(data)
            writer.write(data)

"""A transport that keeps what is written to it, for tests that decide when a socket is full."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.wire.writers import Part


class RecordingTransport(asyncio.Transport):
    """Takes everything; after `full_after` writes it says that it is full."""

    def __init__(self, protocol: asyncio.BaseProtocol, full_after: int | None = None) -> None:
        super().__init__()
        self.protocol = protocol
        self.full_after = full_after
        self.written: list[Part] = []
        self.ended: str | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(data)
        if self.full_after is not None and len(self.written) >= self.full_after:
            self.protocol.pause_writing()

    def drain(self) -> None:
        """Be able to take everything from now on."""
        self.full_after = None
        self.protocol.resume_writing()

    def is_closing(self) -> bool:
        return self.ended is not None

    def close(self) -> None:
        self._end("closed")

    def abort(self) -> None:
        self._end("aborted")

    def _end(self, how: str) -> None:
        if self.ended is None:
            self.ended = how
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

"""Closed connections are freed at once: frozen ones in a reference cycle would stay for ever."""

from __future__ import annotations

import asyncio
import gc
import struct
import weakref
from typing import TYPE_CHECKING, Final

import pytest

from ottla.broker.running.node import Node
from ottla.metadata.config.broker import load_broker_config
from ottla.wire.messages import API_VERSIONS, request_parts
from ottla.wire.schema.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE: Final = 60.0
ASKED: Final = b"".join(request_parts(API_VERSIONS, 0, 1, "client", ApiVersionsRequest()))
UNKNOWN_API: Final = struct.pack(">ihhi", 8, -1, -1, 1)
TOO_LARGE: Final = struct.pack(">i", 2**31 - 1)


@pytest.mark.parametrize("sent", [b"", ASKED, UNKNOWN_API, TOO_LARGE])
async def test_a_closed_connection_is_freed(tmp_path: Path, sent: bytes) -> None:
    node = await Node.start(
        load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"]), tmp_path
    )
    gc.disable()
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(*node.addresses["PLAINTEXT"])
            while not len(node.dispatcher.connections):  # noqa: ASYNC110  # no signal
                await asyncio.sleep(0)
            freed = weakref.ref(next(iter(node.dispatcher.connections)))
            writer.write(sent)
            if sent not in (UNKNOWN_API, TOO_LARGE):  # else the broker closes
                writer.write_eof()
            await reader.read()
            writer.close()
            while len(node.dispatcher.connections):  # noqa: ASYNC110  # no signal
                await asyncio.sleep(0)
        await asyncio.sleep(0)  # its transport lets go of it
        assert freed() is None
    finally:
        gc.enable()
        await node.stop()

"""The guard of this folder: what only integration tests may do is refused here."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.unit import conftest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def listen_on_a_path(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(directory / "s"))


@pytest.mark.parametrize(
    "deed",
    [
        lambda _: subprocess.run([sys.executable, "-c", ""], check=True),
        lambda _: os.fork(),
        lambda _: os.system("true"),
        lambda _: socket.create_server(("127.0.0.1", 0)),
        lambda _: socket.create_connection(("127.0.0.1", 1)),
        listen_on_a_path,
    ],
)
def test_processes_and_sockets_are_refused(deed: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(conftest.NotPureError, match="move it to tests/integration"):
        deed(tmp_path)
    assert conftest.taken()  # else the end of this test would fail for it


async def test_an_event_loop_is_fine() -> None:
    await asyncio.sleep(0)
    assert not conftest.taken()

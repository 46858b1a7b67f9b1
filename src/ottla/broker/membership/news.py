"""Nodes of one machine tell each other that something changed: a datagram without content.

Each node listens on `.wake/<node>.sock` below the root. Whoever changes the metadata, or releases
a partition, sends a datagram to every other node. One is dropped only where others wait to be read,
and all mean the same. Every node also looks by itself, seldom; often where it has no socket.

The path of a Unix socket must fit into 108 bytes, which many directories do not; so sockets are
reached through a descriptor of `.wake`, where the system allows that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

WAKE: Final = ".wake"
LONGEST_PATH: Final = 100  # of a socket; some systems allow 104 bytes
HEARD_AT_ONCE: Final = 64  # datagrams that are read in one turn; all mean the same

logger = logging.getLogger(__name__)


class News:
    """The socket of one node; `heard` is called on the event loop."""

    def __init__(self, root: Path, node_id: int, heard: Callable[[], None]) -> None:
        self._heard = heard
        self._node_id = node_id
        self._loop = asyncio.get_running_loop()
        directory = root / WAKE
        directory.mkdir(mode=0o700, exist_ok=True)
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        through = f"/proc/self/fd/{self._fd}"
        self._directory = through if os.path.isdir(through) else str(directory)  # noqa: PTH112
        self._socket: socket.socket | None = None
        if len(os.fsencode(self._path(node_id))) > LONGEST_PATH:
            logger.info("%s is too long for sockets; changes are seen a little later", directory)
            return
        self._listen(directory / f"{node_id}.sock")

    @property
    def is_deaf(self) -> bool:
        """Whether there is no socket."""
        return self._socket is None

    def _path(self, node_id: int) -> str:
        return f"{self._directory}/{node_id}.sock"

    def _listen(self, path: Path) -> None:
        path.unlink(missing_ok=True)  # of a run before: the lock of the directory is ours
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listening.setblocking(False)
        listening.bind(self._path(self._node_id))
        self._socket = listening
        self._loop.add_reader(listening.fileno(), self._read)

    def _read(self) -> None:
        assert self._socket is not None
        with suppress(BlockingIOError):
            for _ in range(HEARD_AT_ONCE):
                self._socket.recv(1)
        self._heard()

    def tell(self, nodes: Iterable[int]) -> None:
        """Wake these nodes; those that do not listen will look by themselves."""
        if self._socket is None:
            return
        for node_id in nodes:
            if node_id != self._node_id:
                with suppress(OSError):
                    self._socket.sendto(b"", self._path(node_id))

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        os.close(self._fd)

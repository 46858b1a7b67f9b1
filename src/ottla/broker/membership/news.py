"""Nodes of one machine tell each other that something changed, by datagrams.

Each node listens on `.wake/<node>.sock` below the root. Whoever changes the metadata, or releases
a partition, sends an empty datagram to every other node. One is dropped only where others wait to
be read, and all mean the same. Every node also looks by itself, seldom; often where it has no
socket.

Whoever has to know that others have read a change asks them (`ask`). Each answers when it has
looked (`answer`), with the version of the metadata that it has. A question or an answer that is
dropped costs the asker its patience, nothing else.

The path of a Unix socket must fit into 108 bytes, which many directories do not; so sockets are
reached through a descriptor of `.wake`, where the system allows that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

WAKE: Final = ".wake"
LONGEST_PATH: Final = 100  # of a socket; some systems allow 104 bytes
HEARD_AT_ONCE: Final = 64  # datagrams that are read in one turn
_ASKED: Final = b"?"
_ANSWERED: Final = b"!"
_SAID: Final = struct.Struct(">ciq")  # what it is, the node that says it, a version

logger = logging.getLogger(__name__)


class News:
    """The socket of one node; `heard`, `asked` and `answered` are called on the event loop."""

    def __init__(
        self,
        root: Path,
        node_id: int,
        heard: Callable[[], None],
        asked: Callable[[int], None] = lambda _: None,
        answered: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """`asked` gets the node that waits for an answer, `answered` a node and its version."""
        self._heard = heard
        self._asked = asked
        self._answered = answered
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
        is_news = False
        with suppress(BlockingIOError):
            for _ in range(HEARD_AT_ONCE):
                said = self._socket.recv(_SAID.size)
                kind, node_id, version = _SAID.unpack(said) if said else (_ASKED, None, 0)
                if kind == _ANSWERED:
                    self._answered(node_id, version)
                    continue
                is_news = True
                if node_id is not None:
                    self._asked(node_id)
        if is_news:
            self._heard()

    def tell(self, nodes: Iterable[int]) -> None:
        """Wake these nodes; those that do not listen will look by themselves."""
        for node_id in nodes:
            self._send(node_id, b"")

    def ask(self, nodes: Iterable[int]) -> set[int]:
        """Have these nodes look and answer; returns those that listen."""
        said = _SAID.pack(_ASKED, self._node_id, 0)
        return {node_id for node_id in nodes if self._send(node_id, said)}

    def answer(self, node_id: int, version: int) -> None:
        self._send(node_id, _SAID.pack(_ANSWERED, self._node_id, version))

    def _send(self, node_id: int, said: bytes) -> bool:
        """Whether the other node was there to hear it."""
        if self._socket is None or node_id == self._node_id:
            return False
        try:
            self._socket.sendto(said, self._path(node_id))
        except BlockingIOError:
            return True  # it has much to read
        except OSError:
            return False
        return True

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        os.close(self._fd)

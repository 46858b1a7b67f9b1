"""The sockets of a listener.

The event loop could make them itself, but uvloop resolves even `127.0.0.1` in threads of libuv.
Those do not survive a fork, and a forked child of a program with an embedded broker would crash
when it ends and libuv waits for them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence


BACKLOG: Final = 100
"""Connections that the kernel keeps until somebody accepts them; asyncio's own number."""


def listen(sockets: Sequence[socket.socket]) -> None:
    """From now on the kernel keeps connections."""
    for one in sockets:
        one.setblocking(False)
        one.listen(BACKLOG)


async def first_connection(sockets: Sequence[socket.socket]) -> None:
    """Wait until somebody connects; accepting is left to whoever is made then."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    for one in sockets:
        loop.add_reader(one, came.set)
    try:
        await came.wait()
    finally:
        for one in sockets:
            loop.remove_reader(one)


async def bound(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host (none: of the machine), not listening yet."""
    # As text it would load the codec of international names, half a megabyte.
    name = host.encode() if host.isascii() else host
    look_up = partial(socket.getaddrinfo, name or None, port, type=socket.SOCK_STREAM)
    try:
        found = look_up(flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST)  # asks nobody
    except socket.gaierror:
        found = await asyncio.to_thread(look_up, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                one = socket.socket(family, kind, protocol)
            except OSError:
                continue  # a resolver may name a family that the machine does not have
            sockets.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # The addresses of IPv4 have sockets of their own.
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
    except OSError:
        for one in sockets:
            one.close()
        raise
    if not sockets:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    return sockets

"""Wake up for a good part of a large request, not for each TLS record of it.

A client with TLS writes a large request in records of 16 KiB, one system call each. The event loop
would be woken for each of them: a turn of the loop, a system call and a walk through the layers for
16 KiB. `SO_RCVLOWAT` lets the kernel wait until more has come.

- Nothing waits longer for that: the request could not be served before its last byte.
- No more than what must come is waited for. Of what is missing, OpenSSL may hold most of one record
  already, so as much is left out (`level`); the end of a request is read as it comes.
- A level that the kernel cannot reach, because memory is short, counts as reached (Linux 5.12).
- A sweeper that looks for slow clients does not see what waits in the kernel: it has the level
  taken away first, for the rest of the request (`LowWater.release`).
"""

from __future__ import annotations

import os
import socket
import sys
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

RECORD_BYTES: Final = 17 * 1024
"""More than a TLS record takes, with all that belongs to it."""
LEAST_BYTES: Final = 32 * 1024
"""Two records: to wait for fewer saves nothing."""
MOST_BYTES: Final = 128 * 1024
"""Half of what is read at once (`tls_channel.READ_BYTES`), so that a read ends in time."""
AT_ONCE: Final = 1
"""The level of a new socket."""


def level(missing: int) -> int:
    """How many bytes to wait for when so many are missing of a request."""
    certain = min(missing - RECORD_BYTES, MOST_BYTES)
    return certain if certain >= LEAST_BYTES else AT_ONCE


@cache
def is_possible() -> bool:
    if sys.platform != "linux":
        return False
    release = os.uname().release.split(".")
    return (int(release[0]), int(release[1].partition("-")[0])) >= (5, 12)


class LowWater:
    """Of one connection."""

    __slots__ = ("_is_watched", "_level")

    def __init__(self) -> None:
        self._level = AT_ONCE
        self._is_watched = False  # until the end of the request that is being read

    def wait_for(self, missing: int, transport: asyncio.BaseTransport) -> None:
        """So many bytes of a request are missing; the transport is open."""
        wanted = level(missing)
        if wanted == AT_ONCE:
            self._is_watched = False
        elif self._is_watched:
            return
        self._set(wanted, transport)

    def release(self, transport: asyncio.BaseTransport) -> bool:
        """Be woken by whatever comes of this request; returns whether more was waited for."""
        waited = self._level != AT_ONCE
        self._set(AT_ONCE, transport)
        self._is_watched = True
        return waited

    def _set(self, wanted: int, transport: asyncio.BaseTransport) -> None:
        if wanted != self._level and is_possible():
            option = socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted
            transport.get_extra_info("socket").setsockopt(*option)
            self._level = wanted

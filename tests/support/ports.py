"""Ports for servers that must know theirs before they listen, or get it back after a restart.

They are below the range from which a system gives ports to outgoing connections. In that range
another client may be given the port while its server is down; and one that keeps connecting to it
may be given that very port as its own, and is then connected to itself.
"""

from __future__ import annotations

import socket
from random import SystemRandom
from typing import Final

PORTS: Final = range(10_000, 32_000)
# Hypothesis sets the seed of `random`, and then all workers would choose the same ones.
_RANDOM: Final = SystemRandom()


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that nobody listens on."""
    found: list[int] = []
    for port in _RANDOM.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no {count} free ports from {PORTS[0]} to {PORTS[-1]}")


def free_port() -> int:
    (port,) = free_ports(1)
    return port


def free_base(nodes: int) -> int:
    """A port P that is free, with P + 10 k for each node k."""
    while True:
        port = free_port()
        try:
            for node in range(1, nodes + 1):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + 10 * node))
        except OSError:
            continue
        return port

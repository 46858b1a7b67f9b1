"""What the supervisor and its node processes tell each other, and how a node is configured.

A node process (`ottla.broker.running.child`) has two pipes to the supervisor:

- Its standard input begins with a `Birth`: four bytes of length, then JSON. After that, a line for
  each thing it is asked to do: `{"replace": 2}` (node 2 is dead, the others lead its partitions) or
  `{"settle": 4}` (there are 4 nodes: spread the partitions over them). The end of the input means
  that the supervisor has died; the node stops.
- On its standard output it writes an empty line every `BEAT_SECONDS`, `{"ready": {...}}` once it
  serves, and `{"replaced": 2}` or `{"settled": 4}` when that is done.

So no secret is in an argument or in the environment.

Ports: a listener on P gives node k the port P + 10 k; P itself is the bootstrap port, whose socket
all nodes share. Port 0 takes a free one, and a node that is started again gets the one it had.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from ottla.broker.access.listeners import METRICS, WILDCARDS, Listener, registry_listener_of
from ottla.metadata.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.metadata.config.broker import BrokerConfig

PORT_STEP: Final = 10
MAX_PORT: Final = 65_535
# A line says little; a child that sends more without an end of line is not one of ours.
MAX_LINE_BYTES: Final = 64 * 1024
_LENGTH: Final = struct.Struct(">I")
_OF_SUPERVISOR: Final = (
    "ottla.nodes",
    "ottla.console.",
    "ottla.metrics.",
    f"listener.name.{METRICS.lower()}.",
)


@dataclass(frozen=True, slots=True)
class Birth:
    """All that a node process is told before it starts."""

    config: Mapping[str, str]
    root: str
    ephemeral: bool
    log_format: str
    log_level: str
    sockets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Descriptors of the bootstrap port, by the listener's name."""
    metrics: str | None = None
    """The path of a Unix socket on which it serves its metrics to the supervisor."""
    secured: str | None = None
    """The directory in which --secure keeps what it has made."""

    def encode(self) -> bytes:
        body = json.dumps(asdict(self)).encode()
        return _LENGTH.pack(len(body)) + body

    @classmethod
    def read(cls, source: BinaryIO) -> Self:
        (size,) = _LENGTH.unpack(_exactly(source, _LENGTH.size))
        return cls(**json.loads(_exactly(source, size)))


def _exactly(source: BinaryIO, size: int) -> bytes:
    parts = []
    while size > 0:
        part = source.read(size)
        if not part:
            raise EOFError("the supervisor has gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class Lines:
    """Bytes of a pipe in, messages out: None for a beat, else what the JSON says."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Any]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise ValueError(f"a line of more than {MAX_LINE_BYTES} bytes")
        return [json.loads(line) if line else None for line in lines]


def line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


# -- configuration --------------------------------------------------------------------------------


def check_advertised(advertised: Mapping[str, tuple[str, int]], nodes: int) -> None:
    """Raise InvalidConfig if a node would tell clients a port that cannot be."""
    for name, (host, port) in advertised.items():
        if port and _step(port, nodes) > MAX_PORT:
            raise InvalidConfig(
                f"ports up to {MAX_PORT}: clients reach node {nodes} at {PORT_STEP * nodes} more",
                str(Listener(name, host, port)),
                "advertised.listeners",
            )


def check_ports(listeners: Sequence[Listener], nodes: int) -> None:
    """Raise InvalidConfig if two sockets would want one address."""
    wanted = [
        (listener, node_id, listener.port + PORT_STEP * node_id)
        for listener in listeners
        if listener.port
        for node_id in range(nodes + 1)
    ]
    for listener, node_id, port in wanted:
        if port > MAX_PORT:
            raise InvalidConfig(
                f"ports up to {MAX_PORT}: node {node_id} listens on {PORT_STEP * node_id} more",
                str(listener),
                "listeners",
            )
    for (one, first, port), (other, second, same) in combinations(wanted, 2):
        if port == same and _meet(one.host, other.host):
            raise InvalidConfig(
                f"ports that do not meet: node k listens on {PORT_STEP} k more",
                f"port {port} of {_whose(one, first)} and of {_whose(other, second)}",
                "listeners",
            )


def _meet(one: str, other: str) -> bool:
    return one == other or one in WILDCARDS or other in WILDCARDS


def _whose(listener: Listener, node_id: int) -> str:
    return f"{listener.name} of node {node_id}" if node_id else listener.name


def child_config(
    config: BrokerConfig,
    listeners: Sequence[Listener],
    advertised: Mapping[str, tuple[str, int]],
    node_id: int,
    ports: Mapping[str, int],
) -> dict[str, str]:
    """The settings of a node. `ports` has those that it was given in a life before."""
    settings = {
        key: value for key, value in config.static.items() if not key.startswith(_OF_SUPERVISOR)
    }
    own = [
        listener._replace(port=ports.get(listener.name) or _step(listener.port, node_id))
        for listener in listeners
    ]
    settings["node.id"] = str(node_id)
    registry = registry_listener_of(config)
    if registry is not None:
        own_registry = registry._replace(
            name=registry.protocol.lower(), port=_step(registry.port, node_id)
        )
        settings["ottla.registry.listener"] = str(own_registry)
    settings["listeners"] = ",".join(map(str, own))
    if advertised:
        told = [
            Listener(name, host, _step(port, node_id)) for name, (host, port) in advertised.items()
        ]
        settings["advertised.listeners"] = ",".join(map(str, told))
    return settings


def _step(port: int, node_id: int) -> int:
    """Port 0 stays one that is free."""
    return port and port + PORT_STEP * node_id

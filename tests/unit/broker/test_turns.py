"""However many clients ask at once, the event loop comes round."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.serving import turns
from ottla.broker.serving.connection import Connection
from ottla.broker.serving.context import Peer
from ottla.broker.serving.turns import TURN_SECONDS, Turn

if TYPE_CHECKING:
    import pytest

CLIENTS, REQUESTS = 10, 6
COST = TURN_SECONDS / 4


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.written += parts

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return True

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> Any:
        return None


class Served:
    """In the place of the dispatcher: every request takes some of the turn."""

    def __init__(self) -> None:
        self.turn = Turn()
        self.clock = 0.0
        self.order: list[bytes] = []
        nothing = SimpleNamespace(opened=lambda _: None, release=lambda _: None, is_full=False)
        self.connections = self.answers = nothing
        self.memory = SimpleNamespace(grant=lambda *_: True)

    def identify(self, peer: Peer, principal: str) -> None:
        peer.principal = principal

    def dispatch(self, frame: memoryview, peer: Peer) -> list[bytes]:
        self.clock += COST
        self.order.append(bytes(frame))
        return [bytes(frame)]


async def test_clients_that_ask_at_once_share_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: each of many clients was served in full before the loop went on."""
    served = Served()
    monkeypatch.setattr(turns, "perf_counter", lambda: served.clock)
    loop = asyncio.get_running_loop()
    turn = 0
    monkeypatch.setattr(loop, "time", lambda: float(turn))  # as in uvloop: once in a turn
    transports = []
    for client in range(CLIENTS):
        connection = Connection(cast("Any", served), Peer("", "PLAINTEXT"), 1 << 20)
        transports.append(Transport())
        connection.connection_made(cast("Any", transports[-1]))
        sent = b"".join(
            struct.pack(">i", 4) + bytes((client, number, 0, 0)) for number in range(REQUESTS)
        )
        connection.get_buffer(-1)[: len(sent)] = sent
        connection.buffer_updated(len(sent))
    costs = [served.clock]
    while len(served.order) < CLIENTS * REQUESTS:
        turn += 1
        before = served.clock
        await asyncio.sleep(0)
        costs.append(served.clock - before)
    assert max(costs) <= TURN_SECONDS + 2 * COST
    for client, transport in enumerate(transports):
        answers = b"".join(transport.written)
        expected = b"".join(bytes((client, number, 0, 0)) for number in range(REQUESTS))
        assert answers == expected, "in order, whatever the turns"

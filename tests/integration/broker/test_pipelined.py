"""Case 49 of the performance specification: many requests in flight on one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla import EmbeddedBroker
from ottla.broker.serving.connection import Connection
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.metadata import MetadataRequest
from tests.support.raw_client import RawClient, batch, fetch_request, produce_request, values_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

REQUESTS: Final = 1000
OTHERS: Final = {3: "metadata", 7: "fetch"}  # by the last digit


def kind_of(number: int) -> str:
    return OTHERS.get(number % 10, "produce")


def test_49_a_thousand_produce_requests_among_others_are_answered_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of one round leave in one write."""
    writes: list[int] = []  # of each round
    in_round = False
    acked, send = Connection.acked, Connection._send

    def count_round(connection: Connection) -> None:
        nonlocal in_round
        writes.append(0)
        in_round = True
        acked(connection)
        in_round = False

    def count_write(connection: Connection) -> None:
        if connection._answers and in_round:
            writes[-1] += 1
        send(connection)

    bodies: dict[str, Callable[[int], tuple[int, object]]] = {
        "produce": lambda number: (9, produce_request("orders", {0: batch(b"%d" % number)})),
        "metadata": lambda _: (12, MetadataRequest(None)),
        "fetch": lambda _: (12, fetch_request({("orders", 0): 0}, partition_max_bytes=1000)),
    }
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("orders")
        assert client.produce("orders", batch(b"first")).error_code == ErrorCode.NONE
        for kind in OTHERS.values():
            client.ask(kind, *bodies[kind](0))  # their modules are loaded
        monkeypatch.setattr(Connection, "acked", count_round)
        monkeypatch.setattr(Connection, "_send", count_write)
        frames = []
        expected = []
        for number in range(REQUESTS):
            kind = kind_of(number)
            version, body = bodies[kind](number)
            frames.append(client.frame(kind, version, body))
            expected.append((kind, version, client._correlation_id))
        client.send_bytes(b"".join(frames))
        offset = 1
        for kind, version, correlation_id in expected:
            found, answer = client.receive(kind, version)
            assert found == correlation_id
            if kind == "produce":
                row = answer.responses[0].partition_responses[0]
                assert (row.error_code, row.base_offset) == (ErrorCode.NONE, offset)
                offset += 1
        monkeypatch.undo()
        assert 0 < len(writes) < offset, "requests share rounds"
        assert max(writes) == 1
        sent = [b"%d" % number for number in range(REQUESTS) if kind_of(number) == "produce"]
        kept: list[bytes | None] = []
        while len(kept) < offset:
            kept += values_of(client.fetch_one("orders", len(kept)))
        assert kept == [b"first", *sent]

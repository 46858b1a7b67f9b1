"""Answers by round: they leave in order, and those of one sync together. Case 49."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.serving.connection import Connection
from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.schema.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.raw_client import RawClient, batch, fetch_request, produce_request

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    import pytest

REQUESTS = 1_000
PIECE = 100  # requests sent at once


def test_a_thousand_pipelined_requests_are_answered_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With metadata and fetch requests between them, which wait for their turn."""
    told = 0
    acked = Connection.acked

    def counted(self: Connection) -> None:
        nonlocal told
        told += 1
        acked(self)

    monkeypatch.setattr(Connection, "acked", counted)
    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.bootstrap) as client:
        client.topic("records", create=True)
        assert client.produce("records", batch(b"first")).error_code == 0
        node = broker._node
        assert node is not None
        before, told = node.durability.rounds, 0
        asked: list[tuple[str, int]] = []
        frames = b""
        for number in range(1, REQUESTS + 1):
            for api, version, body in requests(number):
                frames += client.frame(api, version, body)
                asked.append((api, version))
            if number % PIECE == 0:
                client.send_bytes(frames)
                frames = b""
        base = 0
        first = client._correlation_id - len(asked) + 1
        for correlation_id, (api, version) in enumerate(asked, first):
            found, answer = client.receive(api, version)
            assert found == correlation_id
            if api == "produce":
                base += 1
                (row,) = answer.responses[0].partition_responses
                assert (row.error_code, row.base_offset) == (0, base)
            elif api == "fetch":
                (data,) = answer.responses[0].partitions
                assert data.error_code == 0
        assert base == REQUESTS
        assert 0 < told <= node.durability.rounds - before < REQUESTS


def requests(number: int) -> list[tuple[str, int, Any]]:
    found: list[tuple[str, int, Any]] = [
        ("produce", 9, produce_request("records", {0: batch(b"value")}))
    ]
    if number % 7 == 0:
        found.append(("metadata", 12, MetadataRequest([MetadataRequestTopic(name="records")])))
    if number % 11 == 0:
        found.append(("fetch", 12, fetch_request({("records", 0): 0})))
    return found

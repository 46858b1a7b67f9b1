"""What one client writes, all clients read: codecs, keys, values, headers, timestamps, nulls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.python_clients import CLIENTS, Row
from tests.support.raw_client import RawClient, batches_of, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla import EmbeddedBroker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
THOUSAND = [
    Row(
        b"key-%d" % (i % 7),
        b"value-%d-" % i + b"ottla " * (i % 50),
        1_700_000_000_000 + i,
        (("trace", b"%d" % i),),
    )
    for i in range(996)
]
ODD = [
    Row(None, b"no key", 1_700_000_000_996),
    Row(b"gone", None, 1_700_000_000_997),  # a tombstone
    Row(b"", b"", 1_700_000_000_998, (("empty", b""), ("same", b"1"), ("same", b"2"))),
    Row("clé".encode(), bytes(range(256)), 1_700_000_000_500, (("naïve", b"\xff\x00"),)),
]

each_client = pytest.mark.parametrize("client", CLIENTS)


@each_client
@pytest.mark.parametrize("codec", CODECS)
def test_a_thousand_records_reach_every_client(
    ottla_broker: EmbeddedBroker, ottla_topic: str, client: str, codec: str
) -> None:
    rows = THOUSAND + ODD
    CLIENTS[client].produce(ottla_broker.bootstrap, ottla_topic, rows, codec)
    with RawClient(ottla_broker.bootstrap) as raw:
        stored = batches_of(raw.fetch_one(ottla_topic, 0, partition_max_bytes=10_000_000))
    assert {b.codec for b in stored} == {CODECS.index(codec)}
    for reader in CLIENTS.values():
        assert reader.consume(ottla_broker.bootstrap, ottla_topic, len(rows)) == rows


@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka"])
def test_header_values_may_be_null(
    ottla_broker: EmbeddedBroker, ottla_topic: str, client: str
) -> None:
    rows = [Row(b"k", b"v", 1_700_000_000_000, (("null", None), ("empty", b"")))]
    CLIENTS[client].produce(ottla_broker.bootstrap, ottla_topic, rows, "none")
    for reader in CLIENTS.values():
        assert reader.consume(ottla_broker.bootstrap, ottla_topic, 1) == rows


@each_client
def test_a_five_megabyte_message(
    ottla_broker: EmbeddedBroker, new_topic: Callable[..., str], client: str
) -> None:
    """Readers keep their default of 1 MB a partition: the first batch comes whole all the same."""
    topic = new_topic(max_message_bytes="6000000")
    rows = [Row(b"k", bytes([n]) * 5_000_000, 1_700_000_000_000) for n in range(2)]
    rows.insert(1, Row(b"small", b"between", 1_700_000_000_000))
    CLIENTS[client].produce(ottla_broker.bootstrap, topic, rows, "none")
    for reader in CLIENTS.values():
        assert reader.consume(ottla_broker.bootstrap, topic, len(rows)) == rows


@each_client
def test_log_append_time_is_the_brokers(
    ottla_broker: EmbeddedBroker, new_topic: Callable[..., str], client: str
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = now_ms()
    rows = [Row(b"k", b"%d" % n, 1000 + n) for n in range(3)]
    CLIENTS[client].produce(ottla_broker.bootstrap, topic, rows, "lz4")
    after = now_ms()
    read = [reader.consume(ottla_broker.bootstrap, topic, 3) for reader in CLIENTS.values()]
    assert read[0] == read[1] == read[2]
    assert all(before <= row.timestamp <= after for row in read[0])
    assert [row.value for row in read[0]] == [b"0", b"1", b"2"]

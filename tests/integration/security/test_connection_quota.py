"""Quotas on listeners with TLS: new connections of an address, and muted ones (65, 71)."""

from __future__ import annotations

import select
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ottla.metadata.security.quotas import IP, USER
from ottla.wire.schema.metadata import MetadataRequest
from tests.support.doors import bootstrap, guarded_broker
from tests.support.quotas import set_quotas
from tests.support.raw_client import batch, produce_request
from tests.support.tls_client import RawTlsClient

if TYPE_CHECKING:
    from tests.support.doors import TlsFiles


def test_71_an_address_over_its_quota_is_closed(tls_files: TlsFiles) -> None:
    config = {
        **tls_files.config(),
        "listeners": "SSL://127.0.0.1:0",
        "ottla.authentication.timeout.ms": "600000",
    }
    with guarded_broker(config, users={}) as broker, ExitStack() as stack:
        where = bootstrap(broker, "SSL")
        set_quotas(broker, {IP: None}, connection_creation_rate=2)
        port = int(where.rpartition(":")[2])
        rest = {
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(10)
        }
        # Two are let in at once, and the broker waits for their hello.
        while len(rest) > 5:
            closed, _, _ = select.select(rest, [], [], 20)
            assert closed
            for one in closed:
                assert one.recv(1) == b""
                rest.discard(one)
        set_quotas(broker, {IP: None}, connection_creation_rate=None)
        for _ in range(5):
            with RawTlsClient(where, tls_files.ca) as client:
                assert client.topic("t").error_code in (0, 3)


def test_65_a_muted_connection_with_tls_goes_on_where_it_was(tls_files: TlsFiles) -> None:
    config = {**tls_files.config(), "listeners": "SSL://127.0.0.1:0"}
    with guarded_broker(config, users={}) as broker:
        where = bootstrap(broker, "SSL")
        broker.create_topic("t")
        set_quotas(broker, {USER: None}, producer_byte_rate=10)
        with RawTlsClient(where, tls_files.ca) as client:
            request = produce_request("t", {0: batch(bytes(1000))})
            # All of them in one record: the rest waits here, decrypted.
            frames = [client.frame("produce", 11, request) for _ in range(3)]
            client.send_bytes(
                b"".join([*frames, client.frame("metadata", 12, MetadataRequest([]))])
            )
            _, first = client.receive("produce", 11)
            assert first.throttle_time_ms > 60_000
            with RawTlsClient(where, tls_files.ca) as other:
                for _ in range(20):
                    other.ask("metadata", 12, MetadataRequest([]))
            assert client.tls.pending() == 0
            assert select.select([client.tls], [], [], 0)[0] == []
            set_quotas(broker, {USER: None}, producer_byte_rate=None)
            for _ in frames[1:]:
                assert client.receive("produce", 11)[1].throttle_time_ms == 0
            client.receive("metadata", 12)

"""Connections that an address may open in a second (case 71)."""

from __future__ import annotations

import select
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ottla.metadata.security.quotas import IP
from tests.support.doors import bootstrap, guarded_broker
from tests.support.quotas import set_quotas
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

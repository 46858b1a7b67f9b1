"""Hostile bytes before authentication: no crash, no hang, no growth, and others are served.

Streams are cut and changed pieces of real exchanges, of TLS and of SASL, and noise (case 97). They
go to a broker in a process of its own, whose memory and log are looked at. `make soak` sends a
million of them to each listener.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.metadata import MetadataRequest
from tests.support.doors import make_tls_files
from tests.support.faults_broker import PATIENCE_SECONDS, BrokerProcess, soak
from tests.support.ports import free_ports
from tests.support.raw_client import RawClient
from tests.support.sasl_client import log_in, scram_client

if TYPE_CHECKING:
    from pathlib import Path

STREAMS: Final = 1_000_000 if soak() else 2_000
AT_ONCE: Final = 50
WARM_UP: Final = 500
"""Streams after which the memory is looked at first: by then the code of each answer is loaded."""
STRANGERS_BYTES: Final = 64 << 20
"""All strangers together take no more, as the threat model says; what is seen is a few MiB."""
PASSWORD: Final = "wonder-4711"
SASL: Final = "SASL_PLAINTEXT"
MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


def request(api_key: int, version: int, body: bytes) -> bytes:
    payload = struct.pack(">hhih", api_key, version, 1, -1) + body
    return struct.pack(">i", len(payload)) + payload


def hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="x")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def seeds() -> list[bytes]:
    """What honest clients say first."""
    scram = scram_client("SCRAM-SHA-256", "alice", "x").first()
    versions = request(18, 0, b"")
    plain = request(17, 1, b"\0\5PLAIN")
    return [
        versions,
        plain + request(36, 0, struct.pack(">i", 13) + b"\0alice\0secret"),
        request(17, 1, b"\0\x0dSCRAM-SHA-256")
        + request(36, 0, struct.pack(">i", len(scram)) + scram),
        versions + plain + request(36, 2, b"\0\x0e\0alice\0secret\0"),
        request(3, 12, b"\0" * 20),
        hello(),
    ]


def mutated(seed: bytes, dice: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(dice.randrange(1, 6)):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(5):
            case 0:
                data[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                del data[at : at + dice.randrange(1, 20)]
            case 2:
                data[at:at] = dice.randbytes(dice.randrange(1, 40))
            case 3:
                data[at : at + 4] = struct.pack(">i", dice.choice([-1, 0, 1, 2**31 - 1, 131_072]))
            case _:
                data += data[: dice.randrange(200)]
        if not data:
            data += dice.randbytes(4)
    return bytes(data)


def welcome(where: str) -> RawClient:
    """An honest client that has logged in."""
    raw = RawClient(where)
    raw.ask("api_versions", 3, ApiVersionsRequest("tests", "1.0"))
    assert log_in(raw, "PLAIN", "alice", PASSWORD).error_code == 0
    return raw


def is_served(raw: RawClient) -> bool:
    return len(raw.ask("metadata", 12, MetadataRequest(())).brokers) == 1


def flood(port: int, streams: list[bytes]) -> None:
    sockets = []
    for stream in streams:
        one = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        sockets.append(one)
        with suppress(ConnectionError):  # it may be closed in the middle
            one.sendall(stream)
    for one in sockets:
        one.close()


@pytest.mark.parametrize("listener", [SASL, "SASL_SSL"])
def test_case_97_hostile_streams_change_nothing(tmp_path: Path, listener: str) -> None:
    dice = random.Random(int(os.environ.get("OTTLA_TEST_SEED", "4711")))
    beginnings = seeds()
    plain, tls = free_ports(2)
    config = {
        **make_tls_files(tmp_path).config(),
        "listeners": f"{SASL}://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{tls}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{MODULE} required user_alice="{PASSWORD}";'
        ),
        "connection.failed.authentication.delay.ms": "0",
        "ottla.authentication.timeout.ms": "3000",
    }
    port = plain if listener == SASL else tls
    with BrokerProcess(tmp_path, config=config, ephemeral=True, port=plain) as broker:
        honest = welcome(broker.bootstrap)
        settled = 0
        for done in range(0, STREAMS, AT_ONCE):
            flood(port, [mutated(dice.choice(beginnings), dice) for _ in range(AT_ONCE)])
            assert is_served(honest)
            if done == WARM_UP:
                settled = broker.rss_bytes()
        assert broker.peak_bytes() - settled < STRANGERS_BYTES
        with welcome(broker.bootstrap) as later:
            assert is_served(later)
        honest.close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (held := broker.stats())["connections"]:
            assert time.monotonic() < deadline, held
            time.sleep(0.05)
        assert held["unsent"] == 0
        assert broker.stop() == 0
    assert "Traceback" not in broker.log_text()

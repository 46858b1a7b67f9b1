"""Hostile bytes before authentication: no crash, no hang, no growth, and others are served.

Streams are cut and changed pieces of real exchanges, of TLS and of SASL, and noise (case 97).
`make soak` sends a million of them.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.metadata import MetadataRequest
from tests.support.doors import USERS, bootstrap, guarded_broker, make_tls_files, node_of, run_in
from tests.support.faults_broker import soak
from tests.support.raw_client import RawClient
from tests.support.sasl_client import log_in, scram_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    import ottla

STREAMS: Final = 1_000_000 if soak() else 2_000
AT_ONCE: Final = 50
SASL: Final = "SASL_PLAINTEXT"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ottla.EmbeddedBroker]:
    files = make_tls_files(tmp_path_factory.mktemp("tls"))
    config = {
        **files.config(),
        "listeners": f"{SASL}://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": "0",
        "ottla.authentication.timeout.ms": "3000",
    }
    with guarded_broker(config) as broker:
        yield broker


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


def served(where: str) -> bool:
    with RawClient(where) as raw:
        raw.ask("api_versions", 3, ApiVersionsRequest("tests", "1.0"))
        assert log_in(raw, "PLAIN", "alice", USERS["alice"]).error_code == 0
        return len(raw.ask("metadata", 12, MetadataRequest(())).brokers) == 1


@pytest.mark.parametrize("listener", [SASL, "SASL_SSL"])
def test_case_97_hostile_streams_change_nothing(
    broker: ottla.EmbeddedBroker, listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(int(os.environ.get("OTTLA_TEST_SEED", "4711")))
    beginnings = seeds()
    host, port = bootstrap(broker, listener).split(":")
    for _ in range(STREAMS // AT_ONCE):
        sockets = []
        for _ in range(AT_ONCE):
            one = socket.create_connection((host, int(port)), 20)
            sockets.append(one)
            with suppress(ConnectionError):  # it may be closed in the middle
                one.sendall(mutated(dice.choice(beginnings), dice))
        for one in sockets:
            one.close()
    assert served(bootstrap(broker, SASL))
    failures = [record for record in caplog.records if record.exc_info is not None]
    assert [record.getMessage() for record in failures] == []
    door = node_of(broker).services.door
    assert door is not None
    held = run_in(broker, lambda node: (node.dispatcher.memory.held, node.services.answers.held))
    assert held == (0, 0)

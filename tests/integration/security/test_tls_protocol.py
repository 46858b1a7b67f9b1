"""TLS on the wire: versions, ciphers, endings, what is no TLS, and large answers."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.broker.access import low_water, tls_connection
from ottla.broker.running import jobs
from ottla.log.os_storage import OsStorage
from ottla.security.tls_channel import AHEAD_BYTES, State, TlsChannel
from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.metadata import MetadataRequest
from tests.support.doors import USERS, bootstrap, guarded_broker, node_of, run_in
from tests.support.names import fresh
from tests.support.raw_client import RawClient, batch, fetch_request, produce_request, values_of
from tests.support.sasl_client import log_in
from tests.support.tls_client import RawTlsClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.doors import TlsFiles

NAMED = ApiVersionsRequest("tests", "1.0")


@pytest.fixture(scope="module")
def broker(tls_files: TlsFiles) -> Iterator[ottla.EmbeddedBroker]:
    other = tls_files.server("other", "other.example", "127.0.0.1")
    config = {
        **tls_files.config(),
        "listeners": ",".join(
            f"{name}://127.0.0.1:0" for name in ("SSL", "SASL_SSL", "PLAINTEXT", "OTHER", "NEW")
        ),
        "listener.security.protocol.map": "OTHER:SSL,NEW:SSL",
        "listener.name.other.ssl.keystore.location": str(other),
        "listener.name.new.ssl.enabled.protocols": "TLSv1.3",
        "ottla.authentication.timeout.ms": "600000",
    }
    with guarded_broker(config) as broker:
        yield broker


@pytest.fixture
def raw(broker: ottla.EmbeddedBroker, tls_files: TlsFiles) -> Iterator[RawTlsClient]:
    with RawTlsClient(bootstrap(broker, "SSL"), tls_files.ca) as client:
        yield client


def test_requests_and_answers_of_all_sizes(raw: RawTlsClient) -> None:
    topic = fresh("topic")
    raw.topic(topic, create=True)
    for size in (1, 16_000, 16_384, 16_385, 300_000, 900_000):
        assert raw.produce(topic, batch(bytes(size))).error_code == 0
    for offset in range(6):
        assert raw.fetch_one(topic, offset).error_code == 0


class Plain:
    """Collects what a channel has decrypted."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._buffer = memoryview(bytearray(1 << 16))

    def get_buffer(self, _: int, /) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int, /) -> None:
        self.data += self._buffer[:nbytes]


@pytest.mark.long
def test_large_requests_are_served_wherever_their_bytes_are_cut(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, raw: RawTlsClient
) -> None:
    """Also within a record: the broker waits for no byte that it has, or that does not come."""
    topic = fresh("topic")
    raw.topic(topic, create=True)
    host, _, port = bootstrap(broker, "SSL").rpartition(":")
    context = ssl.create_default_context(cafile=tls_files.ca)
    channel = TlsChannel(context, server_side=False, server_hostname=host)
    plain = Plain()
    with socket.create_connection((host, int(port)), 60) as connection:

        def send(cut: int) -> None:
            data = b"".join(channel.ciphertext(1 << 30))
            for part in (data[:cut], data[cut:]):
                connection.sendall(part)
                time.sleep(0.002)  # so that the broker sees the first by itself

        def receive() -> None:
            channel.received(connection.recv(1 << 16), plain)

        send(0)
        while channel.state is State.HANDSHAKING:
            receive()
            send(0)
        for number, size in enumerate(range(20_000, 400_000, 9_973)):
            value = bytes([number]) * size
            channel.send([raw.frame("produce", 9, produce_request(topic, {0: batch(value)}))])
            send((number + 1) * 17_011 % size)
            plain.data.clear()
            while len(plain.data) < 4 or len(plain.data) < 4 + int.from_bytes(plain.data[:4]):
                receive()
    assert run_in(broker, lambda node: node.partitions.find(topic, 0).log.high_watermark) == 39


@pytest.mark.long
@pytest.mark.skipif(not low_water.is_possible(), reason="needs Linux 5.12")
def test_a_large_request_does_not_wake_the_loop_for_each_record(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = 0
    updated = tls_connection.TlsConnection.buffer_updated

    def counted(connection: tls_connection.TlsConnection, nbytes: int) -> None:
        nonlocal woken
        woken += 1
        updated(connection, nbytes)

    # Transports look the method up once, when a connection is made.
    monkeypatch.setattr(tls_connection.TlsConnection, "buffer_updated", counted)
    topic, records = fresh("topic"), 60
    with RawTlsClient(bootstrap(broker, "SSL"), tls_files.ca) as raw:
        raw.topic(topic, create=True)
        before = woken
        value = bytes(records * 16_384 - 1000)
        frame = raw.frame("produce", 9, produce_request(topic, {0: batch(value)}))
        for at in range(0, len(frame), 16_384):
            raw.send_bytes(frame[at : at + 16_384])
            time.sleep(0.003)  # so that the broker could read it by itself
        _, answer = raw.receive("produce", 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert 0 < woken - before < records / 2


@pytest.mark.parametrize("listener", ["SSL", "PLAINTEXT"])
def test_large_answers_come_from_mapped_files(
    broker: ottla.EmbeddedBroker,
    raw: RawTlsClient,
    monkeypatch: pytest.MonkeyPatch,
    listener: str,
) -> None:
    """With TLS through copies of the kernel; `faults/test_mapped.py` has pages that fail."""
    maps = []
    plain = OsStorage.map

    def counting(storage: OsStorage, fd: int, start: int, size: int) -> memoryview | None:
        maps.append(fd)
        return plain(storage, fd, start, size)

    monkeypatch.setattr(OsStorage, "map", counting)
    topic = fresh("topic")
    raw.topic(topic, create=True)
    for number in range(6):  # the first ones are not in the cache of newest batches any more
        assert raw.produce(topic, batch(bytes([number]) * 900_000)).error_code == 0
    if listener == "SSL":
        found = raw.fetch_one(topic, 0)
    else:
        with RawClient(bootstrap(broker, listener)) as client:
            found = client.fetch_one(topic, 0)
    assert values_of(found) == [bytes(900_000)]
    assert maps


def test_many_small_requests_in_one_write(raw: RawTlsClient) -> None:
    frames = [raw.frame("api_versions", 3, NAMED) for _ in range(500)]
    raw.send_bytes(b"".join(frames))
    found = [raw.receive("api_versions", 3)[0] for _ in range(500)]
    assert found == sorted(found)


def test_sasl_over_tls(broker: ottla.EmbeddedBroker, tls_files: TlsFiles) -> None:
    with RawTlsClient(bootstrap(broker, "SASL_SSL"), tls_files.ca) as raw:
        assert log_in(raw, "SCRAM-SHA-512", "alice", USERS["alice"]).error_code == 0
        assert len(raw.ask("metadata", 12, MetadataRequest(())).brokers) == 1
    with RawTlsClient(bootstrap(broker, "SASL_SSL"), tls_files.ca) as raw:
        raw.send("metadata", 12, MetadataRequest(()))
        assert raw.closed()


def s_client(where: str, *options: str, text: str = "") -> str:
    run = subprocess.run(
        ["openssl", "s_client", "-connect", where, *options],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return run.stdout + run.stderr


def test_case_04_two_listeners_with_two_certificates(broker: ottla.EmbeddedBroker) -> None:
    shown = [
        s_client(bootstrap(broker, name), "-showcerts").partition("subject=")[2].splitlines()[0]
        for name in ("SSL", "OTHER")
    ]
    assert shown == ["CN = localhost", "CN = other.example"]


@pytest.mark.parametrize(
    ("listener", "version", "works"),
    [
        ("SSL", "-tls1", False),
        ("SSL", "-tls1_1", False),
        ("SSL", "-tls1_2", True),
        ("SSL", "-tls1_3", True),
        ("NEW", "-tls1_2", False),
        ("NEW", "-tls1_3", True),
    ],
)
def test_case_05_versions(
    broker: ottla.EmbeddedBroker, listener: str, version: str, works: bool
) -> None:
    said = s_client(bootstrap(broker, listener), version, "-cipher", "ALL:@SECLEVEL=0")
    assert ("Cipher is (NONE)" not in said) == works, said


def test_case_06_only_safe_ciphers(broker: ottla.EmbeddedBroker) -> None:
    listed = subprocess.run(
        ["openssl", "ciphers", "-tls1_2", "-s", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    where = bootstrap(broker, "SSL")
    unsafe = [one for one in listed.strip().split(":") if not one.startswith("TLS_")]
    safe = [one for one in unsafe if one.startswith("ECDHE-") and ("GCM" in one or "CHACHA" in one)]
    assert len(safe) >= 4
    for one in safe:
        unsafe.remove(one)
    bad = ":".join(unsafe) + ":@SECLEVEL=0"
    assert "Cipher is (NONE)" in s_client(where, "-tls1_2", "-cipher", bad)
    good = "ECDHE-ECDSA-AES128-GCM-SHA256"
    assert f"Cipher is {good}" in s_client(where, "-tls1_2", "-cipher", good)


def test_case_07_renegotiation_is_refused(broker: ottla.EmbeddedBroker) -> None:
    said = s_client(bootstrap(broker, "SSL"), "-tls1_2", text="R\n")
    assert "RENEGOTIATING" in said
    assert "no renegotiation" in said or "error" in said


def test_case_07_key_updates_cost_nothing_noticeable(
    broker: ottla.EmbeddedBroker, raw: RawTlsClient
) -> None:
    said = s_client(bootstrap(broker, "SSL"), "-tls1_3", text="k\n" * 2_000)
    assert "KEYUPDATE" in said
    assert raw.ask("api_versions", 3, NAMED).error_code == 0


def test_case_17_a_half_frame_and_close_notify(raw: RawTlsClient) -> None:
    whole = raw.frame("api_versions", 3, NAMED)
    raw.send_bytes(whole + whole[:7])
    raw.receive("api_versions", 3)
    raw.tls.unwrap().close()


@pytest.mark.parametrize("politely", [True, False])
def test_case_17_acks_0_is_carried_out_however_the_client_ends(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, politely: bool
) -> None:
    topic = fresh("topic")
    with RawTlsClient(bootstrap(broker, "SSL"), tls_files.ca) as reader:
        reader.topic(topic, create=True)
        writer = RawTlsClient(bootstrap(broker, "SSL"), tls_files.ca)
        writer.send("produce", 11, produce_request(topic, {0: bytes(batch(b"v"))}, acks=0))
        if politely:
            writer.tls.unwrap().close()
        else:
            writer.tls.detach()
            writer.close()
        data = reader.fetch(
            fetch_request({(topic, 0): 0}, max_wait_ms=10_000, min_bytes=1), version=12
        )
        assert data.responses[0].partitions[0].high_watermark == 1


@pytest.mark.parametrize(
    "hello",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">ihhih", 14, 18, 0, 1, -1) + b"1234",
        b"\x16\x03\x01\x00\x05hello",
    ],
)
def test_case_18_what_is_no_tls_is_closed(broker: ottla.EmbeddedBroker, hello: bytes) -> None:
    host, port = bootstrap(broker, "SSL").split(":")
    with socket.create_connection((host, int(port)), 20) as one:
        one.sendall(hello)
        while one.recv(4096):
            pass


def test_case_18_tls_at_a_plain_port_is_closed(broker: ottla.EmbeddedBroker) -> None:
    host, port = bootstrap(broker, "PLAINTEXT").split(":")
    context = ssl.create_default_context()
    ended = (ssl.SSLError, ConnectionError)
    with socket.create_connection((host, int(port)), 20) as one, pytest.raises(ended):
        context.wrap_socket(one, server_hostname=host)


def test_case_90_a_slow_hello_is_closed_at_the_deadline(tls_files: TlsFiles) -> None:
    config = {
        **tls_files.config(),
        "listeners": "SSL://127.0.0.1:0",
        "ottla.authentication.timeout.ms": "1000",
    }
    with guarded_broker(config, users={}) as broker:
        host, port = bootstrap(broker, "SSL").split(":")
        # On a busy machine its time may be over before it has said anything.
        with socket.create_connection((host, int(port)), 60) as one, suppress(ConnectionError):
            one.sendall(b"\x16\x03\x01")
            assert one.recv(1) == b""
        door = node_of(broker).services.door
        assert door is not None
        assert run_in(broker, lambda _: door._lobby.authenticating) == 0


@pytest.mark.long
def test_a_large_request_that_comes_byte_by_byte_is_closed(
    tls_files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may wait for more of it; whoever looks for slow clients sees it all the same."""
    monkeypatch.setattr(jobs, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(jobs, "HALF_FRAME_SECONDS", 0.2)
    config = {**tls_files.config(), "listeners": "SSL://127.0.0.1:0"}
    with (
        guarded_broker(config, users={}) as broker,
        RawTlsClient(bootstrap(broker, "SSL"), tls_files.ca) as drip,
    ):
        drip.send_bytes(struct.pack(">ihh", 1 << 20, 0, 9))
        for _ in range(3000):
            try:
                drip.send_bytes(b"x")
            except OSError:
                return
            time.sleep(0.02)
    pytest.fail("it is still open")


def test_case_16_a_large_answer_is_encrypted_as_it_is_read(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles
) -> None:
    """What waits for a slow client is views; little of it is encrypted."""
    where = bootstrap(broker, "SSL")
    topic = fresh("topic")
    with RawTlsClient(where, tls_files.ca) as writer:
        writer.topic(topic, create=True)
        for _ in range(8):
            assert writer.produce(topic, batch(bytes(1_000_000))).error_code == 0
    with RawTlsClient(where, tls_files.ca, receive_bytes=65_536) as slow:
        request = fetch_request({(topic, 0): 0}, partition_max_bytes=50_000_000)
        slow.send("fetch", 12, request)
        slow.tls.settimeout(20)
        first = slow.tls.recv(1024)
        assert first

        def waiting(node: object) -> tuple[int, int]:
            (one,) = (
                one
                for one in node_of(broker).dispatcher.connections
                if isinstance(one, tls_connection.TlsConnection) and one.unsent_bytes
            )
            assert one._channel is not None
            assert one._transport is not None
            return one._channel.waiting_bytes, one._transport.get_write_buffer_size()

        plain, encrypted = run_in(broker, waiting)
        assert plain > 1_000_000
        assert encrypted <= 2 * AHEAD_BYTES
        (size,) = struct.unpack(">i", first[:4])
        left = size + 4 - len(first)
        while left:
            left -= len(slow.tls.recv(min(left, 1 << 20)))
    assert node_of(broker).services.answers.held == 0


def test_case_83_a_key_that_others_may_write_is_refused(
    tls_files: TlsFiles, tmp_path: Path
) -> None:
    store = tmp_path / "store.pem"
    store.write_bytes(tls_files.keystore.read_bytes())
    store.chmod(0o666)
    config = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(store)}
    with pytest.raises(ottla.errors.InvalidConfig, match=r"ssl\.keystore\.location"):
        ottla.EmbeddedBroker(config=config).start()


def test_a_host_that_the_certificate_does_not_have_is_a_warning(
    tls_files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    config = {
        **tls_files.config(),
        "listeners": "SSL://127.0.0.1:0",
        "advertised.listeners": "SSL://broker.example:9093",
    }
    with ottla.EmbeddedBroker(config=config):
        (text,) = (text for text in caplog.messages if "would refuse it" in text)
    assert "broker.example" in text
    assert "127.0.0.1, localhost" in text


def hints(caplog: pytest.LogCaptureFixture, part: str) -> int:
    return len([text for text in caplog.messages if part in text])


def test_case_18_a_mistaken_protocol_is_a_hint_in_the_log_once(
    tls_files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    config = {**tls_files.config(), "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}
    with ottla.EmbeddedBroker(config=config) as broker:
        for listener, part in (("SSL", "does not speak TLS"), ("PLAINTEXT", "speaks TLS")):
            run_in(broker, lambda node: node.dispatcher.connections._told.clear())
            host, port = bootstrap(broker, listener).split(":")
            hello = ssl_hello() if listener == "PLAINTEXT" else b"GET / HTTP/1.1\r\n\r\n"
            for _ in range(3):
                with socket.create_connection((host, int(port)), 20) as one:
                    one.sendall(hello)
                    while one.recv(4096):
                        pass
            assert hints(caplog, part) == 1


def ssl_hello() -> bytes:
    """What a TLS client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="x")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()

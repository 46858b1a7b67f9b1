"""SASL on the wire, without TLS: what a stranger may send, and what comes back."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import struct
import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from ottla.metadata.changes.security import SetScramCredential
from ottla.security.scram import MECHANISMS as SCRAM
from ottla.security.scram import salted_password
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.metadata import MetadataRequest
from ottla.wire.schema.produce import ProduceRequest
from ottla.wire.schema.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.schema.sasl_handshake import SaslHandshakeRequest
from tests.support.doors import (
    USERS,
    bootstrap,
    delete_user,
    guarded_broker,
    node_of,
    set_user,
    stored,
)
from tests.support.names import fresh
from tests.support.raw_client import RawClient, batch
from tests.support.sasl_client import authenticate, handshake, log_in, plain_token, scram_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    import ottla

SASL = "SASL_PLAINTEXT"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
CONFIG = {
    "listeners": f"{SASL}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
}
NAMED = ApiVersionsRequest("tests", "1.0")
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with guarded_broker(CONFIG) as broker:
        yield broker


@pytest.fixture
def raw(broker: ottla.EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(bootstrap(broker, SASL)) as client:
        yield client


def works(raw: RawClient) -> bool:
    return len(raw.ask("metadata", 12, MetadataRequest(())).brokers) == 1


@pytest.mark.parametrize("name", USERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_case_21_every_mechanism_logs_in(raw: RawClient, mechanism: str, name: str) -> None:
    raw.ask("api_versions", 3, NAMED)
    answer = log_in(raw, mechanism, name, USERS[name])
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert works(raw)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_case_24_and_26_a_wrong_password_and_an_unknown_user_look_the_same(
    raw: RawClient, mechanism: str, name: str
) -> None:
    began = time.monotonic()
    answer = log_in(raw, mechanism, name, "wrong")
    held = time.monotonic() - began
    assert (answer.error_code, answer.error_message) == (FAILED, "Authentication failed")
    assert (answer.auth_bytes, answer.session_lifetime_ms) == (b"", 0)
    assert held >= 0.1
    assert raw.closed()


def test_case_26_and_28_made_up_credentials_look_like_stored_ones(
    broker: ottla.EmbeddedBroker,
) -> None:
    def salt_of(name: str) -> bytes:
        with RawClient(bootstrap(broker, SASL)) as raw:
            handshake(raw, "SCRAM-SHA-256")
            client = scram_client("SCRAM-SHA-256", name, "x")
            text = bytes(authenticate(raw, client.first()).auth_bytes)
        _, salt, iterations = text.split(b",")
        assert iterations == b"i=4096"
        return salt

    known, fakes = salt_of("alice"), [salt_of(name) for name in ("nobody", "nobody", "noone")]
    assert fakes[0] == fakes[1] != fakes[2]
    assert len({len(known), *map(len, fakes)}) == 1


def test_case_25_unknown_mechanisms_are_told_the_list(broker: ottla.EmbeddedBroker) -> None:
    for mechanism in ("GSSAPI", "NONE", ""):
        with RawClient(bootstrap(broker, SASL)) as raw:
            answer = handshake(raw, mechanism)
            assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert list(answer.mechanisms) == MECHANISMS
            assert raw.closed()


def test_case_30_a_recorded_exchange_is_refused(broker: ottla.EmbeddedBroker) -> None:
    client = scram_client("SCRAM-SHA-256", "alice", USERS["alice"])
    first = client.first()
    with RawClient(bootstrap(broker, SASL)) as raw:
        handshake(raw, "SCRAM-SHA-256")
        step = client.step(bytes(authenticate(raw, first).auth_bytes))
        final = step.finish().data  # type: ignore[union-attr]
        assert authenticate(raw, final).error_code == 0
    with RawClient(bootstrap(broker, SASL)) as raw:
        handshake(raw, "SCRAM-SHA-256")
        assert authenticate(raw, first).error_code == 0
        assert authenticate(raw, final).error_code == FAILED
        assert raw.closed()


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        ("PLAIN", plain_token("alice", USERS["alice"], "bob")),
        ("PLAIN", b"alice\0" + USERS["alice"].encode()),
        ("PLAIN", b"\0alice\0"),
        ("PLAIN", b""),
        ("SCRAM-SHA-256", b"n,a=bob,n=alice,r=abc"),
        ("SCRAM-SHA-256", b"p=tls-unique,,n=alice,r=abc"),
        ("SCRAM-SHA-256", b"n,,m=x,n=alice,r=abc"),
        ("SCRAM-SHA-256", b"\xff" * 100),
        ("SCRAM-SHA-256", b"n,,n=alice,r=" + b"x" * 100_000),
    ],
)
def test_case_31_crafted_tokens_are_refused(raw: RawClient, mechanism: str, token: bytes) -> None:
    handshake(raw, mechanism)
    answer = authenticate(raw, token)
    assert (answer.error_code, answer.error_message) == (FAILED, "Authentication failed")
    assert raw.closed()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_the_answer(raw: RawClient, version: int) -> None:
    handshake(raw, "PLAIN")
    assert authenticate(raw, plain_token("alice", USERS["alice"]), version).error_code == 0


def request(api_key: int, version: int, body: bytes) -> bytes:
    return struct.pack(">hhih", api_key, version, 1, -1) + body


@pytest.mark.parametrize(
    "frame",
    [
        request(3, 12, b"\xff" * 50),
        request(0, 9, b"\xff" * 50),
        request(17, 0, b"\0\5PLAIN"),
        request(36, 9, b""),
        request(-1, -1, b""),
        b"\0\3\0",
    ],
)
def test_case_35_what_a_stranger_must_not_send_closes_without_an_answer(
    raw: RawClient, frame: bytes
) -> None:
    try:
        raw.send_frame(frame.ljust(4, b"\0"))
    finally:
        assert raw.closed()


def test_case_35_nothing_of_a_body_is_read(
    broker: ottla.EmbeddedBroker, raw: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even to prepare for a request behind one that is being served."""
    dispatcher = node_of(broker).dispatcher
    with RawClient(bootstrap(broker, "PLAINTEXT")) as plain:
        plain.produce(fresh_topic(plain), None)  # its modules are loaded
    seen: list[int] = []
    for api_key, (handler, services) in list(dispatcher._foresights.items()):
        monkeypatch.setitem(
            dispatcher._foresights, api_key, (lambda *_, key=api_key: seen.append(key), services)
        )
        assert handler is not None
    produce = raw.frame("produce", 9, ProduceRequest(acks=-1))
    raw.send_bytes(raw.frame("sasl_handshake", 1, SaslHandshakeRequest("NONE")) + 3 * produce)
    _, answer = raw.receive("sasl_handshake", 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert raw.closed()
    assert seen == []


def fresh_topic(raw: RawClient) -> str:
    name = fresh("topic")
    raw.topic(name, create=True)
    return name


def test_case_35_out_of_order(broker: ottla.EmbeddedBroker) -> None:
    where = bootstrap(broker, SASL)
    with RawClient(where) as raw:
        assert authenticate(raw, b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert raw.closed()
    with RawClient(where) as raw:
        handshake(raw, "PLAIN")
        assert handshake(raw, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert raw.closed()
    with RawClient(where) as raw:
        handshake(raw, "PLAIN")
        assert raw.ask("api_versions", 3, NAMED).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert raw.closed()
    with RawClient(where) as raw:
        for _ in range(3):
            assert raw.ask("api_versions", 3, NAMED).error_code == 0
        raw.send("api_versions", 3, NAMED)
        assert raw.closed()


def test_case_35_after_success_nothing_changes(raw: RawClient) -> None:
    log_in(raw, "PLAIN", "alice", USERS["alice"])
    assert handshake(raw, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert authenticate(raw, b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert works(raw)


def test_a_listener_without_sasl_says_so(broker: ottla.EmbeddedBroker) -> None:
    with RawClient(bootstrap(broker, "PLAINTEXT")) as raw:
        assert handshake(raw, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert authenticate(raw, b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert works(raw)


def test_a_strangers_frame_is_small_and_a_clients_may_be_large(raw: RawClient) -> None:
    log_in(raw, "PLAIN", "alice", USERS["alice"])
    topic = fresh_topic(raw)
    assert raw.produce(topic, batch(bytes(500_000))).error_code == 0


def test_case_92_a_strangers_large_frame_is_closed_at_its_announcement(raw: RawClient) -> None:
    raw.send_bytes(struct.pack(">i", 131_073))
    assert raw.closed()


def test_case_45_the_users_of_nodes_cannot_come_in_elsewhere(broker: ottla.EmbeddedBroker) -> None:
    door = node_of(broker).services.door
    assert door is not None
    assert "__node" in door.credentials._own
    with RawClient(bootstrap(broker, SASL)) as raw:
        assert log_in(raw, "PLAIN", "__node", "x").error_code == FAILED


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities on Linux alone")
def test_case_32_hashing_passwords_gives_way_to_the_event_loop(
    broker: ottla.EmbeddedBroker,
) -> None:
    door = node_of(broker).services.door
    assert door is not None
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    hashing = door._passwords.submit(os.getpriority, os.PRIO_PROCESS, 0).result()
    assert hashing == min(mine + 10, 19)


def test_case_46_connections_of_a_changed_or_deleted_user_are_closed(
    broker: ottla.EmbeddedBroker,
) -> None:
    where = bootstrap(broker, SASL)
    set_user(broker, "carol", "one")
    with RawClient(where) as other, RawClient(where) as carol, RawClient(where) as plain:
        log_in(other, "PLAIN", "alice", USERS["alice"])
        log_in(carol, "SCRAM-SHA-256", "carol", "one")
        log_in(plain, "PLAIN", "carol", "one")
        set_user(broker, "carol", "two", ("SCRAM-SHA-256",))
        assert carol.closed()
        assert works(plain)  # it was checked against the other credential
        delete_user(broker, "carol")
        assert plain.closed()
        assert works(other)
    with RawClient(where) as raw:
        assert log_in(raw, "PLAIN", "carol", "one").error_code == FAILED


def nonces(mine: str, whole: str) -> dict[str, str]:
    """What a client may claim that the nonce was."""
    return {
        "own": mine,
        "server": whole.removeprefix(mine),
        "longer": whole + "x",
        "shorter": whole[:-1],
        "other": mine + whole[len(mine) :][::-1],
    }


@pytest.mark.parametrize("kind", ["own", "server", "longer", "shorter", "other"])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_case_29_the_nonce_must_be_the_whole_one(raw: RawClient, mechanism: str, kind: str) -> None:
    """CVE-2024-56128: everything else of the message is right, its proof for this nonce, too."""
    hashing = SCRAM[mechanism]
    handshake(raw, mechanism)
    first = "n=alice,r=abcdefgh"
    answer = bytes(authenticate(raw, f"n,,{first}".encode()).auth_bytes).decode()
    whole, salt, iterations = (part[2:] for part in answer.split(","))
    claimed = nonces("abcdefgh", whole)[kind]
    bare = f"c=biws,r={claimed}"
    salted = salted_password(hashing, USERS["alice"], base64.b64decode(salt), int(iterations))

    def mac(key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, hashing.hash_name)

    client_key = mac(salted, b"Client Key")
    stored_key = hashlib.new(hashing.hash_name, client_key).digest()
    signature = mac(stored_key, f"{first},{answer},{bare}".encode())
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    final = f"{bare},p={proof.decode()}".encode()
    assert authenticate(raw, final).error_code == FAILED
    assert raw.closed()


def test_case_32_passwords_are_hashed_by_two_threads_and_not_by_the_loop(
    broker: ottla.EmbeddedBroker,
) -> None:
    """Another client is served while more logins wait than threads hash."""
    where = bootstrap(broker, SASL)
    names: set[str] = set()
    door = node_of(broker).services.door
    assert door is not None
    work = door.work

    async def watched(call: Any) -> Any:
        def run() -> Any:
            names.add(threading.current_thread().name)
            return call()

        return await work(run)

    with ExitStack() as stack:
        other = stack.enter_context(RawClient(where))
        log_in(other, "PLAIN", "alice", USERS["alice"])
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(door, "work", watched)
        clients = [stack.enter_context(RawClient(where)) for _ in range(40)]
        for client in clients:
            handshake(client, "PLAIN")
        # alice has logged in: her passwords are not hashed any more.
        set_user(broker, "dora", "one")
        token = SaslAuthenticateRequest(plain_token("dora", "wrong"))
        for client in clients:
            client.send("sasl_authenticate", 2, token)
        assert works(other)
        for client in clients:
            assert client.receive("sasl_authenticate", 2)[1].error_code == FAILED
    assert 1 <= len(names) <= 2
    assert all(name.startswith("ottla-password") for name in names)


def test_case_46_a_password_that_changes_while_it_is_checked_is_refused(
    broker: ottla.EmbeddedBroker,
) -> None:
    node = node_of(broker)
    door = node.services.door
    assert door is not None
    work = door.work
    changes = [
        SetScramCredential("erin", one, stored("erin", "two", one)) for one in MECHANISMS[1:]
    ]

    async def changed(call: Any) -> Any:
        result = await work(call)
        await node.cluster.change(*changes)
        return result

    set_user(broker, "erin", "one")
    where = bootstrap(broker, SASL)
    with pytest.MonkeyPatch.context() as patch, RawClient(where) as raw:
        patch.setattr(door, "work", changed)
        assert log_in(raw, "PLAIN", "erin", "one").error_code == FAILED
    with RawClient(where) as raw:
        assert log_in(raw, "PLAIN", "erin", "one").error_code == FAILED
    with RawClient(where) as raw:
        assert log_in(raw, "PLAIN", "erin", "two").error_code == 0


def test_case_46_the_verifier_of_a_changed_or_deleted_user_is_forgotten(
    broker: ottla.EmbeddedBroker,
) -> None:
    where = bootstrap(broker, SASL)
    door = node_of(broker).services.door
    assert door is not None

    def log_in_as(password: str) -> int:
        with RawClient(where) as raw:
            return int(log_in(raw, "PLAIN", "frank", password).error_code)

    def known() -> int:
        return sum(name == "frank" for name, _ in door.verifiers._known)

    set_user(broker, "frank", "one")
    assert [log_in_as("one"), known()] == [0, 1]
    set_user(broker, "frank", "two")
    assert known() == 0
    assert [log_in_as("one"), known(), log_in_as("two"), known()] == [FAILED, 0, 0, 1]
    delete_user(broker, "frank")
    assert [known(), log_in_as("two")] == [0, FAILED]

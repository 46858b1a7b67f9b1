"""A broker that served in the clear is secured without losing anything (case 110)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ottla
from tests.support.doors import USERS, bootstrap, set_user
from tests.support.raw_client import RawClient, batch
from tests.support.sasl_client import log_in
from tests.support.tls_client import RawTlsClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.doors import TlsFiles

TOPIC = "orders"
PLAIN, SECURE = "PLAINTEXT://127.0.0.1:0", "SASL_SSL://127.0.0.1:0"


def written(client: RawClient, count: int) -> int:
    """The end of the log after so many more records."""
    for _ in range(count):
        assert client.produce(TOPIC, batch(b"value")).error_code == 0
    return client.fetch_one(TOPIC, 0).high_watermark


def logged_in(broker: ottla.EmbeddedBroker, tls_files: TlsFiles) -> RawTlsClient:
    client = RawTlsClient(bootstrap(broker, "SASL_SSL"), tls_files.ca)
    assert log_in(client, "SCRAM-SHA-512", "alice", USERS["alice"]).error_code == 0
    return client


def test_case_110_from_plaintext_to_sasl_ssl(tls_files: TlsFiles, tmp_path: Path) -> None:
    with ottla.EmbeddedBroker(tmp_path) as broker:
        broker.create_topic(TOPIC)
        with RawClient(broker.bootstrap) as client:
            assert written(client, 2) == 2
    both = {**tls_files.config(), "listeners": f"{PLAIN},{SECURE}"}
    with ottla.EmbeddedBroker(tmp_path, config=both) as broker:
        set_user(broker, "alice", USERS["alice"])
        with (
            RawClient(bootstrap(broker, "PLAINTEXT")) as old,
            logged_in(broker, tls_files) as new,
        ):
            assert written(old, 2) == 4
            assert written(new, 2) == 6
    secured = {
        **tls_files.config(),
        "listeners": SECURE,
        "authorizer.class.name": "standard",
        "super.users": "User:alice",
    }
    with (
        ottla.EmbeddedBroker(tmp_path, config=secured) as broker,
        logged_in(broker, tls_files) as client,
    ):
        assert written(client, 2) == 8

"""Foreign clients over TLS: four protocols at once, certificates of clients, principals."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from tests.support.door_clients import CLIENTS, Way, confluent_settings
from tests.support.doors import USERS, bootstrap, guarded_broker, node_of, run_in
from tests.support.names import fresh
from tests.support.python_clients import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import ottla
    from tests.support.doors import TlsFiles

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

PROTOCOLS = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
MUTUAL = "MUTUAL"
SOUGHT = "SOUGHT"


@pytest.fixture(scope="module")
def broker(tls_files: TlsFiles) -> Iterator[ottla.EmbeddedBroker]:
    names = [*PROTOCOLS, MUTUAL, SOUGHT]
    config = {
        **tls_files.config(),
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": f"{MUTUAL}:SSL,{SOUGHT}:SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.truststore.location": str(tls_files.ca),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+).*$/$1/U,DEFAULT",
        "listener.name.sought.ssl.client.auth": "requested",
    }
    with guarded_broker(config) as broker:
        yield broker


def way_of(broker: ottla.EmbeddedBroker, tls_files: TlsFiles, listener: str) -> Way:
    protocol = listener if listener in PROTOCOLS else "SSL"
    ca = tls_files.ca if protocol.endswith("SSL") else None
    where = bootstrap(broker, listener)
    return Way(where, protocol, "SCRAM-SHA-512", "alice", USERS["alice"], ca)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_case_01_each_client_on_each_of_four_listeners(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, client: str, protocol: str
) -> None:
    way = way_of(broker, tls_files, protocol)
    assert CLIENTS[client](way) == [b"one", b"two"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_case_01_metadata_shows_the_listeners_own_address(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, protocol: str
) -> None:
    way = way_of(broker, tls_files, protocol)
    producer = confluent_kafka.Producer(confluent_settings(way))
    (shown,) = producer.list_topics(timeout=20).brokers.values()
    assert f"{shown.host}:{shown.port}" == way.bootstrap


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("client", CLIENTS)
def test_case_21_mechanisms_over_tls(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, client: str, mechanism: str
) -> None:
    where = bootstrap(broker, "SASL_SSL")
    way = Way(where, "SASL_SSL", mechanism, "alice", USERS["alice"], tls_files.ca)
    assert CLIENTS[client](way) == [b"one", b"two"]


def principals(broker: ottla.EmbeddedBroker, listener: str) -> set[str]:
    """Of the connections that are open to a listener."""
    return set(
        run_in(
            broker,
            lambda node: [
                one.peer.principal
                for one in node.dispatcher.connections
                if one.peer.listener == listener
            ],
        )
    )


def connected(way: Way) -> confluent_kafka.Producer:
    """A producer that has just written something, so that its connection is open."""
    producer = confluent_kafka.Producer(confluent_settings(way))
    producer.produce(fresh("topic"), b"value")
    assert producer.flush(20) == 0
    return producer


def test_case_08_a_client_is_who_its_certificate_says(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles
) -> None:
    certificate, key = tls_files.client("carol")
    where = bootstrap(broker, MUTUAL)
    way = Way(where, "SSL", ca=tls_files.ca, certificate=certificate, key=key)
    producer = connected(way)
    assert principals(broker, MUTUAL) == {"User:CAROL"}
    del producer


def test_case_08_no_certificate_is_refused(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles
) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    way = Way(bootstrap(broker, MUTUAL), "SSL", ca=tls_files.ca)
    producer = confluent_kafka.Producer(confluent_settings(way) | {"error_cb": errors.append})
    until(
        lambda: any("certificate required" in error.str() for error in errors),
        "the alert",
        lambda: producer.poll(0.2),
    )


def test_case_12_without_a_certificate_a_client_is_anonymous(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles
) -> None:
    producer = connected(Way(bootstrap(broker, SOUGHT), "SSL", ca=tls_files.ca))
    assert principals(broker, SOUGHT) == {"User:ANONYMOUS"}
    del producer


def test_case_12_the_sasl_user_counts_where_there_is_one(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles
) -> None:
    producer = connected(way_of(broker, tls_files, "SASL_SSL"))
    assert "User:alice" in principals(broker, "SASL_SSL")
    del producer


def test_strangers_are_forgotten(broker: ottla.EmbeddedBroker) -> None:
    door = node_of(broker).services.door
    assert door is not None
    until(
        lambda: (
            run_in(broker, lambda _: (door._lobby.waiting, door._lobby.authenticating)) == (0, 0)
        ),
        "an empty lobby",
        lambda: time.sleep(0.05),
    )

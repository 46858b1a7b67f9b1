"""Listeners: what their settings must fulfil (case 3), and which are dangerous (case 93)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from ottla.broker.access.listeners import (
    Listener,
    advertised_of,
    check_exposure,
    dangers,
    inter_broker_listener_of,
    is_loopback,
    listeners_of,
    metrics_listener_of,
    registry_asks,
    unused_security,
)
from ottla.broker.errors import ExposedListener
from ottla.metadata.config.broker import BrokerConfig, load_broker_config
from ottla.metadata.errors import ConfigError, InvalidConfig

if TYPE_CHECKING:
    from pathlib import Path

STORE: Final = "ssl.keystore.location=server.pem"
AUTHORIZER: Final = "authorizer.class.name=standard"


def config_of(*sets: str) -> BrokerConfig:
    return load_broker_config(sets=sets)


def test_case_01_names_are_upper_case_and_protocols_come_from_the_map() -> None:
    config = config_of(
        "listeners=plaintext://127.0.0.1:1,Inner://127.0.0.1:2,SASL_SSL://[::1]:3",
        "listener.security.protocol.map=inner:SASL_PLAINTEXT",
        "inter.broker.listener.name=inner",
        STORE,
    )
    found = listeners_of(config)
    assert found == (
        Listener("PLAINTEXT", "127.0.0.1", 1, "PLAINTEXT"),
        Listener("INNER", "127.0.0.1", 2, "SASL_PLAINTEXT"),
        Listener("SASL_SSL", "::1", 3, "SASL_SSL"),
    )
    assert [one.has_tls for one in found] == [False, False, True]
    assert [one.has_sasl for one in found] == [False, True, True]
    assert str(found[2]) == "SASL_SSL://[::1]:3"
    assert inter_broker_listener_of(config, found) == "INNER"


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["listeners=EXTERNAL://:9093"], r"listener\.security\.protocol\.map: expected an entry"),
        (["listeners=A://h:1,A://h:2", "listener.security.protocol.map=A:PLAINTEXT"], "A twice"),
        (
            ["listeners=PLAINTEXT://h:1,B://h:1", "listener.security.protocol.map=B:PLAINTEXT"],
            "listeners: expected addresses that differ, got h:1 twice",
        ),
        (
            ["listener.name.other.ssl.keystore.location=x"],
            r"listener\.name\.other\.ssl\.keystore\.location: expected a listener of PLAINTEXT",
        ),
        (
            ["listener.name.other.plain.sasl.jaas.config.file=/dev/null"],
            r"listener\.name\.other\.plain\.sasl\.jaas\.config",
        ),
        (["inter.broker.listener.name=OTHER"], r"inter\.broker\.listener\.name: expected one of"),
        (
            [
                "listeners=PLAINTEXT://127.0.0.1:0,B://127.0.0.1:0",
                "listener.security.protocol.map=B:PLAINTEXT",
                AUTHORIZER,
            ],
            r"inter\.broker\.listener\.name: expected the listener that nodes use",
        ),
        (["listeners=SSL://127.0.0.1:1"], r"ssl\.keystore\.location: expected a key store"),
    ],
)
def test_case_03_what_is_refused_names_its_key(sets: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        listeners_of(config_of(*sets))


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["sasl.enabled.mechanisms="], r"sasl\.enabled\.mechanisms: expected 1 to 4 different"),
        (["sasl.enabled.mechanisms=GSSAPI"], r"SCRAM-SHA-512"),
        (["ssl.enabled.protocols=TLSv1.1"], r"ssl\.enabled\.protocols"),
        (["ssl.client.auth=maybe"], r"ssl\.client\.auth"),
        (["authorizer.class.name=com.example.Mine"], r"authorizer\.class\.name"),
        (["principal.builder.class=x"], "no classes are loaded by name"),
        (["sasl.server.callback.handler.class=x"], "no classes are loaded by name"),
        (["listener.name.plaintext.sasl.login.class=x"], "not supported"),
        (["delegation.token.master.key=x"], "not supported"),
        (["listener.name.plaintext.num.partitions=3"], "unknown configuration key"),
        (["listener.name.plaintext.plain.ssl.client.auth=none"], "unknown configuration key"),
    ],
)
def test_case_03_values_and_keys_that_cannot_be(sets: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(*sets)


def test_a_variable_sets_a_key_of_a_listener_without_an_underscore() -> None:
    env = {
        "OTTLA_LISTENERS": "EXTERNAL://127.0.0.1:1",
        "OTTLA_LISTENER_SECURITY_PROTOCOL_MAP": "EXTERNAL:SSL",
        "OTTLA_LISTENER_NAME_EXTERNAL_SSL_KEYSTORE_LOCATION": "server.pem",
    }
    config = load_broker_config(env=env)
    assert listeners_of(config)[0].has_tls
    assert config.listener("EXTERNAL").get_str("ssl.keystore.location") == "server.pem"
    env = {"OTTLA_LISTENER_NAME_SASL_SSL_SSL_KEYSTORE_LOCATION": "server.pem"}
    with pytest.raises(ConfigError, match="OTTLA_LISTENER_NAME_SASL_SSL"):
        load_broker_config(env=env)


def test_the_most_specific_key_wins() -> None:
    config = config_of(
        "connections.max.reauth.ms=1",
        "listener.name.a.connections.max.reauth.ms=2",
        "listener.name.a.plain.connections.max.reauth.ms=3",
    )
    assert config.get_int("connections.max.reauth.ms") == 1
    assert config.listener("B", "PLAIN").get_int("connections.max.reauth.ms") == 1
    assert config.listener("A").get_int("connections.max.reauth.ms") == 2
    assert config.listener("A", "SCRAM-SHA-256").get_int("connections.max.reauth.ms") == 2
    plain = config.listener("A", "PLAIN")
    assert plain.get_int("connections.max.reauth.ms") == 3
    assert plain.where("connections.max.reauth.ms") == (
        "listener.name.a.plain.connections.max.reauth.ms"
    )


def test_case_02_advertised_listeners() -> None:
    config = config_of(
        "listeners=PLAINTEXT://0.0.0.0:1,B://127.0.0.1:2",
        "listener.security.protocol.map=B:PLAINTEXT",
        "advertised.listeners=plaintext://broker.example:9092",
    )
    assert advertised_of(config, listeners_of(config)) == {"PLAINTEXT": ("broker.example", 9092)}


@pytest.mark.parametrize(
    ("advertised", "message"),
    [
        ("PLAINTEXT://0.0.0.0:1", "an address that clients can connect to"),
        ("PLAINTEXT://[::]:1", "an address that clients can connect to"),
        ("PLAINTEXT://:1", "an address that clients can connect to"),
        ("OTHER://h:1", "a listener of PLAINTEXT"),
        ("PLAINTEXT://h:1,PLAINTEXT://h:2", "each listener once"),
    ],
)
def test_case_03_advertised_listeners_that_cannot_be(advertised: str, message: str) -> None:
    config = config_of(f"advertised.listeners={advertised}")
    with pytest.raises(ConfigError, match=rf"advertised\.listeners: expected {message}"):
        advertised_of(config, listeners_of(config))


REFUSED, WARNED, FINE = "refused", "warned", "fine"


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "", "10.0.0.7", "192.0.2.1", "broker.example"])
@pytest.mark.parametrize(
    ("protocol", "client_auth", "authorizer", "outcome"),
    [
        ("PLAINTEXT", "none", False, REFUSED),
        ("PLAINTEXT", "none", True, REFUSED),
        ("SSL", "none", True, REFUSED),
        ("SSL", "requested", False, REFUSED),
        ("SSL", "requested", True, FINE),
        ("SSL", "required", False, WARNED),
        ("SSL", "required", True, FINE),
        ("SASL_SSL", "none", False, WARNED),
        ("SASL_SSL", "none", True, FINE),
        ("SASL_PLAINTEXT", "none", True, REFUSED),
    ],
)
def test_case_93_a_listener_that_others_reach(
    host: str, protocol: str, client_auth: str, authorizer: bool, outcome: str
) -> None:
    sets = [f"listeners={protocol}://{host}:9092", f"ssl.client.auth={client_auth}", STORE]
    if authorizer:
        sets.append(AUTHORIZER)
    config = config_of(*sets)
    found = list(dangers(config, listeners_of(config)))
    expected = [] if outcome == FINE else [outcome == REFUSED]
    assert [danger.refused for danger in found] == expected
    if outcome == REFUSED:
        with pytest.raises(
            ExposedListener, match=r"use --secure, bind 127\.0\.0\.1, or pass --insecure"
        ):
            check_exposure(config, listeners_of(config))
        meant = config_of(*sets, "ottla.allow.insecure.listeners=true")
        assert check_exposure(meant, listeners_of(meant)) == [found[0].text]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]", "[0:0::1]"])
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_case_93_loopback_is_fine(host: str, protocol: str) -> None:
    config = config_of(f"listeners={protocol}://{host}:9092", STORE)
    assert check_exposure(config, listeners_of(config)) == []


def test_case_93_advertised_loopback_does_not_make_a_wildcard_safe() -> None:
    config = config_of(
        "listeners=PLAINTEXT://0.0.0.0:9092", "advertised.listeners=PLAINTEXT://127.0.0.1:9092"
    )
    with pytest.raises(ExposedListener) as refused:
        check_exposure(config, listeners_of(config))
    assert str(refused.value) == (
        "PLAINTEXT://0.0.0.0:9092 would let anyone on the network read and write; use --secure, "
        "bind 127.0.0.1, or pass --insecure if the network is yours"
    )


@pytest.mark.parametrize("host", ["127.0.0.1.example.org", "1", "", "::", "1270.0.0.1"])
def test_what_is_no_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("address", "token", "warned"),
    [
        ("http://127.0.0.1:0", "secret", None),
        ("http://0.0.0.0:0", None, "anyone on the network can read"),
        ("http://0.0.0.0:0", "secret", "the token travels unencrypted; use https://"),
        ("https://0.0.0.0:0", "secret", None),
    ],
)
def test_metrics_that_others_reach(address: str, token: str | None, warned: str | None) -> None:
    sets = [f"ottla.metrics.listener={address}", STORE]
    config = config_of(*sets, *([] if token is None else [f"ottla.metrics.token={token}"]))
    found = check_exposure(config, listeners_of(config))
    assert len(found) == (warned is not None)
    assert (warned or "") in "".join(found)


@pytest.mark.parametrize(
    ("sets", "asks", "refused"),
    [
        ([], False, True),
        ([AUTHORIZER], True, False),
        (["ottla.registry.authentication=required"], True, False),
        (["ottla.registry.authentication=none", AUTHORIZER], False, True),
        (["ssl.client.auth=requested"], False, True),
        (["ssl.client.auth=required"], True, False),
        (["listener.name.registry.ssl.client.auth=required"], True, False),
        (["ssl.client.auth=required", "listener.name.registry.ssl.client.auth=none"], False, True),
        (["ssl.client.auth=required", "ottla.registry.authentication=none"], False, False),
    ],
)
def test_a_registry_that_others_reach(sets: list[str], asks: bool, refused: bool) -> None:
    config = config_of("ottla.registry.listener=https://0.0.0.0:0", STORE, *sets)
    assert registry_asks(config) is asks
    found = [one.refused for one in dangers(config, listeners_of(config))]
    assert any(found) is refused


def test_certificates_mean_nothing_without_tls() -> None:
    config = config_of("ottla.registry.listener=http://127.0.0.1:0", "ssl.client.auth=required")
    assert not registry_asks(config)


def test_an_empty_token_is_refused(tmp_path: Path) -> None:
    """Fault: it was a token that nobody could send."""
    file = tmp_path / "token"
    file.write_text("\n")
    config = config_of(
        "ottla.metrics.listener=http://127.0.0.1:0", f"ottla.metrics.token.file={file}"
    )
    with pytest.raises(InvalidConfig, match=r"ottla\.metrics\.token\.file: expected a token"):
        metrics_listener_of(config)


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        (["listeners=PLAINTEXT://127.0.0.1:9092"], True),
        (["listeners=SSL://127.0.0.1:9092", STORE], True),
        (["listeners=SSL://127.0.0.1:9092", STORE, "ssl.client.auth=required"], False),
        (["listeners=SASL_PLAINTEXT://127.0.0.1:9092"], False),
        (["listeners=PLAINTEXT://127.0.0.1:9092", AUTHORIZER], False),
    ],
)
def test_users_and_acls_that_nothing_looks_at(sets: list[str], told: bool) -> None:
    config = config_of(*sets)
    assert (unused_security(config, listeners_of(config)) is not None) is told

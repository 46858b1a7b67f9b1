"""`Security`: what it takes, from where, and what it refuses. Numbers are acceptance cases."""

from __future__ import annotations

import copy
import pickle
import re
import ssl
from pathlib import Path
from typing import Any

import pytest

from ottla.client import security_keys
from ottla.client.cluster.protection import tls_settings
from ottla.client.errors import UnsupportedSecurity, WrongType
from ottla.client.security import PLAINTEXT, Security, Token, is_loopback
from ottla.security.contexts import client_context

SCRAM_JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="canary";'
)
PLAIN_JAAS = SCRAM_JAAS.replace("scram.Scram", "plain.Plain")
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----"

# As the documentation of each product has its client file.
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "Confluent Cloud, Java": (
        f"""
        # Required connection configs for Kafka producer, consumer, and admin
        bootstrap.servers=pkc-1.europe-west1.gcp.confluent.cloud:9092
        security.protocol=SASL_SSL
        sasl.jaas.config={PLAIN_JAAS}
        sasl.mechanism=PLAIN
        client.dns.lookup=use_all_dns_ips
        session.timeout.ms=45000
        acks=all
        schema.registry.url=https://psrc-1.europe-west3.gcp.confluent.cloud
        basic.auth.credentials.source=USER_INFO
        """,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": "canary",
        },
    ),
    "Confluent Cloud, librdkafka": (
        """
        bootstrap.servers=pkc-1.europe-west1.gcp.confluent.cloud:9092
        security.protocol=SASL_SSL
        sasl.mechanisms=PLAIN
        sasl.username=alice
        sasl.password=canary
        """,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": "canary",
        },
    ),
    "MSK SCRAM": (
        f"""
        security.protocol=SASL_SSL
        sasl.mechanism=SCRAM-SHA-512
        sasl.jaas.config={SCRAM_JAAS}
        ssl.truststore.location=/tmp/kafka.client.truststore.p12
        """,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "alice",
            "sasl_password": "canary",
            "ssl_ca": "/tmp/kafka.client.truststore.p12",
        },
    ),
    "Strimzi": (
        """
        security.protocol=SSL
        ssl.truststore.location=/tmp/ca.p12
        ssl.truststore.password=canary
        ssl.truststore.type=PKCS12
        ssl.keystore.location=/tmp/user.p12
        ssl.keystore.password=canary-2
        ssl.keystore.type=PKCS12
        """,
        {
            "security_protocol": "SSL",
            "ssl_ca": "/tmp/ca.p12",
            "ssl_ca_password": "canary",
            "ssl_certificate": "/tmp/user.p12",
            "ssl_key_password": "canary-2",
        },
    ),
    "Redpanda": (
        """
        security.protocol = SASL_PLAINTEXT
        sasl.mechanism = SCRAM-SHA-256
        sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required \\
          username="alice" \\
          password="canary";
        ssl.truststore.location=
        """,
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "alice",
            "sasl_password": "canary",
        },
    ),
    "Aiven mTLS": (
        """
        security.protocol=SSL
        ssl.ca.location=ca.pem
        ssl.certificate.location=service.cert
        ssl.key.location=service.key
        """,
        {
            "security_protocol": "SSL",
            "ssl_ca": "ca.pem",
            "ssl_certificate": "service.cert",
            "ssl_key": "service.key",
        },
    ),
    "plain Java": (
        """
        bootstrap.servers=localhost:9092
        group.id=test
        key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
        """,
        {},
    ),
    "Java with everything in its file": (
        f"""
        security.protocol=ssl
        ssl.protocol=TLSv1.3
        ssl.enabled.protocols=TLSv1.2,TLSv1.3
        ssl.keystore.type=PEM
        ssl.keystore.certificate.chain={CERTIFICATE.encode("unicode_escape").decode()}
        ssl.keystore.key=-----BEGIN PRIVATE KEY-----\\nMII\\n-----END PRIVATE KEY-----
        ssl.key.password=canary
        ssl.truststore.type=PEM
        ssl.truststore.certificates={CERTIFICATE.encode("unicode_escape").decode()}
        """,
        {
            "security_protocol": "SSL",
            "ssl_enabled_protocols": ("TLSv1.2", "TLSv1.3"),
            "ssl_ca": CERTIFICATE,
            "ssl_certificate": CERTIFICATE,
            "ssl_key": "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----",
            "ssl_key_password": "canary",
        },
    ),
    "librdkafka, certificates for other names": (
        """
        security.protocol=sasl_ssl
        sasl.mechanism=SCRAM-SHA-256
        sasl.username=alice
        sasl.password=canary
        ssl.endpoint.identification.algorithm=none
        enable.ssl.certificate.verification=true
        """,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "alice",
            "sasl_password": "canary",
            "ssl_check_hostname": False,
        },
    ),
    "Java OAuth": (
        """
        security.protocol=SASL_SSL
        sasl.mechanism=OAUTHBEARER
        sasl.oauthbearer.token.endpoint.url=https://idp.example/token
        sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule \\
          required clientId="id" clientSecret="canary" scope="kafka";
        sasl.login.connect.timeout.ms=10000
        """,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://idp.example/token",
            "sasl_oauthbearer_client_id": "id",
            "sasl_oauthbearer_client_secret": "canary",
            "sasl_oauthbearer_scope": "kafka",
        },
    ),
    "both dialects at once": (
        f"""
        security.protocol=SASL_SSL
        sasl.mechanism=SCRAM-SHA-512
        sasl.mechanisms=SCRAM-SHA-512
        sasl.username=alice
        sasl.password=canary
        sasl.jaas.config={SCRAM_JAAS}
        ssl.truststore.location=ca.pem
        ssl.ca.location=ca.pem
        """,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "alice",
            "sasl_password": "canary",
            "ssl_ca": "ca.pem",
        },
    ),
}


@pytest.mark.parametrize("product", FILES)
def test_files_of_other_products_case_99(product: str, tmp_path: Path) -> None:
    text, expected = FILES[product]
    path = tmp_path / "client.properties"
    path.write_text(text)
    found = Security.from_properties(path)
    assert found == Security(**expected)
    assert "canary" not in repr(found)


SASL_SSL = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": "canary",
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sasl.pasword": "canary"}, "sasl.pasword is not a setting .* did you mean sasl.password"),
        ({"ssl.truststore.locaton": "x"}, "did you mean ssl.truststore.location"),
        ({"security.protocl": "SSL"}, "did you mean security.protocol"),
        ({"sasl.login.callback.handler.class": "x"}, "handler.class .* no classes are loaded"),
        ({"sasl.client.callback.handler.class": "x"}, "no classes are loaded"),
        ({"ssl.engine.factory.class": "x"}, "no classes are loaded"),
        ({"security.providers": "x"}, "no classes are loaded"),
        ({"sasl.oauthbearer.jwt.retriever.class": "x"}, "no classes are loaded"),
        ({"sasl.jaas.config": SCRAM_JAAS.replace("alice", "bob")}, "sasl.username and sasl.jaas"),
        ({"sasl.mechanisms": "PLAIN"}, "sasl.mechanism and sasl.mechanisms say different things"),
        ({"sasl.jaas.config": PLAIN_JAAS}, "does not go with the login module"),
        ({"sasl.jaas.config": "x.JndiLoginModule required;"}, "not a known login module"),
        ({"ssl.ca.location": "a", "ssl.truststore.location": "b"}, "say different things"),
        ({"ssl.truststore.type": "JKS", "ssl.truststore.location": "t.jks"}, "keytool .*t.jks.p12"),
        ({"ssl.keystore.type": "jks"}, "Java key stores cannot be read"),
        ({"security.protocol": "SASL"}, "'SASL' is not one of PLAINTEXT, SSL"),
        ({"sasl.mechanism": "GSSAPI"}, "'GSSAPI' is not supported; use one of SCRAM-SHA-512"),
        ({"sasl.mechanism": ""}, "sasl_mechanism is missing"),
        ({"sasl.password": ""}, "SCRAM-SHA-512 needs sasl_username and sasl_password"),
        ({"enable.ssl.certificate.verification": "false"}, "name the CA to trust"),
        ({"sasl.oauthbearer.method": "x"}, "can be oidc or default, not 'x'"),
        ({"sasl.oauthbearer.header.urlencode": "true"}, "can be false"),
        ({"sasl.oauthbearer.grant.type": "jwt-bearer"}, "can be client_credentials"),
        ({"enable.sasl.oauthbearer.unsecure.jwt": "true"}, "can be false"),
        ({"sasl.oauthbearer.assertion.file": "f"}, "only client credentials"),
        ({"sasl.oauthbearer.extensions": "a=b"}, "extensions are not sent"),
        ({"sasl.login.callback.handler.class": "x.Y"}, "token.endpoint.url is enough"),
        ({"ssl.keystore.type": "BCFKS"}, "can be pem or pkcs12, not 'BCFKS'"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "can be https or none"),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "'TLSv1.1' is not one of TLSv1.2, TLSv1.3"),
        ({"ssl.cipher.suites": "DEFAULT"}, "'DEFAULT' is not one of TLS_ECDHE"),
        (
            {
                "ssl.enabled.protocols": "TLSv1.2",
                "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384",
            },
            "has no cipher of TLSv1.2",
        ),
        ({"ssl.curves.list": "P-256"}, "Python cannot choose it"),
        ({"ssl.crl.location": "crl.pem", "ssl.ca.location": ""}, "ssl_crl needs ssl_ca"),
    ],
)
def test_what_is_refused_case_99(changes: dict[str, str], said: str) -> None:
    with pytest.raises(UnsupportedSecurity, match=said) as failure:
        Security.from_properties(SASL_SSL | changes)
    assert "canary" not in str(failure.value)


@pytest.mark.parametrize("value", ["${env:HOME}", "${file:/etc/passwd:root}", "${dir:/x:y}"])
def test_no_text_is_expanded_case_86(value: str) -> None:
    found = Security.from_properties(SASL_SSL | {"sasl.password": value})
    assert found.sasl_password == value


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "http://idp.example/token", "ftp://x", "jar:file:/x!/y", "/etc/passwd"],
)
def test_token_urls_are_https_case_87(url: str) -> None:
    with pytest.raises(UnsupportedSecurity, match="must begin with https") as failure:
        Security(
            "SASL_SSL",
            "OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=url,
            sasl_oauthbearer_client_id="id",
            sasl_oauthbearer_client_secret="canary",
        )
    assert "passwd" not in str(failure.value)


async def give() -> Token:
    return Token("canary", 1.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"sasl_username": "u"}, "PLAINTEXT does not log in; leave sasl_username out"),
        ({"token": give}, "PLAINTEXT does not log in; leave token out"),
        ({"ssl_ca": "ca.pem"}, "PLAINTEXT does not encrypt; leave ssl_ca out, or use SSL"),
        ({"security_protocol": "SSL", "ssl_key": "k"}, "ssl_key needs ssl_certificate"),
        (
            {"security_protocol": "SSL", "ssl_ca": "c", "ssl_context": object()},
            "ssl_context takes the place of ssl_ca",
        ),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "needs token, or"),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "a\0b",
                "sasl_password": "c",
            },
            "NUL character",
        ),
    ],
)
def test_contradictions(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedSecurity, match=said):
        Security(**arguments)


@pytest.mark.parametrize("name", ["sasl_password", "ssl_key_password", "security_protocol"])
def test_wrong_types_are_named_and_not_shown(name: str) -> None:
    with pytest.raises(WrongType, match=f"{name}: expected a text, got bytes") as failure:
        Security(**{name: b"canary"})  # type: ignore[arg-type]
    assert "canary" not in str(failure.value)


def test_secrets_stay_inside() -> None:
    one = Security("SASL_SSL", "PLAIN", "alice", "canary", ssl_key_password="canary")
    assert "canary" not in repr(one)
    assert "canary" not in repr(Token("canary", 5.0))
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(one)
    assert copy.deepcopy(one) is one
    assert Security(**one.shipped()) == one
    with pytest.raises(UnsupportedSecurity, match="cannot be sent to other processes"):
        Security("SASL_SSL", "OAUTHBEARER", token=give).shipped()


def test_the_file_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OTTLA_COMMAND_CONFIG", raising=False)
    assert Security.from_env() == PLAINTEXT
    path = tmp_path / "admin.properties"
    path.write_text("security.protocol=SSL\n")
    monkeypatch.setenv("OTTLA_COMMAND_CONFIG", str(path))
    assert Security.from_env() == Security("SSL")
    monkeypatch.setenv("OTTLA_COMMAND_CONFIG", str(tmp_path / "none"))
    with pytest.raises(UnsupportedSecurity, match=r"cannot read .*none: No such file"):
        Security.from_env()


def test_files_that_are_no_properties(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xff")
    with pytest.raises(UnsupportedSecurity, match="not a text of properties"):
        Security.from_properties(path)
    path.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(UnsupportedSecurity, match="longer than"):
        Security.from_properties(path)


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER", "SCRAM-SHA-256"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "192.0.2.7", "example.org"])
def test_no_secret_in_the_clear_to_other_machines(mechanism: str, host: str) -> None:
    given: dict[str, Any] = {"sasl_username": "u", "sasl_password": "p"}
    if mechanism == "OAUTHBEARER":
        given = {"token": give}
    one = Security("SASL_PLAINTEXT", mechanism, **given)
    if is_loopback(host) or mechanism.startswith("SCRAM"):
        one.check_address(host)
    else:
        with pytest.raises(UnsupportedSecurity, match=f"{mechanism} over SASL_PLAINTEXT .*{host}"):
            one.check_address(host)
        Security("SASL_PLAINTEXT", mechanism, allow_plaintext_password=True, **given).check_address(
            host
        )
        Security("SASL_SSL", mechanism, **given).check_address(host)


def test_librdkafka_names(tmp_path: Path) -> None:
    scram = Security("SASL_SSL", "SCRAM-SHA-512", "alice", "canary", ssl_ca=CERTIFICATE)
    assert scram.librdkafka() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "canary",
        "ssl.ca.pem": CERTIFICATE,
    }
    pem, store = tmp_path / "client.pem", tmp_path / "client.p12"
    pem.write_text(CERTIFICATE)
    store.write_bytes(b"\x30\x82")
    both = Security("SSL", ssl_ca=pem, ssl_certificate=pem, ssl_check_hostname=False)
    assert both.librdkafka() == {
        "security.protocol": "SSL",
        "ssl.ca.location": str(pem),
        "ssl.certificate.location": str(pem),
        "ssl.key.location": str(pem),
        "ssl.endpoint.identification.algorithm": "none",
    }
    packed = Security("SSL", ssl_certificate=store, ssl_key_password="canary").librdkafka()
    assert packed["ssl.keystore.location"] == str(store)
    assert packed["ssl.keystore.password"] == "canary"
    with pytest.raises(UnsupportedSecurity, match="no PKCS12 trust store"):
        Security("SSL", ssl_ca=store).librdkafka()
    with pytest.raises(UnsupportedSecurity, match="own TLS context"):
        Security("SSL", ssl_context=object()).librdkafka()  # type: ignore[arg-type]
    assert PLAINTEXT.librdkafka() == {"security.protocol": "PLAINTEXT"}


def test_librdkafka_tokens() -> None:
    found = Security("SASL_SSL", "OAUTHBEARER", token=give).librdkafka()
    assert found["oauth_cb"]("") == ("canary", 1.0)
    oidc = Security(
        "SASL_SSL",
        "OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="https://idp.example/token",
        sasl_oauthbearer_client_id="id",
        sasl_oauthbearer_client_secret="canary",
    ).librdkafka()
    assert oidc["sasl.oauthbearer.method"] == "oidc"
    assert oidc["sasl.oauthbearer.client.secret"] == "canary"


def test_librdkafka_offers() -> None:
    asked = Security("SSL", ssl_cipher_suites=["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"])
    assert asked.librdkafka()["ssl.cipher.suites"] == "ECDHE-RSA-AES256-GCM-SHA384"
    with pytest.raises(UnsupportedSecurity, match="librdkafka cannot be told which versions"):
        Security("SSL", ssl_enabled_protocols=["TLSv1.3"]).librdkafka()
    both = Security("SSL", ssl_enabled_protocols=["TLSv1.2", "TLSv1.3"])
    assert both.librdkafka() == {"security.protocol": "SSL"}


def test_ciphers_have_the_names_of_both_dialects() -> None:
    java = {"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256"}
    rdkafka = {"ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256:TLS_AES_128_GCM_SHA256"}
    settings = [
        tls_settings(Security.from_properties({"security.protocol": "SSL"} | one))
        for one in (java, rdkafka)
    ]
    assert settings[0] == settings[1]
    ciphers = {one["name"] for one in client_context(settings[0]).get_ciphers()}
    of_13 = {one for one in ciphers if one.startswith("TLS_")}
    assert ciphers - of_13 == {"ECDHE-RSA-AES128-GCM-SHA256"}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_versions_are_offered_as_asked(version: str) -> None:
    asked = {"security.protocol": "SSL", "ssl.enabled.protocols": version}
    context = client_context(tls_settings(Security.from_properties(asked)))
    only = ssl.TLSVersion[version.replace(".", "_")]
    assert (context.minimum_version, context.maximum_version) == (only, only)


ROW = re.compile(r"^\| (`.*?) \|", re.MULTILINE)


def test_every_key_is_on_its_page() -> None:
    """Each with what it does, under the heading that says whether it does something."""
    page = (Path(__file__).parents[3] / "docs/reference/client-security.md").read_text()
    taken, _, rest = page.partition("## Without effect")
    without, _, refused = rest.partition("## Refused")
    shown = [
        {key for row in ROW.findall(part) for key in re.findall("`([^`]+)`", row)}
        for part in (taken, without, refused)
    ]
    assert shown[0] == {*security_keys.NAMES, *security_keys.OTHERS}
    assert shown[1] == {*security_keys.NO_EFFECT}
    assert shown[2] >= {*security_keys.REFUSED}
    reasons = {reason for reason in security_keys.NO_EFFECT.values() if reason not in without}
    assert not reasons
    # The others there are patterns, and keys with a value that cannot be had.
    for key in shown[2] - {*security_keys.REFUSED}:
        name, _, value = key.partition("=")
        with pytest.raises(UnsupportedSecurity):
            Security.from_properties({name.replace("*", "x"): value})

"""TLS contexts: what is offered, what is verified, which settings are refused."""

from __future__ import annotations

import logging
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.security.contexts import (
    CIPHERS,
    TlsSettings,
    client_context,
    fingerprint,
    server_context,
)
from ottla.security.errors import BadSecuritySetting
from ottla.security.principal import subject_of
from ottla.security.tls_channel import State
from tests.support.tls import (
    ago,
    authority,
    contexts,
    ends,
    opened,
    server_issued,
    shows,
    talk,
    trusts,
)

if TYPE_CHECKING:
    import ssl

    from ottla.security.certificates import Authority, Issued

STATIC_RSA = "AES128-GCM-SHA256"
CBC = "ECDHE-ECDSA-AES128-SHA"


def fault_of(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """What the server notes of a handshake; empty if it succeeds."""
    pair = ends(server, client)
    talk(*pair)
    return str(pair[1].channel.fault or "")


# -- versions and ciphers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "wanted", "meets"),
    [
        (("TLSv1.2", "TLSv1.3"), ("TLSv1.2",), "TLSv1.2"),
        (("TLSv1.2", "TLSv1.3"), ("TLSv1.3",), "TLSv1.3"),
        (("TLSv1.2", "TLSv1.3"), ("TLSv1.2", "TLSv1.3"), "TLSv1.3"),
        (("TLSv1.3",), ("TLSv1.2",), None),
        (("TLSv1.2",), ("TLSv1.3",), None),
    ],
)
def test_5_versions(offered: tuple[str, ...], wanted: tuple[str, ...], meets: str | None) -> None:
    server, client = contexts(*offered)[0], contexts(*wanted)[1]
    if meets is None:
        assert fault_of(server, client)
        return
    _, end = opened(server, client)
    assert end.channel.peer is not None
    assert end.channel.peer.version == meets


@pytest.mark.parametrize("old", ["TLSv1", "TLSv1.1", "SSLv3", "TLS", ""])
def test_5_older_versions_are_a_wrong_setting(old: str) -> None:
    with pytest.raises(BadSecuritySetting, match=r"ssl\.enabled\.protocols: .*TLSv1\.2, TLSv1\.3"):
        server_context(shows(server_issued(), enabled_protocols=(old,)))


def test_6_only_forward_secret_aead_ciphers_are_offered() -> None:
    server = contexts()[0]
    offered = {one["name"] for one in server.get_ciphers() if one["protocol"] == "TLSv1.2"}
    assert offered == set(CIPHERS.values())


@pytest.mark.parametrize("cipher", [STATIC_RSA, CBC, "ADH-AES128-GCM-SHA256"])
def test_6_other_ciphers_are_refused(cipher: str) -> None:
    client = client_context(trusts(authority(), enabled_protocols=("TLSv1.2",)))
    client.set_ciphers(f"{cipher}:@SECLEVEL=0")
    assert fault_of(contexts()[0], client) == "NO_SHARED_CIPHER"


def test_cipher_suites_take_ianas_names() -> None:
    name = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    server = server_context(shows(server_issued(), cipher_suites=(name,)))
    _, end = opened(server, contexts("TLSv1.2")[1])
    assert end.channel.peer is not None
    assert end.channel.peer.cipher == "ECDHE-ECDSA-CHACHA20-POLY1305"


def test_an_unknown_cipher_suite_lists_the_known_ones() -> None:
    with pytest.raises(BadSecuritySetting, match="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"):
        server_context(shows(server_issued(), cipher_suites=("TLS_RSA_WITH_AES_128_CBC_SHA",)))


def test_ciphers_of_tls_13_are_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    named = ("TLS_AES_128_GCM_SHA256",)
    server = server_context(shows(server_issued(), cipher_suites=named))
    assert "cannot be chosen" in caplog.text
    # None of TLS 1.2 was named.
    assert fault_of(server, contexts("TLSv1.2")[1])
    with pytest.raises(BadSecuritySetting, match=r"no cipher of TLSv1\.2"):
        server_context(shows(server_issued(), cipher_suites=named, enabled_protocols=("TLSv1.2",)))


def test_connections_with_client_certificates_have_no_tickets() -> None:
    without = contexts()[0]
    assert without.num_tickets == 2
    settings = shows(
        server_issued(),
        client_auth="required",
        truststore_certificates=authority().issued.chain.decode(),
    )
    assert server_context(settings).num_tickets == 0


# -- client certificates --------------------------------------------------------------------------


def asking(kind: str = "required", **more: Any) -> ssl.SSLContext:
    settings = shows(
        server_issued(),
        client_auth=kind,
        truststore_certificates=authority().issued.chain.decode(),
        **more,
    )
    return server_context(settings)


def client_with(issued: Issued, version: str = "TLSv1.3") -> ssl.SSLContext:
    return client_context(
        shows(
            issued,
            truststore_certificates=authority().issued.chain.decode(),
            enabled_protocols=(version,),
        )
    )


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_8_the_right_client_certificate_is_accepted(version: str) -> None:
    issued = authority().client("alice", subject="CN=alice,OU=billing")
    _, server = opened(asking(), client_with(issued, version))
    assert server.channel.peer is not None
    assert server.channel.peer.der is not None
    assert subject_of(server.channel.peer.der) == "CN=alice,OU=billing"


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_8_wrong_client_certificates_are_refused(version: str) -> None:
    server = asking()
    assert fault_of(server, contexts(version)[1]) == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    refused = {
        "self-signed certificate in certificate chain": authority("another CA").client("alice"),
        "certificate has expired": authority().client("alice", days=10, now=ago(20)),
        "certificate is not yet valid": authority().client("alice", now=ago(-2)),
    }
    for reason, issued in refused.items():
        assert reason in fault_of(server, client_with(issued, version))


def test_8_a_revoked_certificate_is_refused(tmp_path: Path) -> None:
    revoked, fine = authority().client("mallory"), authority().client("alice")
    crl = tmp_path / "ca.crl"
    crl.write_bytes(revocation_list(authority(), revoked))
    server = asking(crl_location=str(crl))
    assert "certificate revoked" in fault_of(server, client_with(revoked))
    assert fault_of(server, client_with(fine)) == ""
    assert fault_of(asking(), client_with(revoked)) == ""


def revocation_list(ca: Authority, *revoked: Issued) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    key = serialization.load_pem_private_key(ca.issued.key, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(ca.issued.chain).subject
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer)
        .last_update(ago(1))
        .next_update(ago(-1))
    )
    for one in revoked:
        number = x509.load_pem_x509_certificates(one.chain)[0].serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(ago(0.5))
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_12_requested_certificates_are_optional_but_verified() -> None:
    server = asking("requested")
    _, end = opened(server, contexts()[1])
    assert end.channel.peer is not None
    assert end.channel.peer.der is None
    assert fault_of(server, client_with(authority("another CA").client("alice")))


def test_client_certificates_need_a_trust_store() -> None:
    with pytest.raises(BadSecuritySetting, match=r"ssl\.truststore\.location: ssl\.client\.auth"):
        server_context(shows(server_issued(), client_auth="required"))
    with pytest.raises(BadSecuritySetting, match="none, requested or required"):
        server_context(shows(server_issued(), client_auth="maybe"))


# -- what a client verifies -----------------------------------------------------------------------


def test_9_clients_refuse_unknown_cas_wrong_hosts_and_expired_certificates() -> None:
    server, client = contexts()
    for ours, host, code in [
        (client_context(trusts(authority("another CA"))), "localhost", 19),
        (client, "127.0.0.2", 64),
        (client, "example.com", 62),
    ]:
        pair = ends(server, ours, host)
        talk(*pair)
        fault = pair[0].channel.fault
        assert fault is not None
        assert (fault.reason, fault.verify_code) == ("CERTIFICATE_VERIFY_FAILED", code)
    old = authority().server(["localhost"], days=10, now=ago(20))
    expired = server_context(shows(old), now=time.time() - 15 * 86_400)
    pair = ends(expired, client)
    talk(*pair)
    assert pair[0].channel.fault is not None
    assert pair[0].channel.fault.verify_code == 10


def test_an_address_in_the_certificate_is_enough() -> None:
    opened(*contexts(), host="127.0.0.1")


def test_host_names_may_be_left_unchecked() -> None:
    client = client_context(trusts(authority()), check_hostname=False)
    opened(contexts()[0], client, "example.com")


def test_without_a_trust_store_the_system_is_trusted() -> None:
    pair = ends(contexts()[0], client_context(TlsSettings()))
    talk(*pair)
    assert pair[0].channel.state is State.FAILED


# -- the server's own certificate -----------------------------------------------------------------


def test_a_context_knows_what_it_shows() -> None:
    shown = contexts()[0].certificate  # type: ignore[attr-defined]  # a ServerContext
    assert shown.subject == (("commonName", "localhost"),)
    assert shown.names == {("DNS", "localhost"), ("IP Address", "127.0.0.1")}
    assert shown.covers("LOCALHOST")
    assert shown.covers("127.0.0.1")
    assert not shown.covers("127.0.0.2")
    assert not shown.covers("example.com")
    assert 396 < (shown.not_after - time.time()) / 86_400 <= 397


def test_wildcards_cover_one_label() -> None:
    issued = authority().server(["*.example.com", "::1"])
    shown = server_context(shows(issued)).certificate
    assert shown.covers("a.example.com")
    assert not shown.covers("a.b.example.com")
    assert not shown.covers("example.com")
    assert shown.covers("0:0:0:0:0:0:0:1")


@pytest.mark.parametrize(("began", "said"), [(20, "expired on"), (-2, "not valid before")])
def test_certificates_outside_their_dates_are_refused(began: float, said: str) -> None:
    issued = authority().server(["localhost"], days=10, now=ago(began))
    with pytest.raises(BadSecuritySetting, match=rf"ssl\.keystore\.key: .*{said}"):
        server_context(shows(issued))


def test_a_key_of_another_certificate_is_refused() -> None:
    one, other = server_issued(), authority().server(["localhost"])
    with pytest.raises(BadSecuritySetting, match="does not belong"):
        server_context(
            TlsSettings(
                keystore_key=one.key.decode(), keystore_certificate_chain=other.chain.decode()
            )
        )


def test_short_keys_are_refused() -> None:
    with pytest.raises(BadSecuritySetting, match="2048 bits"):
        server_context(shows(rsa_issued(1024)))
    server_context(shows(rsa_issued(2048)))


@pytest.mark.parametrize("kind", ["P-256", "P-384", "P-521", "Ed25519"])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_kinds_of_keys_that_are_taken(kind: str, version: str) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    if kind in curves:
        issued = self_signed(ec.generate_private_key(curves[kind]))
    else:
        issued = self_signed(ed25519.Ed25519PrivateKey.generate())
    server_context(shows(issued, enabled_protocols=(version,)))


def rsa_issued(bits: int) -> Issued:
    from cryptography.hazmat.primitives.asymmetric import rsa

    return self_signed(rsa.generate_private_key(65_537, bits))


def self_signed(key: Any) -> Issued:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.x509.oid import NameOID

    from ottla.security.certificates import Issued

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "self")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(ago(1))
        .not_valid_after(ago(1) + timedelta(days=10))
        .sign(key, None if isinstance(key, Ed25519PrivateKey) else hashes.SHA256())
    )
    encoded = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(encoded, form, serialization.NoEncryption())
    return Issued(pem, certificate.public_bytes(encoded))


def test_a_certificate_for_clients_only_is_refused() -> None:
    with pytest.raises(BadSecuritySetting, match="clients would refuse"):
        server_context(shows(authority().client("alice")))


def test_a_listener_needs_a_key_store() -> None:
    with pytest.raises(BadSecuritySetting, match=r"ssl\.keystore\.location: .*ottla cert"):
        server_context(TlsSettings())


# -- settings and files ---------------------------------------------------------------------------


def test_settings_come_from_kafkas_keys() -> None:
    given = {
        "ssl.keystore.location": "/k.p12",
        "ssl.keystore.password": "canary",
        "ssl.key.password": "canary",
        "ssl.enabled.protocols": "TLSv1.3, TLSv1.2",
        "ssl.client.auth": "required",
        "ssl.truststore.location": "/t.pem",
        "ottla.ssl.crl.location": "/c.pem",
        "ssl.cipher.suites": "",
    }
    settings = TlsSettings.of(given.get)
    assert settings == TlsSettings(
        keystore_location="/k.p12",
        keystore_password="canary",
        key_password="canary",
        enabled_protocols=("TLSv1.3", "TLSv1.2"),
        client_auth="required",
        truststore_location="/t.pem",
        crl_location="/c.pem",
    )
    assert settings.paths == (Path("/k.p12"), Path("/t.pem"), Path("/c.pem"))
    assert "canary" not in repr(settings)


def test_fingerprints_change_with_their_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    missing = fingerprint([path])
    assert missing == (None,)
    path.write_text("one")
    first = fingerprint([path])
    assert first == fingerprint([path]) != missing
    new = tmp_path / "b"
    new.write_text("two")
    os.utime(new, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    new.replace(path)  # same size and time
    assert fingerprint([path]) != first


def test_83_a_key_file_open_to_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "server.pem"
    path.write_bytes(server_issued().store)
    settings = TlsSettings(keystore_location=str(path))
    path.chmod(0o600)
    with caplog.at_level(logging.WARNING):
        server_context(settings)
        assert not caplog.text
        path.chmod(0o644)
        server_context(settings)
        assert f"chmod 600 {path}" in caplog.text
    path.chmod(0o602)
    with pytest.raises(BadSecuritySetting, match="every user may write"):
        server_context(settings)

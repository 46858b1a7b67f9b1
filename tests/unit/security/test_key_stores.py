"""Key stores: PEM in its forms, PKCS12, detection, refusals (case 14, the part without Java)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.security.contexts import TlsSettings, client_context, server_context
from ottla.security.errors import BadSecuritySetting
from ottla.security.key_stores import StoreType, nameless_file, pem_blocks, type_of
from tests.support.tls import authority, contexts, opened, server_issued, shows


def served(settings: TlsSettings) -> None:
    opened(server_context(settings), contexts()[1])


def test_14_pem_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "server.keystore.pem"
    path.write_bytes(b"Bag Attributes\n  friendlyName: x\n" + server_issued().store)
    path.chmod(0o600)
    for kind in (None, "PEM", "pem", "JKS"):  # JKS: Kafka's default, and what the file is decides
        served(TlsSettings(keystore_location=str(path), keystore_type=kind))


def test_14_pem_in_two_texts_with_blanks_for_line_breaks() -> None:
    issued = server_issued()
    served(shows(issued))
    flat = TlsSettings(
        keystore_key=" ".join(issued.key.decode().split("\n")),
        keystore_certificate_chain=issued.chain.decode().replace("\n", "  "),
    )
    served(flat)


def test_14_an_encrypted_key() -> None:
    from cryptography.hazmat.primitives import serialization

    issued = server_issued()
    key = serialization.load_pem_private_key(issued.key, None)
    for form in (
        serialization.PrivateFormat.PKCS8,
        serialization.PrivateFormat.TraditionalOpenSSL,
    ):
        text = key.private_bytes(
            serialization.Encoding.PEM, form, serialization.BestAvailableEncryption(b"canary")
        ).decode()
        chain = issued.chain.decode()
        served(
            TlsSettings(keystore_key=text, keystore_certificate_chain=chain, key_password="canary")
        )
        with pytest.raises(BadSecuritySetting, match=r"ssl\.key\.password: .*encrypted"):
            served(TlsSettings(keystore_key=text, keystore_certificate_chain=chain))
        with pytest.raises(BadSecuritySetting, match=r"is ssl\.key\.password right") as raised:
            served(
                TlsSettings(
                    keystore_key=text, keystore_certificate_chain=chain, key_password="cAnary"
                )
            )
        assert "anary" not in str(raised.value)


def test_14_pkcs12(tmp_path: Path) -> None:
    path = tmp_path / "server.p12"
    path.write_bytes(server_issued().pkcs12("server", "canary"))
    path.chmod(0o600)
    for kind in (None, "PKCS12", "JKS"):
        served(
            TlsSettings(keystore_location=str(path), keystore_password="canary", keystore_type=kind)
        )
    with pytest.raises(BadSecuritySetting, match=r"is ssl\.keystore\.password right"):
        served(TlsSettings(keystore_location=str(path), keystore_password="wrong"))
    with pytest.raises(BadSecuritySetting, match=r"is PKCS12, but ssl\.keystore\.type is PEM"):
        served(TlsSettings(keystore_location=str(path), keystore_type="PEM"))


def test_14_trusted_certificates_in_pkcs12(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import (
        serialize_key_and_certificates,
    )

    ca = x509.load_pem_x509_certificate(authority().issued.chain)
    path = tmp_path / "trust.p12"
    path.write_bytes(
        serialize_key_and_certificates(None, None, None, [ca], BestAvailableEncryption(b"canary"))
    )
    settings = TlsSettings(truststore_location=str(path), truststore_password="canary")
    opened(contexts()[0], client_context(settings))
    with pytest.raises(BadSecuritySetting, match=r"is ssl\.truststore\.password right"):
        client_context(TlsSettings(truststore_location=str(path)))


def test_14_java_key_stores_are_refused_with_the_command(tmp_path: Path) -> None:
    path = tmp_path / "server.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    path.chmod(0o600)
    command = (
        f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 "
        "-deststoretype PKCS12"
    )
    with pytest.raises(BadSecuritySetting) as raised:
        server_context(TlsSettings(keystore_location=str(path)))
    assert str(raised.value).endswith(command)
    with pytest.raises(BadSecuritySetting, match="keytool -importkeystore"):
        client_context(TlsSettings(truststore_location=str(path), truststore_type="JKS"))


def test_two_files_as_librdkafka_has_them(tmp_path: Path) -> None:
    issued = server_issued()
    chain, key = tmp_path / "server.pem", tmp_path / "server.key"
    chain.write_bytes(issued.chain)
    key.write_bytes(issued.key)
    key.chmod(0o600)
    served(TlsSettings(certificate_location=str(chain), key_location=str(key)))
    with pytest.raises(BadSecuritySetting, match=r"ssl\.key\.location: has no private key"):
        served(TlsSettings(certificate_location=str(chain)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "neither PEM nor PKCS12"),
        (b"nonsense", "neither PEM nor PKCS12"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no private key"),
        (b"\x30\x03abc", "cannot be opened"),
    ],
)
def test_files_that_are_no_key_store(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(BadSecuritySetting, match=rf"ssl\.keystore\.location: .*{said}"):
        server_context(TlsSettings(keystore_location=str(path)))
    with pytest.raises(BadSecuritySetting, match=r"ssl\.truststore\.location: "):
        client_context(TlsSettings(truststore_location=str(path)))


def test_a_missing_file_and_an_unknown_type_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadSecuritySetting, match=r"cannot read .*nothing: No such file"):
        server_context(TlsSettings(keystore_location=str(tmp_path / "nothing")))
    with pytest.raises(BadSecuritySetting, match=r"ssl\.keystore\.type: 'BKS' is neither"):
        server_context(TlsSettings(keystore_location=str(tmp_path / "x"), keystore_type="BKS"))


def test_a_file_for_openssl_has_no_name_on_a_disk() -> None:
    with nameless_file([b"a", b"b"]) as path:
        assert Path(path).read_bytes() == b"ab"
        assert not Path(path).resolve().exists()
    assert not Path(path).exists()


def test_types_are_told_by_content() -> None:
    assert type_of(server_issued().store) is StoreType.PEM
    assert type_of(server_issued().pkcs12("x", "y")) is StoreType.PKCS12
    assert type_of(b"\xce\xce\xce\xce") is StoreType.JKS
    assert len(pem_blocks(server_issued().store.decode())) == 3

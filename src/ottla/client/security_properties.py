"""`Security` in the words of Kafka's tools and of librdkafka, and back.

Both dialects are known. Two keys that say different things about one setting are an error. Keys
that would load a class are refused, whatever they name. Values are text, and are not expanded.
"""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING, Any, Final

from ottla.client.errors import UnsupportedSecurity
from ottla.client.security_keys import (
    KNOWN,
    NAMES,
    ONLY,
    PREFIXES,
    STORE_TYPES,
    refusal,
)
from ottla.properties import parse_properties

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ottla.client.security import Security

MAX_FILE_BYTES: Final = 1024 * 1024
"""A page of text with a few certificates in it; a data file named by mistake is refused."""

_JAAS_OPTIONS: Final = {
    "username": "sasl_username",
    "password": "sasl_password",
    "clientId": "sasl_oauthbearer_client_id",
    "clientSecret": "sasl_oauthbearer_client_secret",
    "scope": "sasl_oauthbearer_scope",
}


def read_file(path: Path) -> dict[str, str]:
    """The properties in a file."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise UnsupportedSecurity(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UnsupportedSecurity(f"{path} is not a text of properties") from None
    if len(content) > MAX_FILE_BYTES:
        raise UnsupportedSecurity(f"{path} is longer than {MAX_FILE_BYTES} bytes")
    return parse_properties(text)


def security_fields(properties: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of `Security` for these properties."""
    for key in properties:
        _refuse_unknown(key, properties)
    found = _Found()
    for key, name in NAMES.items():
        if key in properties:
            found.add(name, properties[key].strip(), key)
    jaas = properties.get("sasl.jaas.config")
    if jaas is not None:
        _add_jaas(found, jaas)
    for key in STORE_TYPES:
        if properties.get(key, "").strip().upper() == "JKS":
            raise UnsupportedSecurity(java_store(properties.get(key.replace("type", "location"))))
    algorithm = properties.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None and algorithm.strip().lower() in ("", "none"):
        found.values["ssl_check_hostname"] = False
    for name in ("ssl_enabled_protocols", "ssl_cipher_suites"):
        if name in found.values:
            # librdkafka's lists of ciphers have colons.
            parts = found.values[name].replace(":", ",").split(",")
            found.values[name] = tuple(part.strip() for part in parts if part.strip())
    protocol = found.values.get("security_protocol")
    if protocol is not None:
        found.values["security_protocol"] = protocol.upper()
    return _concerned(found.values)


class _Found:
    """Values of settings and the keys they came by."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._keys: dict[str, str] = {}

    def add(self, name: str, value: str, key: str) -> None:
        if not value:
            return  # Kafka's files often name what they do not set
        if self.values.get(name, value) != value:
            raise UnsupportedSecurity(
                f"{self._keys[name]} and {key} say different things: give one of them"
            )
        self.values[name] = value
        self._keys[name] = key


def _concerned(values: dict[str, Any]) -> dict[str, Any]:
    """Without settings of a layer that the protocol does not have, as Kafka's own clients do."""
    protocol = values.get("security_protocol", "PLAINTEXT")
    dropped: tuple[str, ...] = ()
    if protocol in ("PLAINTEXT", "SSL"):
        dropped += ("sasl_",)
    if protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        dropped += ("ssl_",)
    return {name: value for name, value in values.items() if not name.startswith(dropped)}


def _add_jaas(found: _Found, text: str) -> None:
    from ottla.security.jaas import BadJaas, parse_jaas

    try:
        jaas = parse_jaas(text)
    except BadJaas as error:
        raise UnsupportedSecurity(str(error)) from None
    mechanism = str(found.values.get("sasl_mechanism", ""))
    fits = {"plain": "PLAIN", "scram": "SCRAM-", "oauthbearer": "OAUTHBEARER"}[jaas.module]
    if mechanism and not mechanism.startswith(fits):
        raise UnsupportedSecurity(
            f"sasl.mechanism {mechanism} does not go with the login module in sasl.jaas.config"
        )
    for option, value in jaas.options.items():
        name = _JAAS_OPTIONS.get(option)
        if name is not None:
            found.add(name, value, "sasl.jaas.config")


def _refuse_unknown(key: str, properties: Mapping[str, str]) -> None:
    value = properties[key]
    if key not in ONLY and not key.startswith(PREFIXES):
        return
    if (why := refusal(key)) is not None:
        raise UnsupportedSecurity(f"{key} is not supported: {why}")
    if key not in ONLY and key not in KNOWN:
        near = difflib.get_close_matches(key, sorted(KNOWN), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnsupportedSecurity(f"{key} is not a setting of this client{hint}")
    if not isinstance(value, str):
        raise UnsupportedSecurity(f"{key} must be a text")
    if key in ONLY and value.strip().lower() not in ONLY[key]:
        fits = " or ".join(one for one in ONLY[key] if one not in ("", "jks"))
        hint = (
            "; name the CA to trust by ssl.ca.location"
            if key == "enable.ssl.certificate.verification"
            else ""
        )
        raise UnsupportedSecurity(f"{key} can be {fits}, not {value.strip()[:40]!r}{hint}")


def java_store(location: str | None) -> str:
    """The sentence for a key store that only Java reads."""
    file = location or "FILE"
    return (
        f"Java key stores cannot be read here; convert: keytool -importkeystore -srckeystore {file}"
        f" -destkeystore {file}.p12 -deststoretype PKCS12"
    )


def librdkafka_properties(security: Security) -> dict[str, Any]:
    """The settings in librdkafka's names."""
    if security.ssl_context is not None:
        raise UnsupportedSecurity(
            "librdkafka makes its own TLS context; give ssl_ca, ssl_certificate and ssl_key instead"
        )
    found: dict[str, Any] = {"security.protocol": security.security_protocol}
    if security.has_sasl:
        found["sasl.mechanism"] = security.sasl_mechanism
        found |= _tokens(security) if security.sasl_mechanism == "OAUTHBEARER" else {}
    for key, value in (
        ("sasl.username", security.sasl_username),
        ("sasl.password", security.sasl_password),
        ("ssl.key.password", security.ssl_key_password),
    ):
        if value is not None:
            found[key] = value
    if security.ssl_ca is not None:
        if _is_pkcs12(security.ssl_ca):
            raise UnsupportedSecurity(
                f"librdkafka reads no PKCS12 trust store; export {os.fspath(security.ssl_ca)} as "
                "PEM: openssl pkcs12 -nokeys -in FILE -out ca.pem"
            )
        found |= _material("ssl.ca", security.ssl_ca)
    if security.ssl_certificate is not None:
        found |= _own_certificate(security)
    if security.ssl_crl is not None:
        found["ssl.crl.location"] = os.fspath(security.ssl_crl)
    found |= _offer(security)
    if not security.ssl_check_hostname:
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def _offer(security: Security) -> dict[str, str]:
    """Versions and ciphers; librdkafka offers all versions, and takes OpenSSL's names."""
    if security.ssl_enabled_protocols:
        from ottla.security.contexts import PROTOCOLS

        if not set(security.ssl_enabled_protocols).issuperset(PROTOCOLS):
            raise UnsupportedSecurity(
                "librdkafka cannot be told which versions of TLS to offer; leave out "
                "ssl.enabled.protocols (ssl_enabled_protocols), or set it on the broker"
            )
    if not security.ssl_cipher_suites:
        return {}
    from ottla.security.contexts import CIPHERS

    named = [CIPHERS.get(one, one) for one in security.ssl_cipher_suites]
    return {"ssl.cipher.suites": ":".join(one for one in named if not one.startswith("TLS_"))}


def _own_certificate(security: Security) -> dict[str, str]:
    certificate = security.ssl_certificate
    assert certificate is not None
    if _is_pkcs12(certificate):
        password = security.ssl_key_password or ""
        return {
            "ssl.keystore.location": os.fspath(certificate),
            "ssl.keystore.password": password,
        }
    # A PEM file may hold the key, too.
    key = certificate if security.ssl_key is None else security.ssl_key
    return _material("ssl.certificate", certificate) | _material("ssl.key", key)


def _material(prefix: str, given: str | os.PathLike[str]) -> dict[str, str]:
    text = os.fspath(given)
    return {f"{prefix}.{'pem' if is_pem_text(text) else 'location'}": text}


def is_pem_text(text: str) -> bool:
    """Whether a setting is PEM itself rather than the name of a file."""
    return "-----BEGIN" in text


def _is_pkcs12(given: str | os.PathLike[str]) -> bool:
    """By the first byte, which opens a DER sequence."""
    text = os.fspath(given)
    if is_pem_text(text):
        return False
    try:
        with open(text, "rb") as stream:  # noqa: PTH123  # a path or a text
            return stream.read(1) == b"\x30"
    except OSError as error:
        raise UnsupportedSecurity(f"cannot read {text}: {error.strerror}") from error


def _tokens(security: Security) -> dict[str, Any]:
    token = security.token
    if token is None:
        found = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": security.sasl_oauthbearer_token_endpoint_url,
            "sasl.oauthbearer.client.id": security.sasl_oauthbearer_client_id,
            "sasl.oauthbearer.client.secret": security.sasl_oauthbearer_client_secret,
            "sasl.oauthbearer.scope": security.sasl_oauthbearer_scope,
        }
        return {name: value for name, value in found.items() if value is not None}

    def oauth_cb(_: str) -> tuple[str, float]:
        import asyncio

        async def ask() -> tuple[str, float]:
            value, expires_at = await token()
            return value, expires_at

        # librdkafka calls from a thread of its own, which has no event loop.
        return asyncio.run(ask())

    return {"oauth_cb": oauth_cb}

"""TLS contexts of listeners and clients, made from settings with Kafka's names.

    versions     TLS 1.2 and 1.3; ssl.enabled.protocols may drop one, older ones are refused
    ciphers 1.2  ECDHE with AES-GCM or CHACHA20; ssl.cipher.suites chooses among them
    ciphers 1.3  OpenSSL's; Python cannot choose them, so naming them only warns
    options      no renegotiation, no compression, the server's order of ciphers, a fresh ECDH key
    tickets      2, but none where client certificates are asked for: each connection shows its own
    keys         what OpenSSL's security level 2 takes: RSA of 2048 bits, EC of 224 bits and more
    certificate  expired and not yet valid ones are refused

What a listener shows is read by a handshake in memory (`_shown_by`): that needs no package, and
finds whatever would keep clients from connecting.
"""

from __future__ import annotations

import logging
import ssl
import time
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.clock import SYSTEM
from ottla.security.errors import BadSecuritySetting
from ottla.security.key_stores import (
    KeyMaterial,
    StoreType,
    checked_type,
    key_of_pem,
    key_of_pkcs12,
    nameless_file,
    open_to_others,
    read_store,
    told_type,
    trusted_of_pem,
    trusted_of_pkcs12,
)
from ottla.security.tls_channel import READ_BYTES, State, TlsChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.security.tls_channel import TlsFault

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
CIPHERS: Final = {
    f"TLS_ECDHE_{key}_WITH_{name}": f"ECDHE-{key}-{openssl}"
    for name, openssl in (
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
    for key in ("ECDSA", "RSA")
}
"""IANA's names of what TLS 1.2 may use, and OpenSSL's."""
CIPHERS_13: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
)
SECURITY_LEVEL: Final = "@SECLEVEL=2"  # 112 bits
TICKETS: Final = 2  # OpenSSL's default: a client that opens two connections has one for each
NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, which the ssl module does not name

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The `ssl.*` settings of one listener or client; each field is a key (`KEYS`)."""

    keystore_type: str | None = None
    keystore_location: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    keystore_key: str | None = field(default=None, repr=False)
    keystore_certificate_chain: str | None = None
    key_password: str | None = field(default=None, repr=False)
    truststore_type: str | None = None
    truststore_location: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    truststore_certificates: str | None = None
    client_auth: str = "none"
    enabled_protocols: tuple[str, ...] = PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    crl_location: str | None = None
    certificate_location: str | None = None
    """librdkafka's `ssl.certificate.location`: the chain alone, with `key_location`."""
    key_location: str | None = None

    @classmethod
    def of(cls, get: Callable[[str], str | None]) -> TlsSettings:
        """From a look-up of keys such as `ssl.keystore.location`; None is a default."""
        given: dict[str, str | tuple[str, ...]] = {}
        for one in fields(cls):
            value = get(KEYS[one.name])
            if value is None or not value.strip():
                continue
            if one.name in ("enabled_protocols", "cipher_suites"):
                given[one.name] = tuple(part.strip() for part in value.split(",") if part.strip())
            else:
                given[one.name] = value
        return cls(**given)  # type: ignore[arg-type]  # names and kinds are those of the fields

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files to look at for a change."""
        locations = (
            self.keystore_location,
            self.truststore_location,
            self.crl_location,
            self.certificate_location,
            self.key_location,
        )
        return tuple(Path(one) for one in locations if one)

    @property
    def has_key(self) -> bool:
        return bool(self.keystore_location or self.keystore_key or self.certificate_location)

    @property
    def has_trust(self) -> bool:
        return bool(self.truststore_location or self.truststore_certificates)


KEYS: Final = {
    one.name: "ottla.ssl.crl.location"
    if one.name == "crl_location"
    else "ssl." + one.name.replace("_", ".")
    for one in fields(TlsSettings)
}
"""The setting of each field."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a listener shows to its clients."""

    subject: tuple[tuple[str, str], ...]
    """(attribute, value) in the order of the certificate."""
    names: frozenset[tuple[str, str]]
    """Its subject alternative names: ("DNS", "localhost"), ("IP Address", "127.0.0.1")."""
    not_before: float
    not_after: float
    """Both in seconds since 1970."""
    der: bytes = field(default=b"", repr=False)
    """All of it, as it is shown."""

    def covers(self, host: str) -> bool:
        """Whether a client that connects to this host or address accepts the certificate."""
        lower = host.lower().rstrip(".")
        _, _, parent = lower.partition(".")
        wild = f"*.{parent}"
        for kind, name in self.names:
            if kind == "DNS" and name.lower() in (lower, wild):
                return True
            if kind == "IP Address" and _same_address(name, host):
                return True
        return False


class ServerContext(ssl.SSLContext):
    """A context with the certificate that it shows."""

    certificate: Certificate


def server_context(settings: TlsSettings, *, now: float | None = None) -> ServerContext:
    """What a listener's connections use; `now` is in seconds since 1970.

    Raises `BadSecuritySetting`, which names the key.
    """
    if not settings.has_key:
        raise BadSecuritySetting(
            KEYS["keystore_location"], "a TLS listener needs a key store; ottla cert makes one"
        )
    verify = CLIENT_AUTH.get(settings.client_auth.lower())
    if verify is None:
        raise BadSecuritySetting(
            KEYS["client_auth"], f"{settings.client_auth!r} is not none, requested or required"
        )
    if verify is not ssl.CERT_NONE and not settings.has_trust:
        raise BadSecuritySetting(
            KEYS["truststore_location"],
            f"{KEYS['client_auth']}={settings.client_auth} needs the CA of the clients",
        )
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, settings)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_SINGLE_ECDH_USE
    material = _load_key(context, settings)
    context.certificate = _shown_by(context, material)
    _check_dates(settings, context.certificate, SYSTEM.wall() if now is None else now)
    # Not before: the handshake in memory shows no certificate of a client.
    context.verify_mode = verify
    if verify is ssl.CERT_NONE:
        context.num_tickets = TICKETS
    else:
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET  # the same for TLS 1.2
        _load_trust(context, settings)
    return context


def client_context(settings: TlsSettings, *, check_hostname: bool = True) -> ssl.SSLContext:
    """What a client's connections use; without a trust store the system's CAs are trusted.

    The server's certificate is verified always. Raises `BadSecuritySetting`, which names the key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = check_hostname
    _restrict(context, settings)
    if settings.has_key:
        _load_key(context, settings)
    if settings.has_trust:
        _load_trust(context, settings)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def fingerprint(paths: Iterable[Path]) -> tuple[tuple[str, int, int, int] | None, ...]:
    """Changes when a file is replaced or written; None stands for one that cannot be looked at."""
    found: list[tuple[str, int, int, int] | None] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((str(path), status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


# -- parts ----------------------------------------------------------------------------------------


class Offer(NamedTuple):
    """Versions, and OpenSSL's names of the ciphers of TLS 1.2."""

    lowest: ssl.TLSVersion
    highest: ssl.TLSVersion
    ciphers: list[str]


def offer(settings: TlsSettings) -> Offer:
    """What the settings allow; raises `BadSecuritySetting`, which names the key."""
    key = KEYS["enabled_protocols"]
    protocols = settings.enabled_protocols
    for one in protocols:
        if one not in PROTOCOLS:
            raise BadSecuritySetting(key, f"{one!r} is not one of {', '.join(PROTOCOLS)}")
    if not protocols:
        raise BadSecuritySetting(key, f"name one of {', '.join(PROTOCOLS)}")
    ciphers, only_13 = _ciphers(settings)
    if only_13 and "TLSv1.3" not in protocols:
        raise BadSecuritySetting(KEYS["cipher_suites"], "has no cipher of TLSv1.2")
    lowest_12 = "TLSv1.2" in protocols and not only_13
    highest_13 = "TLSv1.3" in protocols
    return Offer(
        ssl.TLSVersion.TLSv1_2 if lowest_12 else ssl.TLSVersion.TLSv1_3,
        ssl.TLSVersion.TLSv1_3 if highest_13 else ssl.TLSVersion.TLSv1_2,
        ciphers,
    )


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Versions, ciphers and options."""
    allowed = offer(settings)
    if any(one in CIPHERS_13 for one in settings.cipher_suites):
        logger.warning(
            "%s: the ciphers of TLS 1.3 cannot be chosen, all three of them are offered",
            KEYS["cipher_suites"],
        )
    context.minimum_version, context.maximum_version = allowed.lowest, allowed.highest
    context.set_ciphers(f"{':'.join(allowed.ciphers)}:{SECURITY_LEVEL}")
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION


def _ciphers(settings: TlsSettings) -> tuple[list[str], bool]:
    """OpenSSL's names for TLS 1.2, and whether only ciphers of TLS 1.3 were named."""
    named = settings.cipher_suites
    for one in named:
        if one not in CIPHERS and one not in CIPHERS_13:
            raise BadSecuritySetting(
                KEYS["cipher_suites"], f"{one!r} is not one of {', '.join((*CIPHERS, *CIPHERS_13))}"
            )
    of_12 = [CIPHERS[one] for one in named if one in CIPHERS]
    return of_12 or list(CIPHERS.values()), bool(named) and not of_12


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> KeyMaterial:
    material = _key_material(settings)
    place = _place_of_key(settings)

    def password() -> str:
        # Without this OpenSSL would ask the terminal.
        if material.password is None:
            raise BadSecuritySetting(KEYS["key_password"], "the private key is encrypted; set it")
        return material.password

    parts = [material.key, *(one.encode() for one in material.chain)]
    with nameless_file(parts) as path:
        try:
            context.load_cert_chain(path, password=password)
        except ssl.SSLError as error:
            raise BadSecuritySetting(*_problem_of(error, place, material)) from error
    return material


def _problem_of(error: ssl.SSLError, place: str, material: KeyMaterial) -> tuple[str, str]:
    reason = error.reason or ""
    if reason == "KEY_VALUES_MISMATCH":
        return place, "the private key does not belong to the first certificate"
    if reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL"):
        return place, "the key is too short; use EC P-256 or RSA with 2048 bits or more"
    if reason == "CA_MD_TOO_WEAK":
        return place, "the certificate is signed with a hash that is broken; use SHA-256"
    if material.password is not None:
        return place, f"OpenSSL refuses the key ({reason}); is {KEYS['key_password']} right?"
    return place, f"OpenSSL refuses the key or its certificate ({reason or error})"


def _place_of_key(settings: TlsSettings) -> str:
    if settings.keystore_key:
        return KEYS["keystore_key"]
    return KEYS["certificate_location" if settings.certificate_location else "keystore_location"]


def _key_material(settings: TlsSettings) -> KeyMaterial:
    if settings.certificate_location:
        return _separate_files(settings)
    location = settings.keystore_location
    key = KEYS["keystore_location"]
    if settings.keystore_key:
        chain = settings.keystore_certificate_chain
        if location:
            raise BadSecuritySetting(key, f"set it or {KEYS['keystore_key']}, not both")
        if not chain:
            raise BadSecuritySetting(
                KEYS["keystore_certificate_chain"], f"is needed with {KEYS['keystore_key']}"
            )
        names = KEYS["keystore_key"], KEYS["keystore_certificate_chain"]
        return key_of_pem(names, settings.keystore_key, chain, settings.key_password)
    assert location is not None, "has_key"
    path = Path(location)
    told = told_type(KEYS["keystore_type"], settings.keystore_type)
    data = read_store(key, path)
    kind = checked_type(key, path, data, told)
    _warn_if_open(key, path)
    if kind is StoreType.PKCS12:
        return key_of_pkcs12(key, data, settings.keystore_password or settings.key_password)
    text = data.decode("ascii", "replace")
    return key_of_pem((key, key), text, text, settings.key_password or settings.keystore_password)


def _separate_files(settings: TlsSettings) -> KeyMaterial:
    assert settings.certificate_location is not None
    names = KEYS["key_location"], KEYS["certificate_location"]
    chain = read_store(names[1], Path(settings.certificate_location))
    if settings.key_location:
        path = Path(settings.key_location)
        key = read_store(names[0], path)
        _warn_if_open(names[0], path)
    elif settings.keystore_key:
        names, key = (KEYS["keystore_key"], names[1]), settings.keystore_key.encode()
    else:
        key = chain  # librdkafka takes a file that has both
    return key_of_pem(
        names,
        key.decode("ascii", "replace"),
        chain.decode("ascii", "replace"),
        settings.key_password,
    )


def _warn_if_open(key: str, path: Path) -> None:
    if open_to_others(key, path):
        logger.warning("%s: every user can read %s; chmod 600 %s", key, path, path)


def _load_trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    trusted = _trusted(settings)
    try:
        context.load_verify_locations(cadata="".join(trusted))
    except ssl.SSLError as error:
        key = "truststore_location" if settings.truststore_location else "truststore_certificates"
        raise BadSecuritySetting(KEYS[key], f"OpenSSL refuses it ({error.reason})") from error
    if settings.crl_location:
        key = KEYS["crl_location"]
        data = read_store(key, Path(settings.crl_location))
        with nameless_file([data]) as path:
            try:
                context.load_verify_locations(path)
            except ssl.SSLError as error:
                problem = f"{settings.crl_location} has no certificate revocation list in PEM"
                raise BadSecuritySetting(key, problem) from error
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _trusted(settings: TlsSettings) -> tuple[str, ...]:
    location, key = settings.truststore_location, KEYS["truststore_location"]
    if not location:
        assert settings.truststore_certificates is not None, "has_trust"
        return trusted_of_pem(KEYS["truststore_certificates"], settings.truststore_certificates)
    path = Path(location)
    told = told_type(KEYS["truststore_type"], settings.truststore_type)
    data = read_store(key, path)
    if checked_type(key, path, data, told) is StoreType.PKCS12:
        return trusted_of_pkcs12(key, data, settings.truststore_password)
    return trusted_of_pem(key, data.decode("ascii", "replace"))


def _check_dates(settings: TlsSettings, shown: Certificate, now: float) -> None:
    place = _place_of_key(settings)
    if now > shown.not_after:
        when = time.strftime("%Y-%m-%d", time.gmtime(shown.not_after))
        raise BadSecuritySetting(place, f"the certificate expired on {when}")
    if now < shown.not_before:
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(shown.not_before))
        raise BadSecuritySetting(place, f"the certificate is not valid before {when}")


# -- a handshake in memory ------------------------------------------------------------------------


class _Nowhere:
    """A sink for a channel that carries nothing."""

    def get_buffer(self, _: int) -> memoryview:
        return memoryview(bytearray(1))

    def buffer_updated(self, nbytes: int) -> None:
        raise AssertionError(nbytes)


def _shown_by(context: ssl.SSLContext, material: KeyMaterial) -> Certificate:
    """The certificate of a server context, as a client sees it that trusts exactly this one."""
    theirs, fault = _met(context, material.chain[0])
    if fault is not None:
        raise BadSecuritySetting(
            KEYS["keystore_location"], f"clients would refuse the certificate: {fault}"
        )
    assert theirs.peer is not None
    return replace(_decoded(theirs.verified()), der=theirs.peer.der or b"")


def refusal_of(context: ServerContext, authorities: Path) -> str | None:
    """Why clients that trust this PEM file would refuse the certificate; None if they accept it.

    Its names and dates are not looked at.
    """
    key = KEYS["truststore_location"]
    try:
        data = read_store(key, authorities)
        trusted = trusted_of_pem(key, data.decode("ascii", "replace"))
        fault = _met(context, "".join(trusted))[1]
    except (BadSecuritySetting, ssl.SSLError) as error:
        return f"{authorities} cannot be read: {error}"
    return None if fault is None else str(fault)


def fault_between(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str | None
) -> TlsFault | None:
    """Why a client would not come to terms with a server of this name; None if they would."""
    return _shaken(server, client, host)[1]


def _met(context: ssl.SSLContext, trusted: str) -> tuple[TlsChannel, TlsFault | None]:
    """The end of a client that trusts these certificates, after its handshake, and what failed."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(cadata=trusted)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
    return _shaken(context, client, None)


def _shaken(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str | None
) -> tuple[TlsChannel, TlsFault | None]:
    ours = TlsChannel(server, server_side=True)
    theirs = TlsChannel(client, server_side=False, server_hostname=host)
    sink = _Nowhere()
    while State.HANDSHAKING in (ours.state, theirs.state):
        to_server = b"".join(theirs.ciphertext(READ_BYTES))
        ours.received(to_server, sink)
        to_client = b"".join(ours.ciphertext(READ_BYTES))
        theirs.received(to_client, sink)
        if not to_server and not to_client:
            break
    return theirs, theirs.fault or ours.fault


def _decoded(shown: dict[str, object]) -> Certificate:
    """What `getpeercert` returns, as a value."""
    subject = shown.get("subject", ())
    names = shown.get("subjectAltName", ())
    assert isinstance(subject, tuple)
    assert isinstance(names, tuple)
    return Certificate(
        tuple((kind, value) for rdn in subject for kind, value in rdn),
        frozenset(names),
        ssl.cert_time_to_seconds(str(shown["notBefore"])),
        ssl.cert_time_to_seconds(str(shown["notAfter"])),
    )


def _same_address(one: str, other: str) -> bool:
    from ipaddress import ip_address

    try:
        return ip_address(one) == ip_address(other)
    except ValueError:
        return False

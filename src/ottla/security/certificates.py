"""A small certificate authority: for `ottla cert`, `ottla broker --secure` and tests.

Keys are EC P-256, serial numbers random. The CA signs leaves only (path length 0), leaves have the
key usages of their task and always a subject alternative name. A server's certificate is valid for
clients, too: nodes show it to each other. Made with cryptography (extra `security`).

`Authority` and the functions that make are pure but for randomness; `write_*` put files into a
directory, keys with mode 0600, and replace nothing unless told to.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ottla.clock import SYSTEM
from ottla.security.errors import CertificateProblem
from ottla.security.key_stores import certificates_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA_NAME: Final = "Ottla dev CA"
CA_DAYS: Final = 825
LEAF_DAYS: Final = 397  # the most that browsers accept
MAX_DAYS: Final = 36_500  # a century; a certificate's dates end with the year 9999
BACKDATED: Final = timedelta(minutes=5)  # for clients whose clock is late
MAX_COMMON_NAME: Final = 64  # of X.520
PASSWORD_BYTES: Final = 18  # 24 characters
OWN: Final = 0o600
SHOWN: Final = 0o644

_HOST: Final = re.compile(
    r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*"
)
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]*")


@dataclass(frozen=True, slots=True)
class Issued:
    """A key and its certificate chain, the leaf first, in PEM."""

    key: bytes = field(repr=False)
    chain: bytes

    @property
    def store(self) -> bytes:
        """Both: what `ssl.keystore.location` names."""
        return self.key + self.chain

    def pkcs12(self, name: str, password: str) -> bytes:
        """The same for Java and whoever wants it in one binary file."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            load_pem_private_key,
        )
        from cryptography.hazmat.primitives.serialization.pkcs12 import (
            serialize_key_and_certificates,
        )

        leaf, *others = x509.load_pem_x509_certificates(self.chain)
        return serialize_key_and_certificates(
            name.encode(),
            load_pem_private_key(self.key, None),  # type: ignore[arg-type]  # always an EC key
            leaf,
            others,
            BestAvailableEncryption(password.encode()),
        )


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that can sign."""

    issued: Issued

    @classmethod
    def make(
        cls, name: str = CA_NAME, *, days: int = CA_DAYS, now: datetime | None = None
    ) -> Authority:
        from cryptography import x509

        key = _new_key()
        subject = _common_name(name)
        builder = (
            _begun(subject, subject, key, days, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(_identifier(key), critical=False)
        )
        return cls(_signed(builder, key, key, b""))

    def server(
        self, hosts: Sequence[str], *, days: int = LEAF_DAYS, now: datetime | None = None
    ) -> Issued:
        """For host names and addresses; the first is the common name."""
        from cryptography.x509.oid import ExtendedKeyUsageOID

        if not hosts:
            raise CertificateProblem("a server certificate needs at least one host name or address")
        names = [_general_name(host) for host in dict.fromkeys(hosts)]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        # A longer name fits the alternative names only.
        subject = _common_name(hosts[0][:MAX_COMMON_NAME])
        return self._leaf(subject, names, uses, days, now)

    def client(
        self,
        name: str,
        *,
        subject: str | None = None,
        days: int = LEAF_DAYS,
        now: datetime | None = None,
    ) -> Issued:
        """For a client; `subject` is RFC 4514 text such as `CN=alice,OU=billing`."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        told = _common_name(name) if subject is None else _subject(subject)
        names = [x509.UniformResourceIdentifier(f"urn:ottla:client:{quote(name)}")]
        return self._leaf(told, names, [ExtendedKeyUsageOID.CLIENT_AUTH], days, now)

    def _leaf(
        self,
        subject: x509.Name,
        names: Iterable[x509.GeneralName],
        uses: Iterable[x509.ObjectIdentifier],
        days: int,
        now: datetime | None,
    ) -> Issued:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = _new_key()
        signer = load_pem_private_key(self.issued.key, None)
        assert isinstance(signer, EllipticCurvePrivateKey), "checked when it was read"
        ca = x509.load_pem_x509_certificate(self.issued.chain)
        builder = (
            _begun(subject, ca.subject, key, days, now, not_after=ca.not_valid_after_utc)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(_identifier(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
                critical=False,
            )
        )
        return _signed(builder, key, signer, self.issued.chain)


# -- parts of certificates ------------------------------------------------------------------------


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    days: int,
    now: datetime | None,
    *,
    not_after: datetime | None = None,
) -> x509.CertificateBuilder:
    from cryptography import x509

    if not 1 <= days <= MAX_DAYS:
        raise CertificateProblem(
            f"a certificate is valid for 1 to {MAX_DAYS} days, a hundred years, not {days}"
        )
    began = now or datetime.fromtimestamp(SYSTEM.wall(), UTC)
    ends = began + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())  # 159 bits
        .not_valid_before(began - BACKDATED)
        .not_valid_after(ends if not_after is None else min(ends, not_after))
    )


def _signed(
    builder: x509.CertificateBuilder,
    key: EllipticCurvePrivateKey,
    signer: EllipticCurvePrivateKey,
    rest: bytes,
) -> Issued:
    from cryptography.hazmat.primitives import hashes, serialization

    encoded = serialization.Encoding.PEM
    certificate = builder.sign(signer, hashes.SHA256())
    return Issued(
        key.private_bytes(encoded, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        certificate.public_bytes(encoded) + rest,
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _identifier(key: EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    from cryptography import x509

    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _common_name(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError as error:
        raise CertificateProblem(
            f"{name!r} cannot be a common name: it has 1 to {MAX_COMMON_NAME} characters"
        ) from error


def _subject(text: str) -> x509.Name:
    from cryptography import x509

    try:
        return x509.Name.from_rfc4514_string(text)
    except ValueError as error:
        raise CertificateProblem(
            f"{text!r} is not a subject; write it like CN=alice,OU=billing,O=Example"
        ) from error


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host_name(host))


def host_name(host: str) -> str:
    """A name as certificates and DNS have it: xn--mnchen-3ya.example of münchen.example."""
    try:
        name = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        name = ""
    if not _HOST.fullmatch(name.lower()):
        raise CertificateProblem(f"{host!r} is neither a host name nor an address")
    return name


# -- files ----------------------------------------------------------------------------------------


def write_authority(directory: Path, authority: Authority, *, force: bool = False) -> list[Path]:
    """ca.pem and ca.key."""
    issued = authority.issued
    return _written(
        directory, {"ca.pem": (issued.chain, SHOWN), "ca.key": (issued.key, OWN)}, force=force
    )


def read_authority(directory: Path) -> Authority:
    """The CA that `write_authority` put there."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key, chain = (directory / "ca.key").read_bytes(), (directory / "ca.pem").read_bytes()
    except OSError as error:
        raise CertificateProblem(
            f"{directory} has no CA ({error.filename}: {error.strerror}); "
            f"make one with: ottla cert ca {directory}"
        ) from error
    try:
        signer = load_pem_private_key(key, None)
        certificate = x509.load_pem_x509_certificate(chain)
    except (ValueError, TypeError) as error:
        raise CertificateProblem(f"{directory}/ca.key or ca.pem cannot be read") from error
    if not isinstance(signer, EllipticCurvePrivateKey):
        raise CertificateProblem(f"{directory}/ca.key is not an EC key; only own CAs sign here")
    if signer.public_key() != certificate.public_key():
        raise CertificateProblem(f"{directory}/ca.key does not belong to {directory}/ca.pem")
    if certificate.not_valid_after_utc < datetime.fromtimestamp(SYSTEM.wall(), UTC):
        raise CertificateProblem(
            f"the CA in {directory} expired on {certificate.not_valid_after_utc:%Y-%m-%d}; "
            "make a new one in another directory"
        )
    return Authority(Issued(key, chain))


def write_issued(
    directory: Path,
    name: str,
    issued: Issued,
    *,
    p12_password: str | None = None,
    writes_password: bool = False,
    force: bool = False,
) -> list[Path]:
    """NAME.pem, NAME.key, NAME.keystore.pem (both), and NAME.p12 where a password is given.

    `writes_password` puts the password into NAME.p12.password, beside the key without one.
    """
    if not _FILE_NAME.fullmatch(name):
        raise CertificateProblem(
            f"{name!r} cannot be part of a file name: use letters, digits and . _ @ -"
        )
    files = {
        f"{name}.pem": (issued.chain, SHOWN),
        f"{name}.key": (issued.key, OWN),
        f"{name}.keystore.pem": (issued.store, OWN),
    }
    if p12_password is not None:
        files[f"{name}.p12"] = (issued.pkcs12(name, p12_password), OWN)
        if writes_password:
            files[f"{name}.p12.password"] = (p12_password.encode(), OWN)
    return _written(directory, files, force=force)


def new_password() -> str:
    """24 characters."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def _written(directory: Path, files: dict[str, tuple[bytes, int]], *, force: bool) -> list[Path]:
    """All of them or, where one is there already, none."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = [name for name in files if (directory / name).exists()]
        if there and not force:
            raise CertificateProblem(
                f"{directory} has {', '.join(there)} already; --force replaces them"
            )
        return [_write(directory / name, *what) for name, what in files.items()]
    except OSError as error:
        raise CertificateProblem(
            f"cannot write {error.filename or directory}: {error.strerror}"
        ) from error


def _write(path: Path, data: bytes, mode: int) -> Path:
    """Whole or not at all: a broker may be reading."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)  # a umask may have taken some of it
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return path


# -- showing --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """What `ottla cert show` prints of one certificate."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    is_authority: bool
    principal: str | None
    """None where no mapping rule matches."""

    def days_left(self, now: datetime) -> int:
        return (self.not_after - now).days


def read_shown(path: Path, rules: str = "DEFAULT") -> list[Shown]:
    """The certificates of a PEM file, with the principals that the mapping rules make of them."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    from ottla.security.principal import MappingRules, subject_of

    mapping = MappingRules.parse(rules, "--rules")
    try:
        text = path.read_bytes().decode("ascii", "replace")
    except OSError as error:
        raise CertificateProblem(f"cannot read {path}: {error.strerror}") from error
    found = []
    for block in certificates_in(text):
        try:
            one = x509.load_pem_x509_certificate(block.encode())
            names = tuple(_alternatives(one))
            authority = any(
                isinstance(extension.value, x509.BasicConstraints) and extension.value.ca
                for extension in one.extensions
            )
        except ValueError as error:
            raise CertificateProblem(f"a certificate of {path} cannot be read: {error}") from error
        subject = subject_of(one.public_bytes(Encoding.DER))
        name = mapping.apply(subject)
        found.append(
            Shown(
                subject,
                one.issuer.rfc4514_string(),
                names,
                one.not_valid_before_utc,
                one.not_valid_after_utc,
                authority,
                None if name is None else f"User:{name}",
            )
        )
    if not found:
        raise CertificateProblem(f"{path} has no certificate in PEM (BEGIN CERTIFICATE)")
    return found


def _alternatives(certificate: x509.Certificate) -> list[str]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(getattr(one, "value", one)) for one in names]

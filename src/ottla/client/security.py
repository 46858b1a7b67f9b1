"""How a connection is protected. One value carries all of it from the caller to the socket.

Settings are checked when a client is created, so that passwords and data are never sent over a
less secure connection than requested. `Security.from_properties` reads the files that Kafka's
tools and librdkafka take; no setting loads a class, and no text is expanded.

Nothing of `ottla.security` is imported here: a client of a PLAINTEXT listener does not need it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from ottla.client.errors import UnsupportedSecurity, WrongType

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping, Sequence

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
COMMAND_CONFIG: Final = "OTTLA_COMMAND_CONFIG"


class Token(NamedTuple):
    """A token of an OAuth server and when it expires, in seconds since 1970."""

    value: str
    expires_at: float

    def __repr__(self) -> str:
        return f"Token(***, expires_at={self.expires_at})"


@dataclass(frozen=True, slots=True)
class Security:
    """Kafka's own names for the protocol and the mechanism; secrets stay out of the repr.

    - `security_protocol`: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    - `sasl_mechanism`: SCRAM-SHA-512, SCRAM-SHA-256, PLAIN or OAUTHBEARER.
    - `ssl_ca`: whom to trust: a PEM or PKCS12 file, or PEM text. By default the system's CAs.
    - `ssl_certificate`, `ssl_key`: the client's own, as files or as PEM text; one PEM or PKCS12
      file may hold both.
    - `ssl_check_hostname`: False accepts a certificate for another name; a warning says so.
    - `ssl_crl`: a PEM file with the list of certificates that `ssl_ca` has revoked.
    - `ssl_enabled_protocols`, `ssl_cipher_suites`: what to offer, such as `["TLSv1.3"]`; by default
      TLS 1.2 and 1.3 with all ciphers that are forward secret. Ciphers have IANA's or OpenSSL's
      names; those of TLS 1.3 cannot be chosen.
    - `ssl_context`: instead of all `ssl_*` settings.
    - `token`: an async function that returns a `Token`, for OAUTHBEARER; or the
      `sasl_oauthbearer_*` settings, for an OAuth server that gives tokens to clients.
    - `allow_plaintext_password`: send a PLAIN password without TLS to other machines, too.
    """

    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_ca: str | os.PathLike[str] | None = None
    ssl_ca_password: str | None = field(default=None, repr=False)
    ssl_certificate: str | os.PathLike[str] | None = field(default=None, repr=False)
    ssl_key: str | os.PathLike[str] | None = field(default=None, repr=False)
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    ssl_crl: str | os.PathLike[str] | None = None
    ssl_enabled_protocols: Sequence[str] = ()
    ssl_cipher_suites: Sequence[str] = ()
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    token: Callable[[], Awaitable[Token]] | None = field(default=None, repr=False)
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_id: str | None = None
    sasl_oauthbearer_client_secret: str | None = field(default=None, repr=False)
    sasl_oauthbearer_scope: str | None = None
    allow_plaintext_password: bool = False

    def __post_init__(self) -> None:
        for name, value in self._given():
            kinds, wanted = _KINDS.get(name, ((str,), "a text"))
            if not isinstance(value, kinds) and not (name == "token" and callable(value)):
                # Without the value, which may be a secret.
                raise WrongType(f"{name}: expected {wanted}, got {type(value).__name__}")
        _check(self)

    @classmethod
    def from_properties(cls, source: str | os.PathLike[str] | Mapping[str, str]) -> Self:
        """The settings in a file of Java properties, or in a mapping.

        Names are Kafka's or librdkafka's. Keys that do not concern security are passed over;
        `ssl.*`, `sasl.*` and `security.*` keys that are not known are errors.
        """
        from ottla.client.security_properties import read_file, security_fields

        properties = read_file(Path(source)) if isinstance(source, str | os.PathLike) else source
        return cls(**security_fields(properties))

    @classmethod
    def from_env(cls) -> Self:
        """The settings in the file that `OTTLA_COMMAND_CONFIG` names; PLAINTEXT without it."""
        path = os.environ.get(COMMAND_CONFIG)
        return cls.from_properties(path) if path else cls()

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether the client logs in."""
        return self.security_protocol.startswith("SASL_")

    def librdkafka(self) -> dict[str, Any]:
        """The settings in librdkafka's names, for confluent-kafka."""
        from ottla.client.security_properties import librdkafka_properties

        return librdkafka_properties(self)

    def bearer(self) -> tuple[str, float] | None:
        """Internal: a token and when it expires, for HTTP; None without OAUTHBEARER. Blocks."""
        if self.sasl_mechanism != "OAUTHBEARER":
            return None
        import asyncio

        from ottla.client.cluster.protection import asked_token

        return asyncio.run(asked_token(self))

    def context(self) -> ssl.SSLContext:
        """Internal: for TLS, with the client's certificate if there is one. Reads files."""
        if self.ssl_context is not None:
            return self.ssl_context
        from ottla.client.cluster.protection import context_of

        return context_of(self)

    def check_address(self, host: str) -> None:
        """Internal: refuse to send a password in the clear to another machine."""
        if (
            self.security_protocol == "SASL_PLAINTEXT"
            and self.sasl_mechanism in ("PLAIN", "OAUTHBEARER")
            and not self.allow_plaintext_password
            and not is_loopback(host)
        ):
            raise UnsupportedSecurity(
                f"{self.sasl_mechanism} over SASL_PLAINTEXT would send a secret in the clear to "
                f"{host}; use SASL_SSL or SCRAM, or set allow_plaintext_password=True if the "
                "network is yours"
            )

    def shipped(self) -> dict[str, Any]:
        """Internal: all that differs from the defaults, for a process that connects, too."""
        if self.ssl_context is not None or self.token is not None:
            raise UnsupportedSecurity(
                "ssl_context and token cannot be sent to other processes; give files and a token "
                "endpoint"
            )
        return dict(self._given())

    def __reduce__(self) -> Any:
        raise TypeError("Security holds secrets and is not pickled; pickle how to make it instead")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def _given(self) -> list[tuple[str, Any]]:
        return [
            (one.name, value)
            for one in fields(self)
            if (value := getattr(self, one.name)) != one.default
        ]


_PATH: Final = ((str, os.PathLike), "a path or PEM text")
_FLAG: Final = ((bool,), "True or False")
_TEXTS: Final = ((tuple, list), "a list of texts")
_KINDS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "ssl_ca": _PATH,
    "ssl_certificate": _PATH,
    "ssl_key": _PATH,
    "ssl_crl": _PATH,
    "ssl_enabled_protocols": _TEXTS,
    "ssl_cipher_suites": _TEXTS,
    "ssl_check_hostname": _FLAG,
    "allow_plaintext_password": _FLAG,
    "ssl_context": ((object,), "an ssl.SSLContext"),
    "token": ((), "an async function"),
}


def _check(given: Security) -> None:
    """Raise `UnsupportedSecurity` unless connections can be made as asked."""
    protocol, mechanism = given.security_protocol, given.sasl_mechanism
    if protocol not in PROTOCOLS:
        raise UnsupportedSecurity(
            f"security_protocol {protocol!r} is not one of {', '.join(PROTOCOLS)}"
        )
    names = [name for name, _ in given._given()]
    sasl = [name for name in names if name.startswith("sasl_") or name == "token"]
    tls = [name for name in names if name.startswith("ssl_")]
    if sasl and not given.has_sasl:
        raise UnsupportedSecurity(
            f"security_protocol {protocol} does not log in; leave {sasl[0]} out, or use SASL_SSL"
        )
    if tls and not given.has_tls:
        raise UnsupportedSecurity(
            f"security_protocol {protocol} does not encrypt; leave {tls[0]} out, or use "
            f"{'SASL_SSL' if given.has_sasl else 'SSL'}"
        )
    if given.ssl_context is not None and len(tls) > 1:
        raise UnsupportedSecurity(f"ssl_context takes the place of {tls[0]}: give one of them")
    if given.ssl_key is not None and given.ssl_certificate is None:
        raise UnsupportedSecurity("ssl_key needs ssl_certificate, its certificate")
    if given.ssl_crl is not None and given.ssl_ca is None:
        raise UnsupportedSecurity("ssl_crl needs ssl_ca, the CA that has signed the list")
    if given.ssl_enabled_protocols or given.ssl_cipher_suites:
        _check_offer(given)
    if given.has_sasl:
        _check_sasl(given, mechanism)


def _check_offer(given: Security) -> None:
    from ottla.security.contexts import TlsSettings, offer
    from ottla.security.errors import BadSecuritySetting

    try:
        offer(TlsSettings(**offered(given)))
    except BadSecuritySetting as error:
        raise UnsupportedSecurity(str(error)) from None


def offered(given: Security) -> dict[str, Any]:
    """Versions and ciphers in the words of `TlsSettings`; empty ones are left out."""
    found: dict[str, tuple[str, ...]] = {}
    if given.ssl_enabled_protocols:
        found["enabled_protocols"] = tuple(given.ssl_enabled_protocols)
    if given.ssl_cipher_suites:
        from ottla.security.contexts import CIPHERS

        iana = {openssl: name for name, openssl in CIPHERS.items()}
        found["cipher_suites"] = tuple(iana.get(one, one) for one in given.ssl_cipher_suites)
    return found


def _check_sasl(given: Security, mechanism: str | None) -> None:
    if mechanism not in MECHANISMS:
        shown = "is missing" if mechanism is None else f"{mechanism!r} is not supported"
        raise UnsupportedSecurity(f"sasl_mechanism {shown}; use one of {', '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        _check_tokens(given)
        return
    if not given.sasl_username or not given.sasl_password:
        raise UnsupportedSecurity(f"{mechanism} needs sasl_username and sasl_password")
    for name, value in (("username", given.sasl_username), ("password", given.sasl_password)):
        if "\0" in value:
            raise UnsupportedSecurity(f"sasl_{name} must not hold a NUL character")


def _check_tokens(given: Security) -> None:
    url = given.sasl_oauthbearer_token_endpoint_url
    if (given.token is None) == (url is None):
        raise UnsupportedSecurity(
            "OAUTHBEARER needs token, or sasl_oauthbearer_token_endpoint_url with a client id and "
            "a client secret; not both"
        )
    if url is None:
        return
    if not url.lower().startswith("https://"):
        # Without the URL: a file's name or a password may be in it.
        raise UnsupportedSecurity("sasl_oauthbearer_token_endpoint_url must begin with https://")
    if not given.sasl_oauthbearer_client_id or not given.sasl_oauthbearer_client_secret:
        raise UnsupportedSecurity(
            "sasl_oauthbearer_token_endpoint_url needs sasl_oauthbearer_client_id and "
            "sasl_oauthbearer_client_secret"
        )


def is_loopback(host: str) -> bool:
    """Whether an address stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


PLAINTEXT = Security()

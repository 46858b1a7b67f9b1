"""A secured broker for tests: `EmbeddedBroker(security=Secured(...))`.

Certificates are made once for the process, by a CA that lives as long as it does. Passwords are
hashed with as few rounds as Kafka allows, since tests log in often.
"""

from __future__ import annotations

import atexit
import secrets
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ottla.client.admin.acls import OPERATIONS, PATTERNS, PERMISSIONS, RESOURCES
from ottla.client.admin.types import Acl
from ottla.client.errors import BadArgument
from ottla.client.security import Security

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ottla.metadata.changes.security import AddAcls, SetClientQuotas, SetScramCredential

ClientKind: TypeAlias = Literal["librdkafka", "aiokafka", "kafka-python", "java", "ottla"]

PROTOCOLS: Final = ("SASL_SSL", "SASL_PLAINTEXT", "SSL")
SCRAM: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
RULES: Final = "RULE:^CN=([^,]+).*$/$1/,DEFAULT"
"""The common name of a client's certificate is its user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """How an `EmbeddedBroker` is secured.

    - `users`: passwords by name, for SASL.
    - `super_users`: users that may do everything.
    - `acls`: what the others may do, each as text: `allow bob read topic:orders*`. Without
      super users and ACLs every user may do everything.
    - `protocol`: SASL_SSL, SASL_PLAINTEXT, or SSL, where a certificate says who a client is.
    - `mechanisms`: SCRAM-SHA-512, SCRAM-SHA-256 and PLAIN; the first is the one for clients.
    - `client_certificates`: ask for certificates, also beside a login.
    - `quotas`: by user: `{"bob": {"producer_byte_rate": 1e6}}`.
    """

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    super_users: Sequence[str] = ()
    acls: Sequence[str] = ()
    protocol: Literal["SASL_SSL", "SASL_PLAINTEXT", "SSL"] = "SASL_SSL"
    mechanisms: Sequence[str] = SCRAM
    client_certificates: bool = False
    quotas: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise BadArgument(
                f"protocol: expected one of {', '.join(PROTOCOLS)}, got {self.protocol!r}"
            )
        if not self.mechanisms or not set(self.mechanisms) <= {*SCRAM, "PLAIN"}:
            raise BadArgument(
                f"mechanisms: expected some of {', '.join(SCRAM)}, PLAIN, got {self.mechanisms!r}"
            )
        for name, password in self.users.items():
            if not password:
                # Without the value.
                raise BadArgument(
                    f"users: expected a password for {name!r}, a text with something in it"
                )
        self.parsed_acls()

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol != "SASL_PLAINTEXT"

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients must show a certificate."""
        return self.client_certificates or self.protocol == "SSL"

    def parsed_acls(self) -> list[Acl]:
        """The ACLs as values."""
        return [acl for text in self.acls for acl in Acl.parse(text)]

    def config(self, host: str, port: int) -> dict[str, str]:
        """Settings of the broker."""
        found = {"listeners": f"{self.protocol}://{host}:{port}"}
        if self.protocol != "SSL":
            found["sasl.enabled.mechanisms"] = ",".join(self.mechanisms)
        if self.has_tls:
            found["ssl.keystore.location"] = str(certificates().server(host))
            found["ssl.truststore.location"] = str(certificates().ca)  # nodes are clients, too
        if self.has_tls and self.asks_for_certificates:
            found |= {"ssl.client.auth": "required", "ssl.principal.mapping.rules": RULES}
        if self.super_users or self.acls:
            found["authorizer.class.name"] = "standard"
            found["super.users"] = ";".join(map(_principal, self.super_users))
        return found

    def changes(self) -> Iterator[SetScramCredential | AddAcls | SetClientQuotas]:
        """Users, ACLs and quotas, as changes of the broker's metadata."""
        for name, password in self.users.items():
            yield from user_changes(name, password)
        if self.acls:
            yield acl_change(self.parsed_acls())
        for name, values in self.quotas.items():
            from ottla.metadata.changes.security import SetClientQuotas
            from ottla.metadata.security.quotas import EntityPart

            yield SetClientQuotas((EntityPart("user", name),), values)

    def security(self, user: str, password: str | None) -> Security:
        """How a user connects."""
        given: dict[str, Any] = {}
        if self.has_tls:
            given["ssl_ca"] = str(certificates().ca)
        if self.has_tls and self.asks_for_certificates:
            given["ssl_certificate"] = str(certificates().client(user))
        if self.protocol != "SSL":
            given |= {
                "sasl_mechanism": self.mechanisms[0],
                "sasl_username": user,
                "sasl_password": password,
            }
        return Security(self.protocol, **given)


def _principal(user: str) -> str:
    return user if ":" in user else f"User:{user}"


def user_changes(name: str, password: str) -> list[SetScramCredential]:
    """A user with a password, for every mechanism."""
    from ottla.metadata.changes.security import SetScramCredential

    return [SetScramCredential(name, one, _credential(password, one)) for one in SCRAM]


@cache
def _credential(password: str, mechanism: str) -> Any:
    from ottla.metadata.security.users import ScramCredential
    from ottla.security.scram import MECHANISMS, MIN_ITERATIONS, SALT_BYTES, make_credential

    made = make_credential(
        MECHANISMS[mechanism], password, secrets.token_bytes(SALT_BYTES), MIN_ITERATIONS
    )
    return ScramCredential(made.salt, made.iterations, made.stored_key, made.server_key)


def acl_change(acls: Sequence[Acl]) -> AddAcls:
    """ACLs as a change of the broker's metadata."""
    from ottla.metadata.changes.security import AddAcls
    from ottla.metadata.security import acls as stored

    return AddAcls(
        tuple(
            stored.Acl(
                stored.Resource(RESOURCES[one.resource]),
                stored.Pattern(PATTERNS[one.pattern]),
                one.name,
                one.principal,
                one.host,
                stored.Operation(OPERATIONS[one.operation]),
                stored.Permission(PERMISSIONS[one.permission]),
            )
            for one in acls
        )
    )


def options_of(kind: ClientKind, bootstrap: str, security: Security) -> dict[str, Any]:
    """The arguments or properties of a client."""
    match kind:
        case "librdkafka":
            return {"bootstrap.servers": bootstrap, **security.librdkafka()}
        case "ottla":
            return {"bootstrap": bootstrap, "security": security}
        case "java":
            return {"bootstrap.servers": bootstrap, **_java(security)}
        case "aiokafka" | "kafka-python":
            return {"bootstrap_servers": bootstrap, **_python(security)}
    raise BadArgument(
        f"client: expected librdkafka, aiokafka, kafka-python, java or ottla, got {kind!r:.60}"
    )


def _java(security: Security) -> dict[str, str]:
    found = {"security.protocol": security.security_protocol}
    if security.has_sasl:
        module = "plain.Plain" if security.sasl_mechanism == "PLAIN" else "scram.Scram"
        found["sasl.mechanism"] = str(security.sasl_mechanism)
        found["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module}LoginModule required "
            f"username={_quoted(security.sasl_username)} "
            f"password={_quoted(security.sasl_password)};"
        )
    for key, path in (
        ("truststore", security.ssl_ca),
        ("keystore", security.ssl_certificate),
    ):
        if path is not None:
            found |= {f"ssl.{key}.type": "PEM", f"ssl.{key}.location": str(path)}
    return found


def _quoted(text: str | None) -> str:
    escaped = (text or "").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _python(security: Security) -> dict[str, Any]:
    found: dict[str, Any] = {"security_protocol": security.security_protocol}
    if security.has_sasl:
        found |= {
            "sasl_mechanism": security.sasl_mechanism,
            "sasl_plain_username": security.sasl_username,
            "sasl_plain_password": security.sasl_password,
        }
    if security.has_tls:
        import ssl

        context = ssl.create_default_context(cafile=str(security.ssl_ca))
        if security.ssl_certificate is not None:
            context.load_cert_chain(str(security.ssl_certificate))
        found["ssl_context"] = context
    return found


def as_properties(values: Mapping[str, str]) -> str:
    """A text in Java's properties format."""
    return "".join(
        f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in values.items()
    )


class Certificates:
    """A CA of this process, and what it has signed, as files."""

    def __init__(self) -> None:
        from ottla.security.certificates import Authority, write_authority

        self.directory = Path(tempfile.mkdtemp(prefix="ottla-tls-"))
        atexit.register(shutil.rmtree, self.directory, ignore_errors=True)
        self._authority = Authority.make("Ottla test CA")
        write_authority(self.directory, self._authority)
        self.ca = self.directory / "ca.pem"

    def server(self, host: str) -> Path:
        """Key and certificate of a broker on this machine."""
        local = ["localhost", "127.0.0.1", "::1"]
        hosts = local if host in local else [host, *local]
        path = self.directory / f"server-{'-'.join(hosts).replace(':', '_')}.keystore.pem"
        return self._written(path, lambda: self._authority.server(hosts).store)

    def client(self, name: str) -> Path:
        """Key and certificate of a client."""
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
            raise BadArgument(f"{name!r:.60} cannot be in a file's name: use letters and digits")
        path = self.directory / f"client-{name}.keystore.pem"
        return self._written(path, lambda: self._authority.client(name).store)

    def _written(self, path: Path, make: Any) -> Path:
        if not path.exists():
            path.touch(0o600)
            path.write_bytes(make())
        return path


@cache
def certificates() -> Certificates:
    """Those of this process."""
    return Certificates()

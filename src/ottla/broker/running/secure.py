"""`ottla broker --secure`: everything that a secured broker needs, made at its first start.

In the data directory:

    tls/ca.pem, ca.key             an authority of its own
    tls/server.keystore.pem        key and certificate for the names of this machine
    tls/admin.user                 what verifies the password of the user admin; taken once
    admin.properties               what an administrator's client needs, password included

Later starts use what is there. A certificate in its last `RENEWED_DAYS`, or one that lacks a name
that is asked for, is replaced by the same authority. That alone needs ca.key: without it the broker
starts with the certificate that is there, and warns. Everything made here is a default: what is
configured wins.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import ssl
import time
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from ottla.broker.access.listeners import WILDCARDS
from ottla.clock import SYSTEM
from ottla.metadata.security.first_users import user_line
from ottla.metadata.security.users import ScramCredential
from ottla.properties import parse_properties
from ottla.security.certificates import (
    Authority,
    host_name,
    new_password,
    read_authority,
    write_authority,
    write_issued,
)
from ottla.security.contexts import TlsSettings, refusal_of, server_context
from ottla.security.errors import BadSecuritySetting, CertificateProblem
from ottla.security.jaas import BadJaas, parse_jaas
from ottla.security.scram import DEFAULT_ITERATIONS, MECHANISMS, SALT_BYTES, make_credential

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ottla.metadata.image import MetadataImage
    from ottla.security.contexts import Certificate
    from ottla.security.jaas import JaasConfig


ADMIN: Final = "admin"
CLIENT_FILE: Final = "admin.properties"
RENEWED_DAYS: Final = 30
DAY_SECONDS: Final = 86_400
DEFAULT_LISTENER: Final = "SASL_SSL://127.0.0.1:9092"

LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
CLIENT_MECHANISM: Final = "SCRAM-SHA-512"
_LOGIN_LINE: Final = re.compile(r"(?m)^sasl\.jaas\.config=.*[^\\\n]$")  # one that is not continued

logger = logging.getLogger(__name__)


def secured(
    directory: Path, listener: str | None, hosts: Sequence[str], *, own_store: bool = False
) -> dict[str, str]:
    """Settings of a secured broker; makes what is missing. Blocks.

    `listener` is where it listens, as HOST:PORT; `hosts` are further names of this machine. With
    `own_store` another certificate is configured, and ca.pem may be the authority of that one.
    """
    hosts = [_reachable(host) for host in hosts]
    tls = directory / "tls"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_authority(tls)
    bound = "127.0.0.1" if listener is None else listener.rpartition(":")[0].strip("[]")
    names = [*hosts, socket.gethostname(), "localhost", "127.0.0.1"]
    needed = [*hosts, names[0] if bound in WILDCARDS else bound]
    _write_server(tls, needed, [*names, *needed])
    if not own_store:
        _check_authority(tls)
    _write_admin(directory, tls)
    found = {
        "listeners": DEFAULT_LISTENER if listener is None else f"SASL_SSL://{listener}",
        "ssl.keystore.location": str(tls / "server.keystore.pem"),
        "ssl.truststore.location": str(tls / "ca.pem"),
        "authorizer.class.name": "standard",
        "super.users": f"User:{ADMIN}",
        "ottla.bootstrap.user.file": str(tls / "admin.user"),
    }
    if hosts or bound in WILDCARDS:
        told = names[0] if ":" not in names[0] else f"[{names[0]}]"
        port = found["listeners"].rpartition(":")[2]
        found["advertised.listeners"] = f"SASL_SSL://{told}:{port}"
    return found


def _reachable(host: str) -> str:
    """As clients are told it; the first one is advertised."""
    if "*" in host or host in WILDCARDS:
        raise CertificateProblem(
            f"--host {host}: clients are told this name and cannot connect to it; give a name or "
            "address of this machine, such as broker.example.com"
        )
    try:
        return str(ip_address(host))
    except ValueError:
        return host_name(host)


def admin_problem(directory: Path, image: MetadataImage) -> str | None:
    """Why the client file does not let anybody in, and how to get back in; None if it does."""
    file = directory / CLIENT_FILE
    stored = image.scram.get(ADMIN, {}).get(CLIENT_MECHANISM)
    try:
        login = _login_of(file.read_text())
    except OSError as error:
        problem = f"{file}: {error.strerror}"
    else:
        if login is None or login.password is None or stored is None:
            valid = False
        else:
            mechanism = MECHANISMS[CLIENT_MECHANISM]
            made = make_credential(mechanism, login.password, stored.salt, stored.iterations)
            valid = made.stored_key == stored.stored_key
        if valid:
            return None
        problem = f"the password in {file} is not that of the user {ADMIN}"
    return (
        f"{problem}; for a new password of {ADMIN}: "
        f"ottla user create {ADMIN} --admin --data-dir {directory}"
    )


def renew_client_file(directory: Path, password: str) -> Path | None:
    """Put a new password of the user admin into the client file; other lines stay. Blocks.

    None where --secure made nothing, or the file is not this user's.
    """
    client, tls = directory / CLIENT_FILE, directory / "tls"
    if not (tls / "ca.pem").exists():
        return None
    if not client.exists():
        _write_private(client, _client_settings(tls, password))
        return client
    text = client.read_text()
    login = _login_of(text)
    text, lines = _LOGIN_LINE.subn(lambda _: _login_line(password), text)
    if login is None or login.username != ADMIN or lines != 1:
        return None
    _write_private(client, text)
    return client


def _login_of(text: str) -> JaasConfig | None:
    try:
        return parse_jaas(parse_properties(text).get("sasl.jaas.config", ""))
    except BadJaas:
        return None


def _client_settings(tls: Path, password: str) -> str:
    return (
        "# For Kafka's tools and for ottla ... --command-config; keep it secret.\n"
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={CLIENT_MECHANISM}\n"
        f"{_login_line(password)}\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={_property((tls / 'ca.pem').absolute())}\n"
    )


def _login_line(password: str) -> str:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'sasl.jaas.config={LOGIN} required username="{ADMIN}" password="{_property(quoted)}";'


def _property(value: object) -> str:
    """As a value of Java's properties, which are Latin-1."""
    escaped = str(value).replace("\\", "\\\\")
    return "".join(one if " " <= one <= "~" else _code(one) for one in escaped)


def _code(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _write_authority(tls: Path) -> None:
    """Made where there is nothing yet; beside a certificate of another it would only mislead."""
    if (tls / "ca.pem").exists():
        return
    there = [name for name in ("ca.key", "server.keystore.pem") if (tls / name).exists()]
    if there:
        raise CertificateProblem(
            f"{tls} has {' and '.join(there)}, but no ca.pem, by which clients know the broker; "
            f"restore ca.pem, or delete {tls} to make everything anew and give the new ca.pem to "
            "all clients"
        )
    write_authority(tls, Authority.make())


def _write_server(tls: Path, needed: list[str], names: list[str]) -> None:
    """A new certificate has the names of the old one, too: clients may know it by them."""
    old = _certificate(tls / "server.keystore.pem")
    if old is not None:
        left = old.not_after - SYSTEM.wall()
        if left > RENEWED_DAYS * DAY_SECONDS and all(map(old.covers, needed)):
            return
        names = [*names, *sorted(name for _, name in old.names)]
    if not (tls / "ca.key").exists():
        _go_on_without_key(tls, old, needed)
        return
    issued = read_authority(tls).server(list(dict.fromkeys(names)))
    write_issued(tls, "server", issued, force=True)


def _check_authority(tls: Path) -> None:
    """Clients that are given ca.pem must accept the broker."""
    store = tls / "server.keystore.pem"
    why = refusal_of(server_context(TlsSettings(keystore_location=str(store))), tls / "ca.pem")
    if why is not None:
        raise CertificateProblem(
            f"{tls}/ca.pem has not signed {store}, so clients that have it would refuse the broker "
            f"({why}); restore ca.pem, or delete {tls} to make everything anew and give the new "
            "ca.pem to all clients"
        )


def _go_on_without_key(tls: Path, old: Certificate | None, needed: list[str]) -> None:
    """Warn that a certificate should be replaced and cannot; refuse if none can be used."""
    fix = (
        f"put ca.key into {tls} for one start, or replace {tls}/server.keystore.pem "
        "(ottla cert server, where ca.key is)"
    )
    if old is None:
        raise CertificateProblem(
            f"{tls} has no server certificate that can be used, and no ca.key to make one; {fix}"
        )
    missing = [name for name in needed if not old.covers(name)]
    if missing:
        problem = f"lacks the names {', '.join(missing)}"
    else:
        problem = f"expires on {time.strftime('%Y-%m-%d', time.gmtime(old.not_after))}"
    logger.warning(
        "the server certificate in %s %s, and there is no ca.key to renew it; %s", tls, problem, fix
    )


def _certificate(store: Path) -> Certificate | None:
    """None if there is none that can be used."""
    if not store.exists():
        return None
    try:
        return server_context(TlsSettings(keystore_location=str(store))).certificate
    except (BadSecuritySetting, ssl.SSLError):
        return None


def _write_admin(directory: Path, tls: Path) -> None:
    """The user's verifier first: a client file without it would be of no use."""
    user, client = tls / "admin.user", directory / CLIENT_FILE
    if (directory / "metadata.db").exists() and (user.exists() or client.exists()):
        return  # the user is known, or was deleted
    if user.exists() and client.exists():
        return
    password = new_password()
    lines = []
    for mechanism in MECHANISMS.values():
        made = make_credential(
            mechanism, password, secrets.token_bytes(SALT_BYTES), DEFAULT_ITERATIONS
        )
        stored = ScramCredential(made.salt, made.iterations, made.stored_key, made.server_key)
        lines.append(user_line(ADMIN, mechanism.name, stored))
    _write_private(user, "\n".join(lines) + "\n")
    _write_private(client, _client_settings(tls, password))


def _write_private(path: Path, text: str) -> None:
    """Whole or not at all, and for the owner alone."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)

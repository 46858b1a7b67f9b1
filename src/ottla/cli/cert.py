"""`ottla cert ca|server|client|show`: make certificates for a broker and its clients."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.common import Json, fail
from ottla.cli.output import print_json
from ottla.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.cli.output import Value
    from ottla.security.certificates import Issued

MAX_PASSWORD_BYTES: Final = 64 * 1024  # of a file with one; more is some other file

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make and show certificates for TLS.",
)

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory of the CA and its certificates.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
P12 = Annotated[bool, typer.Option("--p12", help="Write a PKCS12 file, too, for Java clients.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Password of the PKCS12 file. Without it a new one is written beside it.",
    ),
]

EXAMPLES = """\b
Examples:
    ottla cert ca tls
    ottla cert server tls broker.example.com,localhost,127.0.0.1
    ottla cert client tls alice --subject CN=alice,OU=billing --p12
    ottla cert show tls/server.pem
"""


@app.command(epilog=EXAMPLES)
def ca(
    directory: Directory,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Common name of the CA.")
    ] = "Ottla dev CA",
    days: Annotated[
        int, typer.Option("--days", min=1, metavar="DAYS", help="How long it is valid.")
    ] = 825,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make a certificate authority: ca.pem, and ca.key, which signs."""
    from ottla.security.certificates import Authority, write_authority

    with _sentences():
        files = write_authority(directory, Authority.make(name, days=days), force=force)
    _print_files(files, as_json=as_json)


@app.command(epilog=EXAMPLES)
def server(
    directory: Directory,
    hosts: Annotated[
        str,
        typer.Argument(
            metavar="HOST,...", help="Host names and addresses that clients connect to."
        ),
    ],
    days: Annotated[
        int, typer.Option("--days", min=1, metavar="DAYS", help="How long it is valid.")
    ] = 397,
    p12: P12 = False,
    password_file: PasswordFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make the certificate of a broker: server.pem, .key, and .keystore.pem with both."""
    from ottla.security.certificates import read_authority

    with _sentences():
        names = [host.strip() for host in hosts.split(",") if host.strip()]
        issued = read_authority(directory).server(names, days=days)
        _write(directory, "server", issued, p12, password_file, force=force, as_json=as_json)


@app.command(epilog=EXAMPLES)
def client(
    directory: Directory,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client's name.")],
    subject: Annotated[
        str | None,
        typer.Option(
            "--subject", metavar="DN", help="Subject such as CN=alice,OU=billing; else CN=NAME."
        ),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", min=1, metavar="DAYS", help="How long it is valid.")
    ] = 397,
    p12: P12 = False,
    password_file: PasswordFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make the certificate of a client: client-NAME.pem, .key, and .keystore.pem with both."""
    from ottla.metadata.security.users import RESERVED_PREFIX
    from ottla.security.certificates import read_authority

    if name.startswith(RESERVED_PREFIX):
        fail(f"names that begin with {RESERVED_PREFIX} are the broker's own; choose another one")
    with _sentences():
        issued = read_authority(directory).client(name, subject=subject, days=days)
        _write(
            directory, f"client-{name}", issued, p12, password_file, force=force, as_json=as_json
        )


@app.command(epilog=EXAMPLES)
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Certificates in PEM.")],
    rules: Annotated[
        str,
        typer.Option(
            "--rules",
            metavar="RULES",
            help="The listener's ssl.principal.mapping.rules.",
        ),
    ] = "DEFAULT",
    as_json: Json = False,
) -> None:
    """Print subject, issuer, names, days left, and the principal that the broker sees."""
    from datetime import UTC, datetime

    from ottla.security.certificates import read_shown

    with _sentences():
        found = read_shown(file, rules)
    now = datetime.fromtimestamp(SYSTEM.wall(), UTC)
    rows: list[dict[str, Value]] = [
        {
            "subject": one.subject,
            "issuer": one.issuer,
            "names": list(one.names),
            "not_before": f"{one.not_before:%Y-%m-%dT%H:%M:%SZ}",
            "not_after": f"{one.not_after:%Y-%m-%dT%H:%M:%SZ}",
            "days_left": one.days_left(now),
            "is_authority": one.is_authority,
            "principal": one.principal,
        }
        for one in found
    ]
    if as_json:
        print_json(rows)
        return
    for number, row in enumerate(rows):
        if number:
            typer.echo()
        for key, value in row.items():
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            typer.echo(f"{key.replace('_', ' ') + ':':<14}{'none' if shown is None else shown}")


def _write(
    directory: Path,
    name: str,
    issued: Issued,
    p12: bool,
    password_file: Path | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    from ottla.security.certificates import new_password, write_issued

    password = None
    if p12:
        password = _password(password_file) if password_file else new_password()
    elif password_file:
        raise typer.BadParameter("it is for --p12", param_hint="--password-file")
    files = write_issued(
        directory,
        name,
        issued,
        p12_password=password,
        writes_password=password_file is None,
        force=force,
    )
    _print_files(files, as_json=as_json)


def _password(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_PASSWORD_BYTES).decode().rstrip("\r\n")
    except (OSError, UnicodeError) as error:
        fail(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}")
    if not text:
        fail(f"{path} is empty; it must hold the password")
    return text


def _print_files(files: Sequence[Path], *, as_json: bool) -> None:
    if as_json:
        print_json({"files": [str(path) for path in files]})
        return
    for path in files:
        typer.echo(f"wrote {path}")


@contextmanager
def _sentences() -> Iterator[None]:
    from ottla.security.errors import SecurityError

    try:
        yield
    except SecurityError as error:
        fail(error)

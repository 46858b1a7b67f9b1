"""`ottla user ...`: users that log in with SCRAM or PLAIN.

With `--data-dir` a user is written to the metadata of a node itself: who may write that file is its
administrator. This is how the first user is made; a running node sees it within seconds.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, cast

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    fail,
    security,
    with_admin,
)
from ottla.cli.output import print_json, print_list
from ottla.cli.passwords import Generate, PasswordFile, password_of
from ottla.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.cli.output import Cell, Value
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.types import ScramName, UserDescription
    from ottla.metadata.changes.apply import Change, Decision
    from ottla.metadata.changes.security import SetScramCredential
    from ottla.metadata.image import MetadataImage

app = typer.Typer(help="Create, list and delete users.", no_args_is_help=True)

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
Mechanism: TypeAlias = Annotated[
    Literal["SCRAM-SHA-256", "SCRAM-SHA-512"],
    typer.Option("--mechanism", help="How the user logs in; PLAIN works with either."),
]
DataDir: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Write to the metadata in this data directory, without a broker.",
    ),
]
Iterations: TypeAlias = Annotated[
    int,
    typer.Option("--iterations", min=4096, max=16384, metavar="N", help="Rounds of hashing."),
]

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@app.command()
def create(
    name: Name,
    mechanism: Mechanism = "SCRAM-SHA-512",
    iterations: Iterations = 8192,
    password_file: PasswordFile = None,
    generate: Generate = False,
    local: DataDir = None,
    admin: Annotated[
        bool,
        typer.Option("--admin", help="With --data-dir: also the ACLs of an administrator."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Create a user, or give it another password; then only this password works.

    A new password is set for the mechanism and for every other one that the user has. With
    --data-dir, a new one of admin also goes to the admin.properties that --secure made there.

    \b
    Examples:
        ottla user create alice
        ottla user create alice --generate
        ottla user create admin --admin --data-dir ./ottla-data --password-file secret.txt
    """
    if admin and local is None:
        raise typer.BadParameter(
            "--admin goes with --data-dir; otherwise: ottla acl grant NAME admin"
        )
    password = password_of(password_file, generate=generate)
    file = None
    if local is not None:
        credentials = {one: _credential(name, password, one, iterations) for one in SCRAM}
        before = _write(local, name, credentials, mechanism, admin=admin)
        new = not before
        file = _client_file(local, name, password, before | {mechanism})
    else:
        new = with_admin(
            bootstrap,
            timeout,
            lambda client: client.create_user(
                name, password, mechanism=mechanism, iterations=iterations
            ),
        )
    if as_json:
        made: dict[str, Value] = {
            "name": name,
            "mechanism": mechanism,
            "iterations": iterations,
            "new": new,
        }
        if generate:
            made["password"] = password
        if file is not None:
            made["file"] = str(file)
        print_json(made)
        return
    if new:
        typer.echo(f"created user {name}")
    else:
        typer.echo(f"changed the password of {name}; connections of {name} are closed")
    if generate:
        typer.echo(f"password: {password}")
    if file is not None:
        typer.echo(f"wrote {file}")


@app.command("list")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """List the users.

    \b
    Examples:
        ottla user list
        ottla user list --json
    """
    _print(with_admin(bootstrap, timeout, lambda admin: admin.describe_users()), as_json=as_json)


@app.command()
def describe(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The users' names.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Show how users log in. Passwords cannot be shown: the broker does not have them.

    \b
    Examples:
        ottla user describe alice bob
    """
    found = with_admin(bootstrap, timeout, lambda admin: admin.describe_users(names))
    _print(found, as_json=as_json)


@app.command()
def delete(
    name: Name,
    mechanism: Annotated[
        str | None,
        typer.Option("--mechanism", metavar="NAME", help="Only the credential for this one."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Also the user as whom this command logs in.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Delete a user. Its connections are closed; its ACLs stay.

    \b
    Examples:
        ottla user delete alice
        ottla user delete alice --mechanism SCRAM-SHA-256
    """
    only = cast("ScramName | None", mechanism)
    if name == security().sasl_username and not yes:
        fail(
            f"this command logs in as {name}, and could not do so again; if that is meant, add "
            f"--yes. The way back in is: ottla user create {shlex.quote(name)} --admin --data-dir "
            "DIR, on the broker's machine"
        )

    async def remove(admin: Admin) -> int:
        acls = await _acls_of(name, admin)
        await admin.delete_user(name, mechanism=only)
        return acls

    acls = with_admin(bootstrap, timeout, remove)
    if as_json:
        print_json({"name": name, "deleted": True})
        return
    typer.echo(f"deleted user {name}")
    if acls and mechanism is None:
        typer.echo(
            f"{acls} ACL(s) of {name} stay, for a new user of this name, too; "
            f"to delete them: ottla acl revoke {shlex.quote(name)} --all"
        )


async def _acls_of(name: str, admin: Admin) -> int:
    """0 if they cannot be asked for."""
    from ottla.client.errors import ClientError

    try:
        return len(await admin.describe_acls(principal=f"User:{name}"))
    except ClientError:
        return 0


@app.command("hash")
def hash_(
    name: Name,
    mechanism: Mechanism = "SCRAM-SHA-512",
    iterations: Iterations = 8192,
    password_file: PasswordFile = None,
    generate: Generate = False,
    as_json: Json = False,
) -> None:
    """Print a line for ottla.bootstrap.user.file, which makes a user without its password.

    \b
    Examples:
        ottla user hash admin > users
        ottla user hash admin --password-file secret.txt
    """
    from ottla.metadata.security.first_users import user_line

    password = password_of(password_file, generate=generate)
    made = _credential(name, password, mechanism, iterations)
    line = user_line(name, mechanism, made.credential)
    if as_json:
        print_json({"line": line, "password": password} if generate else {"line": line})
        return
    typer.echo(line)
    if generate:
        typer.echo(f"password: {password}", err=True)


def _print(users: Sequence[UserDescription], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {"name": one.name, "mechanisms": {str(k): n for k, n in one.mechanisms.items()}}
                for one in users
            ]
        )
        return
    rows: list[dict[str, Cell]] = [
        {"name": one.name, "mechanism": mechanism, "iterations": iterations}
        for one in users
        for mechanism, iterations in one.mechanisms.items()
    ]
    print_list("users", rows, ("name", "mechanism", "iterations"), as_json=False)


def _credential(name: str, password: str, mechanism: str, iterations: int) -> SetScramCredential:
    import secrets

    from ottla.metadata.changes.security import SetScramCredential
    from ottla.metadata.errors import UnacceptableCredential
    from ottla.metadata.security.users import ScramCredential, check_user_name
    from ottla.security.scram import MECHANISMS, SALT_BYTES, make_credential

    try:
        check_user_name(name)
    except UnacceptableCredential as error:
        fail(error)
    salt = secrets.token_bytes(SALT_BYTES)
    made = make_credential(MECHANISMS[mechanism], password, salt, iterations)
    kept = ScramCredential(made.salt, made.iterations, made.stored_key, made.server_key)
    return SetScramCredential(name, mechanism, kept)


def _write(
    directory: Path,
    name: str,
    credentials: Mapping[str, SetScramCredential],
    mechanism: str,
    *,
    admin: bool,
) -> set[str]:
    """Change the store of a node, which may be running or not have started yet.

    Sets the credential of the mechanism and of those that the user has, and answers the latter.
    """
    from ottla.broker.hosting.data import METADATA_FILE
    from ottla.cli.acl import numbered
    from ottla.cli.roles import role_acls
    from ottla.metadata.changes.security import AddAcls
    from ottla.metadata.errors import StoreError
    from ottla.metadata.stores.sqlite import SqliteMetadataStore

    if not directory.is_dir():
        fail(f"{directory} is no directory; give the data directory of a broker")
    before: set[str] = set()

    def decide(image: MetadataImage) -> list[Change]:
        nonlocal before
        before = set(image.scram.get(name, {}))
        return [credentials[one] for one in sorted({mechanism, *before})]

    steps: list[Change | Decision] = [decide]
    if admin:
        acls = role_acls("admin", f"User:{name}", [])
        steps.append(AddAcls(tuple(numbered(acl) for acl in acls)))
    try:
        store = SqliteMetadataStore(directory / METADATA_FILE)
        try:
            store.propose(*steps)
        finally:
            store.close()
    except StoreError as error:
        fail(error)
    _report(name, admin=admin)
    return before


def _client_file(directory: Path, name: str, password: str, changed: set[str]) -> Path | None:
    """The file that --secure made for this user, with the new password; None if there is none."""
    from ottla.broker.running.secure import ADMIN, CLIENT_FILE, CLIENT_MECHANISM, renew_client_file

    if name != ADMIN or CLIENT_MECHANISM not in changed:
        return None
    try:
        return renew_client_file(directory, password)
    except OSError as error:
        fail(
            f"the password of {name} is changed, but not in {directory / CLIENT_FILE}: "
            f"{error.strerror}"
        )


def _report(name: str, *, admin: bool) -> None:
    """The audit line, which is in no node's audit file."""
    import getpass
    import json
    from datetime import UTC, datetime

    line = {
        "time": datetime.fromtimestamp(SYSTEM.wall(), UTC).isoformat(timespec="milliseconds"),
        "event": "admin",
        "outcome": "success",
        "principal": f"local:{getpass.getuser()}",
        "api": "ottla user create",
        "resource": f"User:{name}",
        "reason": "with the ACLs of an administrator" if admin else None,
    }
    typer.echo(json.dumps(line), err=True)

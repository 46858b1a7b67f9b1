"""`ottla console user` and `ottla console token`: who may use the console."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from ottla.cli.common import fail
from ottla.cli.passwords import Generate, PasswordFile, password_of

users = typer.Typer(help="People who log in to the console by password.", no_args_is_help=True)
tokens = typer.Typer(help="Tokens of programs, for /api/v1 and /metrics.", no_args_is_help=True)

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Name in pages and audit.")]
RoleName: TypeAlias = Annotated[
    Literal["viewer", "operator", "admin"],
    typer.Option(
        "--role",
        help="viewer reads; operator produces, resets and redrives; admin changes and deletes.",
    ),
]


@users.command("add")
def add_user(
    name: Name,
    role: RoleName,
    users_file: Annotated[
        Path, typer.Option(metavar="FILE", help="The file that users_file of the console names.")
    ] = Path("users.toml"),
    password_file: PasswordFile = None,
    generate: Generate = False,
) -> None:
    """Add a user, or change its role and password. A console that runs takes it within seconds.

    \b
    Examples:
        ottla console user add anna --role admin
        ottla console user add bob --role viewer --users-file /etc/ottla/users.toml --generate
    """
    from ottla.console import accounts
    from ottla.console.settings import BadSetting

    password = password_of(password_file, generate=generate)
    if len(password.encode()) > accounts.MAX_PASSWORD:
        fail(f"a password has at most {accounts.MAX_PASSWORD} bytes")
    try:
        is_new = accounts.add_user(
            users_file, name, accounts.ROLES[role], accounts.Hashed.of(password)
        )
    except BadSetting as error:
        fail(error)
    typer.echo(f"{'added' if is_new else 'changed'} {name} in {users_file}")
    if generate:
        typer.echo(f"password: {password}")


@tokens.command("add")
def add_token(
    name: Name,
    role: RoleName,
    tokens_file: Annotated[
        Path, typer.Option(metavar="FILE", help="The file that tokens_file of the console names.")
    ] = Path("tokens.toml"),
    days: Annotated[
        int, typer.Option(min=1, max=3650, help="The token expires after this many days.")
    ] = 365,
) -> None:
    """Make a token and print it once; the file keeps its hash. The console reads it at its start.

    \b
    Example:
        ottla console token add prometheus --role viewer
    """
    import secrets
    from datetime import UTC, datetime, timedelta

    from ottla.clock import SYSTEM
    from ottla.console import accounts
    from ottla.console.settings import BadSetting

    token = secrets.token_urlsafe(32)
    now = datetime.fromtimestamp(SYSTEM.wall_ms() // 1000, UTC)
    expires = now + timedelta(days=days)
    try:
        accounts.add_token(tokens_file, name, accounts.ROLES[role], token, expires)
    except BadSetting as error:
        fail(error)
    typer.echo(token)

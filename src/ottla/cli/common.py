"""What commands that talk to a broker share: options, the way to fail, parsing of key=value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn, TypeAlias, TypeVar

import typer

from ottla.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from ottla.client.admin import Admin
    from ottla.client.errors import ClientError

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_TIMEOUT = 10.0

Bootstrap: TypeAlias = Annotated[
    str, typer.Option("--bootstrap", metavar="HOST:PORT,...", help="Brokers to ask first.")
]
Timeout: TypeAlias = Annotated[
    float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="When to give up.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def fail(sentence: object) -> NoReturn:
    """End with status 1 and one line on stderr."""
    complain(sentence)
    raise typer.Exit(1)


def complain(sentence: object) -> None:
    """One line on stderr."""
    typer.echo(f"ottla: {' '.join(str(sentence).split())}", err=True)


def with_admin(bootstrap: str, within: float, command: Callable[[Admin], Awaitable[T]]) -> T:
    """Run a command with an Admin client; what goes wrong ends the program with a sentence."""
    import asyncio

    from ottla.client.admin import Admin
    from ottla.client.bootstrap import BadBootstrap
    from ottla.client.errors import BrokerUnreachable, ClientError

    async def run() -> T:
        async with Admin(bootstrap, api_timeout=within) as admin:
            # Whoever has forgotten to start a broker is told so at once.
            await admin.connect()
            return await command(admin)

    try:
        return asyncio.run(run())
    except BadBootstrap as error:
        raise typer.BadParameter(str(error), param_hint="--bootstrap") from None
    except BrokerUnreachable as error:
        fail(f"{error}; is a broker running there? --bootstrap names another")
    except (ClientError, ValueError, OSError) as error:
        # ValueError: what no field of a request can carry, such as a name of 40,000 characters.
        fail(error)


def report_deleted(kind: str, outcome: Mapping[str, ClientError | None], *, as_json: bool) -> None:
    """What was deleted, and why the rest was not; status 1 if there is such a rest."""
    if as_json:
        print_json([{"name": name, "deleted": error is None} for name, error in outcome.items()])
    for name, error in outcome.items():
        if error is not None:
            complain(error)
        elif not as_json:
            typer.echo(f"deleted {kind} {name}")
    if any(outcome.values()):
        raise typer.Exit(1)


def key_values(pairs: Iterable[str], option: str) -> dict[str, str]:
    """{"k": "v"} of "k=v"; the value may hold further equals signs."""
    found = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint=option)
        found[key.strip()] = value.strip()
    return found

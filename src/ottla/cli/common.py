"""Shared by commands that talk to a broker: options, error messages, parsing of key=value."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias, TypeVar

import typer
from typer.core import TyperCommand, TyperOption

from ottla.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from ottla.client.admin.admin import Admin
    from ottla.client.errors import ClientError
    from ottla.client.security import Security

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_TIMEOUT = 10.0
SCHEME = "kafka://"

EXTRAS = {
    "confluent_kafka": "kafka",
    "cryptography": "security",
    "duckdb": "sql",
    "fastavro": "schemas",
    "jsonschema": "schemas",
    "jwt": "security",
    "numba": "arrow",
    "numpy": "arrow",
    "obstore": "s3",
    "h11": "metrics",
    "prometheus_client": "metrics",
    "psycopg": "postgres",
    "pyarrow": "arrow",
    "pyiceberg": "tables",
    "pyspark": "spark",
    "redis": "redis",
    "starlette": "console",
    "uvicorn": "console",
    "yaml": "spark",
}
"""The extra that installs each optional package."""

Bootstrap: TypeAlias = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT,...",
        envvar="OTTLA_BOOTSTRAP",
        help="Brokers to connect to first.",
    ),
]
Timeout: TypeAlias = Annotated[
    float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Give up after this time.")
]
Source: TypeAlias = Annotated[
    str, typer.Argument(metavar="TOPIC|URL", help="A topic, or kafka://HOST:PORT,.../TOPIC.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


_security: ContextVar[Security | None] = ContextVar("security", default=None)

_properties: ContextVar[Mapping[str, str]] = ContextVar("properties", default=MappingProxyType({}))

CONNECTS = frozenset({"bootstrap", "input_url", "output_url"})
"""Parameters of commands that connect to brokers."""

LOCAL = "local"
"""A parameter with which such a command does not: it needs no `--command-config` then."""

COMMAND_CONFIG = "ottla.command_config"


class BrokerCommand(TyperCommand):
    """A command; if it talks to a broker it takes `--command-config`, too."""

    def __init__(self, *args: Any, params: list[Any] | None = None, **options: Any) -> None:
        found = list(params or ())
        at = max((index for index, one in enumerate(found) if one.name in CONNECTS), default=None)
        if at is not None:
            found.insert(at + 1, _command_config())
        super().__init__(*args, params=found, **options)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Read the file, unless the command does not connect."""
        _keep_security(None if ctx.params.get(LOCAL) is not None else ctx.meta.get(COMMAND_CONFIG))
        return super().invoke(ctx)


def _command_config() -> TyperOption:
    return TyperOption(
        param_decls=["--command-config"],
        type=str,
        metavar="FILE",
        envvar="OTTLA_COMMAND_CONFIG",
        show_envvar=True,
        help="Java properties with security.protocol, sasl.* and ssl.*, as Kafka's tools take.",
        callback=_keep_path,
        expose_value=False,
    )


def _keep_path(ctx: typer.Context, _: object, path: str | None) -> None:
    ctx.meta[COMMAND_CONFIG] = path


def _keep_security(path: str | None) -> None:
    _security.set(None)
    _properties.set({})
    if not path:
        return
    from pathlib import Path

    from ottla.client.errors import ClientError
    from ottla.client.security import Security
    from ottla.client.security_keys import PREFIXES
    from ottla.client.security_properties import read_file

    try:
        properties = read_file(Path(path))
        _security.set(Security.from_properties(properties))
        _properties.set(
            {key: value for key, value in properties.items() if key.startswith(PREFIXES)}
        )
    except ClientError as error:
        raise typer.BadParameter(str(error), param_hint="--command-config") from None


def given_security() -> Security | None:
    """The settings in the file of `--command-config`, if there is one."""
    return _security.get()


def given_properties() -> Mapping[str, str]:
    """The same as Kafka's properties."""
    return _properties.get()


def security() -> Security:
    """How the command connects: by the file of `--command-config`, or in the clear."""
    from ottla.client.security import PLAINTEXT

    return _security.get() or PLAINTEXT


def fail(sentence: object) -> NoReturn:
    """End with status 1 and one line on stderr."""
    complain(sentence)
    raise typer.Exit(1)


def complain(sentence: object) -> None:
    """One line on stderr, without secrets."""
    from ottla.redaction import redact

    typer.echo(f"ottla: {' '.join(redact(sentence).split())}", err=True)


def with_admin(bootstrap: str, within: float, command: Callable[[Admin], Awaitable[T]]) -> T:
    """Run a command with an Admin client; an error ends the program with one sentence."""
    import asyncio

    from ottla.client.admin.admin import Admin

    async def run() -> T:
        async with Admin(bootstrap, api_timeout=within, security=security()) as admin:
            # Fail at once if no broker is running.
            await admin.connect()
            return await command(admin)

    with sentences():
        return asyncio.run(run())


@contextmanager
def sentences() -> Iterator[None]:
    """Turn errors of a cluster into one sentence and status 1."""
    from ottla.client.cluster.bootstrap import BadBootstrap
    from ottla.client.errors import BrokerUnreachable, ClientError, TlsFailed, WrongProtocol
    from ottla.redaction import redact

    try:
        yield
    except BadBootstrap as error:
        raise typer.BadParameter(redact(error), param_hint="--bootstrap") from None
    except (WrongProtocol, TlsFailed) as error:
        fail(error)
    except BrokerUnreachable as error:
        what, _, advice = str(error).partition("; ")
        if "advertised.listeners" in advice:
            fail(error)  # --bootstrap is right
        # The advice is for programs.
        fail(f"{what}; is a broker running there? --bootstrap names another")
    except BrokenPipeError:
        raise  # how the command line ends when its output is closed
    except (ClientError, ValueError, OSError) as error:
        # ValueError: what no field of a request can carry, such as a name of 40,000 characters.
        fail(error)


def delete_named(
    kind: str,
    bootstrap: str,
    within: float,
    command: Callable[[Admin], Awaitable[Mapping[str, ClientError | None]]],
    *,
    as_json: bool,
) -> None:
    """Delete, print what was deleted and what failed; status 1 if something failed."""
    outcome = with_admin(bootstrap, within, command)
    if as_json:
        print_json([{"name": name, "deleted": error is None} for name, error in outcome.items()])
    for name, error in outcome.items():
        if error is not None:
            complain(error)
        elif not as_json:
            typer.echo(f"deleted {kind} {name}")
    if any(outcome.values()):
        raise typer.Exit(1)


Unset: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--unset", metavar="KEY", help="Reset this setting to its default. May be repeated."
    ),
]


def key_values(pairs: Iterable[str], option: str) -> dict[str, str]:
    """{"k": "v"} of "k=v"; the value may hold further equals signs."""
    found = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint=option)
        found[key.strip()] = value.strip()
    return found


def setting_changes(config: Iterable[str], unset: Iterable[str]) -> dict[str, str | None]:
    """What `--config` and `--unset` change; None takes a key back to its default."""
    changes: dict[str, str | None] = {**key_values(config, "--config")}
    for key in unset:
        if key in changes:
            raise typer.BadParameter(f"{key!r} is set as well", param_hint="--unset")
        changes[key] = None
    return changes


def parse_source(source: str, bootstrap: str) -> tuple[str, str]:
    """The brokers and the topic that an argument names."""
    if not source.startswith(SCHEME):
        return bootstrap, source
    brokers, _, topic = source.removeprefix(SCHEME).partition("/")
    if not brokers or not topic:
        raise typer.BadParameter(f"{source!r} is not {SCHEME}HOST:PORT/TOPIC", param_hint="URL")
    return brokers, topic

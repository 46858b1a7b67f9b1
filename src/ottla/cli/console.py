"""`ottla console`: serve the web console until a signal stops it; its users and tokens."""

from __future__ import annotations

import os
import sys
from pathlib import Path  # noqa: TC003  # typer looks at it
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from ottla.cli import console_people

if TYPE_CHECKING:
    import socket

    from ottla.console.settings import Settings

EXAMPLES = """\b
Examples:
    ottla console                                      http://127.0.0.1:9095/ for 127.0.0.1:9092
    ottla console --bootstrap 127.0.0.1:9092 --open
    ottla console --bootstrap eu=10.0.0.5:9092 --bootstrap us=10.1.0.5:9092
    ottla console --config console.toml
    ottla console dashboards ./monitoring              for Grafana and Prometheus
    ottla console user add anna --role admin           who may log in, with auth = "password"
"""


app = typer.Typer(invoke_without_command=True, epilog=EXAMPLES)
app.add_typer(console_people.users, name="user")
app.add_typer(console_people.tokens, name="token")


@app.callback()
def console(
    context: typer.Context,
    brokers: Annotated[
        list[str] | None,
        typer.Option(
            "--bootstrap",
            metavar="[NAME=]HOST:PORT,...",
            envvar="OTTLA_BOOTSTRAP",
            help="Brokers of a cluster. May be repeated for several clusters; not beside a file "
            "that names clusters.",
        ),
    ] = None,
    command_config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="OTTLA_COMMAND_CONFIG",
            help="Java properties with which the console connects to the clusters of --bootstrap.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="[https://]HOST:PORT",
            help="Where to serve; port 0 picks a free one (127.0.0.1:9095).",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with the console's settings.")
    ] = None,
    base_path: Annotated[
        str | None,
        typer.Option(metavar="/PATH/", help="Path below which a proxy serves the console."),
    ] = None,
    write: Annotated[
        bool,
        typer.Option("--write", help="Allow changes: produce, reset, configs, delete."),
    ] = False,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Serve without a login although others can reach the console."
        ),
    ] = False,
    history: Annotated[
        Literal["watched", "always", "off"] | None,
        typer.Option(
            help="Sample always (the default), only while somebody looks, or keep no history."
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory of the history file (./ottla-console)."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Look at running clusters in a browser. Without --write it only reads."""
    if context.invoked_subcommand is not None:
        return
    try:
        from ottla.console.settings import BadSetting, check_exposure, load, settled
    except ModuleNotFoundError as error:  # pragma: no cover  # a base install has what this needs
        _fail(f"the console needs {error.name}: pip install 'ottla[console]'")
    options = {
        "listener": f"http://{listen}" if listen and "://" not in listen else listen,
        "base_path": base_path,
        "write": write or None,
        "history": history,
        "state": None if state is None else str(state),
    }
    given, otherwise = brokers or [], ["127.0.0.1:9092"]
    source = context.get_parameter_source("brokers")
    if source is not None and source.name == "ENVIRONMENT":
        # It is there for all commands, so clusters of the file count more.
        given, otherwise = [], given
    try:
        settings = settled(
            load(config, os.environ, options, given, command_config or "", otherwise=otherwise)
        )
        check_exposure(settings, insecure=insecure)
    except BadSetting as error:
        _fail(str(error))
    sockets = _bound(settings)
    _run(settings, sockets, opens=open_)


@app.command()
def dashboards(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made if it does not exist.")],
) -> None:
    """Write the Grafana dashboard and Prometheus' alert rules for the console's /metrics.

    \b
    Example:
        ottla console dashboards ./monitoring
    """
    from importlib.resources import files

    try:
        directory.mkdir(parents=True, exist_ok=True)
        for one in files("ottla.console").joinpath("dashboards").iterdir():
            if one.name.endswith((".json", ".yaml")):
                (directory / one.name).write_bytes(one.read_bytes())
                typer.echo(directory / one.name)
    except OSError as error:
        _fail(f"cannot write {directory}: {error.strerror or error}")


def _bound(settings: Settings) -> list[socket.socket]:
    import socket

    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        one = socket.socket(family, kind, protocol)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(address)
    except OSError as error:
        _fail(
            f"{settings.host}:{settings.port}: {error.strerror or error}; choose another address "
            "with --listen, port 0 picks a free one"
        )
    return [one]


def _run(settings: Settings, sockets: list[socket.socket], *, opens: bool) -> None:
    try:
        from ottla.console.serve import serve
        from ottla.console.settings import BadSetting
    except ModuleNotFoundError as error:
        _fail(f"the console needs {error.name}: pip install 'ottla[console]'")
    host, port = sockets[0].getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    url = f"{settings.scheme}://{shown}:{port}{settings.base_path}"

    def ready() -> None:
        print(f"ottla console ready: {url}", flush=True)
        if opens:
            import threading
            import webbrowser

            # A browser may take seconds to answer.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    try:
        serve(settings, sockets, ready)
    except (BadSetting, OSError) as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    print(f"ottla console: {message}", file=sys.stderr)
    raise SystemExit(2)

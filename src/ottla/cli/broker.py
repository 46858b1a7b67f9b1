"""`ottla broker`: run a node until a signal stops it.

Prints one line to stdout when it is ready; if it cannot start, one line to stderr and status 2,
or 3 if acknowledged records may be in a journal that cannot be read.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.broker.running.node import Node
    from ottla.broker.running.supervisor import Served, Setup
    from ottla.metadata.config.broker import BrokerConfig

CONSOLE = "ottla.console.listener"
CONSOLE_ADDRESS = "127.0.0.1:9095"
REGISTRY = "ottla.registry.listener"
REGISTRY_ADDRESS = "127.0.0.1:8081"
OWN_STORES = ("ssl.keystore.location", "ssl.keystore.certificate.chain")  # of a listener, too

EXAMPLES = """
Examples:

  ottla broker                                     serve on 127.0.0.1:9092, data in ./ottla-data

  ottla broker --port 0 --ephemeral                a free port, nothing kept

  ottla broker --set log.retention.hours=24 --set num.partitions=3

  ottla broker --config server.properties --metrics-port 9100

  ottla broker --console                           and a web page to look at it, on 127.0.0.1:9095

  ottla broker --registry                          with a schema registry on 127.0.0.1:8081

  ottla broker --nodes 4                           four cores, one address, one directory

  ottla broker --secure --listen 0.0.0.0:9093 --host broker.example.com
"""


def broker(
    listen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address to serve on; port 0 picks a free one. Replaces listeners of --config.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to serve on at 127.0.0.1, in place of --listen."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            parser=_directory, metavar="PATH", help="Data directory (default ./ottla-data)."
        ),
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Use a temporary directory and do not sync.")
    ] = False,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto", help="Use several cores: so many node processes; auto: one for each."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="OTTLA_CONFIG", help="A .toml or .properties file with Kafka's settings."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting as key=value. May be repeated.")
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Serve with TLS, passwords and ACLs; makes certificates and a user at first.",
        ),
    ] = False,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="With --secure: a name or address by which clients reach it. May be repeated.",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Start although anyone on the network can come in; for networks of your own.",
        ),
    ] = False,
    registry: Annotated[
        bool,
        typer.Option(
            "--registry",
            help=f"Serve a schema registry, too: at {REGISTRY}, or on {REGISTRY_ADDRESS}.",
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Serve /metrics, /healthz and /readyz on this port of 127.0.0.1."
        ),
    ] = None,
    console: Annotated[
        bool,
        typer.Option(
            "--console", help=f"Serve the web console, too: at {CONSOLE}, or on {CONSOLE_ADDRESS}."
        ),
    ] = False,
    console_listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The same on another address; port 0: a free one."),
    ] = None,
    console_write: Annotated[
        bool, typer.Option("--console-write", help="Let visitors of the console change things.")
    ] = False,
    log_format: Annotated[
        str, typer.Option(help="Format of log lines on stderr: text or json.")
    ] = "text",
    log_level: Annotated[
        str, typer.Option(help="Lowest level to log: debug, info, warning or error.")
    ] = "warning",
) -> None:
    """Run a broker until SIGTERM or Ctrl-C."""
    _set_up_logging(log_format, log_level)
    address = _address_of(listen or [], port, secure=secure)
    for is_wrong, why in (
        (ephemeral and data_dir is not None, "--ephemeral keeps nothing; leave out --data-dir"),
        (secure and insecure, "--secure and --insecure contradict each other; leave one out"),
        (secure and ephemeral, "--secure keeps certificates and a user; leave out --ephemeral"),
        (host and not secure, "--host names the broker in what --secure makes; add --secure"),
    ):
        if is_wrong:
            _fail(why)
    metrics = None if metrics_port is None else f"http://127.0.0.1:{metrics_port}"
    where = None if console_listen is None else f"http://{console_listen}"
    options: dict[tuple[str, str], str | None] = {
        ("--port" if port is not None else "--listen", "listeners"): address,
        ("--insecure", "ottla.allow.insecure.listeners"): "true" if insecure else None,
        ("--nodes", "ottla.nodes"): nodes,
        ("--metrics-port", "ottla.metrics.listener"): metrics,
        ("--console-listen", CONSOLE): where,
        ("--console-write", "ottla.console.write"): "true" if console_write else None,
    }
    sets = _with_options(list(set_ or ()), options)
    broker_config = _load(config, sets, None if secure else address)
    if console:
        broker_config = _with_listener(broker_config, CONSOLE, f"http://{CONSOLE_ADDRESS}")
    if registry:
        scheme = "https" if secure else "http"
        broker_config = _with_listener(broker_config, REGISTRY, f"{scheme}://{REGISTRY_ADDRESS}")
    if REGISTRY in broker_config.static:
        _check_registry()
    directory = None if ephemeral else data_dir or _data_directory(broker_config)
    if secure and directory is not None:
        broker_config = _secured(broker_config, directory, address, host or [])
    made = directory if secure else None
    count = _node_count(broker_config)
    if count == 1:
        _run(broker_config, directory, made)
    else:
        from ottla.broker.running.supervisor import Setup

        _run_nodes(broker_config, Setup(count, directory, log_format, log_level, made))


def _address_of(listen: list[str], port: int | None, *, secure: bool) -> str | None:
    """Where to serve; None leaves it to the settings."""
    if port is not None:
        if listen:
            _fail("--port and --listen say the same; leave one of them out")
        return f"127.0.0.1:{port}"
    if len(listen) > 1:
        protocol = "SASL_SSL" if secure else "PLAINTEXT"
        named = {f"L{number}": one for number, one in enumerate(listen, 1)}
        listeners = ",".join(f"{name}://{one}" for name, one in named.items())
        protocols = ",".join(f"{name}:{protocol}" for name in named)
        _fail(
            f"--listen takes one address, not {len(listen)}; name several listeners instead: "
            f"--set listeners={listeners} --set listener.security.protocol.map={protocols} "
            "--set inter.broker.listener.name=L1"
        )
    return listen[0] if listen else None


def _with_options(sets: list[str], options: Mapping[tuple[str, str], str | None]) -> list[str]:
    """The settings with those of options that are given; one of both kinds is an error."""
    given = {one.partition("=")[0].strip() for one in sets}
    for (option, key), value in options.items():
        if value is None:
            continue
        if key in given:
            _fail(f"{option} and --set {key} contradict each other; leave one of them out")
        if key != "listeners":  # it is an address, without a protocol
            sets.append(f"{key}={value}")
    return sets


def _with_listener(config: BrokerConfig, key: str, url: str) -> BrokerConfig:
    """The configuration with a listener of this key; an address that was set wins."""
    from ottla.metadata.config.broker import BrokerConfig

    return BrokerConfig({key: url, **config.static})


def _check_registry() -> None:
    """Its schemas are parsed by other packages in another process, at the first schema."""
    from importlib.util import find_spec

    for package in ("h11", "fastavro", "jsonschema", "google.protobuf", "grpc_tools"):
        try:
            found = find_spec(package)
        except ModuleNotFoundError:  # there is not even a `google`
            found = None
        if found is None:
            _fail(f"the schema registry needs {package}: pip install 'ottla[registry]'")


def _directory(text: str) -> Path:
    """An empty name, as of a shell variable that is not set, would be the current directory."""
    if not text:
        _fail("--data-dir is empty; name a directory, or leave it out for ./ottla-data")
    return Path(text)


def _data_directory(config: BrokerConfig) -> Path:
    """That of the configuration. Kafka's nodes may have several; nothing is left out in silence."""
    named = config.get_list("log.dirs")
    if len(named) > 1:
        _fail(f"a node has one data directory, and log.dirs names {len(named)}; keep one of them")
    return Path(named[0])


def _load(file: Path | None, sets: list[str], listen: str | None) -> BrokerConfig:
    from ottla.metadata.config.broker import load_broker_config
    from ottla.metadata.errors import ConfigError

    if listen is not None:
        _check_address(listen)
        sets.append(f"listeners=PLAINTEXT://{listen}")
    try:
        return load_broker_config(file, sets, os.environ)
    except ConfigError as error:
        _fail(str(error))


def _check_address(listen: str) -> None:
    _, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal():
        _fail(f"--listen takes HOST:PORT, not {listen!r}")
    if int(port) > 65535:
        _fail(f"--listen takes a port up to 65535, not {port}")


def _secured(
    config: BrokerConfig, directory: Path, listen: str | None, hosts: list[str]
) -> BrokerConfig:
    """The configuration with what --secure makes; what was set wins, but for --listen."""
    from ottla.errors import OttlaError
    from ottla.metadata.config.broker import BrokerConfig

    if listen is not None:
        _check_address(listen)
    try:
        from ottla.broker.running.secure import secured

        own = any(key.endswith(OWN_STORES) for key in config.static)
        made = secured(directory, listen, hosts, own_store=own)
    except ImportError as error:
        _fail(f"--secure needs {error.name}: pip install 'ottla[security]'")
    except OSError as error:
        from ottla.broker.running.refusals import told

        _fail(told(error, directory))
    except OttlaError as error:
        _fail(str(error))
    given = dict(config.static)
    if listen is not None:
        given["listeners"] = made["listeners"]
    return BrokerConfig(made | given)


def _run(config: BrokerConfig, directory: Path | None, secured: Path | None) -> None:
    from ottla.broker.running.run import run_broker

    try:
        run_broker(config, directory, partial(_announce, secured=secured))
    except Exception as error:
        from ottla.broker.running.refusals import refusal_of

        refused = refusal_of(error, directory)
        if refused is None:
            raise
        _fail(refused.text, refused.status)


def _run_nodes(config: BrokerConfig, setup: Setup) -> NoReturn:
    from ottla.broker.running.refusals import refusal_of
    from ottla.broker.running.supervisor import run_nodes

    def announce(served: Served) -> None:
        _tell_ready(served.addresses, setup.secured, served.problem)
        _tell_console(served.console)
        _tell_registry(served.registry)

    try:
        status = run_nodes(config, setup, announce)
    except Exception as error:
        refused = refusal_of(error, setup.directory)
        if refused is None:
            raise
        _fail(refused.text, refused.status)
    raise SystemExit(status)


def _announce(node: Node, secured: Path | None) -> None:
    problem = None
    if secured is not None:
        from ottla.broker.running.secure import admin_problem

        problem = admin_problem(secured, node.image)
    _tell_ready(node.addresses, secured, problem)
    _tell_console(None if node.console is None else node.console.url)
    _tell_registry(node.registry_url)


def _tell_ready(
    addresses: Mapping[str, tuple[str, int]], secured: Path | None, problem: str | None
) -> None:
    shown = " ".join(f"{host}:{port}" for host, port in addresses.values())
    print(f"ottla broker ready: {shown}", flush=True)
    if problem is not None:
        print(f"ottla broker: {problem}", file=sys.stderr, flush=True)
    elif secured is not None:
        from ottla.broker.running.secure import CLIENT_FILE

        print(f"client settings of the user admin: {secured / CLIENT_FILE}", flush=True)


def _tell_registry(url: str | None) -> None:
    if url is not None:
        print(f"ottla broker: schema registry at {url}", file=sys.stderr, flush=True)


def _tell_console(url: str | None) -> None:
    """On stderr: the contract of stdout is one line."""
    if url is not None:
        print(f"ottla console: {url}", file=sys.stderr, flush=True)


def _fail(message: str, status: int = 2) -> NoReturn:
    print(f"ottla broker: {message}", file=sys.stderr)
    raise SystemExit(status)


def _set_up_logging(log_format: str, level: str) -> None:
    from ottla.broker.running.logs import FORMATS, LEVELS, set_up_logging

    if log_format not in FORMATS:
        _fail(f"--log-format is text or json, not {log_format!r}")
    if level.lower() not in LEVELS:
        _fail(f"--log-level is debug, info, warning or error, not {level!r}")
    set_up_logging(log_format, level)


def _node_count(config: BrokerConfig) -> int:
    """How many node processes there are to be; 1: this process is it."""
    if config.get_str("ottla.nodes") == "1":
        return 1
    from ottla.cluster.supervise import nodes_of

    count = nodes_of(config, len(os.sched_getaffinity(0)))
    if count > 1 and "node.id" in config.static:
        _fail("several nodes have the ids from 1 on; leave out node.id, or --nodes")
    return count

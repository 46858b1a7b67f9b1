"""Serve the console: uvicorn on given sockets, until a signal, an idle time or the parent's end."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvicorn

from ottla.client.errors import ClientError
from ottla.client.security import Security
from ottla.clock import SYSTEM
from ottla.console import audit, clusters
from ottla.console.accounts import Tokens, Users, read_tokens, read_users
from ottla.console.app import application
from ottla.console.findings import Thresholds
from ottla.console.history_file import HistoryFile
from ottla.console.keeping import Keeper
from ottla.console.login import Doorkeeper
from ottla.console.own import Owners
from ottla.console.routes import all_routes
from ottla.console.settings import BadSetting, is_template, security_of
from ottla.console.watching import WATCHED, Watched

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from starlette.applications import Starlette

    from ottla.clock import Clock
    from ottla.console.settings import ClusterSettings, Settings

IDLE_LOOK: Final = 0.5
"""Seconds between looks whether the console is idle."""
DEFAULT_SASL: Final = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512"}
"""How people log in to a cluster without `command_config`, with `auth = "sasl"`."""
SAMPLE_FOR: Final = {"off": WATCHED, "watched": 600.0, "always": math.inf}
"""Seconds for which a cluster is sampled after somebody has looked, by `history`."""
STOP_SECONDS: Final = 3
"""Requests that are under way get this long to end."""


def make_app(settings: Settings, clock: Clock = SYSTEM) -> Starlette:
    """The application with a client for each cluster, or for each person and cluster.

    Reads the files of `command_config`, `users_file` and `tokens_file`.
    """
    door = Doorkeeper(settings, _users(settings), _tokens(settings))
    thresholds = Thresholds(**dict(settings.attention))  # type: ignore[arg-type]  # one is whole
    if door.how == "sasl":
        owners = Owners(_own_clusters(settings, clock, thresholds))
        return application(settings, {}, all_routes(), clock, door, owners)
    watched = {
        one.name: _watched(one, _security(one), clock, SAMPLE_FOR[settings.history], thresholds)
        for one in settings.clusters
    }
    keeper = None
    if settings.state and settings.history_file != "off" and settings.history != "off":
        file = HistoryFile(Path(settings.state) / "history.sqlite", settings.history_max_mib << 20)
        keeper = Keeper(file, [one.cluster for one in watched.values()], clock)
    return application(settings, watched, all_routes(), clock, door, keeper=keeper)


def _watched(
    cluster: ClusterSettings,
    security: Security,
    clock: Clock,
    sample_for: float,
    thresholds: Thresholds,
) -> Watched:
    reached = clusters.ClusterSettings(cluster.name, cluster.bootstrap, security, cluster.registry)
    found = clusters.Cluster(reached, clock=clock, thresholds=thresholds)
    return Watched(found, clock, sample_for)


def _security(cluster: ClusterSettings) -> Security:
    try:
        return Security(**security_of(cluster))
    except ClientError as error:
        raise BadSetting(f"cluster {cluster.name!r}, command_config: {error}") from error


def _own_clusters(
    settings: Settings, clock: Clock, thresholds: Thresholds
) -> Callable[[str, str], Mapping[str, Watched]]:
    """Makes the clusters of a user: files say how to log in, the user says who."""
    templates = {}
    for one in settings.clusters:
        if security_of(one) and not is_template(one):
            raise BadSetting(
                f'cluster {one.name!r}: with auth = "sasl" people log in themselves; '
                f"{one.command_config} says security.protocol=SASL_..., sasl.mechanism and whom to "
                "trust, without a user and a password"
            )
        templates[one.name] = {**DEFAULT_SASL, **security_of(one)}

    def make(name: str, password: str) -> Mapping[str, Watched]:
        return {
            one.name: _watched(
                one,
                Security(**templates[one.name], sasl_username=name, sasl_password=password),
                clock,
                SAMPLE_FOR["off"],
                thresholds,
            )
            for one in settings.clusters
        }

    return make


def _users(settings: Settings) -> Users:
    file = Path(settings.users_file)
    if settings.auth != "password":
        return read_users(file) if settings.auth == "proxy" and file.exists() else Users({})
    if file.exists():
        users = read_users(file)
        if users.has_passwords:
            return users
    raise BadSetting(
        f'auth = "password" and {file} has no users; `ottla console user add NAME --role admin '
        f"--users-file {file}` adds one"
    )


def _tokens(settings: Settings) -> Tokens:
    return read_tokens(Path(settings.tokens_file)) if settings.tokens_file else Tokens({})


class _Server(uvicorn.Server):
    """Signals are ours: a stop by SIGTERM is status 0."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        yield

    def stop(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._on_ready()

    @property
    def is_busy(self) -> bool:
        return bool(self.server_state.tasks)


def serve(
    settings: Settings,
    sockets: Sequence[socket.socket],
    on_ready: Callable[[], None],
    parent: int | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; with `parent`, until that descriptor ends or nobody asks."""
    _log_changes()
    if settings.port == 0:
        # Cookies carry the port, since browsers do not tell those of several ports apart.
        port = sockets[0].getsockname()[1]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        settings = replace(settings, listener=f"{settings.scheme}://{host}:{port}")
    app = make_app(settings)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_SECONDS,
        ssl_certfile=settings.tls_cert or None,
        ssl_keyfile=settings.tls_key or None,
    )
    server = _Server(config, on_ready)

    async def run() -> None:
        watches = []
        if parent is not None:
            loop = asyncio.get_running_loop()
            os.set_blocking(parent, False)
            loop.add_reader(parent, _parent_said, parent, server)
            if settings.idle_exit_s:
                watches.append(asyncio.create_task(_leave_when_idle(app, server, settings)))
        await server.serve(list(sockets))
        for one in watches:
            one.cancel()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run())


def _log_changes() -> None:
    """Audit lines go to stderr as they are, one JSON object a line."""
    lines = logging.StreamHandler()
    lines.setFormatter(logging.Formatter("%(message)s"))
    audit.logger.addHandler(lines)
    audit.logger.setLevel(logging.INFO)
    audit.logger.propagate = False


def _parent_said(parent: int, server: _Server) -> None:
    """The parent says nothing; the end of its pipe means that it has gone."""
    with suppress(BlockingIOError):
        if not os.read(parent, 4096):
            asyncio.get_running_loop().remove_reader(parent)
            server.stop()


async def _leave_when_idle(app: Starlette, server: _Server, settings: Settings) -> None:
    console = app.state.console
    console.last_asked = console.clock.monotonic()
    while True:
        await asyncio.sleep(IDLE_LOOK)
        idle = console.clock.monotonic() - console.last_asked
        if idle >= settings.idle_exit_s and not server.is_busy:
            server.stop()
            return


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory

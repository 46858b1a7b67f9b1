"""`ottla broker --nodes N`: starts N node processes, and starts those again that die.

What is done when is decided by `ottla.cluster.supervise`; this is the shell around it. It waits for
pipes, exits and signals with one selector, in one thread, without an event loop. It opens no log
and no metadata: what has to be changed, a living node changes.

- It holds `.supervisor.lock` in the directory, and waits for nodes of a supervisor before it that
  are still closing their logs.
- It binds the bootstrap port and hands the socket to every node. So whichever of them is alive
  accepts, and a connection that comes while none is waits for the next.
- SIGTERM and SIGINT stop the nodes, a second one kills them. SIGHUP is passed on.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.access.listeners import REGISTRY, WILDCARDS, check_exposure, endpoint_url
from ottla.broker.errors import CannotListen
from ottla.broker.membership.places import node_paths
from ottla.broker.running.binding import bound
from ottla.broker.running.children import (
    Birth,
    Lines,
    check_advertised,
    check_ports,
    child_config,
    line,
)
from ottla.broker.running.settings import Settings
from ottla.broker.running.watched import environment
from ottla.cluster.supervise import (
    FAILED,
    STOP_SECONDS,
    TICK_SECONDS,
    Announce,
    Awaited,
    Beat,
    Exit,
    Exited,
    Fence,
    Fenced,
    Phase,
    Ready,
    Sent,
    Signal,
    Spawn,
    Started,
    Stop,
    Tick,
    decide_supervision,
    supervision_of,
)
from ottla.log.directory import SUPERVISOR_LOCK, DataDirectory, DirectoryLocked, hold_lock
from ottla.metadata.image import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from socket import socket

    from ottla.broker.running.console import ConsoleDoor
    from ottla.broker.running.joint_monitoring import JointMonitoring
    from ottla.cluster.supervise import Command, Event
    from ottla.metadata.config.broker import BrokerConfig

MODULE: Final = "ottla.broker.running.child"
READ_BYTES: Final = 64 * 1024
# Room for a configuration of any size, so that a child that does not read yet holds up nobody.
PIPE_BYTES: Final = 1024 * 1024
LOOK_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 1.0  # before a wait is told

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Setup:
    """What is run, besides the configuration."""

    nodes: int
    directory: Path | None
    """None: a temporary one that is removed."""
    log_format: str
    log_level: str
    secured: Path | None = None
    ephemeral: bool = False
    """Nothing in the directory has to survive a power cut."""


@dataclass(frozen=True, slots=True)
class Served:
    """What is told once all nodes are ready."""

    addresses: Mapping[str, tuple[str, int]]
    problem: str | None
    console: str | None
    """The URL of the console, if there is one."""
    registry: str | None
    """The URL at which all nodes serve the schema registry, if they do."""


def run_nodes(config: BrokerConfig, setup: Setup, on_ready: Callable[[Served], None]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    settings = Settings(config)
    check_exposure(config, settings.listeners)
    registry = settings.registry_listener
    listeners = [*settings.listeners, *([] if registry is None else [registry])]
    check_ports(listeners, setup.nodes)
    check_advertised(settings.advertised, setup.nodes)
    with ExitStack() as stack:
        if setup.directory is None:
            made = tempfile.TemporaryDirectory(prefix="ottla-", ignore_cleanup_errors=True)
            root = Path(stack.enter_context(made))
        else:
            root = setup.directory
            _take(root, stack)
        sockets = {
            listener.name: _bound(listener.name, listener.host, listener.port)
            for listener in listeners
        }
        for each in sockets.values():
            for one in each:
                stack.callback(one.close)
        supervisor = Supervisor(config, settings, setup, root, sockets, on_ready)
        if settings.console_listener is not None:
            state = None if setup.ephemeral or setup.directory is None else root
            supervisor.console = _console(config, settings, sockets, state)
            stack.callback(supervisor.console.close)
        if settings.metrics_listener is not None:
            _monitor(supervisor, settings, stack)
        return supervisor.run()


def _take(root: Path, stack: ExitStack) -> None:
    """Lock the directory, and wait for the nodes of a supervisor that died."""
    root.mkdir(parents=True, exist_ok=True)
    fd = hold_lock(root / SUPERVISOR_LOCK, f"data directory {root}")
    stack.callback(os.close, fd)
    began = time.monotonic()
    is_told = False
    while True:
        try:
            for path in node_paths(root).values():
                DataDirectory(path).close()
        except DirectoryLocked as error:
            waited = time.monotonic() - began
            if waited > STOP_SECONDS:
                raise
            if waited > PATIENCE_SECONDS and not is_told:
                is_told = True
                print(f"ottla broker: {error}; waiting for it to stop", file=sys.stderr, flush=True)
            time.sleep(LOOK_SECONDS)
        else:
            return


def _bound(name: str, host: str, port: int) -> list[socket]:
    try:
        return asyncio.run(bound(host, port))
    except OSError as error:
        raise CannotListen.because(error, f"listener {name} at {host}:{port}") from error


def _console(
    config: BrokerConfig,
    settings: Settings,
    sockets: Mapping[str, Sequence[socket]],
    root: Path | None,
) -> ConsoleDoor:
    from ottla.broker.running.console import STATE, opened

    addresses = {name: each[0].getsockname()[:2] for name, each in sockets.items()}
    state = None if root is None else root / STATE
    return asyncio.run(opened(settings, config, addresses, state))


def _monitor(supervisor: Supervisor, settings: Settings, stack: ExitStack) -> None:
    from ottla.broker.running.joint_monitoring import JointMonitoring

    directory = stack.enter_context(
        tempfile.TemporaryDirectory(prefix="ottla-", ignore_cleanup_errors=True)
    )
    supervisor.metrics = Path(directory)
    assert settings.metrics_listener is not None
    supervisor.monitoring = JointMonitoring.started(
        supervisor.config, settings.metrics_listener, supervisor.metrics_paths()
    )
    stack.callback(supervisor.monitoring.close)


@dataclass(slots=True)
class _Process:
    """A node process and what came from it."""

    popen: subprocess.Popen[bytes]
    lines: Lines = field(default_factory=Lines)

    @property
    def output(self) -> int:
        assert self.popen.stdout is not None
        return self.popen.stdout.fileno()

    def tell(self, data: bytes) -> None:
        assert self.popen.stdin is not None
        with suppress(OSError):  # it has just died, or is stopped: then it will be killed
            os.write(self.popen.stdin.fileno(), data)

    def close(self) -> None:
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class Supervisor:
    """`run` returns the exit status."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: Settings,
        setup: Setup,
        root: Path,
        sockets: Mapping[str, Sequence[socket]],
        on_ready: Callable[[Served], None],
    ) -> None:
        self.config = config
        self._settings = settings
        self._setup = setup
        self._root = root
        self._sockets = sockets
        self._on_ready = on_ready
        self._state = supervision_of(config, setup.nodes)
        self._processes: dict[int, _Process] = {}
        self._ports: dict[int, dict[str, int]] = {}
        self._problem: str | None = None
        self._fences: dict[int, int | None] = {}
        """Dead nodes whose partitions are given away, and the node that was asked to."""
        self._is_settled = True
        """Whether partitions are spread over all nodes, and only these; not yet at the start."""
        self._settler: int | None = None
        """The node that was asked to do that."""
        self._stops = 0
        self._hangups = 0
        self._events: list[Event] = []
        self._status: int | None = None
        self.metrics: Path | None = None
        self.monitoring: JointMonitoring | None = None
        self.console: ConsoleDoor | None = None

    def metrics_paths(self) -> dict[int, Path]:
        assert self.metrics is not None
        return {node_id: self.metrics / f"{node_id}.sock" for node_id in self._state.nodes}

    def run(self) -> int:
        with selectors.DefaultSelector() as selector, _Signals(self) as wake:
            self._selector = selector
            selector.register(wake, selectors.EVENT_READ)
            self._happened(Started())
            while self._status is None:
                self._wait()
        return self._status

    # -- events -----------------------------------------------------------------------------------

    def stop_asked(self) -> None:
        self._stops += 1

    def hangup(self) -> None:
        self._hangups += 1

    def _wait(self) -> None:
        for key, _ in self._selector.select(TICK_SECONDS):
            if key.data is None:
                os.read(key.fd, READ_BYTES)
            else:
                self._hear(key.data)
        for node_id in tuple(self._processes):
            self._look_after(node_id)
        for _ in range(self._hangups):
            self._hangups -= 1
            self._pass_on(signal.SIGHUP)
        for _ in range(self._stops):
            self._stops -= 1
            self._happened(Stop())
        self._happened(Tick())
        self._ask_living()

    def _hear(self, node_id: int) -> None:
        process = self._processes[node_id]
        try:
            data = os.read(process.output, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(process.output)
            return
        for message in process.lines.feed(data):
            if message is None:
                self._happened(Beat(node_id))
            else:
                self._told(node_id, message)

    def _told(self, node_id: int, message: Mapping[str, Any]) -> None:
        if (ready := message.get("ready")) is not None:
            self._ports[node_id] = ready["ports"]
            self._problem = ready["problem"]
            self._happened(Ready(node_id))
        if "settled" in message:
            self._is_settled = True
        if (dead := message.get("replaced")) is not None and dead in self._fences:
            del self._fences[dead]
            self._happened(Fenced(dead))

    def _look_after(self, node_id: int) -> None:
        process = self._processes[node_id]
        status = process.popen.poll()
        if status is None:
            return
        if process.output in self._selector.get_map():
            self._hear(node_id)  # what it said at last
        with suppress(KeyError):
            self._selector.unregister(process.output)
        del self._processes[node_id]
        process.close()
        for dead, asked in self._fences.items():
            if asked == node_id:
                self._fences[dead] = None
        if self._settler == node_id:
            self._settler = None
        if self._state.stopping is None and self._state.is_announced:
            logger.error("node %d ended with status %d", node_id, status)
        self._happened(Exited(node_id, status))

    # -- commands ---------------------------------------------------------------------------------

    def _happened(self, event: Event) -> None:
        self._state, commands = decide_supervision(self._state, event, time.monotonic())
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Spawn(node_id):
                self._spawn(node_id)
            case Signal(node_id, sent):
                if sent is Sent.KILL:
                    is_stopping = self._state.stopping is not None
                    fault = "has not stopped" if is_stopping else "does not answer"
                    logger.error("node %d %s; it is killed", node_id, fault)
                self._kill(node_id, signal.SIGKILL if sent is Sent.KILL else signal.SIGTERM)
            case Fence(node_id):
                logger.error("node %d keeps failing; other nodes take over", node_id)
                self._fences[node_id] = None
            case Announce():
                self._is_settled = False
                addresses = {
                    name: each[0].getsockname()[:2]
                    for name, each in self._sockets.items()
                    if name != REGISTRY
                }
                if self.console is not None:
                    self.console.start()
                console = None if self.console is None else self.console.url
                self._on_ready(Served(addresses, self._problem, console, self._registry_url()))
            case Awaited(node_id):
                logger.warning(
                    "node %d has not stopped yet; it is killed %.0f s after the stop began,"
                    " or at a second signal",
                    node_id,
                    STOP_SECONDS,
                )
            case Exit(status):
                self._status = status

    def _registry_url(self) -> str | None:
        registry = self._settings.registry_listener
        if registry is None:
            return None
        host, port = self._sockets[registry.name][0].getsockname()[:2]
        host = "127.0.0.1" if registry.host in WILDCARDS else host
        return endpoint_url(Endpoint(host, port, registry.protocol))

    def _kill(self, node_id: int, number: signal.Signals) -> None:
        process = self._processes.get(node_id)
        if process is not None:
            process.popen.send_signal(number)

    def _pass_on(self, number: signal.Signals) -> None:
        for node_id in self._processes:
            if self._state.children[node_id].phase is Phase.UP:
                self._kill(node_id, number)
        if self.monitoring is not None:
            self.monitoring.look_again()

    def _spawn(self, node_id: int) -> None:
        birth = Birth(
            child_config(
                self.config,
                self._settings.listeners,
                self._settings.advertised,
                node_id,
                self._ports.get(node_id, {}),
            ),
            str(self._root),
            ephemeral=self._setup.ephemeral or self._setup.directory is None,
            log_format=self._setup.log_format,
            log_level=self._setup.log_level,
            sockets={name: [one.fileno() for one in each] for name, each in self._sockets.items()},
            metrics=None if self.metrics is None else str(self.metrics_paths()[node_id]),
            secured=None if self._setup.secured is None else str(self._setup.secured),
        )
        try:
            popen = subprocess.Popen(
                [sys.executable, "-m", MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env=environment(),
                pass_fds=[one.fileno() for each in self._sockets.values() for one in each],
                process_group=0,  # Ctrl-C comes to the supervisor alone
            )
        except OSError as error:  # no memory, or too many processes, for a while
            logger.error("node %d cannot be started: %s", node_id, error)  # noqa: TRY400
            self._happened(Exited(node_id, FAILED))
            return
        process = self._processes[node_id] = _Process(popen)
        assert popen.stdin is not None
        _make_room(popen.stdin.fileno())
        os.set_blocking(process.output, False)
        self._selector.register(process.output, selectors.EVENT_READ, node_id)
        with suppress(BrokenPipeError):  # it is dead already; the next look finds that
            popen.stdin.write(birth.encode())
        os.set_blocking(popen.stdin.fileno(), False)

    def _ask_living(self) -> None:
        """Let a living node change what has to be changed; another one if it dies over it."""
        living = [
            node_id
            for node_id, child in self._state.children.items()
            if child.phase is Phase.UP and node_id in self._processes
        ]
        if living and not self._is_settled and self._settler is None:
            self._settler = living[0]
            self._processes[living[0]].tell(line({"settle": self._setup.nodes}))
        for dead, asked in tuple(self._fences.items()):
            if asked is not None:
                continue
            if living:
                self._fences[dead] = living[0]
                self._processes[living[0]].tell(line({"replace": dead}))
            elif self._state.stopping is not None or not self._processes:
                del self._fences[dead]  # nobody could lead them
                self._happened(Fenced(dead))


class _Signals:
    """Signals wake the selector, and are counted."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def __enter__(self) -> int:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        stop, hangup = self._supervisor.stop_asked, self._supervisor.hangup
        self._handlers = {
            number: signal.signal(number, lambda *_, act=act: act())
            for number, act in (
                (signal.SIGTERM, stop),
                (signal.SIGINT, stop),
                (signal.SIGHUP, hangup),
                (signal.SIGCHLD, lambda: None),
            )
        }
        return self._read

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)


def _make_room(pipe: int) -> None:
    with suppress(OSError):  # a system that grants less
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

"""The console beside a broker: a listening socket, and a process from the first connection on.

The broker only waits until somebody connects. It accepts nothing itself: the console inherits the
socket and finds the connection there, so that the very first one gets its page. Nothing of the
console is imported here, and without visitors there is no process.

- The child (`python -P -m ottla.console`) reads what it has to know from its standard input. The
  input's end tells it that the broker is gone. It ends by itself when it is idle.
- A child that ends within `AT_ONCE` seconds with an error, `MANY` times in a row, is not started
  again for `PAUSE` seconds; connections wait meanwhile.
- One thread waits for connections and for the child. It uses no event loop, so that the supervisor
  of several nodes, which has none, can use it as well.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from ottla.broker.access.listeners import PLAINTEXT, WILDCARDS
from ottla.broker.errors import CannotListen
from ottla.broker.running.binding import bound
from ottla.broker.running.watched import Watch
from ottla.metadata.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from socket import socket

    from ottla.broker.running.settings import Settings
    from ottla.metadata.config.broker import BrokerConfig

MODULE: Final = "ottla.console"
STATE: Final = "console"
"""Below the data directory: the history of the console."""
PACKAGES: Final = ("starlette", "uvicorn", "jinja2", "msgspec", "msgpack", "cel")
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""By which visitors can log in, the best first."""
AT_ONCE: Final = 5.0
MANY: Final = 3
PAUSE: Final = 60.0
BACKLOG: Final = 128
"""Connections that wait while the console starts."""

logger = logging.getLogger(__name__)


async def opened(
    settings: Settings,
    config: BrokerConfig,
    addresses: Mapping[str, tuple[str, int]],
    state: Path | None,
) -> ConsoleDoor:
    """The door of a broker that is reached at these addresses, bound; raises `CannotListen`.

    `state` is the directory of the console's own files; without one it keeps none.
    """
    listener = settings.console_listener
    assert listener is not None
    package = missing_package()
    if package is not None:
        raise CannotListen(f"the console needs {package}: pip install 'ottla[console]'")
    told = {
        "listener": f"http://{listener.host}:{listener.port}",
        **_reached(settings, config, addresses),
        "write": config.get_bool("ottla.console.write"),
        "state": _place(state),
        "idle_exit_s": -(-config.get_int("ottla.console.idle.exit.ms") // 1000),
    }
    try:
        sockets = await bound(listener.host, listener.port)
    except OSError as error:
        where = f"console at {listener.host}:{listener.port}"
        raise CannotListen.because(error, where, "--console-listen HOST:0") from error
    return ConsoleDoor(sockets, told)


def _place(state: Path | None) -> str:
    return "" if state is None else str(state.absolute())


def _reached(
    settings: Settings, config: BrokerConfig, addresses: Mapping[str, tuple[str, int]]
) -> dict[str, object]:
    """Where and how the console connects.

    It has no credentials: it takes a listener that asks for none, or one where its visitors log in
    with their own.
    """
    for listener in settings.listeners:
        if listener.protocol == PLAINTEXT:
            return {"bootstrap": _address(addresses[listener.name])}
    for listener in settings.listeners:
        own = config.listener(listener.name)
        enabled = own.get_list("sasl.enabled.mechanisms") if listener.has_sasl else ()
        mechanism = next((one for one in MECHANISMS if one in enabled), None)
        if mechanism is None or own.get_str("ssl.client.auth") == "required":
            continue
        security = {"security_protocol": listener.protocol, "sasl_mechanism": mechanism}
        trusted = own.parsed("ssl.truststore.location")
        if listener.has_tls and trusted:
            security["ssl_ca"] = str(trusted)
        return {"bootstrap": _address(addresses[listener.name]), "security": security}
    raise InvalidConfig(
        "a listener beside it that asks for nothing, or for a password, as the console has no "
        "credentials; `ottla console --command-config FILE` runs one that has",
        "none",
        "ottla.console.listener",
    )


def _address(bound_to: tuple[str, int]) -> str:
    host, port = bound_to
    host = "127.0.0.1" if host in WILDCARDS else host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def missing_package() -> str | None:
    """A package of the console extra that is not installed; imports none of them."""
    return next((name for name in PACKAGES if find_spec(name) is None), None)


@dataclass(slots=True)
class Failures:
    """When a child may be started. Pure."""

    count: int = 0
    not_before: float = 0.0

    def ended(self, status: int, lasted: float, now: float) -> None:
        """A child has ended."""
        if status == 0 or lasted >= AT_ONCE:
            self.count = 0
            return
        self.count += 1
        if self.count >= MANY:
            self.count = 0
            self.not_before = now + PAUSE

    def wait(self, now: float) -> float:
        """Seconds until a child may be started."""
        return max(0.0, self.not_before - now)


class ConsoleDoor:
    """`start` begins to wait for visitors, `close` ends the console if it runs."""

    def __init__(
        self,
        sockets: Sequence[socket],
        settings: Mapping[str, object],
        command: Sequence[str] = (sys.executable, "-P", "-m", MODULE),
    ) -> None:
        """`settings` are told to the child, with the descriptors of the sockets."""
        self._sockets = sockets
        self._settings = settings
        self._command = command
        self._failures = Failures()
        self._watch = Watch()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="ottla-console", daemon=True)

    @property
    def url(self) -> str:
        host, port = self._sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    @property
    def pid(self) -> int | None:
        """The process of the console, if it runs."""
        return self._watch.pid

    def start(self) -> None:
        for one in self._sockets:
            one.listen(BACKLOG)
            one.setblocking(False)
        self._thread.start()

    def close(self) -> None:
        """Returns when the console has ended."""
        self._closing = True
        self._watch.wake()
        if self._thread.ident is not None:
            self._thread.join()
        for one in self._sockets:
            one.close()
        self._watch.close()

    def _run(self) -> None:
        fds = [one.fileno() for one in self._sockets]
        while not self._closing:
            pause = self._failures.wait(time.monotonic())
            if pause:
                self._watch.wait(seconds=pause)
                continue
            if not self._watch.wait(fds):
                continue
            try:
                self._serve(fds)
            except OSError:
                logger.exception("the console could not be started")
                self._failures.ended(1, 0.0, time.monotonic())

    def _serve(self, fds: Sequence[int]) -> None:
        """Start the child and wait for its end, or end it."""
        began = time.monotonic()
        told = {**self._settings, "fds": fds}
        status = self._watch.run(self._command, told, lambda: not self._closing, fds)
        now = time.monotonic()
        self._failures.ended(status, now - began, now)
        if status != 0 and not self._closing:
            logger.error("the console ended with status %d; see the lines above", status)
            if pause := self._failures.wait(now):
                logger.error("the console failed %d times; next try in %.0f s", MANY, pause)

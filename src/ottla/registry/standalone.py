"""A registry beside any Kafka cluster: the same machine and routes, over the client.

It asks nobody who they are, so it listens on this machine alone unless it is told that this is
meant. One such process writes a topic: a second one takes over, and the first one ends
(`client_log`).
"""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import TYPE_CHECKING, Final

from ottla import __version__
from ottla.client.admin.admin import Admin
from ottla.clock import SYSTEM
from ottla.coordination.runtime import CoordinatorError, CoordinatorRuntime
from ottla.http.messages import Limits
from ottla.http.server import HttpServer
from ottla.registry.callers import Anybody
from ottla.registry.client_log import ClientLog
from ottla.registry.errors import Code, RegistryError
from ottla.registry.machine import RegistryMachine
from ottla.registry.routes import About, refusal, routes_of
from ottla.registry.service import Registry
from ottla.schemas.parsing_child import ParsingChild

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.client.security import Security
    from ottla.http.messages import Request as HttpRequest
    from ottla.registry.records import Record
    from ottla.registry.requests import Request, Response


TAKEN_OVER: Final = "another registry writes this topic now; this one ends"


class Standalone:
    """`await start()`, then `url` says where it is; `await close()` ends it."""

    def __init__(self, bootstrap: str, topic: str, security: Security) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._log = ClientLog(bootstrap, topic, security)
        self._runtime: CoordinatorRuntime[Request, Record, Response] = CoordinatorRuntime(
            self._log, lambda _: RegistryMachine(), SYSTEM
        )
        self._parser = ParsingChild()
        self._server: HttpServer | None = None
        self.url = ""

    async def start(self, host: str, port: int) -> None:
        """Read the topic, then serve."""
        listening = socket.create_server((host, port), family=_family(host))
        try:
            async with Admin(self._bootstrap, security=self._security) as admin:
                cluster_id = (await admin.describe_cluster()).cluster_id
            await self._log.open()
            await self._runtime.load(0)
            registry = Registry(self._ask, self._parser)
            about = About(cluster_id or "", __version__)
            self._server = HttpServer(routes_of(registry, _anybody, about), Limits(), told=refusal)
            await self._server.start([listening])
        except BaseException:
            listening.close()
            raise
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{listening.getsockname()[1]}"

    async def taken_over(self) -> None:
        """Wait until another registry writes the topic."""
        await self._log.lost.wait()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()
        await self._runtime.close()
        await self._log.close()
        await self._parser.close()

    async def _ask(self, request: Request) -> Response:
        try:
            return await self._runtime.submit(0, request)
        except CoordinatorError as error:
            if self._log.lost.is_set():
                raise RegistryError(Code.NO_LEADER, TAKEN_OVER) from error
            # Lost by a failed write: it is being read again. If that failed, try once more.
            if not self._runtime.is_hosted(0):
                await self._runtime.load(0)
            raise RegistryError(
                Code.STORE, "the registry's topic could not be written; ask again"
            ) from error


async def _anybody(_: HttpRequest) -> Anybody:
    return Anybody()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


async def run(
    bootstrap: str,
    topic: str,
    security: Security,
    address: tuple[str, int],
    on_ready: Callable[[str], None],
) -> bool:
    """Serve until SIGTERM or SIGINT; False if another registry has taken over."""
    standalone = Standalone(bootstrap, topic, security)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await standalone.start(*address)
        on_ready(standalone.url)
        ends = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(standalone.taken_over())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        return stop.is_set()
    finally:
        await standalone.close()

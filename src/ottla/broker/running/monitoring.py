"""What the metrics listener serves: `/metrics`, `/healthz` and `/readyz`.

- `/metrics`: the node is read on the event loop, in slices; the text is made by a worker.
- `/healthz`: 200 while the event loop turns.
- `/readyz`: 200 if all that clients need is there; else 503 and the reasons, which name no topic,
  group or user.

`/metrics` counts towards `request_percentage`; the other two do not, and are always answered.
With a token file only `/metrics` asks for the token: who restarts a node needs no secret.
"""

from __future__ import annotations

import asyncio
import shutil
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.access.permissions import ROUTES
from ottla.broker.running.metrics import NodeCollector, Surroundings
from ottla.http.callers import with_token
from ottla.http.messages import KIB, Answer, Limits
from ottla.http.routes import Routes
from ottla.http.server import HttpServer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from socket import socket

    from prometheus_client.core import Metric

    from ottla.broker.running.node import Node
    from ottla.http.messages import Request

LIMITS: Final = Limits(
    head_bytes=8 * KIB, body_bytes=0, connections=32, request_seconds=5.0, idle_seconds=60.0
)
"""A scraper asks once in 15 or 30 seconds and keeps its connection."""
TIMER_SECONDS: Final = 0.01
"""Of the timer that tells how late the event loop is."""
MIN_FREE_BYTES: Final = 1024 * 1024 * KIB
"""Less than this on the disk, and whoever watches should act before it is full."""


class Monitoring:
    """The routes of one node."""

    def __init__(
        self,
        node: Node,
        token: str | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._node = node
        self.address = ("", 0)
        """Host and port, once it is started."""
        metrics = self._metered if token is None else with_token(token, self._metered)
        routes = Routes(
            {
                "GET /metrics": metrics,
                "GET /healthz": self._health,
                "GET /readyz": self._readiness,
            }
        )
        unknown = set(routes.names) - ROUTES.keys()
        if unknown:
            raise ValueError(f"routes without a row in the permissions: {unknown}")
        self._server = HttpServer(routes, LIMITS, tls)

    @classmethod
    def of(cls, node: Node) -> Monitoring:
        """As the node is configured. Reads files, and imports what the first scrape will need."""
        import prometheus_client  # noqa: F401

        listener = node.settings.metrics_listener
        token = node.config.parsed("ottla.metrics.token")
        tls = None
        if listener is not None and listener.has_tls:
            assert node.services.certificates is not None
            tls = partial(node.services.certificates.context, listener.name)
        return cls(node, None if token is None else str(token), tls)

    async def start(self, sockets: Sequence[socket]) -> None:
        self.address = sockets[0].getsockname()[:2]
        await self._server.start(sockets)

    async def close(self) -> None:
        await self._server.close()

    async def _metered(self, request: Request) -> Answer:
        throttling = self._node.services.throttling.made
        if throttling is None or not throttling.active:
            return await self._metrics(request)
        # A token names no user.
        return await throttling.answer("ANONYMOUS", request, self._metrics)

    async def _metrics(self, _: Request) -> Answer:
        families = []
        for family in NodeCollector(self._node, await self._look_around()).collect():
            families.append(family)
            await asyncio.sleep(0)  # a family of 20,000 samples takes 20 ms
        text, kind = await self._node.workers.run(lambda: _exposition(families))
        return Answer(200, text, kind)

    async def _look_around(self) -> Surroundings:
        loop = asyncio.get_running_loop()
        due = loop.time() + TIMER_SECONDS
        await asyncio.sleep(TIMER_SECONDS)
        late = max(0.0, loop.time() - due)
        return Surroundings(late, await self._free_bytes())

    async def _free_bytes(self) -> int:
        usage = await self._node.workers.run(lambda: shutil.disk_usage(self._node.data.path))
        return usage.free

    async def _health(self, _: Request) -> Answer:
        return Answer.json(200, {"alive": True})

    async def _readiness(self, _: Request) -> Answer:
        reasons = list(self._reasons())
        free = await self._free_bytes()
        if free < MIN_FREE_BYTES:
            reasons.append(f"{free >> 20} MiB are free on the disk")
        return Answer.json(503 if reasons else 200, {"ready": not reasons, "reasons": reasons})

    def _reasons(self) -> Iterator[str]:
        node = self._node
        if offline := sum(not each.log.online for each in node.partitions):
            yield f"{offline} logs are offline after a disk error"
        if loading := node.services.loading:
            yield f"{loading} coordinators are being loaded"
        tiering = node.services.tiering.made
        if tiering is not None and tiering.manager is None:
            yield "the catalogue of the remote tier is being loaded"


class _Collected:
    """What prometheus-client asks for, read already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _exposition(families: Sequence[Metric]) -> tuple[bytes, str]:
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collected(families))
    return generate_latest(registry), CONTENT_TYPE_LATEST

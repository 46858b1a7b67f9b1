"""`/metrics`, `/healthz` and `/readyz` of several nodes, served by their supervisor.

One thread with an event loop of its own asks each node over a Unix socket and joins the answers:
every sample gets the label `node`. A node that does not answer is missing in `/metrics`, where
`ottla_node_up` says so, and makes `/readyz` a 503.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.access.certificates import Certificates
from ottla.broker.errors import CannotListen
from ottla.broker.running.binding import bound
from ottla.broker.running.monitoring import LIMITS
from ottla.broker.workers import Workers
from ottla.clock import SYSTEM
from ottla.http.callers import with_token
from ottla.http.messages import Answer
from ottla.http.routes import Routes
from ottla.http.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ottla.broker.access.listeners import Listener
    from ottla.http.messages import Request
    from ottla.metadata.config.broker import BrokerConfig

# Below the 10 s after which Prometheus gives up.
ASK_SECONDS: Final = 5.0
# A certificate that is replaced is taken without a signal, too.
LOOK_SECONDS: Final = 60.0
KIND: Final = "text/plain; version=0.0.4; charset=utf-8"
_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (.*)$")
_UP: Final = ("ottla_node_up", "gauge", "Whether the node answers.")


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("node", timeout=ASK_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ASK_SECONDS)
        self.sock.connect(str(self._path))


def ask(path: Path, route: str) -> bytes | None:
    """The body of a node's answer, or None if it gives none. Blocks."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", route, headers={"Connection": "close"})
        return connection.getresponse().read()
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def joined(texts: Mapping[int, str | None]) -> str:
    """The samples of all nodes, family by family, each with its node."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    for node_id, text in texts.items():
        for name, head, samples in _families(text or ""):
            kept = families.setdefault(name, (head, []))[1]
            kept += [_labelled(sample, node_id) for sample in samples]
    name, kind, says = _UP
    lines = [f"# HELP {name} {says}", f"# TYPE {name} {kind}"]
    lines += [f'{name}{{node="{node}"}} {float(text is not None)}' for node, text in texts.items()]
    for head, samples in families.values():
        lines += [*head, *samples]
    return "\n".join(lines) + "\n"


def _families(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    name, head, samples = "", list[str](), list[str]()
    for each in text.splitlines():
        if each.startswith("# HELP "):
            if name:
                yield name, head, samples
            name, head, samples = each.split(" ", 3)[2], [each], []
        elif each.startswith("#"):
            head.append(each)
        elif each:
            samples.append(each)
    if name:
        yield name, head, samples


def _labelled(sample: str, node_id: int) -> str:
    found = _SAMPLE.match(sample)
    if found is None:
        return sample
    name, labels, value = found.groups()
    own = f'node="{node_id}"'
    return f"{name}{{{own},{labels}}} {value}" if labels else f"{name}{{{own}}} {value}"


class JointMonitoring:
    """`started` gives one that serves; `close` ends it."""

    def __init__(self, config: BrokerConfig, listener: Listener, paths: Mapping[int, Path]) -> None:
        self._config = config
        self._listener = listener
        self._paths = paths
        self._ready = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="ottla-metrics", daemon=True)

    @classmethod
    def started(
        cls, config: BrokerConfig, listener: Listener, paths: Mapping[int, Path]
    ) -> JointMonitoring:
        """Raises CannotListen or InvalidConfig."""
        new = cls(config, listener, paths)
        new._thread.start()
        new._ready.wait()
        if new._failure is not None:
            raise new._failure
        return new

    def look_again(self) -> None:
        """Certificates may have been replaced."""
        self._loop.call_soon_threadsafe(self._look.set)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    # -- in the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001  # raised again by `started`
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop, self._look = asyncio.Event(), asyncio.Event()
        workers = Workers()
        certificates = Certificates(self._config, [self._listener], workers, SYSTEM)
        tls = partial(certificates.context, self._listener.name) if self._listener.has_tls else None
        server = HttpServer(self._routes(), LIMITS, tls)
        try:
            await server.start(await bound(self._listener.host, self._listener.port))
        except OSError as error:
            where = f"metrics at {self._listener.host}:{self._listener.port}"
            raise CannotListen.because(error, where, "--metrics-port 0") from error
        looking = self._loop.create_task(self._renew(certificates))
        self._ready.set()
        await self._stop.wait()
        looking.cancel()
        await server.close()
        await workers.ended()

    async def _renew(self, certificates: Certificates) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()
            await certificates.reload()

    def _routes(self) -> Routes:
        told = self._config.parsed("ottla.metrics.token")
        metrics = self._metrics if told is None else with_token(str(told), self._metrics)
        return Routes(
            {"GET /metrics": metrics, "GET /healthz": self._health, "GET /readyz": self._readiness}
        )

    async def _ask(self, route: str) -> dict[int, bytes | None]:
        asked = [asyncio.to_thread(ask, path, route) for path in self._paths.values()]
        return dict(zip(self._paths, await asyncio.gather(*asked), strict=True))

    async def _metrics(self, _: Request) -> Answer:
        bodies = await self._ask("/metrics")
        texts = {node: None if body is None else body.decode() for node, body in bodies.items()}
        text = await asyncio.to_thread(joined, texts)
        return Answer(200, text.encode(), KIND)

    async def _health(self, _: Request) -> Answer:
        return Answer.json(200, {"alive": True})

    async def _readiness(self, _: Request) -> Answer:
        reasons: list[str] = []
        for node, body in (await self._ask("/readyz")).items():
            answer: dict[str, Any] = {} if body is None else json.loads(body)
            said = answer.get("reasons", ["it does not answer"])
            reasons += [f"node {node}: {reason}" for reason in said]
        return Answer.json(503 if reasons else 200, {"ready": not reasons, "reasons": reasons})

"""Metrics of the worker: what it counts, and the little server that shows them.

Lag is that of the last round of a table: a scrape asks nobody.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from prometheus_client.core import Metric

    from ottla.clock import Clock
    from ottla.http.messages import Request
    from ottla.tables.format import Offsets, TableState

HERE: Final = "127.0.0.1"


@dataclass
class WorkerMetrics:
    """Of one worker, by topic."""

    clock: Clock = SYSTEM
    lag: dict[str, int] = field(default_factory=dict)
    changed_ms: dict[str, int] = field(default_factory=dict)
    holes: dict[str, int] = field(default_factory=dict)
    small_files: dict[str, int] = field(default_factory=dict)
    invalid: Counter[str] = field(default_factory=Counter)
    commits: Counter[str] = field(default_factory=Counter)
    _ends: dict[str, Offsets] = field(default_factory=dict)

    def loaded(self, topic: str, state: TableState, ends: Offsets) -> None:
        """A round begins: the table, and where its log ends."""
        self._ends[topic] = ends
        self._state(topic, state)

    def committed(self, topic: str, state: TableState) -> None:
        """A commit went through."""
        self.commits[topic] += 1
        self._state(topic, state)

    def _state(self, topic: str, state: TableState) -> None:
        ends = self._ends.get(topic, {})
        self.lag[topic] = sum(max(0, end - state.next.get(one, end)) for one, end in ends.items())
        self.changed_ms[topic] = state.changed_ms
        self.holes[topic] = sum(one.end - one.start for one in state.holes)

    def collect(self) -> Iterator[Metric]:
        """As Prometheus' families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now_ms = self.clock.wall_ms()
        late = {
            topic: max(0, now_ms - self.changed_ms[topic]) / 1000 if lag else 0.0
            for topic, lag in self.lag.items()
        }
        changed = {topic: at / 1000 for topic, at in self.changed_ms.items()}
        for name, text, values in (
            ("lag_records", "Records that the table had not taken at the last look.", self.lag),
            ("lag_seconds", "Time since the table last changed while records wait, or 0.", late),
            ("last_commit_seconds", "When the table last changed, as Unix time.", changed),
            ("small_files", "Data files below 8 MiB.", self.small_files),
        ):
            gauge = GaugeMetricFamily(f"ottla_table_{name}", text, labels=["topic"])
            for topic, value in values.items():
                gauge.add_metric([topic], value)
            yield gauge
        for name, text, counts in (
            ("commits", "Commits of rows.", self.commits),
            ("invalid", "Records that did not fit their schema.", self.invalid),
            ("holes", "Records that were gone before they were taken.", self.holes),
        ):
            counter = CounterMetricFamily(f"ottla_table_{name}", text, labels=["topic"])
            for topic, count in counts.items():
                counter.add_metric([topic], count)
            yield counter


class _Collected:
    """What prometheus-client asks for, read already: it does so in a thread."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


@asynccontextmanager
async def serve_metrics(metrics: WorkerMetrics, port: int | None) -> AsyncIterator[int | None]:
    """Serve them on a port of this machine, 0 for a free one; the port. None: serve nothing."""
    if port is None:
        yield None
        return
    # Imported before the first scrape.
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    from ottla.http.messages import Answer, Limits
    from ottla.http.routes import Routes
    from ottla.http.server import HttpServer

    async def shown(_: Request) -> Answer:
        registry = CollectorRegistry()
        registry.register(_Collected(list(metrics.collect())))
        return Answer(200, await asyncio.to_thread(generate_latest, registry), CONTENT_TYPE_LATEST)

    async def alive(_: Request) -> Answer:
        return Answer.json(200, {"alive": True})

    routes = Routes({"GET /metrics": shown, "GET /healthz": alive})
    server = HttpServer(routes, Limits(body_bytes=0, connections=32))
    listening = socket.create_server((HERE, port))
    await server.start([listening])
    try:
        yield listening.getsockname()[1]
    finally:
        await server.close()

"""Prometheus metrics of a run, read from the board on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.spark.pipelines.errors import EnvironmentProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from ottla.spark.pipelines.board import Board


class BoardCollector:
    """One metric family per value of a flow."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        rows = CounterMetricFamily("ottla_flow_rows", "Rows read.", labels=["flow"])
        batches = CounterMetricFamily("ottla_flow_batches", "Batches done.", labels=["flow"])
        restarts = CounterMetricFamily("ottla_flow_restarts", "Restarts.", labels=["flow"])
        lost = CounterMetricFamily("ottla_flow_lost_locks", "Locks lost.", labels=["flow"])
        up = GaugeMetricFamily("ottla_flow_running", "1 while it runs.", labels=["flow"])
        lag = GaugeMetricFamily("ottla_flow_lag", "Records not read yet.", labels=["flow"])
        parts = ["flow", "part"]
        took = GaugeMetricFamily("ottla_flow_batch_seconds", "Last batch by part.", labels=parts)
        for view in self._board.views():
            name = [view.name]
            rows.add_metric(name, view.rows)
            batches.add_metric(name, view.batches)
            restarts.add_metric(name, view.restarts)
            lost.add_metric(name, view.locks_lost)
            up.add_metric(name, float(view.state == "running"))
            progress = view.progress
            if progress is None:
                continue
            if progress.lag is not None:
                lag.add_metric(name, progress.lag)
            for part in ("plan", "run", "log", "total"):
                took.add_metric([view.name, part], getattr(progress, f"{part}_ms") / 1000)
        yield from (rows, batches, restarts, lost, up, lag, took)


def serve_metrics(board: Board, port: int) -> None:
    """Serve the metrics on this port until the process ends."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise EnvironmentProblem("metrics need a package: pip install 'ottla[metrics]'") from None
    registry = CollectorRegistry()
    registry.register(BoardCollector(board))
    try:
        start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot serve metrics on port {port} ({error.strerror}): choose another port"
        ) from error

"""Prometheus metrics of a node, and the small HTTP server that shows them.

Everything is read from the node on request, so serving requests costs no extra counting.
prometheus-client is imported only when metrics are requested.
"""

from __future__ import annotations

import asyncio
import resource
from typing import TYPE_CHECKING, Final

from ottla.wire.schema import API_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from ottla.broker.running.node import Node

REQUEST_TIMEOUT_SECONDS: Final = 5.0
MAX_REQUEST_LINE_BYTES: Final = 8192  # what StreamReader may hold of a request we do not know


class NodeCollector:
    """What `/metrics` shows; one family per method."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        node = self._node
        requests = CounterMetricFamily("ottla_requests", "Requests served, by API.", labels=["api"])
        for api_key, count in node.dispatcher.requests.items():
            requests.add_metric([API_NAMES[api_key]], count)
        yield requests
        yield GaugeMetricFamily(
            "ottla_connections", "Open connections.", len(node.dispatcher.connections)
        )
        yield GaugeMetricFamily("ottla_topics", "Number of topics.", len(node.image.topics_by_name))
        yield GaugeMetricFamily(
            "ottla_fetch_sessions", "Open fetch sessions.", len(node.fetch_sessions)
        )
        yield CounterMetricFamily(
            "ottla_sync_rounds", "Rounds of group sync.", node.durability.rounds
        )
        end = GaugeMetricFamily(
            "ottla_log_end_offset",
            "Log end offset: the next offset to be written.",
            labels=["topic", "partition"],
        )
        size = GaugeMetricFamily(
            "ottla_log_size_bytes", "Size of the local log in bytes.", labels=["topic", "partition"]
        )
        online = GaugeMetricFamily(
            "ottla_log_online",
            "1 if the log is online, 0 after a disk error.",
            labels=["topic", "partition"],
        )
        for partition in node.partitions:
            labels = [partition.topic, str(partition.index)]
            end.add_metric(labels, partition.log.log_end_offset)
            size.add_metric(labels, partition.log.size_bytes)
            online.add_metric(labels, partition.log.online)
        yield end
        yield size
        yield online
        yield from self._journal()
        yield from self._cleaner()
        yield from self._transactions()
        yield from self._share_partitions()
        if (tiering := node.services.tiering.made) is not None:
            from ottla.broker.tiering import metrics as tiering_metrics

            yield from tiering_metrics.collect(tiering)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield CounterMetricFamily(
            "ottla_cpu_seconds", "Processor time of the process.", usage.ru_utime + usage.ru_stime
        )

    def _journal(self) -> Iterator[Metric]:
        """Nothing where no journal is kept."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        journal = self._node.journal
        if journal is None:
            return
        counts = journal.counts
        yield HistogramMetricFamily(
            "ottla_journal_write_seconds",
            "Durable writes to the journal and how long they took.",
            counts.write_buckets(),
            counts.write_seconds,
        )
        yield CounterMetricFamily(
            "ottla_journal_written_bytes", "Bytes written to the journal.", counts.written
        )
        yield CounterMetricFamily(
            "ottla_journal_direct_partitions",
            "Syncs of single logs, because they had much to write or the journal had no room.",
            counts.direct,
        )
        yield CounterMetricFamily(
            "ottla_journal_checkpoints",
            "Files of the journal whose logs were synced.",
            counts.checkpoints,
        )
        yield CounterMetricFamily(
            "ottla_journal_checkpoint_seconds",
            "Time it took to sync their logs.",
            counts.checkpoint_seconds,
        )
        yield GaugeMetricFamily(
            "ottla_journal_free_files", "Files of the journal that are free.", journal.free_files
        )
        yield GaugeMetricFamily(
            "ottla_journal_off",
            "1 if a write to the journal failed: it is off until the broker restarts.",
            journal.is_off,
        )

    def _cleaner(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        cleaner = self._node.services.cleaner.made
        yield GaugeMetricFamily(
            "ottla_log_cleaner_uncleanable",
            "Open logs that cannot be compacted; see the broker's log.",
            cleaner.uncleanable if cleaner is not None else 0,
        )
        yield CounterMetricFamily(
            "ottla_log_cleaner_failures",
            "Compactions that failed.",
            cleaner.failures if cleaner is not None else 0,
        )

    def _transactions(self) -> Iterator[Metric]:
        """Of the coordinators here."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        states = GaugeMetricFamily(
            "ottla_transactional_ids", "Transactional ids by state.", labels=["state"]
        )
        ending = timed_out = 0
        # As with share groups: looking does not load anything.
        if (transactions := self._node.services.transactions.made) is not None:
            for state, count in transactions.states().items():
                states.add_metric([state], count)
            ending = transactions.ending
            timed_out = transactions.timed_out
        yield states
        yield GaugeMetricFamily(
            "ottla_transactions_ending", "Transactions whose markers are not all written.", ending
        )
        yield CounterMetricFamily(
            "ottla_transactions_timed_out", "Transactions aborted by their timeout.", timed_out
        )

    def _share_partitions(self) -> Iterator[Metric]:
        """The state of the share-partitions led here, which no request shows."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        names = ["group", "topic", "partition"]
        start = GaugeMetricFamily(
            "ottla_share_start_offset",
            "Start offset: all records below it are settled.",
            labels=names,
        )
        end = GaugeMetricFamily(
            "ottla_share_end_offset",
            "End of the window: later records were not delivered yet.",
            labels=names,
        )
        held = GaugeMetricFamily(
            "ottla_share_in_flight_records",
            "Records that members hold at the moment.",
            labels=names,
        )
        deliveries = CounterMetricFamily(
            "ottla_share_delivered_records", "Records delivered to members.", labels=names
        )
        # Not made by looking: where there are no share groups there is nothing to load.
        for led in self._node.services.shares.made or ():
            if led.machine is not None:
                labels = [led.key.group_id, led.hosted.topic, str(led.key.partition)]
                start.add_metric(labels, led.machine.start_offset)
                end.add_metric(labels, led.machine.end_offset)
                held.add_metric(labels, led.machine.in_flight)
                deliveries.add_metric(labels, led.deliveries)
        yield from (start, end, held, deliveries)
        letters = CounterMetricFamily(
            "ottla_share_dead_letters", "Dead letters written.", labels=["group"]
        )
        lost = CounterMetricFamily(
            "ottla_share_dead_letters_lost",
            "Dead letters that could not be written; see the log.",
            labels=["group"],
        )
        if (dead_letters := self._node.services.dead_letters.made) is not None:
            for group, count in dead_letters.written.items():
                letters.add_metric([group], count)
            for group, count in dead_letters.lost.items():
                lost.add_metric([group], count)
        yield from (letters, lost)


async def serve_metrics(node: Node, host: str, port: int) -> asyncio.Server:
    """Listen for scrapes; only GET /metrics is answered with anything but 404."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(NodeCollector(node))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.wait_for(_answer(registry, reader, writer), REQUEST_TIMEOUT_SECONDS)
        except (TimeoutError, ConnectionError, asyncio.LimitOverrunError, ValueError):
            pass  # a scraper that goes away or talks nonsense is its own problem
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port, limit=MAX_REQUEST_LINE_BYTES)


async def _answer(
    registry: CollectorRegistry, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    request_line = await reader.readline()
    while (await reader.readline()).strip():
        pass
    if request_line.split()[:2] == [b"GET", b"/metrics"]:
        status, kind, body = "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)
    else:
        status, kind, body = "404 Not Found", "text/plain", b"metrics are at /metrics\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
    await writer.drain()

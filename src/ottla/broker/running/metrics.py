"""Prometheus metrics of a node.

Everything is read from the node on request, so serving requests costs no extra counting.
prometheus-client is imported only when metrics are requested.
"""

from __future__ import annotations

import resource
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.sealed import shared
from ottla.wire.schema import API_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.running.node import Node

MAX_SERIES: Final = 20_000
"""Of partitions. Beyond it they are summed up by topic: a scrape of more takes the collecting
system, and this one, longer than it is worth."""
FAMILIES_OF_PARTITIONS: Final = 3
# Looked up, not imported: the package's front page names every room, and rooms import down only.
SOFTWARE_VERSION: Final[str] = import_module("ottla").__version__


class Surroundings(NamedTuple):
    """What has to be waited for before a scrape."""

    loop_lag: float
    free_bytes: int


class NodeCollector:
    """What `/metrics` shows; one family per method."""

    def __init__(self, node: Node, around: Surroundings | None = None) -> None:
        self._node = node
        self._around = around

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
        yield CounterMetricFamily(
            "ottla_cold_reads", "Reads for consumers that waited for the disk.", node.workers.reads
        )
        yield GaugeMetricFamily(
            "ottla_log_maps",
            "Mapped parts of log files, of 64 MiB at most; they count as memory of the process.",
            len(shared().maps),
        )
        yield from self._process()
        yield from self._logs()
        yield from self._journal()
        yield from self._cleaner()
        yield from self._transactions()
        yield from self._groups()
        yield from self._share_partitions()
        yield from self._door()
        yield from self._certificates()
        yield from self._registry()
        if node.leadership is not None:
            from ottla.broker.membership import metrics as cluster_metrics

            yield from cluster_metrics.collect(node.leadership, node.image, node.node_id)
        if (tiering := node.services.tiering.made) is not None:
            from ottla.broker.tiering import metrics as tiering_metrics

            yield from tiering_metrics.collect(tiering)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield CounterMetricFamily(
            "ottla_cpu_seconds", "Processor time of the process.", usage.ru_utime + usage.ru_stime
        )

    def _process(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        node = self._node
        build = GaugeMetricFamily(
            "ottla_build_info", "1; the version is a label.", labels=["version"]
        )
        build.add_metric([SOFTWARE_VERSION], 1)
        yield build
        yield GaugeMetricFamily(
            "ottla_start_time_seconds", "When the node started, since the epoch.", node.started
        )
        if self._around is not None:
            yield GaugeMetricFamily(
                "ottla_loop_lag_seconds",
                "How late a timer of the event loop was, at this scrape.",
                self._around.loop_lag,
            )
            yield GaugeMetricFamily(
                "ottla_disk_free_bytes",
                "Free bytes on the disk of the data directory.",
                self._around.free_bytes,
            )

    def _door(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        door = self._node.services.door
        yield CounterMetricFamily(
            "ottla_refused_connections",
            "Connections that were closed at once, for max.connections and the like.",
            self._node.dispatcher.connections.refused,
        )
        yield CounterMetricFamily(
            "ottla_failed_authentications",
            "Clients that could not log in.",
            door.failed_authentications if door else 0,
        )
        yield CounterMetricFamily(
            "ottla_expired_sessions",
            "Connections closed because the client did not authenticate again in time.",
            door.expired_sessions if door else 0,
        )
        strangers = GaugeMetricFamily(
            "ottla_unauthenticated_connections",
            "Connections that wait for a slot, or that authenticate.",
            labels=["stage"],
        )
        waiting, authenticating = door.strangers if door else (0, 0)
        strangers.add_metric(["waiting"], waiting)
        strangers.add_metric(["authenticating"], authenticating)
        yield strangers

    def _registry(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        registry = self._node.registry
        requests = CounterMetricFamily(
            "ottla_registry_requests",
            "Requests of the schema registry, by their status.",
            labels=["status"],
        )
        for status, count in sorted(() if registry is None else registry.answers.items()):
            requests.add_metric([str(status)], count)
        yield requests
        coordinator = self._node.services.registry.made
        state = None if coordinator is None else coordinator.state
        yield GaugeMetricFamily(
            "ottla_registry_subjects",
            "Subjects of the schema registry; 0 on nodes that do not lead it.",
            0 if state is None else len(state.subjects),
        )

    def _certificates(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        left = GaugeMetricFamily(
            "ottla_tls_certificate_expiry_seconds",
            "Until the certificate of a listener expires; negative after that.",
            labels=["listener"],
        )
        certificates = self._node.services.certificates
        for listener, seconds in (certificates.seconds_left() if certificates else {}).items():
            left.add_metric([listener], seconds)
        yield left
        yield CounterMetricFamily(
            "ottla_tls_reload_failures",
            "Replaced certificates that could not be taken; see the log.",
            certificates.failures if certificates else 0,
        )

    def _journal(self) -> Iterator[Metric]:
        """Nothing where no journal is kept."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        from ottla.broker.hosting.journal_counts import JournalCounts

        if not self._node.keeps_journal:
            return
        journal = self._node.journal
        counts = JournalCounts() if journal is None else journal.counts
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
            "ottla_journal_free_files",
            "Files of the journal that are free.",
            0 if journal is None else journal.free_files,
        )
        yield GaugeMetricFamily(
            "ottla_journal_off",
            "1 if a write to the journal failed: it is off until the broker restarts.",
            journal is not None and journal.is_off,
        )

    def _logs(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        partitions = list(self._node.partitions)
        is_cut = len(partitions) * FAMILIES_OF_PARTITIONS > MAX_SERIES
        names = ["topic"] if is_cut else ["topic", "partition"]
        end = GaugeMetricFamily(
            "ottla_log_end_offset", "Log end offset: the next offset to be written.", labels=names
        )
        size = GaugeMetricFamily(
            "ottla_log_size_bytes", "Size of the local log in bytes.", labels=names
        )
        online = GaugeMetricFamily(
            "ottla_log_online", "1 if the log is online, 0 after a disk error.", labels=names
        )
        rows = _sums_by_topic(partitions) if is_cut else _rows(partitions)
        for labels, end_offset, size_bytes, is_online in rows:
            end.add_metric(labels, end_offset)
            size.add_metric(labels, size_bytes)
            online.add_metric(labels, is_online)
        yield from (end, size, online)
        yield GaugeMetricFamily(
            "ottla_metrics_cut",
            "1 if there are so many partitions that their metrics are sums by topic.",
            is_cut,
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
        longest = 0.0
        # As with share groups: looking does not load anything.
        if (transactions := self._node.services.transactions.made) is not None:
            for state, count in transactions.states().items():
                states.add_metric([state], count)
            ending = transactions.ending
            timed_out = transactions.timed_out
            longest = transactions.longest_open(self._node.clock.wall_ms())
        yield states
        yield GaugeMetricFamily(
            "ottla_transactions_ending", "Transactions whose markers are not all written.", ending
        )
        yield CounterMetricFamily(
            "ottla_transactions_timed_out", "Transactions aborted by their timeout.", timed_out
        )
        yield GaugeMetricFamily(
            "ottla_transaction_open_seconds_max", "Age of the oldest open transaction.", longest
        )

    def _groups(self) -> Iterator[Metric]:
        """Of the coordinators here."""
        from prometheus_client.core import GaugeMetricFamily

        members = GaugeMetricFamily(
            "ottla_group_members",
            f"Members of a group; of {MAX_SERIES:,} groups at most.",
            labels=["group", "type", "state"],
        )
        if (groups := self._node.services.groups.made) is not None:
            for group, kind, state, count in islice(groups.memberships(), MAX_SERIES):
                members.add_metric([group, kind, state], count)
        yield members

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
        available = GaugeMetricFamily(
            "ottla_share_available_records",
            "Records of the window that can be delivered again.",
            labels=names,
        )
        stalled = GaugeMetricFamily(
            "ottla_share_window_stalled_seconds",
            "For how long the start has not moved while the window has records.",
            labels=names,
        )
        now = self._node.clock.monotonic_ms()
        # Not made by looking: where there are no share groups there is nothing to load.
        for led in self._node.services.shares.made or ():
            if led.machine is not None:
                labels = [led.key.group_id, led.hosted.topic, str(led.key.partition)]
                start.add_metric(labels, led.machine.start_offset)
                end.add_metric(labels, led.machine.end_offset)
                held.add_metric(labels, led.machine.in_flight)
                deliveries.add_metric(labels, led.deliveries)
                available.add_metric(labels, led.machine.available)
                is_empty = led.machine.start_offset == led.machine.end_offset
                stalled.add_metric(labels, 0 if is_empty else (now - led.moved_ms) / 1000)
        yield from (start, end, held, deliveries, available, stalled)
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


def _rows(partitions: list[HostedPartition]) -> Iterator[tuple[list[str], int, int, int]]:
    for each in partitions:
        log = each.log
        yield [each.topic, str(each.index)], log.log_end_offset, log.size_bytes, log.online


def _sums_by_topic(partitions: list[HostedPartition]) -> Iterator[tuple[list[str], int, int, int]]:
    """A topic is online if all of its logs are."""
    found: dict[str, list[int]] = {}
    for each in partitions:
        sums = found.setdefault(each.topic, [0, 0, 1])
        sums[0] += each.log.log_end_offset
        sums[1] += each.log.size_bytes
        sums[2] &= each.log.online
    for topic, (end, size, online) in found.items():
        yield [topic], end, size, online

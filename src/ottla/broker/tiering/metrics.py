"""What `/metrics` shows of tiered storage; `ottla tier status` reads its errors there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.log.errors import LogError
from ottla.tier.catalogue.segments import SegmentState
from ottla.tier.errors import NotReady

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.tiering.partition import TieredPartition
    from ottla.broker.tiering.tiering import Tiering

COUNTED: Final = {
    "copy_requests": "Segments whose copy began.",
    "copy_bytes": "Bytes copied to the store.",
    "copy_errors": "Rounds of copies that failed.",
    "copy_throttled": "Waits for the copy quota.",
    "fetch_requests": "Reads from the store.",
    "fetch_bytes": "Bytes read for clients.",
    "fetch_errors": "Reads that failed.",
    "fetch_throttled": "Reads put off by the fetch quota.",
    "fetch_refused": "Reads refused because too many were waiting.",
    "delete_requests": "Deletions of segments and partitions.",
    "delete_errors": "Deletions that failed.",
    "corrupt_remote_segments": "Reads that found damaged or missing objects.",
    "orphans_swept": "Unfinished copies that were removed.",
    "unknown_objects_deleted": "Objects of no known segment that were removed.",
}
"""By the names under which `Tiering.count` keeps them."""


def collect(tiering: Tiering) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for what, text in COUNTED.items():
        family = CounterMetricFamily(f"ottla_tier_{what}", text, labels=["topic"])
        for (counted, topic), number in tiering.counted.items():
            if counted == what:
                family.add_metric([topic], number)
        yield family
    yield from _partitions(tiering)
    yield from _copying(tiering)
    yield from _reading(tiering)
    yield from _catalogue(tiering)
    yield from _errors(tiering)


def _partitions(tiering: Tiering) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    names = ["topic", "partition"]
    families = {
        "copy_lag_segments": "Closed segments that are not copied yet.",
        "copy_lag_bytes": "Bytes of segments that are not copied yet.",
        "segments": "Segments in the remote tier that can be read.",
        "size_bytes": "Bytes of segments in the remote tier.",
        "delete_lag_segments": "Segments whose deletion has begun.",
    }
    found = {
        name: GaugeMetricFamily(f"ottla_tier_{name}", text, labels=names)
        for name, text in families.items()
    }
    for hosted in tiering.hosted:
        for name, value in _values(tiering, hosted).items():
            found[name].add_metric([hosted.topic, str(hosted.index)], value)
    yield from found.values()


def _values(tiering: Tiering, hosted: HostedPartition) -> dict[str, int]:
    """None of a partition that is not tiered, or not known yet."""
    try:
        one: TieredPartition = tiering.find(hosted)
        one.seed(hosted.log)
        segments = one.cache().segments.values()
    except (NotReady, LogError):
        return {}
    finished = [each for each in segments if each.state is SegmentState.COPY_SEGMENT_FINISHED]
    deleting = [each for each in segments if each.state is SegmentState.DELETE_SEGMENT_STARTED]
    lag_segments, lag_bytes = one.lag(hosted.log)
    return {
        "copy_lag_segments": lag_segments,
        "copy_lag_bytes": lag_bytes,
        "segments": len(finished),
        "size_bytes": sum(each.segment_size for each in finished),
        "delete_lag_segments": len(deleting),
    }


def _copying(tiering: Tiering) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    yield GaugeMetricFamily(
        "ottla_tier_copy_pace_bytes_per_second",
        "Current speed limit of copies; infinite if clients are idle.",
        tiering.pacer.pace.rate,
    )


def _reading(tiering: Tiering) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    pool, indexes = tiering.reads.pool, tiering.indexes
    idle = max(0, tiering.setting("remote.log.reader.threads") - pool.active)
    yield GaugeMetricFamily(
        "ottla_tier_reader_queue", "Remote reads that wait for a reader.", pool.waiting
    )
    yield GaugeMetricFamily("ottla_tier_readers_idle", "Idle remote readers.", idle)
    yield GaugeMetricFamily(
        "ottla_tier_result_cache_bytes",
        "Bytes of results kept for a retry.",
        tiering.reads.results.size,
    )
    yield CounterMetricFamily(
        "ottla_tier_index_cache_hits", "Indexes found in the cache.", indexes.hits
    )
    yield CounterMetricFamily(
        "ottla_tier_index_cache_misses", "Indexes downloaded.", indexes.misses
    )
    yield CounterMetricFamily(
        "ottla_tier_index_rebuilds", "Damaged indexes rebuilt.", indexes.rebuilt
    )
    yield GaugeMetricFamily(
        "ottla_tier_index_cache_bytes", "Size of the index cache on disk.", indexes.size
    )


def _catalogue(tiering: Tiering) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    manager = tiering.manager
    yield GaugeMetricFamily(
        "ottla_tier_catalogue_loaded", "1 when the metadata topic is read.", manager is not None
    )
    if manager is None:
        return
    lag = GaugeMetricFamily(
        "ottla_tier_catalogue_lag",
        "Events still to be read before the catalogue can answer; -1: unknown.",
        labels=["metadata_partition"],
    )
    for number, events in manager.lags().items():
        lag.add_metric([str(number)], -1 if events is None else events)
    yield lag
    counted = manager.metrics
    for name, text, value in (
        ("events", "Events read.", counted.events),
        ("decode_errors", "Records that are not valid events.", counted.decode_errors),
        (
            "rejected_transitions",
            "Events that were invalid in the state of their segment.",
            counted.rejected_transitions,
        ),
        (
            "not_ready_answers",
            "Requests refused while the catalogue was loading.",
            counted.not_ready_answers,
        ),
    ):
        yield CounterMetricFamily(f"ottla_tier_catalogue_{name}", text, value)


def _errors(tiering: Tiering) -> Iterator[Metric]:
    """The current errors as labels."""
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(
        "ottla_tier_error", "1 for each current error.", labels=["where", "error"]
    )
    for where, error in tiering.errors().items():
        family.add_metric([where, error], 1)
    yield family

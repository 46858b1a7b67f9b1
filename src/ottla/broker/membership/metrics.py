"""Metrics of a node among others: who is there, who leads, and what moves."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.cluster.placement import draining, leaders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from ottla.broker.membership.leadership import Leadership
    from ottla.metadata.image import MetadataImage

ACTIVE, DRAINING, FENCED = STATES = ("active", "draining", "fenced")


def collect(leadership: Leadership, image: MetadataImage, node_id: int) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    away = draining(image)
    counts = Counter(
        FENCED if broker.fenced else DRAINING if broker.node_id in away else ACTIVE
        for broker in image.brokers.values()
    )
    nodes = GaugeMetricFamily("ottla_cluster_nodes", "Nodes by state.", labels=["state"])
    for state in STATES:
        nodes.add_metric([state], counts[state])
    yield nodes
    led = leaders(image)
    partitions = sum(len(topic.partitions) for topic in image.topics_by_name.values())
    yield GaugeMetricFamily(
        "ottla_cluster_leaderless_partitions",
        "Partitions of all nodes that have no leader.",
        partitions - led.total(),
    )
    yield GaugeMetricFamily(
        "ottla_cluster_led_partitions", "Partitions that this node leads.", led[node_id]
    )
    yield GaugeMetricFamily(
        "ottla_cluster_awaited_partitions",
        "Partitions that this node leads and whose logs it is looking for.",
        leadership.awaited,
    )
    yield CounterMetricFamily(
        "ottla_cluster_adopted_partitions",
        "Logs that this node got from other nodes, living or dead.",
        leadership.adopted,
    )
    yield CounterMetricFamily(
        "ottla_cluster_released_partitions",
        "Logs that this node gave to other nodes.",
        leadership.released,
    )

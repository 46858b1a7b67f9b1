"""Nodes that are gone, for a while or for good: those that remain lead their partitions.

The logs follow their leaders: the directory of a node that does not run is one of a dead sibling
(`ottla.broker.membership.handover`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.membership.places import node_paths
from ottla.cluster.layout import decide_retirement
from ottla.cluster.placement import decide_leaders, led_by
from ottla.log.directory import DataDirectory
from ottla.metadata.changes.nodes import SetBrokerFenced, UnregisterBroker
from ottla.metadata.changes.topics import SetLeaders

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ottla.metadata.changes.apply import Change
    from ottla.metadata.image import MetadataImage


def check_stopped(root: Path, wanted: int) -> None:
    """Raise DirectoryLocked if a node above `wanted` runs. Blocks."""
    for node_id, path in node_paths(root).items():
        if node_id > wanted:
            DataDirectory(path).close()


def retire_above(wanted: int) -> Callable[[MetadataImage], Sequence[Change]]:
    """The decision that takes nodes above `wanted` out of the cluster."""

    def decide(image: MetadataImage) -> Sequence[Change]:
        return retired(image, [node_id for node_id in image.brokers if node_id > wanted])

    return decide


def retired(image: MetadataImage, nodes: Sequence[int]) -> Sequence[Change]:
    """The changes that take nodes out of the cluster."""
    leaderships = decide_retirement(image, nodes)
    return [
        *([SetLeaders(leaderships)] if leaderships else []),
        *map(UnregisterBroker, nodes),
    ]


def replace_node(node_id: int) -> Callable[[MetadataImage], Sequence[Change]]:
    """The decision that gives the partitions of a dead node to the living ones."""

    def decide(image: MetadataImage) -> Sequence[Change]:
        broker = image.brokers.get(node_id)
        if broker is None:
            return []  # it never got as far as to register
        fence = SetBrokerFenced(node_id, broker.epoch, fenced=True)
        leaders = decide_leaders(fence.applied_to(image), led_by(image, node_id))
        return [fence, SetLeaders(tuple(one._replace(partition_epoch=None) for one in leaders))]

    return decide

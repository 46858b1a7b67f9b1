"""Fewer nodes than before: those that remain lead the partitions of the others.

The logs follow their leaders: the directory of a node that does not run is one of a dead sibling
(`ottla.broker.membership.handover`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.membership.places import node_paths
from ottla.cluster.layout import decide_retirement
from ottla.log.directory import DataDirectory
from ottla.metadata.changes.nodes import UnregisterBroker
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
        retired = [node_id for node_id in image.brokers if node_id > wanted]
        leaderships = decide_retirement(image, retired)
        return [
            *([SetLeaders(leaderships)] if leaderships else []),
            *map(UnregisterBroker, retired),
        ]

    return decide

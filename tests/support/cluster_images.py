"""Images of several nodes, for decisions about them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.cluster.placement import DRAIN_KEY
from ottla.metadata.changes.apply import apply, apply_all
from ottla.metadata.changes.configs import SetConfigs
from ottla.metadata.changes.nodes import RegisterBroker, SetBrokerFenced
from ottla.metadata.changes.topics import CreateTopic
from ottla.metadata.image import Endpoint, MetadataImage, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.metadata.changes.apply import Change

LISTENERS = {"PLAINTEXT": Endpoint("127.0.0.1", 9092)}


def topic_id(name: str) -> UUID:
    return UUID(int=1000 + int.from_bytes(name.encode()))


def image_of(
    nodes: Iterable[int],
    topics: Mapping[str, Sequence[tuple[int, ...]]] | None = None,
    *,
    fenced: Iterable[int] = (),
    draining: Iterable[int] = (),
) -> MetadataImage:
    """`topics` has the replicas of each partition. Nodes are fenced after topics were made."""
    changes: list[Change] = [RegisterBroker(node, LISTENERS) for node in nodes]
    changes += [
        CreateTopic(name, topic_id(name), tuple(replicas))
        for name, replicas in (topics or {}).items()
    ]
    changes += [drain(node) for node in draining]
    image = apply_all(MetadataImage(), changes)
    for node in fenced:
        image = fence(image, node)
    return image


def drain(node: int, value: str | None = "true") -> SetConfigs:
    return SetConfigs(ResourceType.BROKER, str(node), {DRAIN_KEY: value})


def fence(image: MetadataImage, node: int) -> MetadataImage:
    return apply(image, SetBrokerFenced(node, image.brokers[node].epoch, fenced=True))


def leaders_of(image: MetadataImage, topic: str) -> list[int]:
    return [partition.leader for partition in image.topics_by_name[topic].partitions]

"""The cluster at one version, as immutable values.

An image never changes; `ottla.metadata.changes.apply.apply` makes the next one and shares with it
everything the change left alone, so holding an old image is safe and adding one topic to
thousands copies two dictionaries of references. The mappings are plain dictionaries behind a
read-only type: they are not changed after construction.

`version` counts the changes folded in since the empty image. Two images of one store with the
same version are equal.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

from ottla.metadata.names import is_internal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.metadata.security.acls import Acl
    from ottla.metadata.security.quotas import ClientQuota
    from ottla.metadata.security.users import ScramCredential

NO_LEADER: Final = -1
ZERO_UUID: Final = UUID(int=0)
# Kafka keeps the ids 0 and 1 for itself ("no id" and its metadata topic).
RESERVED_TOPIC_IDS: Final = frozenset({ZERO_UUID, UUID(int=1)})
CLUSTER_DEFAULT: Final = ""
"""The broker resource whose overrides hold for every broker."""


class ResourceType(IntEnum):
    """What a set of configuration overrides belongs to; the numbers are the protocol's."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Leader(NamedTuple):
    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where clients reach one listener.

    `protocol` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; of the registry HTTP or HTTPS.
    """

    host: str
    port: int
    protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Broker:
    """One node. `epoch` is the version at which this incarnation registered."""

    node_id: int
    epoch: int
    listeners: Mapping[str, Endpoint]
    rack: str | None = None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """`leader_epoch` grows with every new leadership, `partition_epoch` with every change.

    `replicas` are the nodes that may lead it, the preferred one first. They are no copies: another
    node may lead it as well while these are down.
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions, in their order."""

    name: str
    topic_id: UUID
    partitions: tuple[Partition, ...]

    @property
    def internal(self) -> bool:
        return is_internal(self.name)


@dataclass(frozen=True)
class MetadataImage:
    """Everything the cluster agreed on. Config mappings hold overrides only, never defaults.

    `scram` has the credentials of each user by mechanism, `client_quotas` each entity with quotas
    by `ottla.metadata.security.quotas.entity_key`.
    """

    version: int = 0
    cluster_id: str = ""
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics_by_name: Mapping[str, Topic] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    acls: frozenset[Acl] = frozenset()
    scram: Mapping[str, Mapping[str, ScramCredential]] = field(default_factory=dict)
    client_quotas: Mapping[str, ClientQuota] = field(default_factory=dict)

    @property
    def alive(self) -> tuple[int, ...]:
        """The nodes that are registered and not fenced, by id."""
        return tuple(sorted(node for node, one in self.brokers.items() if not one.fenced))

    def topic(self, name: str) -> Topic | None:
        return self.topics_by_name.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics_by_name[name]

    def partition(self, topic: str, partition: int) -> Partition | None:
        found = self.topics_by_name.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def leader_of(self, topic: str, partition: int) -> Leader | None:
        """Node and epoch, or None when the partition does not exist or has no leader."""
        found = self.partition(topic, partition)
        if found is None or found.leader == NO_LEADER:
            return None
        return Leader(found.leader, found.leader_epoch)

    def configs_of(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """The overrides of one resource; empty when it has none."""
        return self.configs_by_type(resource_type).get(name, {})

    def configs_by_type(self, resource_type: ResourceType) -> Mapping[str, Mapping[str, str]]:
        match resource_type:
            case ResourceType.TOPIC:
                return self.topic_configs
            case ResourceType.BROKER:
                return self.broker_configs
            case ResourceType.GROUP:
                return self.group_configs


def topic_id_text(topic_id: UUID) -> str:
    """The 22 characters by which Kafka prints a topic id, and by which it names directories."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode("ascii")


def random_topic_id(random_uuid: Callable[[], UUID] = uuid4) -> UUID:
    """A fresh id, never reserved, and never printed with a '-' that a shell takes for an option."""
    while True:
        candidate = random_uuid()
        if candidate not in RESERVED_TOPIC_IDS and not topic_id_text(candidate).startswith("-"):
            return candidate

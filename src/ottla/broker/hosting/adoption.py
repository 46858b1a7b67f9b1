"""Serving the log directory of a Kafka broker: its topics become those of a new Ottla cluster.

A partition's directory does not contain the topic's settings, the producer ids given out or the
last leader epoch. Guessing them could delete records by retention, mistake new producers for old
ones and confuse consumers. Kafka keeps all that in the log `__cluster_metadata-0` beside the
partitions, as a snapshot (`<offset>-<epoch>.checkpoint`) and the segments after it. So:

- Only a directory whose metadata store has never seen a broker is adopted. All of it happens in the
  one proposal that registers this node, so a crash leaves it done or not begun.
- Topics keep their ids, partitions, settings, and leader epochs above all that were used before;
  every partition is led by this node. Producer ids go on after the last block given out.
- Refused, with nothing changed: a directory without the metadata log, or without some partition of
  a topic, which then is on another broker. It may be tried again.
- Settings this broker does not know are left out, with a warning. Settings of brokers and groups,
  ACLs, credentials and quotas are not taken over.
- Kafka's own files stay as they are: the metadata log is read, never written. So Kafka can serve
  the directory again, but knows nothing of the topics and producer ids given out here meanwhile.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.broker.hosting.data import WrongDirectory
from ottla.coordination.codec import Reader
from ottla.log.directory import KRAFT_LOG
from ottla.metadata.changes.nodes import AllocateProducerIds
from ottla.metadata.changes.topics import CreateTopic
from ottla.metadata.config.values import TOPIC_CONFIGS, validate
from ottla.metadata.errors import ConfigError
from ottla.metadata.image import ResourceType
from ottla.wire.batch import iter_batches
from ottla.wire.errors import BatchError, WireError
from ottla.wire.records import iter_records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path
    from uuid import UUID

    from ottla.log.checkpoints import TopicPartition
    from ottla.metadata.changes.apply import Change

FRAME_VERSION: Final = 1
SHOWN: Final = 3  # of a list of partitions in a message

_SNAPSHOT = re.compile(r"(\d{20})-\d{10}\.checkpoint")

logger = logging.getLogger(__name__)


@dataclass
class KraftTopic:
    name: str
    topic_id: UUID
    leader_epochs: dict[int, int] = field(default_factory=dict)
    """Of each partition, or a number above."""


@dataclass
class KraftMetadata:
    """The needed part of Kafka's metadata log, built from its records."""

    topics: dict[UUID, KraftTopic] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0

    def apply(self, value: bytes) -> None:
        """One record: frame version, type and version as varints, then the flexible body."""
        reader = Reader(value, "Kafka metadata record", flexible=True)
        if (frame := reader.uvarint()) != FRAME_VERSION:
            raise WrongDirectory(f"Kafka's metadata log has a record with frame version {frame}")
        kind = reader.uvarint()
        reader.uvarint()  # the fields read here are the same in all versions
        match kind:
            case 2:
                name, topic_id = reader.string(), reader.uuid()
                self.topics[topic_id] = KraftTopic(name, topic_id)
            case 3:
                self._partition(reader)
            case 4:
                self._config(reader)
            case 5:
                # Raises the leader epoch by one at most.
                index, topic_id = reader.int32(), reader.uuid()
                self.topics[topic_id].leader_epochs[index] += 1
            case 9:
                removed = self.topics.pop(reader.uuid())
                self.configs.pop(removed.name, None)
            case 15:
                reader.int32(), reader.int64()
                self.next_producer_id = reader.int64()

    def _partition(self, reader: Reader) -> None:
        index, topic_id = reader.int32(), reader.uuid()
        for _ in range(4):  # replicas: assigned, in sync, being removed, being added
            reader.array(reader.int32)
        reader.int32()  # the leader
        self.topics[topic_id].leader_epochs[index] = reader.int32()

    def _config(self, reader: Reader) -> None:
        kind, name, key = reader.int8(), reader.string(), reader.string()
        value = reader.nullable_string()
        if kind != ResourceType.TOPIC:
            return
        configs = self.configs.setdefault(name, {})
        if value is None:
            configs.pop(key, None)
        else:
            configs[key] = value


def adoption(directory: Path, found: Collection[TopicPartition], node_id: int) -> list[Change]:
    """The changes that make the logs found in a data directory this node's; blocks."""
    if not (directory / KRAFT_LOG).is_dir():
        raise WrongDirectory(
            f"data directory {directory} has logs, but neither Ottla's metadata nor Kafka's "
            f"({KRAFT_LOG}), so the topics of these logs are unknown"
        )
    metadata = KraftMetadata()
    try:
        for value in _records(directory / KRAFT_LOG):
            metadata.apply(value)
    except WireError as error:
        raise WrongDirectory(f"{directory / KRAFT_LOG} cannot be read: {error}") from error
    topics = sorted(metadata.topics.values(), key=lambda topic: topic.name)
    _check_complete(directory, topics, found)
    changes: list[Change] = [
        CreateTopic(
            topic.name,
            topic.topic_id,
            ((node_id,),) * len(topic.leader_epochs),
            _known(topic.name, metadata.configs.get(topic.name, {})),
            leader_epoch=max(topic.leader_epochs.values()) + 1,
        )
        for topic in topics
    ]
    if metadata.next_producer_id:
        changes.append(AllocateProducerIds(node_id, metadata.next_producer_id))
    logger.info("adopting %d topics of Apache Kafka in %s", len(topics), directory)
    return changes


def _records(log: Path) -> Iterator[bytes]:
    """The newest snapshot's records and those after it, up to where a crash cut them off."""
    snapshots = sorted(path for path in log.iterdir() if _SNAPSHOT.fullmatch(path.name))
    start = 0
    if snapshots:
        start = int(snapshots[-1].name[:20])
        yield from _values(snapshots[-1], 0)
    *sealed, active = sorted(log.glob("*.log"))
    for segment in sealed:
        yield from _values(segment, start)
    try:
        yield from _values(active, start)
    except BatchError as error:
        logger.warning("%s is read up to a damaged batch: %s", active, error)


def _values(path: Path, start: int) -> Iterator[bytes]:
    for batch in iter_batches(memoryview(path.read_bytes())):
        batch.verify_crc()
        if not batch.is_control and batch.last_offset >= start:
            for record in iter_records(batch):
                if record.offset >= start and record.value is not None:
                    yield record.value


def _check_complete(
    directory: Path, topics: Iterable[KraftTopic], found: Collection[TopicPartition]
) -> None:
    missing = [
        f"{topic.name}-{index}"
        for topic in topics
        for index in range(len(topic.leader_epochs))
        if (topic.name, index) not in found
    ]
    if missing:
        shown = ", ".join(missing[:SHOWN]) + (", ..." if len(missing) > SHOWN else "")
        raise WrongDirectory(
            f"data directory {directory} is only a part of its Kafka cluster: {shown} is missing"
        )


def _known(topic: str, configs: dict[str, str]) -> dict[str, str]:
    known = {}
    for key, value in configs.items():
        try:
            validate(TOPIC_CONFIGS, key, value)
        except ConfigError as error:
            logger.warning("%s=%s of topic %s is left out: %s", key, value, topic, error)
        else:
            known[key] = value
    return known

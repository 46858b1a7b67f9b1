"""Creating, growing and deleting topics: the rules, and the change that is proposed.

The rules are decisions: they are asked about the newest image of all nodes, in the transaction that
makes the change, so that two requests at once cannot both succeed where one must fail.

Replicas are the nodes that may lead a partition, the preferred one first (`ottla.cluster`); a
replication factor is their number. More of them than registered nodes are refused as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.metadata.changes.topics import (
    MAX_PARTITIONS_PER_TOPIC,
    AddPartitions,
    CreateTopic,
    DeleteTopic,
)
from ottla.metadata.config.checks import check_topic_configs
from ottla.metadata.errors import (
    ChangeRefused,
    ConfigError,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidTopicName,
    TopicExists,
    TopicNameCollision,
    UnknownTopic,
)
from ottla.metadata.image import random_topic_id
from ottla.metadata.names import check_topic_name
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.broker.cluster import Cluster
    from ottla.metadata.changes.apply import Change, Decision
    from ottla.metadata.image import MetadataImage, Partition, Topic

    Assignment = tuple[tuple[int, ...], ...]

_CODES: dict[type[ChangeRefused], ErrorCode] = {
    InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    TopicNameCollision: ErrorCode.INVALID_TOPIC_EXCEPTION,
    TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
}


def refusal(error: ChangeRefused) -> ApiError:
    """The answer to a change that does not fit the image."""
    return ApiError(_CODES.get(type(error), ErrorCode.INVALID_REQUEST), str(error))


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    assignments: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> Topic:
    """Create a topic, or say why not. -1 takes the broker's default."""
    overrides = dict(configs or {})
    topic_id = random_topic_id()

    def decide(image: MetadataImage) -> list[Change]:
        check_topic_name(name)
        if image.topic(name) is not None:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        assignment = _assignment(cluster, image, partitions, replication_factor, assignments or {})
        if overrides:
            check_topic_configs(image, name, overrides, cluster.config)
        return [CreateTopic(name, topic_id, assignment, overrides)]

    image = await decided(cluster, decide, validate_only=validate_only)
    return image.topics_by_name[name]


async def ensure_topic(
    cluster: Cluster, name: str, *, partitions: int = -1, configs: Mapping[str, str] | None = None
) -> Topic:
    """The topic as it is, or as it is created; many may ask at once."""
    topic = cluster.image.topic(name)
    while topic is None:
        try:
            topic = await create_topic(cluster, name, partitions=partitions, configs=configs)
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            # Another node or request created it; the refusal refreshed our image.
            topic = cluster.image.topic(name)
    return topic


async def add_partitions(
    cluster: Cluster,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    *,
    validate_only: bool,
) -> None:
    """Grow a topic to `count` partitions."""

    def decide(image: MetadataImage) -> list[Change]:
        topic = existing(image, name)
        have = len(topic.partitions)
        if count <= have:
            text = f"The topic has {have} partitions; it can only grow, not become {count}."
            raise ApiError(ErrorCode.INVALID_PARTITIONS, text)
        _check_count(count)
        if assignments is not None and len(assignments) != count - have:
            text = f"{count - have} partitions are new, {len(assignments)} assignments given."
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        if assignments is None:
            factor = len(topic.partitions[0].replicas)
            assignment = _placed(cluster, image, count - have, factor, topic.partitions)
        else:
            assignment = tuple(tuple(replicas) for replicas in assignments)
            _check_brokers(image, assignment)
        return [AddPartitions(topic.topic_id, assignment)]

    await decided(cluster, decide, validate_only=validate_only)


async def delete_topic(cluster: Cluster, find: Callable[[MetadataImage], Topic]) -> Topic:
    """Delete the topic that `find` finds or misses with an `ApiError`; returns what it was."""
    found: list[Topic] = []

    def decide(image: MetadataImage) -> list[Change]:
        topic = find(image)
        if cluster.is_own(topic):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic '{topic.name}' is the broker's own.")
        if not cluster.config.get_bool("delete.topic.enable"):
            raise ApiError(ErrorCode.POLICY_VIOLATION, "delete.topic.enable is false.")
        found.append(topic)
        return [DeleteTopic(topic.topic_id)]

    await decided(cluster, decide)
    return found[-1]


async def decided(
    cluster: Cluster, decide: Decision, *, validate_only: bool = False
) -> MetadataImage:
    """The image after what was decided, or what it would be; every refusal is an `ApiError`."""
    try:
        return cluster.try_out(decide) if validate_only else await cluster.change(decide)
    except ChangeRefused as error:
        raise refusal(error) from error
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error


async def decided_everywhere(
    cluster: Cluster, decide: Decision, *, validate_only: bool = False
) -> None:
    """The same; on return the other nodes that are up have the change, too."""
    image = await decided(cluster, decide, validate_only=validate_only)
    if not validate_only:
        await cluster.spread(image)


def existing(image: MetadataImage, name: str) -> Topic:
    topic = image.topic(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
    return topic


def _assignment(
    cluster: Cluster,
    image: MetadataImage,
    partitions: int,
    replication_factor: int,
    assignments: Mapping[int, Sequence[int]],
) -> Assignment:
    if assignments:
        if partitions != -1 or replication_factor != -1:
            text = "With replica assignments, partitions and replication factor must be -1."
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        if sorted(assignments) != list(range(len(assignments))):
            text = "Replica assignments must be for partitions 0, 1, 2, ..."
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        given = tuple(tuple(assignments[index]) for index in range(len(assignments)))
        _check_brokers(image, given)
        return given
    if partitions == -1:
        partitions = cluster.config.get_int("num.partitions")
    if partitions <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be above 0.")
    _check_count(partitions)
    if replication_factor == -1:
        replication_factor = cluster.config.get_int("default.replication.factor")
    if not 1 <= replication_factor <= len(image.brokers):
        text = (
            f"Replication factor {replication_factor}: 1 to {len(image.brokers)}, the number of "
            "nodes, or -1 for the default (default.replication.factor)."
        )
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    return _placed(cluster, image, partitions, replication_factor)


def _check_count(partitions: int) -> None:
    """Before anything is built for so many."""
    if partitions > MAX_PARTITIONS_PER_TOPIC:
        text = f"A topic has at most {MAX_PARTITIONS_PER_TOPIC} partitions, not {partitions}."
        raise ApiError(ErrorCode.INVALID_PARTITIONS, text)


def _placed(
    cluster: Cluster,
    image: MetadataImage,
    count: int,
    factor: int,
    existing: Sequence[Partition] = (),
) -> Assignment:
    """Partitions spread over the nodes that are up."""
    alive = image.alive
    if not alive:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are fenced.")
    if len(image.brokers) == 1:
        return (alive,) * count
    # A node alone does not load it.
    from ottla.cluster.placement import decide_placement

    return decide_placement(image, count, factor, cluster.node_id, existing)


def _check_brokers(image: MetadataImage, assignment: Assignment) -> None:
    known = set(image.brokers)
    for replicas in assignment:
        if not replicas or not set(replicas) <= known or len(set(replicas)) < len(replicas):
            text = f"Each partition takes some of brokers {sorted(known)}, not {list(replicas)}."
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)

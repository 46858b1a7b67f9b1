"""metadata, API key 3. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class MetadataRequestTopic(NamedTuple):
    topic_id: bytes = ZERO_UUID
    name: str | None = ""


class MetadataRequest(NamedTuple):
    topics: Sequence[MetadataRequestTopic] | None = ()
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


METADATA_REQUEST = Message(
    3,
    True,
    MetadataRequest,
    (0, 13),
    9,
    {
        MetadataRequestTopic: (
            Field("topic_id", "uuid", versions=(10, 13)),
            Field("name", "string", nullable=(10, 13)),
        ),
        MetadataRequest: (
            Field("topics", MetadataRequestTopic, array=True, nullable=(1, 13)),
            Field("allow_auto_topic_creation", "bool", versions=(4, 13)),
            Field("include_cluster_authorized_operations", "bool", versions=(8, 10)),
            Field("include_topic_authorized_operations", "bool", versions=(8, 13)),
        ),
    },
)


class MetadataResponseBroker(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class MetadataResponsePartition(NamedTuple):
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    offline_replicas: Sequence[int] = ()


class MetadataResponseTopic(NamedTuple):
    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    partitions: Sequence[MetadataResponsePartition] = ()
    topic_authorized_operations: int = -2147483648


class MetadataResponse(NamedTuple):
    throttle_time_ms: int = 0
    brokers: Sequence[MetadataResponseBroker] = ()
    cluster_id: str | None = None
    controller_id: int = -1
    topics: Sequence[MetadataResponseTopic] = ()
    cluster_authorized_operations: int = -2147483648
    error_code: int = 0


METADATA_RESPONSE = Message(
    3,
    False,
    MetadataResponse,
    (0, 13),
    9,
    {
        MetadataResponseBroker: (
            Field("node_id", "int32"),
            Field("host", "string"),
            Field("port", "int32"),
            Field("rack", "string", versions=(1, 13), nullable=ALWAYS),
        ),
        MetadataResponsePartition: (
            Field("error_code", "int16"),
            Field("partition_index", "int32"),
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32", versions=(7, 13)),
            Field("replica_nodes", "int32", array=True),
            Field("isr_nodes", "int32", array=True),
            Field("offline_replicas", "int32", array=True, versions=(5, 13)),
        ),
        MetadataResponseTopic: (
            Field("error_code", "int16"),
            Field("name", "string", nullable=(12, 13)),
            Field("topic_id", "uuid", versions=(10, 13)),
            Field("is_internal", "bool", versions=(1, 13)),
            Field("partitions", MetadataResponsePartition, array=True),
            Field("topic_authorized_operations", "int32", versions=(8, 13)),
        ),
        MetadataResponse: (
            Field("throttle_time_ms", "int32", versions=(3, 13)),
            Field("brokers", MetadataResponseBroker, array=True),
            Field("cluster_id", "string", versions=(2, 13), nullable=ALWAYS),
            Field("controller_id", "int32", versions=(1, 13)),
            Field("topics", MetadataResponseTopic, array=True),
            Field("cluster_authorized_operations", "int32", versions=(8, 10)),
            Field("error_code", "int16", versions=(13, 13)),
        ),
    },
)

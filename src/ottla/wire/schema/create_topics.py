"""create_topics, API key 19. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class CreatableReplicaAssignment(NamedTuple):
    partition_index: int = 0
    broker_ids: Sequence[int] = ()


class CreatableTopicConfig(NamedTuple):
    name: str = ""
    value: str | None = ""


class CreatableTopic(NamedTuple):
    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: Sequence[CreatableReplicaAssignment] = ()
    configs: Sequence[CreatableTopicConfig] = ()


class CreateTopicsRequest(NamedTuple):
    topics: Sequence[CreatableTopic] = ()
    timeout_ms: int = 60000
    validate_only: bool = False


CREATE_TOPICS_REQUEST = Message(
    19,
    True,
    CreateTopicsRequest,
    (2, 7),
    5,
    {
        CreatableReplicaAssignment: (
            Field("partition_index", "int32"),
            Field("broker_ids", "int32", array=True),
        ),
        CreatableTopicConfig: (
            Field("name", "string"),
            Field("value", "string", nullable=ALWAYS),
        ),
        CreatableTopic: (
            Field("name", "string"),
            Field("num_partitions", "int32"),
            Field("replication_factor", "int16"),
            Field("assignments", CreatableReplicaAssignment, array=True),
            Field("configs", CreatableTopicConfig, array=True),
        ),
        CreateTopicsRequest: (
            Field("topics", CreatableTopic, array=True),
            Field("timeout_ms", "int32"),
            Field("validate_only", "bool"),
        ),
    },
)


class CreatableTopicConfigs(NamedTuple):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False


class CreatableTopicResult(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    error_code: int = 0
    error_message: str | None = ""
    topic_config_error_code: int = 0
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[CreatableTopicConfigs] | None = ()


class CreateTopicsResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: Sequence[CreatableTopicResult] = ()


CREATE_TOPICS_RESPONSE = Message(
    19,
    False,
    CreateTopicsResponse,
    (2, 7),
    5,
    {
        CreatableTopicConfigs: (
            Field("name", "string", versions=(5, 7)),
            Field("value", "string", versions=(5, 7), nullable=ALWAYS),
            Field("read_only", "bool", versions=(5, 7)),
            Field("config_source", "int8", versions=(5, 7)),
            Field("is_sensitive", "bool", versions=(5, 7)),
        ),
        CreatableTopicResult: (
            Field("name", "string"),
            Field("topic_id", "uuid", versions=(7, 7)),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("topic_config_error_code", "int16", versions=(5, 7), tag=0),
            Field("num_partitions", "int32", versions=(5, 7)),
            Field("replication_factor", "int16", versions=(5, 7)),
            Field("configs", CreatableTopicConfigs, array=True, versions=(5, 7), nullable=ALWAYS),
        ),
        CreateTopicsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("topics", CreatableTopicResult, array=True),
        ),
    },
)

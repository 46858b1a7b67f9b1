"""alter_partition, API key 56. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ZERO_UUID, Field, Message


class BrokerState(NamedTuple):
    broker_id: int = 0
    broker_epoch: int = -1


class RequestPartitionData(NamedTuple):
    partition_index: int = 0
    leader_epoch: int = 0
    new_isr: Sequence[int] = ()
    new_isr_with_epochs: Sequence[BrokerState] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0


class RequestTopicData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[RequestPartitionData] = ()


class AlterPartitionRequest(NamedTuple):
    broker_id: int = 0
    broker_epoch: int = -1
    topics: Sequence[RequestTopicData] = ()


ALTER_PARTITION_REQUEST = Message(
    56,
    True,
    AlterPartitionRequest,
    (2, 3),
    2,
    {
        BrokerState: (
            Field("broker_id", "int32", versions=(3, 3)),
            Field("broker_epoch", "int64", versions=(3, 3)),
        ),
        RequestPartitionData: (
            Field("partition_index", "int32"),
            Field("leader_epoch", "int32"),
            Field("new_isr", "int32", array=True, versions=(2, 2)),
            Field("new_isr_with_epochs", BrokerState, array=True, versions=(3, 3)),
            Field("leader_recovery_state", "int8"),
            Field("partition_epoch", "int32"),
        ),
        RequestTopicData: (
            Field("topic_id", "uuid"),
            Field("partitions", RequestPartitionData, array=True),
        ),
        AlterPartitionRequest: (
            Field("broker_id", "int32"),
            Field("broker_epoch", "int64"),
            Field("topics", RequestTopicData, array=True),
        ),
    },
)


class ResponsePartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    isr: Sequence[int] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0


class ResponseTopicData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[ResponsePartitionData] = ()


class AlterPartitionResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    topics: Sequence[ResponseTopicData] = ()


ALTER_PARTITION_RESPONSE = Message(
    56,
    False,
    AlterPartitionResponse,
    (2, 3),
    2,
    {
        ResponsePartitionData: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32"),
            Field("isr", "int32", array=True),
            Field("leader_recovery_state", "int8"),
            Field("partition_epoch", "int32"),
        ),
        ResponseTopicData: (
            Field("topic_id", "uuid"),
            Field("partitions", ResponsePartitionData, array=True),
        ),
        AlterPartitionResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("topics", ResponseTopicData, array=True),
        ),
    },
)

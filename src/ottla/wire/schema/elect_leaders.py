"""elect_leaders, API key 43. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class TopicPartitions(NamedTuple):
    topic: str = ""
    partitions: Sequence[int] = ()


class ElectLeadersRequest(NamedTuple):
    election_type: int = 0
    topic_partitions: Sequence[TopicPartitions] | None = ()
    timeout_ms: int = 60000


ELECT_LEADERS_REQUEST = Message(
    43,
    True,
    ElectLeadersRequest,
    (0, 2),
    2,
    {
        TopicPartitions: (
            Field("topic", "string"),
            Field("partitions", "int32", array=True),
        ),
        ElectLeadersRequest: (
            Field("election_type", "int8", versions=(1, 2)),
            Field("topic_partitions", TopicPartitions, array=True, nullable=ALWAYS),
            Field("timeout_ms", "int32"),
        ),
    },
)


class PartitionResult(NamedTuple):
    partition_id: int = 0
    error_code: int = 0
    error_message: str | None = ""


class ReplicaElectionResult(NamedTuple):
    topic: str = ""
    partition_result: Sequence[PartitionResult] = ()


class ElectLeadersResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    replica_election_results: Sequence[ReplicaElectionResult] = ()


ELECT_LEADERS_RESPONSE = Message(
    43,
    False,
    ElectLeadersResponse,
    (0, 2),
    2,
    {
        PartitionResult: (
            Field("partition_id", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
        ReplicaElectionResult: (
            Field("topic", "string"),
            Field("partition_result", PartitionResult, array=True),
        ),
        ElectLeadersResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16", versions=(1, 2)),
            Field("replica_election_results", ReplicaElectionResult, array=True),
        ),
    },
)

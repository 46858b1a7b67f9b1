"""produce, API key 0. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message, Records


class PartitionProduceData(NamedTuple):
    index_: int = 0
    records: Records | None = b""


class TopicProduceData(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partition_data: Sequence[PartitionProduceData] = ()


class ProduceRequest(NamedTuple):
    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: Sequence[TopicProduceData] = ()


PRODUCE_REQUEST = Message(
    0,
    True,
    ProduceRequest,
    (3, 13),
    9,
    {
        PartitionProduceData: (
            Field("index_", "int32"),
            Field("records", "records", nullable=ALWAYS),
        ),
        TopicProduceData: (
            Field("name", "string", versions=(3, 12)),
            Field("topic_id", "uuid", versions=(13, 13)),
            Field("partition_data", PartitionProduceData, array=True),
        ),
        ProduceRequest: (
            Field("transactional_id", "string", nullable=ALWAYS),
            Field("acks", "int16"),
            Field("timeout_ms", "int32"),
            Field("topic_data", TopicProduceData, array=True),
        ),
    },
)


class BatchIndexAndErrorMessage(NamedTuple):
    batch_index: int = 0
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int = -1
    leader_epoch: int = -1


class PartitionProduceResponse(NamedTuple):
    index_: int = 0
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[BatchIndexAndErrorMessage] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)


class TopicProduceResponse(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partition_responses: Sequence[PartitionProduceResponse] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class ProduceResponse(NamedTuple):
    responses: Sequence[TopicProduceResponse] = ()
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


PRODUCE_RESPONSE = Message(
    0,
    False,
    ProduceResponse,
    (3, 13),
    9,
    {
        BatchIndexAndErrorMessage: (
            Field("batch_index", "int32", versions=(8, 13)),
            Field("batch_index_error_message", "string", versions=(8, 13), nullable=ALWAYS),
        ),
        LeaderIdAndEpoch: (
            Field("leader_id", "int32", versions=(10, 13)),
            Field("leader_epoch", "int32", versions=(10, 13)),
        ),
        PartitionProduceResponse: (
            Field("index_", "int32"),
            Field("error_code", "int16"),
            Field("base_offset", "int64"),
            Field("log_append_time_ms", "int64"),
            Field("log_start_offset", "int64", versions=(5, 13)),
            Field("record_errors", BatchIndexAndErrorMessage, array=True, versions=(8, 13)),
            Field("error_message", "string", versions=(8, 13), nullable=ALWAYS),
            Field("current_leader", LeaderIdAndEpoch, versions=(10, 13), tag=0),
        ),
        TopicProduceResponse: (
            Field("name", "string", versions=(3, 12)),
            Field("topic_id", "uuid", versions=(13, 13)),
            Field("partition_responses", PartitionProduceResponse, array=True),
        ),
        NodeEndpoint: (
            Field("node_id", "int32", versions=(10, 13)),
            Field("host", "string", versions=(10, 13)),
            Field("port", "int32", versions=(10, 13)),
            Field("rack", "string", versions=(10, 13), nullable=ALWAYS),
        ),
        ProduceResponse: (
            Field("responses", TopicProduceResponse, array=True),
            Field("throttle_time_ms", "int32"),
            Field("node_endpoints", NodeEndpoint, array=True, versions=(10, 13), tag=0),
        ),
    },
)

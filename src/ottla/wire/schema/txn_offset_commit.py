"""txn_offset_commit, API key 28. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class TxnOffsetCommitRequestPartition(NamedTuple):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""


class TxnOffsetCommitRequestTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[TxnOffsetCommitRequestPartition] = ()


class TxnOffsetCommitRequest(NamedTuple):
    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: Sequence[TxnOffsetCommitRequestTopic] = ()


TXN_OFFSET_COMMIT_REQUEST = Message(
    28,
    True,
    TxnOffsetCommitRequest,
    (0, 5),
    3,
    {
        TxnOffsetCommitRequestPartition: (
            Field("partition_index", "int32"),
            Field("committed_offset", "int64"),
            Field("committed_leader_epoch", "int32", versions=(2, 5)),
            Field("committed_metadata", "string", nullable=ALWAYS),
        ),
        TxnOffsetCommitRequestTopic: (
            Field("name", "string"),
            Field("partitions", TxnOffsetCommitRequestPartition, array=True),
        ),
        TxnOffsetCommitRequest: (
            Field("transactional_id", "string"),
            Field("group_id", "string"),
            Field("producer_id", "int64"),
            Field("producer_epoch", "int16"),
            Field("generation_id", "int32", versions=(3, 5)),
            Field("member_id", "string", versions=(3, 5)),
            Field("group_instance_id", "string", versions=(3, 5), nullable=ALWAYS),
            Field("topics", TxnOffsetCommitRequestTopic, array=True),
        ),
    },
)


class TxnOffsetCommitResponsePartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class TxnOffsetCommitResponseTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[TxnOffsetCommitResponsePartition] = ()


class TxnOffsetCommitResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: Sequence[TxnOffsetCommitResponseTopic] = ()


TXN_OFFSET_COMMIT_RESPONSE = Message(
    28,
    False,
    TxnOffsetCommitResponse,
    (0, 5),
    3,
    {
        TxnOffsetCommitResponsePartition: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
        ),
        TxnOffsetCommitResponseTopic: (
            Field("name", "string"),
            Field("partitions", TxnOffsetCommitResponsePartition, array=True),
        ),
        TxnOffsetCommitResponse: (
            Field("throttle_time_ms", "int32"),
            Field("topics", TxnOffsetCommitResponseTopic, array=True),
        ),
    },
)

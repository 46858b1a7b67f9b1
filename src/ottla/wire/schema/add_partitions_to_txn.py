"""add_partitions_to_txn, API key 24. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import Field, Message


class AddPartitionsToTxnTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[int] = ()


class AddPartitionsToTxnTransaction(NamedTuple):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    verify_only: bool = False
    topics: Sequence[AddPartitionsToTxnTopic] = ()


class AddPartitionsToTxnRequest(NamedTuple):
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = ()
    transactions: Sequence[AddPartitionsToTxnTransaction] = ()


ADD_PARTITIONS_TO_TXN_REQUEST = Message(
    24,
    True,
    AddPartitionsToTxnRequest,
    (0, 5),
    3,
    {
        AddPartitionsToTxnTopic: (
            Field("name", "string"),
            Field("partitions", "int32", array=True),
        ),
        AddPartitionsToTxnTransaction: (
            Field("transactional_id", "string", versions=(4, 5)),
            Field("producer_id", "int64", versions=(4, 5)),
            Field("producer_epoch", "int16", versions=(4, 5)),
            Field("verify_only", "bool", versions=(4, 5)),
            Field("topics", AddPartitionsToTxnTopic, array=True, versions=(4, 5)),
        ),
        AddPartitionsToTxnRequest: (
            Field("v3_and_below_transactional_id", "string", versions=(0, 3)),
            Field("v3_and_below_producer_id", "int64", versions=(0, 3)),
            Field("v3_and_below_producer_epoch", "int16", versions=(0, 3)),
            Field("v3_and_below_topics", AddPartitionsToTxnTopic, array=True, versions=(0, 3)),
            Field("transactions", AddPartitionsToTxnTransaction, array=True, versions=(4, 5)),
        ),
    },
)


class AddPartitionsToTxnPartitionResult(NamedTuple):
    partition_index: int = 0
    partition_error_code: int = 0


class AddPartitionsToTxnTopicResult(NamedTuple):
    name: str = ""
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = ()


class AddPartitionsToTxnResult(NamedTuple):
    transactional_id: str = ""
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = ()


class AddPartitionsToTxnResponse(NamedTuple):
    throttle_time_ms: int = 0
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = ()
    error_code: int = 0
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = ()


ADD_PARTITIONS_TO_TXN_RESPONSE = Message(
    24,
    False,
    AddPartitionsToTxnResponse,
    (0, 5),
    3,
    {
        AddPartitionsToTxnPartitionResult: (
            Field("partition_index", "int32"),
            Field("partition_error_code", "int16"),
        ),
        AddPartitionsToTxnTopicResult: (
            Field("name", "string"),
            Field("results_by_partition", AddPartitionsToTxnPartitionResult, array=True),
        ),
        AddPartitionsToTxnResult: (
            Field("transactional_id", "string", versions=(4, 5)),
            Field("topic_results", AddPartitionsToTxnTopicResult, array=True, versions=(4, 5)),
        ),
        AddPartitionsToTxnResponse: (
            Field("throttle_time_ms", "int32"),
            Field(
                "results_by_topic_v3_and_below",
                AddPartitionsToTxnTopicResult,
                array=True,
                versions=(0, 3),
            ),
            Field("error_code", "int16", versions=(4, 5)),
            Field("results_by_transaction", AddPartitionsToTxnResult, array=True, versions=(4, 5)),
        ),
    },
)

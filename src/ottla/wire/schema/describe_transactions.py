"""describe_transactions, API key 65. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import Field, Message


class DescribeTransactionsRequest(NamedTuple):
    transactional_ids: Sequence[str] = ()


DESCRIBE_TRANSACTIONS_REQUEST = Message(
    65,
    True,
    DescribeTransactionsRequest,
    (0, 0),
    0,
    {
        DescribeTransactionsRequest: (Field("transactional_ids", "string", array=True),),
    },
)


class TopicData(NamedTuple):
    topic: str = ""
    partitions: Sequence[int] = ()


class TransactionState(NamedTuple):
    error_code: int = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: Sequence[TopicData] = ()


class DescribeTransactionsResponse(NamedTuple):
    throttle_time_ms: int = 0
    transaction_states: Sequence[TransactionState] = ()


DESCRIBE_TRANSACTIONS_RESPONSE = Message(
    65,
    False,
    DescribeTransactionsResponse,
    (0, 0),
    0,
    {
        TopicData: (
            Field("topic", "string"),
            Field("partitions", "int32", array=True),
        ),
        TransactionState: (
            Field("error_code", "int16"),
            Field("transactional_id", "string"),
            Field("transaction_state", "string"),
            Field("transaction_timeout_ms", "int32"),
            Field("transaction_start_time_ms", "int64"),
            Field("producer_id", "int64"),
            Field("producer_epoch", "int16"),
            Field("topics", TopicData, array=True),
        ),
        DescribeTransactionsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("transaction_states", TransactionState, array=True),
        ),
    },
)

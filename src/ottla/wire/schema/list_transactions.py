"""list_transactions, API key 66. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class ListTransactionsRequest(NamedTuple):
    state_filters: Sequence[str] = ()
    producer_id_filters: Sequence[int] = ()
    duration_filter: int = -1
    transactional_id_pattern: str | None = None


LIST_TRANSACTIONS_REQUEST = Message(
    66,
    True,
    ListTransactionsRequest,
    (0, 2),
    0,
    {
        ListTransactionsRequest: (
            Field("state_filters", "string", array=True),
            Field("producer_id_filters", "int64", array=True),
            Field("duration_filter", "int64", versions=(1, 2)),
            Field("transactional_id_pattern", "string", versions=(2, 2), nullable=ALWAYS),
        ),
    },
)


class TransactionState(NamedTuple):
    transactional_id: str = ""
    producer_id: int = 0
    transaction_state: str = ""


class ListTransactionsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: Sequence[str] = ()
    transaction_states: Sequence[TransactionState] = ()


LIST_TRANSACTIONS_RESPONSE = Message(
    66,
    False,
    ListTransactionsResponse,
    (0, 2),
    0,
    {
        TransactionState: (
            Field("transactional_id", "string"),
            Field("producer_id", "int64"),
            Field("transaction_state", "string"),
        ),
        ListTransactionsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("unknown_state_filters", "string", array=True),
            Field("transaction_states", TransactionState, array=True),
        ),
    },
)

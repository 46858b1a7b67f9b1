"""add_offsets_to_txn, API key 25. Made by scripts/generate_schema.py; do not edit."""

from typing import NamedTuple

from ottla.wire.spec import Field, Message


class AddOffsetsToTxnRequest(NamedTuple):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""


ADD_OFFSETS_TO_TXN_REQUEST = Message(
    25,
    True,
    AddOffsetsToTxnRequest,
    (0, 4),
    3,
    {
        AddOffsetsToTxnRequest: (
            Field("transactional_id", "string"),
            Field("producer_id", "int64"),
            Field("producer_epoch", "int16"),
            Field("group_id", "string"),
        ),
    },
)


class AddOffsetsToTxnResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0


ADD_OFFSETS_TO_TXN_RESPONSE = Message(
    25,
    False,
    AddOffsetsToTxnResponse,
    (0, 4),
    3,
    {
        AddOffsetsToTxnResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
        ),
    },
)

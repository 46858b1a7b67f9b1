"""end_txn, API key 26. Made by scripts/generate_schema.py; do not edit."""

from typing import NamedTuple

from ottla.wire.spec import Field, Message


class EndTxnRequest(NamedTuple):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False


END_TXN_REQUEST = Message(
    26,
    True,
    EndTxnRequest,
    (0, 5),
    3,
    {
        EndTxnRequest: (
            Field("transactional_id", "string"),
            Field("producer_id", "int64"),
            Field("producer_epoch", "int16"),
            Field("committed", "bool"),
        ),
    },
)


class EndTxnResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


END_TXN_RESPONSE = Message(
    26,
    False,
    EndTxnResponse,
    (0, 5),
    3,
    {
        EndTxnResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("producer_id", "int64", versions=(5, 5)),
            Field("producer_epoch", "int16", versions=(5, 5)),
        ),
    },
)

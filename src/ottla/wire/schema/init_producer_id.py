"""init_producer_id, API key 22. Made by scripts/generate_schema.py; do not edit."""

from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class InitProducerIdRequest(NamedTuple):
    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    enable2_pc: bool = False
    keep_prepared_txn: bool = False


INIT_PRODUCER_ID_REQUEST = Message(
    22,
    True,
    InitProducerIdRequest,
    (0, 6),
    2,
    {
        InitProducerIdRequest: (
            Field("transactional_id", "string", nullable=ALWAYS),
            Field("transaction_timeout_ms", "int32"),
            Field("producer_id", "int64", versions=(3, 6)),
            Field("producer_epoch", "int16", versions=(3, 6)),
            Field("enable2_pc", "bool", versions=(6, 6)),
            Field("keep_prepared_txn", "bool", versions=(6, 6)),
        ),
    },
)


class InitProducerIdResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    ongoing_txn_producer_id: int = -1
    ongoing_txn_producer_epoch: int = -1


INIT_PRODUCER_ID_RESPONSE = Message(
    22,
    False,
    InitProducerIdResponse,
    (0, 6),
    2,
    {
        InitProducerIdResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("producer_id", "int64"),
            Field("producer_epoch", "int16"),
            Field("ongoing_txn_producer_id", "int64", versions=(6, 6)),
            Field("ongoing_txn_producer_epoch", "int16", versions=(6, 6)),
        ),
    },
)

"""allocate_producer_ids, API key 67. Made by scripts/generate_schema.py; do not edit."""

from typing import NamedTuple

from ottla.wire.spec import Field, Message


class AllocateProducerIdsRequest(NamedTuple):
    broker_id: int = 0
    broker_epoch: int = -1


ALLOCATE_PRODUCER_IDS_REQUEST = Message(
    67,
    True,
    AllocateProducerIdsRequest,
    (0, 0),
    0,
    {
        AllocateProducerIdsRequest: (
            Field("broker_id", "int32"),
            Field("broker_epoch", "int64"),
        ),
    },
)


class AllocateProducerIdsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id_start: int = 0
    producer_id_len: int = 0


ALLOCATE_PRODUCER_IDS_RESPONSE = Message(
    67,
    False,
    AllocateProducerIdsResponse,
    (0, 0),
    0,
    {
        AllocateProducerIdsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("producer_id_start", "int64"),
            Field("producer_id_len", "int32"),
        ),
    },
)

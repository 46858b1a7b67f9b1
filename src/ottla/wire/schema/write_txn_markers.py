"""write_txn_markers, API key 27. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import Field, Message


class WritableTxnMarkerTopic(NamedTuple):
    name: str = ""
    partition_indexes: Sequence[int] = ()


class WritableTxnMarker(NamedTuple):
    producer_id: int = 0
    producer_epoch: int = 0
    transaction_result: bool = False
    topics: Sequence[WritableTxnMarkerTopic] = ()
    coordinator_epoch: int = 0
    transaction_version: int = 0


class WriteTxnMarkersRequest(NamedTuple):
    markers: Sequence[WritableTxnMarker] = ()


WRITE_TXN_MARKERS_REQUEST = Message(
    27,
    True,
    WriteTxnMarkersRequest,
    (1, 2),
    1,
    {
        WritableTxnMarkerTopic: (
            Field("name", "string"),
            Field("partition_indexes", "int32", array=True),
        ),
        WritableTxnMarker: (
            Field("producer_id", "int64"),
            Field("producer_epoch", "int16"),
            Field("transaction_result", "bool"),
            Field("topics", WritableTxnMarkerTopic, array=True),
            Field("coordinator_epoch", "int32"),
            Field("transaction_version", "int8", versions=(2, 2)),
        ),
        WriteTxnMarkersRequest: (Field("markers", WritableTxnMarker, array=True),),
    },
)


class WritableTxnMarkerPartitionResult(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class WritableTxnMarkerTopicResult(NamedTuple):
    name: str = ""
    partitions: Sequence[WritableTxnMarkerPartitionResult] = ()


class WritableTxnMarkerResult(NamedTuple):
    producer_id: int = 0
    topics: Sequence[WritableTxnMarkerTopicResult] = ()


class WriteTxnMarkersResponse(NamedTuple):
    markers: Sequence[WritableTxnMarkerResult] = ()


WRITE_TXN_MARKERS_RESPONSE = Message(
    27,
    False,
    WriteTxnMarkersResponse,
    (1, 2),
    1,
    {
        WritableTxnMarkerPartitionResult: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
        ),
        WritableTxnMarkerTopicResult: (
            Field("name", "string"),
            Field("partitions", WritableTxnMarkerPartitionResult, array=True),
        ),
        WritableTxnMarkerResult: (
            Field("producer_id", "int64"),
            Field("topics", WritableTxnMarkerTopicResult, array=True),
        ),
        WriteTxnMarkersResponse: (Field("markers", WritableTxnMarkerResult, array=True),),
    },
)

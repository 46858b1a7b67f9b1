"""Produce requests from batches, and outcomes of batches from answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.client.cluster.exchange import api_key_of
from ottla.client.errors import KafkaError, kafka_error
from ottla.client.producer.batches import Delivered
from ottla.client.producer.types import RecordTooLarge
from ottla.wire.compression import Codec
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.cluster.view import TopicPartition
    from ottla.client.producer.batches import Batch, Outcome

PRODUCE_WITH_NAMES: Final = 12  # from version 13 on topics go by their ids
PRODUCE_WITH_ZSTD: Final = 7
PRODUCE_WITH_TRANSACTIONS: Final = 3
PRODUCE_TO_ADDED: Final = 11  # from version 12 on brokers add partitions to the transaction
PRODUCE: Final = api_key_of(ProduceRequest())
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


def produce_versions(codec: Codec, *, transactional: bool) -> tuple[int, int]:
    """In which versions a request means what a producer means."""
    low = PRODUCE_WITH_TRANSACTIONS if transactional else 0
    high = PRODUCE_TO_ADDED if transactional else PRODUCE_WITH_NAMES
    return PRODUCE_WITH_ZSTD if codec is Codec.ZSTD else low, high


def produce_request(
    batches: Sequence[Batch[Any]], acks: int, timeout_ms: int, transactional_id: str | None
) -> ProduceRequest:
    """One request with all of them."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in batches:
        data = PartitionProduceData(batch.partition.partition, batch.data)
        topics.setdefault(batch.partition.topic, []).append(data)
    return ProduceRequest(
        transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name, partition_data=data) for name, data in topics.items()],
    )


def outcomes(batches: Sequence[Batch[Any]], answer: ProduceResponse) -> list[Outcome]:
    """What an answer says of each of the batches."""
    found = {
        (topic.name, one.index_): one
        for topic in answer.responses
        for one in topic.partition_responses
    }
    return [_outcome(batch.partition, found.get(batch.partition)) for batch in batches]


def _outcome(partition: TopicPartition, answer: PartitionProduceResponse | None) -> Outcome:
    if answer is None:
        return KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"send to {partition}", "the answer leaves it out"
        )
    if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Delivered(answer.base_offset, answer.log_append_time_ms)
    if answer.error_code in TOO_LARGE:
        return RecordTooLarge(
            f"the broker refuses a batch for {partition} as too large; send smaller records, lower "
            "batch_size and max_request_size, or raise max.message.bytes of the topic"
        )
    details = [one.batch_index_error_message for one in answer.record_errors]
    said = [text for text in (answer.error_message, *details) if text]
    return kafka_error(answer.error_code, f"send to {partition}", "; ".join(said) or None)

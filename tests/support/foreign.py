"""Record batches as two other libraries write and read them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import aiokafka.record.default_records as aiokafka_records
from aiokafka.record.memory_records import MemoryRecords as AiokafkaMemoryRecords

from ottla.wire.records import Record

with warnings.catch_warnings():
    # kafka-python reads its schemas at import in a way that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records as kafka_python_records
    from kafka.record.memory_records import MemoryRecords as KafkaPythonMemoryRecords

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.wire.compression import Codec


class Producer(NamedTuple):
    """What a batch says of the one who sent it."""

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


class Library(NamedTuple):
    """How a library writes a batch and reads a fetch, and the leader epoch that it writes."""

    builder: Callable[..., Any]
    memory_records: Callable[[bytes], Any]
    leader_epoch: int

    def write(self, records: list[Record], codec: Codec, producer: Producer) -> bytearray:
        builder = self.builder(
            magic=2,
            compression_type=int(codec),
            is_transactional=int(producer.transactional),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=producer.base_sequence,
            batch_size=2**30,
        )
        for offset, timestamp, key, value, headers in records:
            assert builder.append(offset, timestamp, key, value, list(headers)) is not None
        return bytearray(builder.build())

    def open(self, data: bytearray) -> Any:
        """The only batch of `data` as the library sees it, its CRC verified by the library."""
        fetched = self.memory_records(bytes(data))
        batch = fetched.next_batch()
        assert not fetched.has_next()
        assert batch.validate_crc()
        return batch


def records_of(batch: Any) -> list[Record]:
    """The records of a batch that a library opened."""
    return [
        Record(one.offset, one.timestamp, one.key, one.value, tuple(map(tuple, one.headers)))
        for one in batch
    ]


LIBRARIES: Final = {
    "aiokafka": Library(aiokafka_records.DefaultRecordBatchBuilder, AiokafkaMemoryRecords, -1),
    "kafka-python": Library(
        kafka_python_records.DefaultRecordBatchBuilder, KafkaPythonMemoryRecords, 0
    ),
}

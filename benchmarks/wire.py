"""The wire room against its peers: writers, decoding to Arrow, encoding from Arrow.

    python -m benchmarks.wire [--quick]

Peers: kio's writer, aiokafka's compiled record reader and builder, and confluent-kafka's Message
objects (`_message_rows`).
"""

from __future__ import annotations

import io
import tracemalloc
import uuid
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from benchmarks._harness import Row, faster, micros, rate, report, take_turns
from benchmarks._message_rows import message_rows
from ottla.wire.arrow import arrow_to_batches, batches_to_arrow
from ottla.wire.messages import message
from ottla.wire.readers import compile_reader
from ottla.wire.writers import compile_writer

RECORDS_PER_BATCH = 1_000
BATCHES = 100
RECORDS = RECORDS_PER_BATCH * BATCHES
VALUE = b"v" * 100
NOW_MS = 1_700_000_000_000


def main() -> None:
    rows = [*writer_rows(), *decode_rows(), *encode_rows(), copies_row()]
    packages = ("kio", "aiokafka", "confluent-kafka", "pyarrow", "numba")
    report("wire: bytes, messages, columns", rows, packages)


# -- writers --------------------------------------------------------------------------------------


def writer_rows() -> list[Row]:
    cases = {
        "write Produce v11 response, 8 partitions": (0, 11, _produce_response()),
        "write Fetch v17 response, 4 x 1 KiB": (1, 17, _fetch_response()),
        "write Metadata v12 response, 20 x 10 partitions": (3, 12, _metadata_response()),
        "write ShareFetch v2 response, 4 x 1 KiB": (78, 2, _share_fetch_response()),
    }
    return [_writer_row(what, *case) for what, case in cases.items()]


def _writer_row(what: str, api_key: int, version: int, ours: Any) -> Row:
    spec = message(api_key, request=False)
    write = compile_writer(spec, version)
    data = b"".join(write(ours))
    kio_type = load_response_schema(api_key, version)
    kio_entity = _kio_entity(kio_type, data)
    kio_write = entity_writer(kio_type)

    def peer() -> bytes:
        buffer = io.BytesIO()
        kio_write(buffer, kio_entity)
        return buffer.getvalue()

    assert peer() == data, what
    assert compile_reader(spec, version)(memoryview(data), 0)[1] == len(data)
    own, theirs = take_turns(lambda: write(ours), peer, calls=200)
    return faster(what, own, theirs, 5, micros)


def _kio_entity(kio_type: type[Any], data: bytes) -> Any:
    return entity_reader(kio_type)(data, 0)[0]


def _produce_response() -> Any:
    from ottla.wire.schema import produce

    partitions = [produce.PartitionProduceResponse(i, 0, 1_000_000 + i, -1, 5) for i in range(8)]
    return produce.ProduceResponse([produce.TopicProduceResponse("orders", b"", partitions)])


def _fetch_response() -> Any:
    from ottla.wire.schema import fetch

    partitions = [
        fetch.PartitionData(
            i, 0, 100, 100, 0, aborted_transactions=None, records=memoryview(b"r" * 1024)
        )
        for i in range(4)
    ]
    topic = fetch.FetchableTopicResponse(topic_id=uuid.uuid4().bytes, partitions=partitions)
    return fetch.FetchResponse(responses=[topic])


def _metadata_response() -> Any:
    from ottla.wire.schema import metadata

    partitions = [
        metadata.MetadataResponsePartition(0, i, 1, 3, (1, 2, 3), (1, 2, 3)) for i in range(10)
    ]
    topics = [
        metadata.MetadataResponseTopic(0, f"topic-{i}", uuid.uuid4().bytes, partitions=partitions)
        for i in range(20)
    ]
    brokers = [metadata.MetadataResponseBroker(i, "localhost", 9092 + i) for i in range(3)]
    return metadata.MetadataResponse(
        brokers=brokers, cluster_id="cluster", controller_id=1, topics=topics
    )


def _share_fetch_response() -> Any:
    from ottla.wire.schema import share_fetch

    partitions = [
        share_fetch.PartitionData(
            i,
            ErrorCode.none.value,
            records=memoryview(b"r" * 1024),
            acquired_records=[share_fetch.AcquiredRecords(n, n + 9, 1) for n in range(0, 30, 10)],
        )
        for i in range(4)
    ]
    topic = share_fetch.ShareFetchableTopicResponse(uuid.uuid4().bytes, partitions)
    return share_fetch.ShareFetchResponse(responses=[topic])


# -- decoding -------------------------------------------------------------------------------------


def _batches(value: bytes, records: int, batches: int) -> bytes:
    """What a fetch answer holds, built by aiokafka."""
    return b"".join(_aiokafka_batch(value, records) for _ in range(batches))


def _aiokafka_batch(value: bytes, records: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset in range(records):
        builder.append(offset, NOW_MS + offset, b"key-%04d" % (offset % 10_000), value, [])
    return bytes(builder.build())


def decode_rows() -> list[Row]:
    data = _batches(VALUE, RECORDS_PER_BATCH, BATCHES)

    def ours() -> pa.RecordBatch:
        return batches_to_arrow(data, "orders", 0)

    def aiokafka() -> int:
        count = 0
        reader = MemoryRecords(data)
        while (batch := reader.next_batch()) is not None:
            assert batch.validate_crc()
            for record in batch:
                _ = (record.key, record.value, record.offset, record.timestamp)
                count += 1
        return count

    assert aiokafka() == ours().num_rows == RECORDS
    own, theirs = take_turns(ours, aiokafka)
    what = "decode 100-byte records to Arrow, peer aiokafka"
    return [faster(what, own, theirs, 2, rate(RECORDS)), *message_rows()]


# -- encoding -------------------------------------------------------------------------------------


def encode_rows() -> list[Row]:
    keys = [b"key-%04d" % (i % 10_000) for i in range(RECORDS)]
    stamps = range(NOW_MS, NOW_MS + RECORDS)
    table = pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([VALUE] * RECORDS, pa.binary()),
            "timestamp": pa.array(stamps, pa.timestamp("ms", tz="UTC")),
        }
    )
    chunks = [keys[i : i + RECORDS_PER_BATCH] for i in range(0, RECORDS, RECORDS_PER_BATCH)]

    def ours() -> list[memoryview]:
        return arrow_to_batches(table, now_ms=NOW_MS, key="key", timestamp="timestamp")

    def aiokafka() -> None:
        for chunk in chunks:
            builder = DefaultRecordBatchBuilder(
                magic=2,
                compression_type=0,
                is_transactional=0,
                producer_id=-1,
                producer_epoch=-1,
                base_sequence=-1,
                batch_size=1 << 30,
            )
            for offset, key in enumerate(chunk):
                builder.append(offset, NOW_MS + offset, key, VALUE, [])
            builder.build()

    assert batches_to_arrow(ours(), "orders", 0).num_rows == RECORDS
    own, theirs = take_turns(ours, aiokafka)
    return [faster("encode from Arrow, peer aiokafka's builder", own, theirs, 5, rate(RECORDS))]


# -- memory ---------------------------------------------------------------------------------------


def copies_row() -> Row:
    """Bytes of heap that decoding allocates for each byte of value: 1 means one copy."""
    data = _batches(b"x" * 10_240, 100, 40)
    values = 10_240 * 100 * 40
    batches_to_arrow(data, "orders", 0, columns=["value"])
    pool = pa.default_memory_pool()
    arrow_before = pool.bytes_allocated()
    tracemalloc.start()
    decoded = batches_to_arrow(data, "orders", 0, columns=["value"])
    _, python_peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    allocated = pool.bytes_allocated() - arrow_before + python_peak
    assert decoded.num_rows == 4_000
    copies = allocated / values
    return Row(
        "heap allocated per byte of uncompressed value",
        f"{allocated / 1e6:.1f} MB",
        f"{values / 1e6:.1f} MB of values",
        copies,
        (copies, copies),
        1.01,  # one copy, and the offsets column beside it
        at_most=True,
    )


if __name__ == "__main__":
    main()

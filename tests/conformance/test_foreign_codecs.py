"""Batches cross over to two foreign implementations and back, in every codec.

Each example builds the same records here and there, and each side reads what the other wrote.
The ten pairs of library and codec take a thousand examples each.
"""

from __future__ import annotations

import inspect
import random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire.builder import build_control_batch
from ottla.wire.compression import Codec
from ottla.wire.records import ControlType, Record, iter_records, read_control_record
from tests.support.batches import opened, record_lists
from tests.support.build import build_batch
from tests.support.foreign import LIBRARIES, Library, Producer, records_of

EXAMPLES: Final = max(1_000, settings().max_examples)

# Both libraries send a batch uncompressed where compression does not pay. With this it does.
FILLER: Final = b"ottla " * 60

each_library = pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
each_codec = pytest.mark.parametrize("codec", Codec, ids=[codec.name.lower() for codec in Codec])


def producers() -> st.SearchStrategy[Producer]:
    known = st.builds(
        Producer,
        producer_id=st.integers(0, 2**62),
        producer_epoch=st.integers(0, 2**15 - 1),
        base_sequence=st.integers(0, 2**31 - 1),
        transactional=st.booleans(),
    )
    return st.just(Producer()) | known


def check_crossing(
    library: Library, codec: Codec, records: list[Record], producer: Producer
) -> None:
    ours = build_batch(
        records,
        codec=codec,
        partition_leader_epoch=library.leader_epoch,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=producer.base_sequence,
        transactional=producer.transactional,
    )
    theirs = library.write(records, codec, producer)
    if codec is Codec.NONE:
        assert ours == theirs

    there = library.open(ours)
    assert there.compression_type == codec
    assert there.next_offset == len(records)
    assert producer == (
        there.producer_id,
        there.producer_epoch,
        there.base_sequence,
        there.is_transactional,
    )
    assert records_of(there) == records

    ours_here, theirs_here = opened(ours), opened(theirs)
    assert theirs_here.codec == codec
    assert list(iter_records(theirs_here)) == records
    for field in ("attributes", "last_offset_delta", "base_timestamp", "max_timestamp"):
        assert getattr(theirs_here, field) == getattr(ours_here, field)
    for field in ("producer_id", "producer_epoch", "base_sequence", "record_count"):
        assert getattr(theirs_here, field) == getattr(ours_here, field)


@each_library
@each_codec
@settings(max_examples=EXAMPLES)
@given(records=record_lists(min_size=1), producer=producers())
def test_batches_cross_both_ways(
    library: Library, codec: Codec, records: list[Record], producer: Producer
) -> None:
    filled = [records[0]._replace(value=FILLER), *records[1:]]
    check_crossing(library, codec, filled, producer)


@each_library
@each_codec
def test_a_batch_of_many_blocks_crosses_both_ways(library: Library, codec: Codec) -> None:
    noise = random.Random(3)
    records = [
        Record(offset, offset * 7, b"%d" % offset, FILLER + noise.randbytes(300))
        for offset in range(1_000)
    ]
    check_crossing(library, codec, records, Producer())


@each_library
@each_codec
def test_batches_back_from_a_log_are_read_there(library: Library, codec: Codec) -> None:
    """With an offset and an epoch of the log's, gaps, and the time of the append."""
    records = [Record(2, 5, b"k", FILLER), Record(7, 3, None, None, (("h", None),))]
    data = build_batch(records, codec=codec)
    batch = opened(data)
    batch.assign(2**40, 3)
    batch.set_max_timestamp(99, log_append_time=True)
    there = library.open(data)
    assert (there.base_offset, there.next_offset, there.timestamp_type) == (2**40, 2**40 + 8, 1)
    expected = [one._replace(offset=2**40 + one.offset, timestamp=99) for one in records]
    assert records_of(there) == list(iter_records(batch)) == expected


@each_library
@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_transaction_markers_are_read_there(library: Library, kind: ControlType) -> None:
    from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord

    data = build_control_batch(
        kind, producer_id=7, producer_epoch=1, coordinator_epoch=4, timestamp=50, base_offset=9
    )
    there = library.open(data)
    assert there.is_control_batch
    assert there.is_transactional
    assert (there.producer_id, there.producer_epoch, there.base_sequence) == (7, 1, -1)
    (marker,) = there
    assert (marker.offset, marker.timestamp) == (9, 50)
    expected = COMMIT_MARKER if kind is ControlType.COMMIT else ABORT_MARKER
    assert ControlRecord.parse(marker.key) == expected
    if library is LIBRARIES["kafka-python"]:
        assert (marker.version, marker.abort, marker.commit) == (0, not kind, bool(kind))
    assert read_control_record(opened(data)).type is kind


def test_the_compiled_aiokafka_and_the_pure_kafka_python_are_what_runs() -> None:
    compiled, pure = LIBRARIES["aiokafka"], LIBRARIES["kafka-python"]
    for part in (compiled.builder, compiled.memory_records):
        assert part.__module__.startswith("aiokafka.record._crecords")
    for part in (pure.builder, pure.memory_records):
        assert inspect.getsourcefile(part)
        assert part.__module__.startswith("kafka.record")

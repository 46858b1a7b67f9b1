"""Delivered bytes as records and as columns: both are what was acquired, and nothing else."""

from __future__ import annotations

import asyncio
import struct

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.cluster.view import TopicPartition
from ottla.client.share.arrow import read_columns
from ottla.client.share.bulk import FEWEST, read_bulk, read_many
from ottla.client.share.decode import Arrival, BulkLoader, load_bulk, read_records, sound_batches
from ottla.client.share.delivery import WAITING, Delivery
from ottla.client.share.types import Kind, ShareRecord, UndecodableRecords
from ottla.wire.batch import CRC_START, HEADER_SIZE
from ottla.wire.builder import build_control_batch
from ottla.wire.compression import Codec
from ottla.wire.records import ControlType, Record
from ottla.wire.schema.share_fetch import AcquiredRecords
from tests.support.build import build_batch

END = 60


def arrival(records: bytes, *acquired: AcquiredRecords) -> Arrival:
    key = (b"t" * 16, 3)
    delivery = Delivery(1, 1, key, TopicPartition("t", 3), acquired, expires=100.0)
    return Arrival(delivery, memoryview(records))


def record_at(offset: int) -> Record:
    return Record(offset, 1000 + offset, None, b"%d" % offset, (("n", b"%d" % offset),))


def read_bulky(one: Arrival) -> tuple[list[ShareRecord], UndecodableRecords | None]:
    return read_records(one, read_bulk)


def states(one: Arrival) -> dict[int, int]:
    return {
        span.first + at: state
        for span in one.delivery.spans
        for at, state in enumerate(span.states)
    }


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, set[int]]:
    """Batches one after another, with records missing, some of them markers of transactions."""
    data = bytearray()
    offsets: set[int] = set()
    base = 0
    while base < END:
        size = draw(st.integers(1, 15))
        if draw(st.integers(0, 4)) == 0:
            data += build_control_batch(
                ControlType.COMMIT,
                producer_id=1,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=0,
                base_offset=base,
            )
            base += 1
            continue
        kept = sorted(draw(st.sets(st.integers(base, base + size - 1), min_size=1)))
        codec = draw(st.sampled_from([Codec.NONE, Codec.GZIP]))
        data += build_batch([record_at(one) for one in kept], base_offset=base, codec=codec)
        offsets |= set(kept)
        base += size
    return bytes(data), offsets


@st.composite
def ranges(draw: st.DrawFn) -> list[AcquiredRecords]:
    """Ascending, apart or side by side, with counts of their own."""
    found: list[AcquiredRecords] = []
    at = draw(st.integers(0, 10))
    while at < END and (not found or draw(st.booleans())):
        last = at + draw(st.integers(0, 9))
        found.append(AcquiredRecords(at, last, draw(st.integers(1, 5))))
        at = last + 1 + draw(st.integers(0, 5))
    return found


@given(log=logs(), acquired=ranges())
def test_records_and_columns_are_what_was_acquired(
    log: tuple[bytes, set[int]], acquired: list[AcquiredRecords]
) -> None:
    data, offsets = log
    counts = {
        offset: one.delivery_count
        for one in acquired
        for offset in range(one.first_offset, one.last_offset + 1)
    }
    expected = [(one, counts[one]) for one in sorted(offsets & counts.keys())]

    by_record = arrival(data, *acquired)
    records, spoiled = read_records(by_record)
    assert spoiled is None
    assert [(one.offset, one.delivery_count) for one in records] == expected
    assert all(one.value == b"%d" % one.offset == one.headers[0][1] for one in records)

    by_column = arrival(data, *acquired)
    batches, spoiled = read_columns(by_column)
    assert spoiled is None
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["offset"], row["deliveryCount"]) for row in rows] == expected
    assert all(row["value"] == b"%d" % row["offset"] for row in rows)

    wanted = {one: WAITING if one in offsets else Kind.GAP for one in counts}
    assert states(by_record) == states(by_column) == wanted


def test_bytes_in_which_no_batch_is_found_are_given_back() -> None:
    whole = bytes(build_batch([record_at(0), record_at(1)], base_offset=0))
    for read in (read_records, read_bulky, read_columns):
        one = arrival(whole + b"\x00" * 8 + b"\xff" * 100, AcquiredRecords(0, 4, 1))
        found, spoiled = read(one)
        assert found
        assert "from offset 2 on is given back" in str(spoiled)
        assert states(one) == dict(enumerate([WAITING, WAITING] + [Kind.RELEASE] * 3))


def test_a_batch_that_cannot_be_read_does_not_take_the_others_along() -> None:
    lying = build_batch([record_at(0)], base_offset=0)
    # One record more than there is, under a checksum that is right.
    struct.pack_into(">i", lying, HEADER_SIZE - 4, 2)
    struct.pack_into(">I", lying, CRC_START - 4, crc32c(lying[CRC_START:]))
    good = build_batch([record_at(1)], base_offset=1)
    for read in (read_records, read_bulky, read_columns):
        one = arrival(bytes(lying + good), AcquiredRecords(0, 1, 1))
        _, spoiled = read(one)
        assert "offsets 0 to 0 are rejected" in str(spoiled)
        assert states(one) == {0: Kind.REJECT, 1: WAITING}


@given(
    acquired=ranges(),
    records=st.lists(
        st.tuples(
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=200),
            st.integers(0, 20_000),
        ),
        min_size=1,
        max_size=40,
    ),
    per_batch=st.integers(1, 40),
    codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
)
def test_compiled_code_reads_the_same_records(
    acquired: list[AcquiredRecords],
    records: list[tuple[bytes | None, bytes | None, int]],
    per_batch: int,
    codec: Codec,
) -> None:
    data = bytearray()
    for base in range(0, len(records), per_batch):
        some = records[base : base + per_batch]
        data += build_batch(
            [Record(base + at, time, key, value) for at, (key, value, time) in enumerate(some)],
            base_offset=base,
            codec=codec,
        )
    plain, bulk = (arrival(bytes(data), *acquired) for _ in range(2))
    found, _ = read_records(plain)
    batches, _ = sound_batches(bulk)
    assert read_bulk(bulk.delivery, batches) == found
    assert states(bulk) == states(plain)


def test_compiled_code_leaves_what_is_unusual_to_the_other() -> None:
    with_headers = build_batch([record_at(0), record_at(1)], base_offset=0)
    early = build_batch([Record(0, -(2**62), None, b"early")], base_offset=0)
    for data in (with_headers, early):
        one = arrival(bytes(data), AcquiredRecords(0, 1, 1))
        assert read_bulk(one.delivery, sound_batches(one)[0]) is None
        assert states(one) == {0: Kind.GAP, 1: Kind.GAP}


def test_compiled_code_reads_many_alone() -> None:
    for count, is_many in ((FEWEST - 1, False), (FEWEST, True)):
        data = build_batch([Record(at, 0, None, b"v") for at in range(count)], base_offset=0)
        one = arrival(bytes(data), AcquiredRecords(0, count - 1, 1))
        assert (read_many(one.delivery, sound_batches(one)[0]) is not None) is is_many


async def test_compiled_code_is_loaded_when_many_have_come() -> None:
    loader = BulkLoader()
    assert loader.reader is None  # it is being loaded, since this module has it
    async with asyncio.timeout(60):
        while loader.reader is None:  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.01)
    assert loader.reader is load_bulk() is read_many

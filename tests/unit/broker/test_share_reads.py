"""What a turn at a share-partition looks at of a read, and what leaves of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.share_reads import batches_before, slices
from tests.support.log_batches import batch_of

if TYPE_CHECKING:
    from ottla.wire.batch import RecordBatch


@st.composite
def chunked_logs(draw: st.DrawFn) -> list[list[RecordBatch]]:
    """Batches at growing offsets, with gaps, as they lie in the chunks of a read."""
    chunks: list[list[RecordBatch]] = []
    offset = 0
    for records in draw(st.lists(st.integers(1, 5), min_size=1, max_size=12)):
        batch = batch_of(*[b"v" * draw(st.integers(0, 9))] * records)
        batch.assign(offset + draw(st.integers(0, 9)), 0)
        offset = batch.next_offset
        if not chunks or draw(st.booleans()):
            chunks.append([])
        chunks[-1].append(batch)
    return chunks


@given(chunked_logs(), st.integers(0, 120), st.data())
def test_a_turn_sees_a_prefix_and_gets_the_bytes_it_names(
    log: list[list[RecordBatch]], stop: int, data: st.DataObject
) -> None:
    first, *others = [batch for chunk in log for batch in chunk]
    expected = [first, *(batch for batch in others if batch.base_offset < stop)]
    read = batches_before(stop, [b"".join(batch.data for batch in chunk) for chunk in log])
    seen = [batch for _, batches in read for batch in batches]
    assert [batch.base_offset for batch in seen] == [batch.base_offset for batch in expected]

    low = data.draw(st.integers(0, len(seen)))
    high = data.draw(st.integers(low, len(seen)))
    pieces = slices(read, range(low, high))
    assert b"".join(pieces) == b"".join(batch.data for batch in expected[low:high])
    assert all(pieces)
    assert len(pieces) <= len(log)

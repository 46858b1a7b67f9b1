"""The reader's buffer: whatever the order of events, rows come out as they went in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.reader.buffer import Buffer
from ottla.client.reader.rows import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 40
CHUNK_BYTES = 10


class Model:
    """A buffer beside plain lists of what is in it. A chunk holds rows and ends with a gap of 2."""

    def __init__(self) -> None:
        self.buffer: Buffer[int] = Buffer(LIMIT)
        self.written: dict[int, int] = {0: 0, 1: 0}
        self.coming: dict[int, list[int]] = {0: [], 1: []}
        for number in self.written:
            self.buffer.moved(number, 0)

    def fetch(self, number: int, rows: int) -> None:
        start = self.written[number]
        self.written[number] = start + rows + 2
        self.coming[number] += range(start, start + rows)
        records = memoryview(bytes([rows]) * CHUNK_BYTES)
        self.buffer.add(number, Chunk("t", number, start, None, start + rows + 2, records))

    def decode(self, number: int, rows: int) -> None:
        chunk = self.buffer.next_chunk()
        if chunk is None:
            return
        offsets = list(range(chunk.start, chunk.next_offset - 2)) if chunk.records else []
        pieces = [offsets] if rows < 2 else [offsets[:1], offsets[1:]]
        made = [pa.RecordBatch.from_pydict({"offset": one}) for one in pieces if one]
        self.buffer.replace(chunk, made)

    def take(self, number: int, rows: int) -> None:
        head = self.buffer.head()
        if head is None or rows == 0:
            return
        due = self.coming[head.key]
        batch: pa.RecordBatch = self.buffer.take(rows)
        taken = batch.column("offset").to_pylist()
        assert taken == due[: len(taken)]
        del due[: len(taken)]
        assert self.buffer.positions[head.key] > taken[-1]
        assert not due or self.buffer.positions[head.key] <= due[0]

    def forget(self, number: int, rows: int) -> None:
        self.buffer.forget(number)
        assert number not in self.buffer.positions
        self.coming[number].clear()
        self.buffer.moved(number, self.written[number])

    def jump(self, number: int, rows: int) -> None:
        self.written[number] += 100
        self.buffer.moved(number, self.written[number])


STEPS: dict[str, Callable[[Model, int, int], None]] = {
    "fetch": Model.fetch,
    "decode": Model.decode,
    "take": Model.take,
    "forget": Model.forget,
    "jump": Model.jump,
}


@given(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 1), st.integers(0, 4))),
)
def test_rows_come_out_as_they_went_in(steps: list[tuple[str, int, int]]) -> None:
    model = Model()
    for name, number, rows in steps:
        STEPS[name](model, number, rows)
    while model.buffer.is_decoding or model.buffer.head() is not None:
        model.decode(0, 0)
        model.take(0, 3)
    assert model.coming == {0: [], 1: []}
    assert model.buffer.positions == model.written
    assert model.buffer.nbytes == 0


def test_chunks_wait_for_room() -> None:
    model = Model()
    for _ in range(3):
        model.fetch(0, 4)
    model.decode(0, 0)
    assert model.buffer.nbytes == 32 + 2 * CHUNK_BYTES
    assert model.buffer.next_chunk() is None
    model.take(0, 4)
    assert model.buffer.nbytes == 2 * CHUNK_BYTES
    assert model.buffer.next_chunk() is not None


def test_a_chunk_that_was_forgotten_while_it_was_decoded() -> None:
    model = Model()
    model.fetch(0, 4)
    model.fetch(1, 4)
    chunk = model.buffer.next_chunk()
    assert chunk is not None
    model.forget(0, 0)
    model.buffer.replace(chunk, [pa.RecordBatch.from_pydict({"offset": [0, 1, 2, 3]})])
    assert model.buffer.head() is None
    model.decode(1, 0)
    model.take(1, 4)
    assert model.buffer.positions == {0: 6, 1: 6}

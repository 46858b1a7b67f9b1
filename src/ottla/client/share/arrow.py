"""Acquired records of a share fetch as Arrow columns.

The columns are those of Spark's Kafka source, headers included, and `deliveryCount`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from ottla.client.arguments import wrong_type
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import BadArgument
from ottla.client.share.bulk import claim
from ottla.client.share.decode import reject, sound_batches
from ottla.client.share.delivery import Delivery
from ottla.wire.arrow import SCHEMA, ColumnTooLarge, batches_to_arrow
from ottla.wire.batch import read_batch
from ottla.wire.builder import BatchBuilder
from ottla.wire.errors import WireError
from ottla.wire.schema.share_fetch import AcquiredRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.client.share.decode import Arrival
    from ottla.client.share.types import UndecodableRecords
    from ottla.wire.batch import RecordBatch

DELIVERY_COUNT: Final = pa.field("deliveryCount", pa.int32())
PLACES: Final = ("topic", "partition", "offset")
SHARE_SCHEMA: Final = SCHEMA.append(DELIVERY_COUNT)


def read_columns(arrival: Arrival) -> tuple[list[pa.RecordBatch], UndecodableRecords | None]:
    """The acquired records, now waiting to be given to the caller; the last thing that is wrong."""
    delivery = arrival.delivery
    batches, spoiled = sound_batches(arrival)
    try:
        return _acquired(delivery, batches), spoiled
    except (WireError, ColumnTooLarge):
        # One of them cannot be read, or they are too much for one column.
        pass
    found: list[pa.RecordBatch] = []
    for batch in batches:
        try:
            found += _acquired(delivery, [batch])
        except WireError as error:
            spoiled = reject(delivery, batch, error)
    return found, spoiled


def table_of(found: Sequence[pa.RecordBatch]) -> pa.Table:
    """The table that a poll returns."""
    return pa.Table.from_batches(found, schema=SHARE_SCHEMA)


def runs(rows: pa.RecordBatch | pa.Table) -> Iterator[tuple[TopicPartition, int, int]]:
    """Which offsets rows of a poll stand for: partitions with the first of a run and its end."""
    if not isinstance(rows, pa.RecordBatch | pa.Table):
        raise wrong_type("what", "a ShareRecord of poll, or rows of poll_arrow", rows)
    missing = set(PLACES) - set(rows.schema.names)
    if missing:
        raise BadArgument(f"rows to acknowledge need the columns {', '.join(sorted(missing))}")
    try:
        columns = {name: rows.column(name).cast(SCHEMA.field(name).type) for name in PLACES}
    except pa.ArrowException as error:
        raise BadArgument(f"rows to acknowledge need the columns of poll_arrow: {error}") from None
    table = pa.table(columns).drop_null()
    for place in (
        table.group_by(["topic", "partition"]).aggregate([("offset", "list")]).to_batches()
    ):
        for topic, partition, found in zip(
            place.column("topic").to_pylist(),
            place.column("partition").to_pylist(),
            place.column("offset_list"),
            strict=True,
        ):
            offsets = np.unique(found.values.to_numpy())
            starts = np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 2) != 1)
            lasts = np.append(starts[1:], len(offsets)) - 1
            for first, last in zip(offsets[starts].tolist(), offsets[lasts].tolist(), strict=True):
                yield TopicPartition(topic, partition), first, last + 1


def warm_up() -> None:
    """Call the compiled code, and what Arrow loads when it is first used."""
    builder = BatchBuilder()
    builder.append(b"v", timestamp=0, key=b"k", headers=[("h", b"1")])
    delivery = Delivery(0, 0, (b"", 0), TopicPartition("t", 0), [AcquiredRecords(0, 0, 1)], 0.0)
    for rows in _acquired(delivery, [read_batch(memoryview(builder.build()))]):
        list(runs(rows))


def _acquired(delivery: Delivery, batches: Sequence[RecordBatch]) -> list[pa.RecordBatch]:
    topic, partition = delivery.partition
    rows = batches_to_arrow(
        [batch.data for batch in batches],
        topic,
        partition,
        columns=SCHEMA.names,
        start_offset=delivery.firsts[0],
        end_offset=delivery.spans[-1].end,
        verify_crc=False,  # done, to know which of them is broken
    )
    if not rows.num_rows:
        return []
    chosen, counts = claim(delivery, rows.column("offset").to_numpy())
    if len(counts) < rows.num_rows:
        rows = rows.take(pa.array(chosen))
    if not rows.num_rows:
        return []
    return [pa.RecordBatch.from_arrays([*rows.columns, pa.array(counts)], schema=SHARE_SCHEMA)]

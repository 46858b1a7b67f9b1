"""Pieces of objects as Arrow batches. Runs in Spark's workers.

A few pieces are read and decoded ahead of the one that Spark takes. If the object of a piece is
missing or damaged, the piece is read from the broker by its offsets, if there is a broker; if the
broker does not have it either, that is data loss.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.objects.errors import RemoteStorageError
from ottla.spark.background import background, freeze_loaded
from ottla.spark.log.backend import report_loss
from ottla.spark.log.planning import Range
from ottla.spark.options import LOG
from ottla.spark.tier.settings import store_of
from ottla.tier.errors import CorruptRemoteData
from ottla.tier.reader import SegmentGone, read_split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from ottla.spark.options import SourceOptions
    from ottla.spark.tier.planning import Piece

AHEAD: Final = 4


def read_pieces(
    pieces: Sequence[Piece], options: SourceOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of the pieces, in order."""
    assert options.tier is not None
    store = store_of(options.tier)
    loop = background()
    waiting = deque(pieces)
    ahead: deque[tuple[Piece, Future[list[pa.RecordBatch]]]] = deque()
    try:
        while waiting or ahead:
            while waiting and len(ahead) < AHEAD:
                piece = waiting.popleft()
                split = piece.split._replace(first_offset=piece.first, last_offset=piece.end - 1)
                ahead.append((piece, loop.start(read_split(store, split, columns=columns))))
            piece, future = ahead.popleft()
            try:
                batches = future.result()
            except RemoteStorageError as error:
                yield from _without_object(piece, error, options, columns)
                continue
            for batch in batches:
                yield from _slices(batch, options.read_rows)
            freeze_loaded()
    finally:
        for _, future in ahead:
            future.cancel()


def _slices(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _without_object(
    piece: Piece, error: RemoteStorageError, options: SourceOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    from ottla.spark.log.reading import read_ranges

    assert options.tier is not None
    if options.tier.mode == "auto":
        LOG.warning("%s; offsets %d to %d come from the broker", error, piece.first, piece.end)
        yield from read_ranges([Range(*piece[:5])], options, columns)
    elif isinstance(error, SegmentGone | CorruptRemoteData):
        place = f"{piece.topic}-{piece.partition}"
        report_loss(
            f"{place} from offset {piece.first} to {piece.end} cannot be read: {error}",
            fail=options.fail_on_data_loss,
        )
    else:
        raise error

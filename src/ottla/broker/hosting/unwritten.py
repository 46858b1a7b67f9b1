"""The read-only view of a partition that was never written.

It has no directory and no file. All its offsets are 0 and nothing can be read from it. Readers that
wait for its first record wait at the hosted partition, which gets a log with the first append.
It has only the methods of readers: an append opens the partition first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.epochs import LeaderEpochs
from ottla.log.errors import OffsetOutOfRange, PolicyViolation
from ottla.log.reading import ReadResult

if TYPE_CHECKING:
    from ottla.log.config import LogConfig
    from ottla.wire.batch import RecordBatch


class UnwrittenLog:
    """The log of a partition that has none yet."""

    log_start_offset = local_start_offset = 0
    last_stable_offset = high_watermark = log_end_offset = 0
    recovery_point = unflushed = size_bytes = 0
    segments = ()
    online = True

    def __init__(self, config: LogConfig) -> None:
        self.config = config

    @property
    def epochs(self) -> LeaderEpochs:
        return LeaderEpochs()

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound_offset: int,
        min_one_message: bool,
        wait: bool = True,
        views: bool = False,
    ) -> ReadResult:
        if offset != 0:
            raise OffsetOutOfRange(f"offset {offset} is not in 0..0")
        return ReadResult([], 0)

    read_files = read

    def look_up(
        self, offset: int, stop_offset: int, max_bytes: int, *, upper_bound_offset: int
    ) -> None:
        """Nothing is here; `read` says so."""

    def may_have_aborted(self, first: int) -> bool:
        return False

    def aborted_transactions(self, first: int, end: int) -> list[object]:
        return []

    def offset_for_timestamp(self, timestamp: int) -> None:
        return None

    def max_timestamp_offset(self) -> None:
        return None

    def producers(self) -> list[object]:
        return []

    def producer(self, producer_id: int) -> None:
        return None

    def check_coordinator(self, batch: RecordBatch) -> None:
        """Nothing is refused: no producer has been here."""

    def end_offset_for_epoch(self, epoch: int) -> None:
        return None

    def delete_records_before(self, offset: int) -> int:
        if not self.config.deletes:
            raise PolicyViolation("records of a topic that is only compacted cannot be deleted")
        if offset not in (0, -1):
            raise OffsetOutOfRange(f"cannot delete to {offset}, the high watermark is 0")
        return 0

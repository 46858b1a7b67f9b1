"""The exactly-once sink with a process that ends, stalls or lies at a chosen point of a batch.

A query with `format("ottla-faults")` and the option `faults` writes as `ottla` does, row by row.
When a batch comes to the point that a file `order` in that directory names, the file is taken away
and what it asks for happens: the process ends as if killed, or one of the things below.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.client.transactions.requests import TransactionCoordinator
from ottla.client.transactions.types import TransactionUnresolved
from ottla.spark.sink import sink
from ottla.spark.sink.exactly_once import OnceStreamWriter, Task
from ottla.spark.source import OttlaSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from ottla.client.producer.batches import Identity
    from ottla.spark.sink.exactly_once import WrittenOnce

FORMAT: Final = "ottla-faults"
LEASED: Final = "leased"
TASK: Final = "task begins"
WRITING: Final = "some rows are acknowledged"
WRITTEN: Final = "a task is done"
COMMITTING: Final = "all tasks are done"
MARKED: Final = "the marker is written"
ENDED: Final = "the transaction is committed"
POINTS: Final = (LEASED, TASK, WRITING, WRITTEN, COMMITTING, MARKED, ENDED)
"""Where a process can end."""
LOST: Final = "the answer to the commit is lost"
RETRIED: Final = "Spark tries a task again"
SLOW: Final = "a task waits for a file `go` between its rows"
HELD: Final = "the driver waits for it after the commit"
THERE: Final = "there"
GO: Final = "go"
NOBODY_ABORTS: Final = "dead"
"""Files: a task is waiting; it need not; the driver has ended with its worker."""
PATIENCE: Final = 300.0


class Faults:
    """The directory of a test."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def order(self, point: str, batch: int) -> None:
        """Have something happen in this batch; what happened before is over."""
        self.forget()
        (self._directory / "order").write_text(f"{batch} {point}")

    def forget(self) -> None:
        """Have nothing happen."""
        for name in ("order", "struck", THERE, GO, NOBODY_ABORTS):
            (self._directory / name).unlink(missing_ok=True)

    def strikes(self, point: str, batch: int) -> bool:
        """Whether it is now, for the only time."""
        order = self._directory / "order"
        try:
            if order.read_text() != f"{batch} {point}":
                return False
            order.rename(self._directory / "struck")
        except FileNotFoundError:  # there is none, or another task was quicker
            return False
        return True

    def end_at(self, point: str, batch: int) -> None:
        if self.strikes(point, batch):
            (self._directory / NOBODY_ABORTS).touch()
            os._exit(1)

    def wait(self) -> None:
        """Say `there`, go on when somebody says `go`."""
        (self._directory / THERE).touch()
        deadline = time.monotonic() + PATIENCE
        while not (self._directory / GO).exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    @property
    def nobody_aborts(self) -> bool:
        return (self._directory / NOBODY_ABORTS).exists()


class FaultySource(OttlaSource):
    """`ottla` for streams that are written exactly once."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> FaultyWriter:  # noqa: N802  # Spark's name
        made = super().streamWriter(schema, overwrite)
        assert isinstance(made, OnceStreamWriter)
        faults = Faults(self.options["faults"])
        if made._lease is not None:
            faults.end_at(LEASED, 0)  # whose turn it is is not known here
        return FaultyWriter(made, faults)


class FaultyWriter(OnceStreamWriter):
    """A writer that looks at the order at each point."""

    def __init__(self, made: OnceStreamWriter, faults: Faults) -> None:
        super().__init__(made._options, made._transactional, made._lease)
        self._faults = faults

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenOnce:
        sink.PARCEL_BYTES = 1  # type: ignore[misc]  # so that rows leave while others come
        task = Task.current(stream=True)
        assert task.batch is not None
        batch = task.batch.number
        self._faults.end_at(TASK, batch)
        if self._faults.strikes(RETRIED, batch):
            return self._write(iterator, Task(task.number, task.attempt + 1, task.batch))
        written = super().write(self._watched(iterator, batch))
        if written.rows:
            self._faults.end_at(WRITTEN, batch)
        return written

    def _watched(self, batches: Iterator[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
        """Row by row: when the third is asked for the first is acknowledged."""
        rows = (batch.slice(row, 1) for batch in batches for row in range(batch.num_rows))
        for place, row in enumerate(rows):
            if place == 2:
                self._faults.end_at(WRITING, number)
                if self._faults.strikes(SLOW, number):
                    self._faults.wait()
            yield row

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        faults = self._faults
        faults.end_at(COMMITTING, batchId)
        real = TransactionCoordinator.end

        async def end(
            self: TransactionCoordinator, identity: Identity, *, commit: bool
        ) -> Identity:
            faults.end_at(MARKED, batchId)
            ended = await real(self, identity, commit=commit)
            faults.end_at(ENDED, batchId)
            if faults.strikes(HELD, batchId):
                faults.wait()
            if faults.strikes(LOST, batchId):
                raise TransactionUnresolved("no answer in time")
            return ended

        TransactionCoordinator.end = end  # type: ignore[method-assign]  # of this process
        try:
            super().commit(messages, batchId)
        finally:
            TransactionCoordinator.end = real  # type: ignore[method-assign]

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        if not self._faults.nobody_aborts:
            super().abort(messages, batchId)

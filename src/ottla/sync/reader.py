"""Reader without async. Made by scripts/generate_sync.py; do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.cluster.cluster import API_TIMEOUT, METADATA_MAX_AGE
from ottla.client.cluster.connection import REQUEST_TIMEOUT
from ottla.client.reader.reader import MAX_WAIT, PREFETCH, RECORDS_AT_ONCE
from ottla.client.reader.reader import Reader as AsyncReader
from ottla.client.security import PLAINTEXT
from ottla.sync.twin import Twin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Self

    import pyarrow as pa

    from ottla.client.cluster.cluster import Client
    from ottla.client.reader.types import Isolation, OnDataLoss, Positions, Record
    from ottla.client.security import Security


class Reader(Twin[AsyncReader]):
    """A context manager and an iterator of `pyarrow.RecordBatch`.

    `start` and `stop` are "earliest", "latest", an offset, a datetime, a `Timestamp`, or a mapping
    of partitions to these; a mapping names the partitions to read. `columns` are names of Spark's
    Kafka source. `topic_id` says which topic of the name is meant. A `Client` given in place of a
    bootstrap list stays open; settings of connections are then its own.

    >>> from ottla.sync import Reader
    >>> with Reader("127.0.0.1:9092", "orders", stop="latest") as reader:
    ...     for batch in reader:
    ...         print(batch.column("value").to_pylist())
    [b'one', b'two', b'three']
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | Client,
        topic: str,
        *,
        start: Positions = "earliest",
        stop: Positions | None = None,
        partitions: Collection[int] | None = None,
        columns: Sequence[str] | None = None,
        isolation_level: Isolation = "read_uncommitted",
        on_data_loss: OnDataLoss = "error",
        prefetch: int = PREFETCH,
        max_batch_rows: int | None = None,
        max_batch_bytes: int | None = None,
        max_wait: float = MAX_WAIT,
        verify_crc: bool = True,
        topic_id: bytes | None = None,
        metadata_max_age: float = METADATA_MAX_AGE,
        client_id: str | None = "ottla-reader",
        security: Security = PLAINTEXT,
        request_timeout: float = REQUEST_TIMEOUT,
        api_timeout: float = API_TIMEOUT,
        max_versions: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(
            lambda: AsyncReader(
                bootstrap,
                topic,
                start=start,
                stop=stop,
                partitions=partitions,
                columns=columns,
                isolation_level=isolation_level,
                on_data_loss=on_data_loss,
                prefetch=prefetch,
                max_batch_rows=max_batch_rows,
                max_batch_bytes=max_batch_bytes,
                max_wait=max_wait,
                verify_crc=verify_crc,
                topic_id=topic_id,
                metadata_max_age=metadata_max_age,
                client_id=client_id,
                security=security,
                request_timeout=request_timeout,
                api_timeout=api_timeout,
                max_versions=max_versions,
            )
        )

    @property
    def topic(self) -> str:
        """As given."""
        return self._async.topic

    @property
    def columns(self) -> tuple[str, ...]:
        """As given."""
        return self._async.columns

    def close(self) -> None:
        """Stop reading ahead, and close the connections unless they are the caller's."""
        self._run(self._async.close())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        found = self._next(self._async)
        if found is None:
            raise StopIteration
        return found[0]

    def records(self) -> Iterator[Record]:
        """The records one by one; `positions` move with each. Needs the default `columns`.

        >>> from ottla.sync import Reader
        >>> with Reader("127.0.0.1:9092", "orders", stop="latest") as reader:
        ...     for record in reader.records():
        ...         print(record.offset, record.value)
        0 b'one'
        1 b'two'
        2 b'three'
        """
        return self._each(self._async.records())

    def read_many(self, max_records: int = RECORDS_AT_ONCE) -> list[Record]:
        """The next records of one partition, as soon as there are any; none at the end.

        >>> from ottla.sync import Reader
        >>> with Reader("127.0.0.1:9092", "orders", stop="latest") as reader:
        ...     while records := reader.read_many():
        ...         print([record.value for record in records])
        [b'one', b'two', b'three']
        """
        return self._run(self._async.read_many(max_records))

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each partition; one that is still being resolved is left out."""
        return self._call(lambda: self._async.positions)

    @property
    def partitions(self) -> list[int]:
        """The partitions that are read."""
        return self._call(lambda: self._async.partitions)

    @property
    def buffered_bytes(self) -> int:
        """Bytes read ahead and held in memory."""
        return self._call(lambda: self._async.buffered_bytes)

    @property
    def throttled_seconds(self) -> float:
        """How long brokers have told this client to wait because it was over a quota.

        It sends such a broker nothing meanwhile; requests wait here.
        """
        return self._call(lambda: self._async.throttled_seconds)

    def seek(self, to: Positions) -> None:
        """Go on elsewhere, in all partitions or in those of a mapping; stops stay.

        >>> from ottla.sync import Reader
        >>> with Reader("127.0.0.1:9092", "orders", stop="latest") as reader:
        ...     reader.seek({0: 2})
        ...     print(reader.positions, reader.lag())
        {0: 2} {0: 1}
        """
        self._run(self._async.seek(to))

    def lag(self) -> dict[int, int]:
        """The number of offsets between each position and the current end of its log."""
        return self._run(self._async.lag())

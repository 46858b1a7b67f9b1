"""The Reader: partitions of a topic as Arrow batches, between two positions or without end.

    async with Reader("127.0.0.1:9092", "orders", start="earliest") as reader:
        async for batch in reader:  # pyarrow.RecordBatch, each of one partition
            ...

Rules:

- Entering resolves every start and every stop; a read that stops at "latest" does not include
  records written later. A read with stops ends when all partitions have reached their stop offsets;
  it waits for offsets that do not exist yet.
- The reader reads ahead in the background, up to `prefetch` bytes. Cancelling or failing a wait for
  a batch loses nothing; the same reader continues at its `positions`.
- The reader waits `api_timeout` seconds for leaders that move and brokers that restart. It reads
  added partitions from their beginning.
- Records that were deleted before they were read, a start beyond the end of the log, and a
  recreated topic raise an error unless `on_data_loss` says where to continue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self, get_args

from ottla.client import arguments
from ottla.client.admin.offsets import OffsetsBesideFetches
from ottla.client.arguments import INT32, INT64
from ottla.client.cluster.cluster import API_TIMEOUT, METADATA_MAX_AGE, Client
from ottla.client.cluster.connection import REQUEST_TIMEOUT
from ottla.client.errors import (
    BadArgument,
    ClientClosed,
    MissingExtra,
    RequestTimedOut,
    afresh,
)
from ottla.client.reader.buffer import Buffer
from ottla.client.reader.planner import Planner
from ottla.client.reader.pump import Pump
from ottla.client.reader.rows import RecordRows, records_of
from ottla.client.reader.types import Isolation, OnDataLoss, Place, place_of
from ottla.client.security import PLAINTEXT, Security
from ottla.randomness import RANDOM
from ottla.wire.columns import COLUMNS, COLUMNS_WITHOUT_HEADERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
    from types import TracebackType

    import pyarrow as pa

    from ottla.client.reader.buffer import Rows
    from ottla.client.reader.rows import Decode
    from ottla.client.reader.types import Positions, Record

PREFETCH: Final = 32 * 1024 * 1024
MAX_WAIT: Final = 0.5  # fetch.max.wait.ms of Kafka's clients

ID_BYTES: Final = 16
# Records are made this many at a time: enough to spread the cost, few enough to wait for.
RECORDS_AT_ONCE: Final = 1000


class Reader:
    """An async context manager and an async iterator of `pyarrow.RecordBatch`.

    `start` and `stop` are "earliest", "latest", an offset, a datetime, a `Timestamp`, or a mapping
    of partitions to these; a mapping names the partitions to read. `columns` are names of Spark's
    Kafka source. `topic_id` says which topic of the name is meant. A `Client` given in place of a
    bootstrap list stays open; settings of connections are then its own.

    >>> from ottla import Reader
    >>> async with Reader("127.0.0.1:9092", "orders", stop="latest") as reader:
    ...     async for batch in reader:
    ...         print(batch.column("value").to_pylist())
    [b'one', b'two', b'three']
    """

    _decode: Decode | None = None
    """How fetched bytes become rows; None: the best that is installed."""

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
        arguments.choice("isolation_level", isolation_level, get_args(Isolation))
        arguments.choice("on_data_loss", on_data_loss, get_args(OnDataLoss))
        arguments.whole("prefetch", prefetch, 1, INT64)
        arguments.optional_whole("max_batch_rows", max_batch_rows, 1, INT64)
        arguments.optional_whole("max_batch_bytes", max_batch_bytes, 1, INT64)
        arguments.real("max_wait", max_wait, 0, INT32 / 1000, "a number of seconds")
        arguments.flag("verify_crc", verify_crc)
        arguments.seconds("metadata_max_age", metadata_max_age)
        if topic_id is not None:
            arguments.instance("topic_id", topic_id, bytes, "16 bytes")
            if len(topic_id) != ID_BYTES:
                raise arguments.bad_value("topic_id", "16 bytes", topic_id)
        self.topic: str = arguments.text("topic", topic, "the name of one topic")
        # As Spark's Kafka source: headers only if asked for.
        self.columns: tuple[str, ...] = (
            COLUMNS_WITHOUT_HEADERS if columns is None else arguments.columns("columns", columns)
        )
        self._may_add_columns = columns is None
        wanted = _partitions(partitions, start, stop)
        self._owns_client = not isinstance(bootstrap, Client)
        self._client = (
            bootstrap
            if isinstance(bootstrap, Client)
            else Client(
                bootstrap,
                client_id=client_id,
                security=security,
                request_timeout=request_timeout,
                api_timeout=api_timeout,
                max_versions=max_versions,
            )
        )
        self._planner = Planner(
            topic=topic,
            start=_places("start", start),
            stop=_no_stop if stop is None else _places("stop", stop),
            partitions=wanted,
            prefetch=prefetch,
            patience=self._client.api_timeout,
            metadata_max_age=metadata_max_age,
            random=RANDOM.random,
            on_data_loss=on_data_loss,
            known_id=topic_id,
        )
        self._buffer: Buffer[int] = Buffer(prefetch)
        self._max_rows = max_batch_rows
        self._max_bytes = max_batch_bytes
        self._pump: Pump[int] | None = None
        self._start_pump: Callable[[], Pump[int]] = lambda: Pump(
            self._client,
            self._planner,
            self._buffer,
            isolation=isolation_level,
            max_wait=max_wait,
            verify_crc=verify_crc,
            columns=self.columns,
            decode=self._decode,
        )

    async def __aenter__(self) -> Self:
        self._client.check_loop()
        self._pump = self._start_pump()
        try:
            await self._until_found()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading ahead, and close the connections unless they are the caller's."""
        self._client.check_loop()
        pump, self._pump = self._pump, None
        if pump is not None:
            await pump.stop()
        if self._owns_client:
            await self._client.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        head = await self._head()
        if head is None:
            raise StopAsyncIteration
        if isinstance(head.batch, RecordRows):
            raise MissingExtra(
                "Arrow batches need the arrow extra: pip install 'ottla[arrow]'; "
                "records() and read_many() do without"
            )
        rows: pa.RecordBatch = self._buffer.take(self._rows_at_once(head))
        self._running().poke()
        return rows if rows.schema.names == list(self.columns) else rows.select(self.columns)

    async def records(self) -> AsyncIterator[Record]:
        """The records one by one; `positions` move with each. Needs the default `columns`.

        >>> from ottla import Reader
        >>> async with Reader("127.0.0.1:9092", "orders", stop="latest") as reader:
        ...     async for record in reader.records():
        ...         print(record.offset, record.value)
        0 b'one'
        1 b'two'
        2 b'three'
        """
        self._read_all_columns()
        while (head := await self._head()) is not None:
            assert head.batch is not None
            made = records_of(head.batch.slice(head.taken, RECORDS_AT_ONCE))
            for taken, record in enumerate(made, head.taken):
                # A seek or another call for a batch in between changes the position.
                if self._buffer.head() is not head or head.taken != taken:
                    break
                self._buffer.skip(1, record.offset + 1)
                yield record
            self._running().poke()

    async def read_many(self, max_records: int = RECORDS_AT_ONCE) -> list[Record]:
        """The next records of one partition, as soon as there are any; none at the end.

        >>> from ottla import Reader
        >>> async with Reader("127.0.0.1:9092", "orders", stop="latest") as reader:
        ...     while records := await reader.read_many():
        ...         print([record.value for record in records])
        [b'one', b'two', b'three']
        """
        max_records = arguments.whole("max_records", max_records, 1, INT64)
        self._read_all_columns()
        if await self._head() is None:
            return []
        rows = self._buffer.take(max_records)
        self._running().poke()
        return list(records_of(rows))

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each partition; one that is still being resolved is left out."""
        return dict(sorted(self._buffer.positions.items()))

    @property
    def partitions(self) -> list[int]:
        """The partitions that are read."""
        return sorted(self._planner.tracks)

    @property
    def buffered_bytes(self) -> int:
        """Bytes read ahead and held in memory."""
        return self._buffer.nbytes

    @property
    def throttled_seconds(self) -> float:
        """How long brokers have told this client to wait because it was over a quota.

        It sends such a broker nothing meanwhile; requests wait here.
        """
        return self._client.throttled_seconds

    async def seek(self, to: Positions) -> None:
        """Go on elsewhere, in all partitions or in those of a mapping; stops stay.

        >>> from ottla import Reader
        >>> async with Reader("127.0.0.1:9092", "orders", stop="latest") as reader:
        ...     await reader.seek({0: 2})
        ...     print(reader.positions, await reader.lag())
        {0: 2} {0: 1}
        """
        self._running()
        place = _places("to", to)
        numbers = list(to) if isinstance(to, Mapping) else self.partitions
        unknown = sorted(set(numbers) - self._planner.tracks.keys())
        if unknown:
            raise BadArgument(f"partitions {unknown} are not read; {self.partitions} are")
        for number, found in [(number, place(number)) for number in numbers]:
            self._seek(number, found)
        await self._until_found()

    async def lag(self) -> dict[int, int]:
        """The number of offsets between each position and the current end of its log."""
        self._running()
        positions = self.positions
        ends = await OffsetsBesideFetches(self._client).list_offsets(
            [(self.topic, number) for number in positions]
        )
        return {
            one.partition: max(0, found.offset - positions[one.partition])
            for one, found in ends.items()
        }

    def _read_all_columns(self) -> None:
        """Records need headers: read again what was read ahead without them."""
        pump = self._running()
        if pump.columns == COLUMNS:
            return
        if not self._may_add_columns and self.columns != COLUMNS:
            raise BadArgument("records need all columns; leave `columns` out")
        pump.columns = COLUMNS
        for number, offset in self.positions.items():
            self._seek(number, Place(offset))

    def _seek(self, number: int, place: Place) -> None:
        pump = self._running()
        # The seek may have left the cause of the failure behind; if not, the failure recurs.
        pump.spoiled = None
        self._planner.take_failure()
        self._planner.seek(number, place)
        self._buffer.forget(number)
        if place.offset is not None:
            self._buffer.moved(number, place.offset)
        pump.poke()

    async def _until_found(self) -> None:
        """Wait until all places are known; what keeps them from it is raised."""
        self._client.check_loop()
        self._planner.trouble = None
        try:
            async with self._client.within_api_timeout(f"find where to read in {self.topic!r}"):
                while not self._planner.is_found:
                    self._raise_failure()
                    await self._running().changed()
        except RequestTimedOut as late:
            if self._planner.trouble is None or self._planner.trouble is late:
                raise
            raise afresh(self._planner.trouble) from late

    async def _head(self) -> Rows[int] | None:
        """The next rows; None at the end. Rows read before a failure are returned first."""
        self._client.check_loop()
        while True:
            pump = self._running()
            head = self._buffer.head()
            if head is not None:
                return head
            if self._is_at_end():
                return None
            if pump.spoiled is not None:
                spoiled, pump.spoiled = pump.spoiled, None
                pump.poke()
                raise spoiled
            if not self._buffer.is_decoding:
                self._raise_failure()
            pump.poke()
            await pump.changed()

    def _is_at_end(self) -> bool:
        tracks = self._planner.tracks
        return self._planner.is_found and all(
            track.is_done
            and track.end is not None
            and self._buffer.positions.get(number, -1) >= track.end
            for number, track in tracks.items()
        )

    def _raise_failure(self) -> None:
        failure = self._planner.take_failure()
        if failure is not None:
            self._running().poke()
            raise failure

    def _running(self) -> Pump[int]:
        if self._pump is None:
            raise ClientClosed("the reader is not open; use it in an (async) with block")
        return self._pump

    def _rows_at_once(self, head: Rows[int]) -> int:
        assert head.batch is not None
        whole = head.batch.num_rows
        count = whole if self._max_rows is None else self._max_rows
        if self._max_bytes is not None:
            count = min(count, whole * self._max_bytes // max(head.nbytes, 1))
        return max(count, 1)


def _places(name: str, positions: Positions) -> Callable[[int], Place]:
    """The position for each partition; an invalid one is refused at once."""
    if isinstance(positions, Mapping):
        return {
            arguments.whole(f"{name}: partition", number): place_of(f"{name}[{number}]", position)
            for number, position in positions.items()
        }.__getitem__
    everywhere = place_of(name, positions)
    return lambda _: everywhere


def _no_stop(_: int) -> None:
    """Read without an end."""


def _partitions(
    given: Collection[int] | None, start: Positions, stop: Positions | None
) -> list[int] | None:
    """The partitions to read, None for all; mappings and the argument have to agree."""
    named: list[Iterable[int]] = [
        arguments.wholes("partitions", list(one), INT32)
        for one in (start, stop)
        if isinstance(one, Mapping)
    ]
    if given is not None:
        named.append(arguments.wholes("partitions", given, INT32))
    if not named:
        return None
    wanted = sorted(set(named[0]))
    for other in named[1:]:
        if sorted(set(other)) != wanted:
            raise BadArgument(f"partitions {wanted} and {sorted(set(other))} are not the same")
    if not wanted:
        raise BadArgument("partitions: expected at least one, got none; leave it out to read all")
    return wanted

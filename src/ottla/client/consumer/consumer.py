"""The Consumer: records of topics, shared among the members of a consumer group.

    async with Consumer("127.0.0.1:9092", group="billing", topics=["orders"]) as consumer:
        async for record in consumer:
            ...

Rules:

- A record is done when the caller asks for the next one (or the next poll, or the next batch).
  Automatic commits include only records that are done, so a crash repeats records and never skips
  any. `commit()` includes all records returned so far.
- Partitions change only while the caller is inside a call of the consumer. Before partitions are
  revoked their offsets are committed (with `auto_commit`), then `on_revoked` is called;
  `on_assigned` is called before the first record of new partitions, and may seek.
- After `max_poll_interval` seconds without a call the member leaves its group, so that other
  members get its partitions; the next call joins again and calls `on_lost`.
- A group without a committed offset begins at `auto_offset_reset`, "earliest" by default.
- Cancelling a wait loses nothing: the next call returns the records.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self, TypeAlias, get_args

from ottla.client import arguments
from ottla.client.admin.offsets import OffsetsBesideFetches
from ottla.client.cluster.cluster import API_TIMEOUT, METADATA_MAX_AGE, Client
from ottla.client.cluster.connection import REQUEST_TIMEOUT
from ottla.client.cluster.view import TopicPartition
from ottla.client.consumer import commits
from ottla.client.consumer.fetching import Owned
from ottla.client.consumer.group import Group
from ottla.client.consumer.holdings import Holdings, Listeners
from ottla.client.consumer.members import member_of
from ottla.client.consumer.types import OffsetReset, Protocol
from ottla.client.errors import BadArgument, ClientClosed, ClientError, MissingExtra, NotSubscribed
from ottla.client.reader.buffer import Buffer
from ottla.client.reader.pump import Pump
from ottla.client.reader.rows import RecordRows, records_of
from ottla.client.reader.types import Isolation, Place, place_of
from ottla.client.security import PLAINTEXT, Security
from ottla.client.transactions.types import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.randomness import RANDOM
from ottla.wire.columns import COLUMNS, COLUMNS_WITHOUT_HEADERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
    from types import TracebackType

    import pyarrow as pa

    from ottla.client.consumer.holdings import Listener
    from ottla.client.reader.buffer import Rows
    from ottla.client.reader.types import Position, Record

    Offsets: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata]

PREFETCH: Final = 32 * 1024 * 1024
MAX_WAIT: Final = 0.5  # fetch.max.wait.ms of Kafka's clients
MAX_POLL_RECORDS: Final = 500
MAX_POLL_INTERVAL: Final = 300.0
COMMIT_INTERVAL: Final = 5.0
SESSION_TIMEOUT: Final = 45.0
CLOSE_TIMEOUT: Final = 30.0
RECORDS_AT_ONCE: Final = 1000  # made at a time: enough to spread the cost, few enough to wait for


class Consumer:
    """An async context manager, and an async iterator of records.

    `protocol` "consumer" is KIP-848's, where brokers assign partitions (`assignor` "uniform" or
    "range"); "classic" works with every broker (`assignor` "cooperative-sticky", "range" or
    "roundrobin"). `pattern` subscribes to all topics whose names match (RE2 syntax, protocol
    "consumer" only). `instance_id` makes it a static member. `columns` are those of `batches`.
    Callbacks may be plain or async functions of a frozenset of partitions. Times are in seconds.

    >>> from ottla import Consumer
    >>> async with Consumer("127.0.0.1:9092", group="billing", topics=["orders"]) as consumer:
    ...     for record in await consumer.poll(timeout=10):
    ...         print(record.offset, record.value)
    0 b'one'
    1 b'two'
    2 b'three'
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        group: str,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        protocol: Protocol = "consumer",
        assignor: str | None = None,
        instance_id: str | None = None,
        auto_offset_reset: OffsetReset = "earliest",
        auto_commit: bool = True,
        auto_commit_interval: float = COMMIT_INTERVAL,
        isolation_level: Isolation = "read_uncommitted",
        max_poll_records: int = MAX_POLL_RECORDS,
        max_poll_interval: float = MAX_POLL_INTERVAL,
        session_timeout: float = SESSION_TIMEOUT,
        columns: Sequence[str] | None = None,
        prefetch: int = PREFETCH,
        max_wait: float = MAX_WAIT,
        verify_crc: bool = True,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        rack: str | None = None,
        client_id: str | None = "ottla-consumer",
        security: Security = PLAINTEXT,
        request_timeout: float = REQUEST_TIMEOUT,
        api_timeout: float = API_TIMEOUT,
        max_versions: Mapping[int, int] | None = None,
    ) -> None:
        arguments.choice("protocol", protocol, get_args(Protocol))
        arguments.choice("auto_offset_reset", auto_offset_reset, get_args(OffsetReset))
        arguments.choice("isolation_level", isolation_level, get_args(Isolation))
        arguments.flag("auto_commit", auto_commit)
        arguments.seconds("auto_commit_interval", auto_commit_interval, 0.001)
        arguments.whole("max_poll_records", max_poll_records, 1)
        arguments.carried_seconds("max_poll_interval", max_poll_interval, 0.001)
        arguments.carried_seconds("session_timeout", session_timeout, 0.001)
        arguments.whole("prefetch", prefetch, 1, arguments.INT64)
        arguments.carried_seconds("max_wait", max_wait)
        arguments.flag("verify_crc", verify_crc)
        for name, listener in (
            ("on_assigned", on_assigned),
            ("on_revoked", on_revoked),
            ("on_lost", on_lost),
        ):
            arguments.optional_function(name, listener)
        self.group: str = arguments.text("group", group)
        self.columns: tuple[str, ...] = (
            COLUMNS_WITHOUT_HEADERS if columns is None else arguments.columns("columns", columns)
        )
        self._auto_commit = auto_commit
        self._commit_interval = auto_commit_interval
        self._max_poll_records = max_poll_records
        self._max_poll_interval = max_poll_interval
        self._instance_id = instance_id
        self._client = Client(
            bootstrap,
            client_id=client_id,
            security=security,
            request_timeout=request_timeout,
            api_timeout=api_timeout,
            max_versions=max_versions,
        )
        self._member = member_of(
            protocol,
            group,
            topics,
            pattern=pattern,
            assignor=assignor,
            instance_id=instance_id,
            rack=rack,
            session_timeout=session_timeout,
            rebalance_timeout=max_poll_interval,
        )
        self._planner = Owned(
            prefetch=prefetch,
            patience=api_timeout,
            metadata_max_age=METADATA_MAX_AGE,
            random=RANDOM.random,
            on_data_loss=auto_offset_reset,
        )
        self._buffer: Buffer[TopicPartition] = Buffer(prefetch)
        self._start_pump: Callable[[], Pump[TopicPartition]] = lambda: Pump(
            self._client,
            self._planner,
            self._buffer,
            isolation=isolation_level,
            max_wait=max_wait,
            verify_crc=verify_crc,
            columns=self.columns,
        )
        self._pump: Pump[TopicPartition] | None = None
        self._group: Group | None = None
        self._committer: asyncio.Task[None] | None = None
        self._holdings = Holdings(
            self._client,
            self._member,
            self._planner,
            self._buffer,
            group=group,
            instance_id=instance_id,
            reset=auto_offset_reset,
            auto_commit=auto_commit,
            listeners=Listeners(on_assigned, on_revoked, on_lost),
        )

    # -- from the beginning to the end ------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._client.check_loop()
        self._pump = self._start_pump()
        self._group = Group(
            self._client,
            self._member,
            max_poll_interval=self._max_poll_interval,
            news=self._pump.news,
        )
        if self._auto_commit:
            self._committer = asyncio.create_task(
                self._holdings.commit_now_and_then(self._commit_interval, lambda: self._group)
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an exception the caller has not processed all records it was given.
        await self.close(done=error is None)

    async def close(
        self,
        timeout: float = CLOSE_TIMEOUT,  # noqa: ASYNC109  # a limit of its own, not a failure
        *,
        done: bool = True,
    ) -> None:
        """Commit done records (with `auto_commit`), give up the partitions, leave the group.

        `done`: whether the records delivered last count as done.
        """
        arguments.seconds("timeout", timeout)
        arguments.flag("done", done)
        self._client.check_loop()
        pump, self._pump = self._pump, None
        group, self._group = self._group, None
        if self._committer is not None:
            self._committer.cancel()
        if done:
            self._holdings.in_hand.clear()
        try:
            if pump is not None and group is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await self._holdings.give_up(group, self._member.owned)
                        await group.leave()
                await pump.stop()
        finally:
            await self._client.close()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Have these topics, and no others, from the next call on; none at all: `unsubscribe`."""
        names = arguments.texts("topics", topics)
        group = self._joined()
        self._member.subscribe(names)
        group.poke()

    def unsubscribe(self) -> None:
        """Leave the group, until `subscribe`."""
        group = self._joined()
        self._member.subscribe(())
        group.poke()

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics whose records come."""
        return self._member.topics

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns now."""
        return self._member.owned

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """For `Transaction.send_offsets`: offsets are refused once this is no longer a member."""
        member = self._member
        return ConsumerGroupMetadata(self.group, member.epoch, member.member_id, self._instance_id)

    # -- records in -------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Record]:
        group, in_hand = self._joined(), self._holdings.in_hand
        while True:
            head = await self._head(COLUMNS)
            assert head is not None
            assert head.batch is not None
            key = head.key
            made = records_of(head.batch.slice(head.taken, RECORDS_AT_ONCE))
            for taken, record in enumerate(made, head.taken):
                # A seek, a pause or the loss of the partition in between changes the position.
                if self._buffer.head() is not head or head.taken != taken:
                    break
                self._buffer.skip(1, record.offset + 1)
                in_hand[key] = record.offset
                yield record
                in_hand.pop(key, None)
                if group.is_restless:
                    break
            self._running().poke()

    async def poll(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109  # to come back without records is no failure
    ) -> list[Record]:
        """The next records of one partition; none if none come within the time."""
        timeout = arguments.seconds("timeout", timeout)
        head = await self._head(COLUMNS, timeout)
        if head is None:
            return []
        rows = self._buffer.take(self._max_poll_records)
        records = list(records_of(rows))
        self._holdings.in_hand[head.key] = records[0].offset
        self._running().poke()
        return records

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Arrow batches, each of one partition. Needs the `arrow` extra.

        >>> from ottla import Consumer
        >>> async with Consumer("127.0.0.1:9092", group="totals", topics=["orders"]) as consumer:
        ...     async for batch in consumer.batches():
        ...         print(batch.num_rows, batch.column("value").to_pylist())
        ...         break
        3 [b'one', b'two', b'three']
        """
        while True:
            head = await self._head(self.columns)
            assert head is not None
            if isinstance(head.batch, RecordRows):
                raise MissingExtra(
                    "Arrow batches need the arrow extra: pip install 'ottla[arrow]'; "
                    "poll() and iteration do without"
                )
            assert head.batch is not None
            begins = self._buffer.positions.get(head.key)
            rows: pa.RecordBatch = self._buffer.take(head.batch.num_rows)
            if begins is not None:
                self._holdings.in_hand[head.key] = begins
            self._running().poke()
            yield rows if rows.schema.names == list(self.columns) else rows.select(self.columns)

    async def _head(
        self, columns: Sequence[str], within: float | None = None
    ) -> Rows[TopicPartition] | None:
        """The next rows, None if none come in time. Rebalances happen here."""
        self._client.check_loop()
        if self._holdings.is_telling:
            raise ClientError(
                "do not poll inside a callback such as on_assigned: it is called by a poll, which "
                "gives the records when the callback has returned"
            )
        self._holdings.in_hand.clear()
        group = self._joined()
        group.polled()
        self._read(columns)
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while True:
                    pump = self._running()
                    group.check()
                    if self._member.wish() is not None:
                        await self._holdings.settle(group, self._poke)
                        continue
                    if not self._member.is_subscribed:
                        raise NotSubscribed(
                            'there are no topics to poll; call subscribe(["orders"]) first'
                        )
                    if (head := self._buffer.head()) is not None:
                        return head
                    if pump.spoiled is not None:
                        spoiled, pump.spoiled = pump.spoiled, None
                        pump.poke()
                        raise spoiled
                    if not self._buffer.is_decoding and (failure := self._planner.take_failure()):
                        pump.poke()
                        raise failure
                    pump.poke()
                    await pump.changed()
        return None

    # -- offsets ----------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit these offsets, or the positions after all that was given.

        >>> from ottla import Consumer
        >>> async with Consumer(
        ...     "127.0.0.1:9092", group="careful", topics=["orders"], auto_commit=False
        ... ) as consumer:
        ...     records = await consumer.poll(timeout=10)
        ...     await consumer.commit()
        """
        group = self._joined()
        if offsets is None:
            wanted = {
                key: OffsetAndMetadata(offset) for key, offset in self._buffer.positions.items()
            }
        else:
            wanted = {
                arguments.partition("offsets: key", key): (
                    one
                    if isinstance(one, OffsetAndMetadata)
                    else OffsetAndMetadata(arguments.whole("offset", one, 0, arguments.INT64))
                )
                for key, one in arguments.mapping("offsets", offsets, "by partition").items()
            }
        await self._holdings.commit(group, wanted)

    async def committed(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int | None]:
        """The committed offsets; None for partitions without one."""
        group = self._joined()
        wanted = (
            self.assignment
            if partitions is None
            else arguments.partitions("partitions", partitions)
        )
        return await commits.committed(self._client, group.coordinator, self._member, wanted)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition; one that is still being resolved is left out."""
        return dict(sorted(self._buffer.positions.items()))

    @property
    def throttled_seconds(self) -> float:
        """How long brokers have told this client to wait because it was over a quota.

        It sends such a broker nothing meanwhile; requests wait here.
        """
        return self._client.throttled_seconds

    async def seek(self, partition: TopicPartition, to: Position) -> None:
        """Continue at another position of a partition that this member owns."""
        self._client.check_loop()
        self._check_owned([partition])
        partition = TopicPartition(*partition)
        place = place_of("to", to)
        pump = self._running()
        pump.spoiled = None
        self._planner.take_failure()
        self._planner.seek(partition, place)
        self._buffer.forget(partition)
        if place.offset is not None:
            self._buffer.moved(partition, place.offset)
        pump.poke()

    def pause(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Give no more records of these partitions (None: of all) until `resume`."""
        self._running()
        chosen = self._check_owned(partitions)
        self._planner.paused.update(chosen)
        for key in chosen:
            offset = self._buffer.positions.get(key)
            if offset is not None:
                self._planner.seek(key, Place(offset))
                self._buffer.forget(key)
                self._buffer.moved(key, offset)

    def resume(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Go on with these partitions; None: with all."""
        self._planner.paused.difference_update(self._check_owned(partitions))
        self._running().poke()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(self._planner.paused)

    async def lag(self) -> dict[TopicPartition, int]:
        """The number of offsets between each position and the current end of its log."""
        self._running()
        positions = self.positions
        ends = await OffsetsBesideFetches(self._client).list_offsets(list(positions))
        return {key: max(0, found.offset - positions[key]) for key, found in ends.items()}

    # -- helpers ----------------------------------------------------------------------------------

    def _read(self, columns: Sequence[str]) -> None:
        """Records need headers, batches only on request: drop rows read in the other form."""
        pump = self._running()
        if pump.columns == columns:
            return
        pump.columns = columns
        for key, offset in self.positions.items():
            self._planner.seek(key, Place(offset))
            self._buffer.forget(key)
            self._buffer.moved(key, offset)

    def _check_owned(
        self, partitions: Collection[TopicPartition] | None
    ) -> Collection[TopicPartition]:
        if partitions is None:
            return sorted(self._planner.tracks)
        found = arguments.partitions("partitions", partitions)
        for one in found:
            if one not in self._planner.tracks:
                raise BadArgument(
                    f"partition {one!r} is not this member's; it has {sorted(self.assignment)}"
                )
        return found

    def _running(self) -> Pump[TopicPartition]:
        if self._pump is None:
            raise ClientClosed("the consumer is not open; use it in an (async) with block")
        return self._pump

    def _poke(self) -> None:
        self._running().poke()

    def _joined(self) -> Group:
        self._running()
        assert self._group is not None
        return self._group

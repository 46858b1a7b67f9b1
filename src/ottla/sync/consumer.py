"""Consumer without async. Made by scripts/generate_sync.py; do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.cluster.cluster import API_TIMEOUT
from ottla.client.cluster.connection import REQUEST_TIMEOUT
from ottla.client.consumer.consumer import (
    CLOSE_TIMEOUT,
    COMMIT_INTERVAL,
    MAX_POLL_INTERVAL,
    MAX_POLL_RECORDS,
    MAX_WAIT,
    PREFETCH,
    SESSION_TIMEOUT,
)
from ottla.client.consumer.consumer import Consumer as AsyncConsumer
from ottla.client.security import PLAINTEXT
from ottla.sync.twin import Twin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ottla.client.cluster.view import TopicPartition
    from ottla.client.consumer.consumer import Offsets
    from ottla.client.consumer.holdings import Listener
    from ottla.client.consumer.types import OffsetReset, Protocol
    from ottla.client.reader.types import Isolation, Position, Record
    from ottla.client.security import Security
    from ottla.client.transactions.types import ConsumerGroupMetadata


class Consumer(Twin[AsyncConsumer]):
    """A context manager, and an iterator of records.

    `protocol` "consumer" is KIP-848's, where brokers assign partitions (`assignor` "uniform" or
    "range"); "classic" works with every broker (`assignor` "cooperative-sticky", "range" or
    "roundrobin"). `pattern` subscribes to all topics whose names match (RE2 syntax, protocol
    "consumer" only). `instance_id` makes it a static member. `columns` are those of `batches`.
    Callbacks may be plain or async functions of a frozenset of partitions. Times are in seconds.

    >>> from ottla.sync import Consumer
    >>> with Consumer("127.0.0.1:9092", group="billing", topics=["orders"]) as consumer:
    ...     for record in consumer.poll(timeout=10):
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
        super().__init__(
            lambda: AsyncConsumer(
                bootstrap,
                group=group,
                topics=topics,
                pattern=pattern,
                protocol=protocol,
                assignor=assignor,
                instance_id=instance_id,
                auto_offset_reset=auto_offset_reset,
                auto_commit=auto_commit,
                auto_commit_interval=auto_commit_interval,
                isolation_level=isolation_level,
                max_poll_records=max_poll_records,
                max_poll_interval=max_poll_interval,
                session_timeout=session_timeout,
                columns=columns,
                prefetch=prefetch,
                max_wait=max_wait,
                verify_crc=verify_crc,
                on_assigned=on_assigned,
                on_revoked=on_revoked,
                on_lost=on_lost,
                rack=rack,
                client_id=client_id,
                security=security,
                request_timeout=request_timeout,
                api_timeout=api_timeout,
                max_versions=max_versions,
            )
        )

    @property
    def group(self) -> str:
        """As given."""
        return self._async.group

    @property
    def columns(self) -> tuple[str, ...]:
        """As given."""
        return self._async.columns

    def close(self, timeout: float = CLOSE_TIMEOUT, *, done: bool = True) -> None:
        """Commit done records (with `auto_commit`), give up the partitions, leave the group.

        `done`: whether the records delivered last count as done.
        """
        self._run(self._async.close(timeout, done=done))

    def subscribe(self, topics: Sequence[str]) -> None:
        """Have these topics, and no others, from the next call on; none at all: `unsubscribe`."""
        self._call(lambda: self._async.subscribe(topics))

    def unsubscribe(self) -> None:
        """Leave the group, until `subscribe`."""
        self._call(self._async.unsubscribe)

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics whose records come."""
        return self._call(lambda: self._async.subscription)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns now."""
        return self._call(lambda: self._async.assignment)

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """For `Transaction.send_offsets`: offsets are refused once this is no longer a member."""
        return self._call(lambda: self._async.group_metadata)

    def __iter__(self) -> Iterator[Record]:
        return self._each(self._call(self._async.__aiter__))

    def poll(self, timeout: float = 1.0) -> list[Record]:
        """The next records of one partition; none if none come within the time."""
        return self._run(self._async.poll(timeout))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow batches, each of one partition. Needs the `arrow` extra.

        >>> from ottla.sync import Consumer
        >>> with Consumer("127.0.0.1:9092", group="totals", topics=["orders"]) as consumer:
        ...     for batch in consumer.batches():
        ...         print(batch.num_rows, batch.column("value").to_pylist())
        ...         break
        3 [b'one', b'two', b'three']
        """
        return self._each(self._async.batches())

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit these offsets, or the positions after all that was given.

        >>> from ottla.sync import Consumer
        >>> with Consumer(
        ...     "127.0.0.1:9092", group="careful", topics=["orders"], auto_commit=False
        ... ) as consumer:
        ...     records = consumer.poll(timeout=10)
        ...     consumer.commit()
        """
        self._run(self._async.commit(offsets))

    def committed(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int | None]:
        """The committed offsets; None for partitions without one."""
        return self._run(self._async.committed(partitions))

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition; one that is still being resolved is left out."""
        return self._call(lambda: self._async.positions)

    @property
    def throttled_seconds(self) -> float:
        """How long brokers have told this client to wait because it was over a quota.

        It sends such a broker nothing meanwhile; requests wait here.
        """
        return self._call(lambda: self._async.throttled_seconds)

    def seek(self, partition: TopicPartition, to: Position) -> None:
        """Continue at another position of a partition that this member owns."""
        self._run(self._async.seek(partition, to))

    def pause(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Give no more records of these partitions (None: of all) until `resume`."""
        self._call(lambda: self._async.pause(partitions))

    def resume(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Go on with these partitions; None: with all."""
        self._call(lambda: self._async.resume(partitions))

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return self._call(lambda: self._async.paused)

    def lag(self) -> dict[TopicPartition, int]:
        """The number of offsets between each position and the current end of its log."""
        return self._run(self._async.lag())

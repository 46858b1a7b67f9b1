"""ShareConsumer without async. Made by scripts/generate_sync.py; do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.cluster.cluster import API_TIMEOUT
from ottla.client.cluster.connection import REQUEST_TIMEOUT
from ottla.client.security import PLAINTEXT
from ottla.client.share.consumer import ShareConsumer as AsyncShareConsumer
from ottla.client.share.settings import CLOSE_TIMEOUT, MAX_BYTES, MAX_WAIT
from ottla.sync.twin import Twin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Literal, Self

    import pyarrow as pa

    from ottla.client.cluster.view import TopicPartition
    from ottla.client.errors import ClientError
    from ottla.client.security import Security
    from ottla.client.share.types import AckKind, AckMode, Acknowledged, AcquireMode, ShareRecord


class ShareConsumer(Twin[AsyncShareConsumer]):
    """A context manager, and an iterator of records.

    `auto_offset_reset` is written to the group's configuration where that says nothing yet. With
    `acquire_mode="record_limit"` a poll returns no more than `max_poll_records`; otherwise the last
    batch may exceed that; it is 500 unless given, and more for columns. `close_implicit` says what
    becomes of the last records in implicit mode. `auto_renew` keeps records locked for as long as
    the caller works on them. `on_acknowledge` is called in the event loop with each `Acknowledged`.
    Times are in seconds.

    >>> from ottla.sync import ShareConsumer
    >>> with ShareConsumer(
    ...     "127.0.0.1:9092", group="workers", topics=["orders"], auto_offset_reset="earliest"
    ... ) as consumer:
    ...     for record in consumer.poll(timeout=10):
    ...         print(record.value, record.delivery_count)
    b'one' 1
    b'two' 1
    b'three' 1
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        group: str,
        topics: Sequence[str] = (),
        ack_mode: AckMode = "implicit",
        acquire_mode: AcquireMode = "batch_optimized",
        auto_offset_reset: str | None = None,
        max_poll_records: int | None = None,
        max_bytes: int = MAX_BYTES,
        max_wait: float = MAX_WAIT,
        close_implicit: Literal["accept", "release"] = "accept",
        auto_renew: bool = False,
        on_acknowledge: Callable[[Acknowledged], None] | None = None,
        rack: str | None = None,
        client_id: str | None = "ottla-share-consumer",
        security: Security = PLAINTEXT,
        request_timeout: float = REQUEST_TIMEOUT,
        api_timeout: float = API_TIMEOUT,
        max_versions: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(
            lambda: AsyncShareConsumer(
                bootstrap,
                group=group,
                topics=topics,
                ack_mode=ack_mode,
                acquire_mode=acquire_mode,
                auto_offset_reset=auto_offset_reset,
                max_poll_records=max_poll_records,
                max_bytes=max_bytes,
                max_wait=max_wait,
                close_implicit=close_implicit,
                auto_renew=auto_renew,
                on_acknowledge=on_acknowledge,
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
    def on_acknowledge(self) -> Callable[[Acknowledged], None] | None:
        """As given."""
        return self._async.on_acknowledge

    def start(self) -> None:
        """Join the group, as `with` does; call `close` at the end.

        >>> from ottla.sync import ShareConsumer
        >>> consumer = ShareConsumer("127.0.0.1:9092", group="workers", topics=["orders"])
        >>> consumer.start()
        >>> consumer.close()
        """
        self._run(self._async.start())

    def close(self, timeout: float = CLOSE_TIMEOUT, *, accept: bool | None = None) -> None:
        """Send acknowledgements, release the other records, leave the group.

        `accept`: whether to accept the last records first; None: by `ack_mode` and
        `close_implicit`.
        """
        self._run(self._async.close(timeout, accept=accept))

    def subscribe(self, topics: Sequence[str]) -> None:
        """Replace the subscription, from the next poll on; an empty list means `unsubscribe`.

        Delivered records of other topics can still be acknowledged; undelivered ones are released.
        """
        self._call(lambda: self._async.subscribe(topics))

    def unsubscribe(self) -> None:
        """Leave the group, until `subscribe`."""
        self._call(self._async.unsubscribe)

    @property
    def member_epoch(self) -> int:
        """How often the coordinator has changed this member's partitions; 0 before it joins."""
        return self._call(lambda: self._async.member_epoch)

    @property
    def heartbeat_interval(self) -> float | None:
        """Seconds between heartbeats, as the coordinator wants them; None before it has said."""
        return self._call(lambda: self._async.heartbeat_interval)

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics whose records come."""
        return self._call(lambda: self._async.subscription)

    def poll(self, timeout: float = 1.0) -> list[ShareRecord]:
        """The next records; empty after the timeout. With 0 only records that have arrived."""
        return self._run(self._async.poll(timeout))

    def poll_arrow(self, timeout: float = 1.0) -> pa.Table:
        """As `poll`, in columns: those of a Reader with headers, and `deliveryCount`.

        What iteration was about to give goes back to the group. Needs the `arrow` extra.

        >>> from ottla.sync import ShareConsumer
        >>> with ShareConsumer(
        ...     "127.0.0.1:9092", group="workers", topics=["orders"], auto_offset_reset="earliest"
        ... ) as consumer:
        ...     table = consumer.poll_arrow(timeout=10)
        ...     print(table.num_rows, table.column_names[-1])
        3 deliveryCount
        """
        return self._run(self._async.poll_arrow(timeout))

    def take(self, most: int, timeout: float = 1.0) -> list[ShareRecord]:
        """More records, even if earlier ones are not acknowledged; explicit mode only.

        For callers that work on several records at once. Fetched records beyond `most` wait for the
        next call.
        """
        return self._run(self._async.take(most, timeout))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ShareRecord:
        """One record at a time, without end; in implicit mode the next call accepts the last."""
        found = self._next(self._async)
        if found is None:
            raise StopIteration
        return found[0]

    def acknowledge(
        self, what: ShareRecord | pa.RecordBatch | pa.Table, kind: AckKind = "accept"
    ) -> None:
        """Acknowledge a record, or rows, of the last poll; may be changed until it is sent.

        "renew" locks it for another while. The decision leaves with the next poll or `commit`.

        >>> from ottla.sync import ShareConsumer
        >>> with ShareConsumer(
        ...     "127.0.0.1:9092",
        ...     group="workers",
        ...     topics=["orders"],
        ...     ack_mode="explicit",
        ...     auto_offset_reset="earliest",
        ... ) as consumer:
        ...     for record in consumer.poll(timeout=10):
        ...         consumer.acknowledge(record, "accept" if record.offset else "reject")
        ...     print(consumer.commit())
        {TopicPartition(topic='orders', partition=0): None}
        """
        self._call(lambda: self._async.acknowledge(what, kind))

    def commit(self, *, return_errors: bool = False) -> dict[TopicPartition, ClientError | None]:
        """Send all acknowledgements and wait for the answers.

        A `PartialFailure` says in which partitions some did not hold: their records are delivered
        again. With `return_errors` the first error of each partition is returned instead.
        """
        return self._run(self._async.commit(return_errors=return_errors))

    @property
    def member_id(self) -> str:
        """The id by which the coordinator knows this consumer."""
        return self._call(lambda: self._async.member_id)

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are fetched now."""
        return self._call(lambda: self._async.assignment)

    @property
    def acquisition_lock_timeout(self) -> float:
        """Duration of locks in seconds, from the last answer; 0 before the first one."""
        return self._call(lambda: self._async.acquisition_lock_timeout)

    @property
    def throttled_seconds(self) -> float:
        """How long brokers have told this client to wait because it was over a quota.

        It sends such a broker nothing meanwhile; requests wait here.
        """
        return self._call(lambda: self._async.throttled_seconds)

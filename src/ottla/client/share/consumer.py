"""The ShareConsumer: records of a queue, each for one consumer at a time (KIP-932).

    async with ShareConsumer("127.0.0.1:9092", group="g", topics=["orders"]) as consumer:
        for record in await consumer.poll(timeout=1.0):
            ...

Rules:

- Implicit mode: the next poll, a commit, and a close without an exception accept the records
  returned before. Explicit mode: the caller acknowledges every record, and a poll while some are
  not acknowledged is an error.
- Acknowledgements are sent with the next fetch, or by `commit`. If one fails, the record is
  delivered again; `on_acknowledge` gets all results.
- Cancelling a call loses nothing: the next call returns its records.
- When the consumer ends, records that were not acknowledged return to the group, at the end of the
  session or of the connection.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, Self

from ottla.client import arguments, extras
from ottla.client.cluster.cluster import API_TIMEOUT, Client
from ottla.client.cluster.connection import REQUEST_TIMEOUT
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import ClientClosed, ClientError, NotSubscribed, raise_failures
from ottla.client.security import PLAINTEXT, Security
from ottla.client.share.acks import Ledger
from ottla.client.share.delivery import HELD
from ottla.client.share.membership import Membership, new_member_id
from ottla.client.share.parts import Parts
from ottla.client.share.settings import (
    CLOSE_TIMEOUT,
    MAX_BYTES,
    MAX_WAIT,
    GroupSettings,
    check_settings,
    group_settings,
    poll_limits,
)
from ottla.client.share.types import ConcurrentPoll, Kind, ShareRecord, WrongAckMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    import pyarrow as pa

    from ottla.client.share.inbox import Inbox
    from ottla.client.share.types import AckKind, AckMode, Acknowledged, AcquireMode

logger = logging.getLogger(__name__)

KINDS: Final = {
    "accept": Kind.ACCEPT,
    "release": Kind.RELEASE,
    "reject": Kind.REJECT,
    "renew": Kind.RENEW,
}


class ShareConsumer:
    """An async context manager, and an async iterator of records.

    `auto_offset_reset` is written to the group's configuration where that says nothing yet. With
    `acquire_mode="record_limit"` a poll returns no more than `max_poll_records`; otherwise the last
    batch may exceed that; it is 500 unless given, and more for columns. `close_implicit` says what
    becomes of the last records in implicit mode. `auto_renew` keeps records locked for as long as
    the caller works on them. `on_acknowledge` is called in the event loop with each `Acknowledged`.
    Times are in seconds.

    >>> from ottla import ShareConsumer
    >>> async with ShareConsumer(
    ...     "127.0.0.1:9092", group="workers", topics=["orders"], auto_offset_reset="earliest"
    ... ) as consumer:
    ...     for record in await consumer.poll(timeout=10):
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
        check_settings(
            group=group,
            ack_mode=ack_mode,
            acquire_mode=acquire_mode,
            auto_offset_reset=auto_offset_reset,
            close_implicit=close_implicit,
            max_poll_records=max_poll_records,
            max_bytes=max_bytes,
            max_wait=max_wait,
            auto_renew=auto_renew,
            on_acknowledge=on_acknowledge,
            rack=rack,
            request_timeout=request_timeout,
        )
        names = arguments.texts("topics", topics)
        self.group = group
        self.on_acknowledge = on_acknowledge
        self._is_explicit = ack_mode == "explicit"
        self._accepts_at_close = not self._is_explicit and close_implicit == "accept"
        self._auto_offset_reset = auto_offset_reset
        self._auto_renew = auto_renew
        strict = acquire_mode == "record_limit"
        self._limits = poll_limits(max_poll_records, max_bytes, max_wait, strict=strict)
        self._client = Client(
            bootstrap,
            client_id=client_id,
            security=security,
            request_timeout=request_timeout,
            api_timeout=api_timeout,
            max_versions=max_versions,
        )
        self._membership = Membership(group, new_member_id(), names, rack)
        self._parts: Parts | None = None
        self._ledger = Ledger()
        self._heads = self._ledger.heads if self._is_explicit else {}
        self._commits: list[dict[TopicPartition, ClientError | None]] = []
        self._undone: list[Acknowledged] = []
        self._changed = asyncio.Event()
        self._is_polling = False

    # -- from the beginning to the end ------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        """Join the group, as `async with` does; call `close` at the end.

        >>> from ottla import ShareConsumer
        >>> consumer = ShareConsumer("127.0.0.1:9092", group="workers", topics=["orders"])
        >>> await consumer.start()
        >>> await consumer.close()
        """
        self._client.check_loop()
        if self._parts is not None:
            return
        self._parts = Parts(
            self._client,
            self._membership,
            self._ledger,
            self._changed,
            self._limits,
            self._news,
        )
        try:
            await self._parts.open(self._auto_offset_reset, renews=self._auto_renew)
        except BaseException:
            await self.close(accept=False)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an exception the caller has not processed all records it was given.
        await self.close(accept=None if error is None else False)

    async def close(
        self,
        timeout: float = CLOSE_TIMEOUT,  # noqa: ASYNC109  # a limit of its own, not a failure
        *,
        accept: bool | None = None,
    ) -> None:
        """Send acknowledgements, release the other records, leave the group.

        `accept`: whether to accept the last records first; None: by `ack_mode` and
        `close_implicit`.
        """
        arguments.seconds("timeout", timeout)
        if accept is not None:
            arguments.flag("accept", accept)
        self._client.check_loop()
        parts, self._parts = self._parts, None
        self._heads = {}
        if parts is not None:
            parts.inbox.is_closed = True
            self._changed.set()
        if accept if accept is not None else self._accepts_at_close:
            self._ledger.accept_held()
        try:
            if parts is not None:
                await parts.end(timeout)
        finally:
            await self._client.close()
            self._report()
            if self._undone:
                logger.warning(
                    "share group %r: %d record(s) were accepted or rejected when the consumer was "
                    "closed, but the broker did not take that: %s. They are delivered again",
                    self.group,
                    sum(one.last_offset - one.first_offset + 1 for one in self._undone),
                    self._undone[0].error,
                )
                self._undone.clear()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Replace the subscription, from the next poll on; an empty list means `unsubscribe`.

        Delivered records of other topics can still be acknowledged; undelivered ones are released.
        """
        names = arguments.texts("topics", topics)
        parts = self._open()
        parts.member.subscribe(names)
        parts.inbox.subscribe(names)
        self._changed.set()

    def unsubscribe(self) -> None:
        """Leave the group, until `subscribe`."""
        self.subscribe(())

    @property
    def member_epoch(self) -> int:
        """How often the coordinator has changed this member's partitions; 0 before it joins."""
        return self._membership.epoch

    @property
    def heartbeat_interval(self) -> float | None:
        """Seconds between heartbeats, as the coordinator wants them; None before it has said."""
        return self._membership.interval

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics whose records come."""
        return self._membership.topics

    # -- records in -------------------------------------------------------------------------------

    async def poll(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109  # to come back without records is no failure
    ) -> list[ShareRecord]:
        """The next records; empty after the timeout. With 0 only records that have arrived."""
        arguments.seconds("timeout", timeout)
        with self._turn() as inbox:
            self._begin()
            await inbox.fill(timeout)
            records = inbox.take_ahead()
            self._ledger.give_all()
            return records

    async def poll_arrow(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109  # to come back without records is no failure
    ) -> pa.Table:
        """As `poll`, in columns: those of a Reader with headers, and `deliveryCount`.

        What iteration was about to give goes back to the group. Needs the `arrow` extra.

        >>> from ottla import ShareConsumer
        >>> async with ShareConsumer(
        ...     "127.0.0.1:9092", group="workers", topics=["orders"], auto_offset_reset="earliest"
        ... ) as consumer:
        ...     table = await consumer.poll_arrow(timeout=10)
        ...     print(table.num_rows, table.column_names[-1])
        3 deliveryCount
        """
        arguments.seconds("timeout", timeout)
        decoding = await extras.arrow("share.arrow", "poll_arrow")
        with self._turn() as inbox:
            self._begin()
            inbox.ahead.clear()
            self._ledger.release_waiting()
            found = await inbox.columns(timeout)
            self._ledger.give_all()
            table: pa.Table = decoding.table_of(found)
            return table

    async def take(
        self,
        most: int,
        timeout: float = 1.0,  # noqa: ASYNC109  # to come back without records is no failure
    ) -> list[ShareRecord]:
        """More records, even if earlier ones are not acknowledged; explicit mode only.

        For callers that work on several records at once. Fetched records beyond `most` wait for the
        next call.
        """
        arguments.whole("most", most, 1)
        arguments.seconds("timeout", timeout)
        if not self._is_explicit:
            raise _wrong_mode("take records while others are undecided")
        with self._turn() as inbox:
            inbox.drop_stale()
            if inbox.ahead:
                # No fetch will follow to carry them.
                self._open().leaders.send_pending()
            else:
                await inbox.fill(timeout)
            records: list[ShareRecord] = []
            while inbox.ahead and len(records) < most:
                records.append(self._give_next(inbox))
                inbox.drop_stale()
            return records

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareRecord:
        """One record at a time, without end; in implicit mode the next call accepts the last."""
        with self._turn() as inbox:
            inbox.drop_stale()
            self._begin(is_full_poll=not inbox.ahead)
            while not inbox.ahead:
                await inbox.fill(math.inf)
            return self._give_next(inbox)

    def _give_next(self, inbox: Inbox) -> ShareRecord:
        record = inbox.ahead.popleft()
        self._ledger.give(record.delivery, record.offset)
        return record

    @contextmanager
    def _turn(self) -> Iterator[Inbox]:
        """The inbox, for one poll at a time."""
        self._client.check_loop()
        inbox = self._open().inbox
        if not self._membership.topics:
            raise NotSubscribed('there are no topics to poll; call subscribe(["orders"]) first')
        if self._is_polling:
            raise ConcurrentPoll("one poll at a time; use one consumer per task")
        self._is_polling = True
        try:
            yield inbox
        finally:
            self._is_polling = False
            self._report()

    def _begin(self, *, is_full_poll: bool = True) -> None:
        """Acknowledge the records of the previous poll, or raise if some are not acknowledged."""
        if not self._is_explicit:
            self._ledger.accept_held()
        elif is_full_poll:
            self._ledger.refuse_undecided()
        if is_full_poll:
            self._ledger.forget_lost()

    # -- acknowledgements out ---------------------------------------------------------------------

    def acknowledge(
        self, what: ShareRecord | pa.RecordBatch | pa.Table, kind: AckKind = "accept"
    ) -> None:
        """Acknowledge a record, or rows, of the last poll; may be changed until it is sent.

        "renew" locks it for another while. The decision leaves with the next poll or `commit`.

        >>> from ottla import ShareConsumer
        >>> async with ShareConsumer(
        ...     "127.0.0.1:9092",
        ...     group="workers",
        ...     topics=["orders"],
        ...     ack_mode="explicit",
        ...     auto_offset_reset="earliest",
        ... ) as consumer:
        ...     for record in await consumer.poll(timeout=10):
        ...         consumer.acknowledge(record, "accept" if record.offset else "reject")
        ...     print(await consumer.commit())
        {TopicPartition(topic='orders', partition=0): None}
        """
        try:
            # The fast path: a record without an acknowledgement. The code below handles the rest.
            first, states = self._heads[what.delivery]
            at = what.offset - first
            if states[at] == HELD and at >= 0:
                states[at] = KINDS[kind]
                return
        except (AttributeError, LookupError, TypeError):
            pass
        self._open()
        if not self._is_explicit:
            raise _wrong_mode("decide one by one")
        _decide(self._ledger, what, kind)
        self._report()

    async def commit(
        self, *, return_errors: bool = False
    ) -> dict[TopicPartition, ClientError | None]:
        """Send all acknowledgements and wait for the answers.

        A `PartialFailure` says in which partitions some did not hold: their records are delivered
        again. With `return_errors` the first error of each partition is returned instead.
        """
        arguments.flag("return_errors", return_errors)
        self._client.check_loop()
        leaders = self._open().leaders
        if not self._is_explicit:
            self._ledger.accept_held()
        outcome: dict[TopicPartition, ClientError | None] = {}
        self._commits.append(outcome)
        try:
            await leaders.flush()
            self._report()
        finally:
            self._commits = [one for one in self._commits if one is not outcome]
        if not return_errors:
            raise_failures(f"acknowledge in share group {self.group!r}", outcome)
        return outcome

    @property
    def member_id(self) -> str:
        """The id by which the coordinator knows this consumer."""
        return self._membership.member_id

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are fetched now."""
        return {name for of in self._open().member.routes.values() for name in of.values()}

    @property
    def acquisition_lock_timeout(self) -> float:
        """Duration of locks in seconds, from the last answer; 0 before the first one."""
        return self._open().leaders.lock_timeout

    @property
    def throttled_seconds(self) -> float:
        """How long brokers have told this client to wait because it was over a quota.

        It sends such a broker nothing meanwhile; requests wait here.
        """
        return self._client.throttled_seconds

    async def _group_settings(self) -> GroupSettings:
        """The group's configuration, for a worker; also before the consumer is open."""
        return await group_settings(self._client, self.group)

    def _news(self) -> None:
        self._changed.set()
        self._report()

    def _report(self) -> None:
        while self._ledger.results:
            one = self._ledger.results.popleft()
            partition = TopicPartition(one.topic, one.partition)
            for outcome in self._commits:
                outcome[partition] = outcome.get(partition) or one.error
            if self._parts is None and one.error is not None and one.kind in ("accept", "reject"):
                self._undone.append(one)
            if self.on_acknowledge is not None:
                self.on_acknowledge(one)

    def _open(self) -> Parts:
        if self._parts is None:
            raise ClientClosed("the share consumer is not open; use it in an (async) with block")
        return self._parts


def _decide(ledger: Ledger, what: ShareRecord | pa.RecordBatch | pa.Table, kind: str) -> None:
    """Note the caller's acknowledgement of a record, or of rows."""
    arguments.choice("kind", kind, KINDS)
    if isinstance(what, ShareRecord):
        ledger.acknowledge(what.delivery, what.offset, KINDS[kind])
        return
    if type(what).__module__.partition(".")[0] != "pyarrow":
        wanted = "a ShareRecord of poll, or rows of poll_arrow"
        raise arguments.wrong_type("what", wanted, what)
    from ottla.client.share.arrow import runs

    for partition, first, end in runs(what):
        ledger.acknowledge_range(partition, first, end, KINDS[kind])


def _wrong_mode(what: str) -> WrongAckMode:
    """The error for a call that needs the explicit mode."""
    return WrongAckMode(
        "in implicit mode the next poll accepts all records; open the consumer with "
        f'ack_mode="explicit" to {what}'
    )

"""The Producer: records and Arrow columns into a cluster, in order and without duplicates.

    async with Producer("127.0.0.1:9092") as producer:
        metadata = await producer.send("orders", key=b"k", value=b"v")

- A call returns when the broker has acknowledged all its records, or raises a `ClientError`.
  Calls that run at the same time share batches and requests.
- Records for one partition are written in the order of the calls, through retries, restarts and
  moves of leaders; idempotent (the default), each is written once.
- Memory is bounded by `buffer_memory`: when it is full, calls wait until the brokers have taken
  something, for up to `max_block_ms`.
- Cancelling a call only stops waiting; its records may still be written.
- A topic that does not exist is created if the broker allows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from ottla.client import arguments, extras
from ottla.client.cluster.cluster import Client
from ottla.client.cluster.turns import Turns
from ottla.client.cluster.view import NO_LEADER, Topic, TopicPartition
from ottla.client.errors import BadArgument, RequestTimedOut, UnknownTopic, kafka_error
from ottla.client.producer.batches import Identity
from ottla.client.producer.partitioner import StickyPartitioner, partition_of_key
from ottla.client.producer.sender import Sender, Waiter
from ottla.client.producer.types import (
    DeliveredRange,
    ProducerRecord,
    ProducerSettings,
    RecordMetadata,
    RecordTooLarge,
    checked,
    record_bound,
)
from ottla.client.security import PLAINTEXT, Security
from ottla.client.transactions.shell import Transactions
from ottla.client.transactions.transaction import Transaction
from ottla.client.transactions.types import WrongTransactionState
from ottla.clock import SYSTEM
from ottla.randomness import RANDOM
from ottla.wire.batch import HEADER_SIZE
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    import pyarrow as pa

    from ottla.client.producer.batches import Batch, Delivered
    from ottla.client.producer.types import Outgoing, RecordHeaders

MEBIBYTE: Final = 1024 * 1024
# A missing topic is retried for a few tenths of a second. A caller that sends right after it
# created the topic may reach brokers that take longer to learn of it.
MISSING_TOPIC_ROUNDS: Final = 5


class Producer:
    """An async context manager; `bootstrap` is "host:port,..." or a sequence of "host:port".

    Settings have Kafka's names and mostly its defaults: `batch_size` is larger, since a request
    costs more in Python; `linger_ms` is 0, since calls that run at the same time meet anyway.

    With a `transactional_id` it sends in transactions only, see `transaction`. With the `identity`
    of a transaction that is open elsewhere it sends in that one; see
    `ottla.client.transactions.requests`.

    >>> from ottla import Producer
    >>> async with Producer("127.0.0.1:9092", compression_type="zstd") as producer:
    ...     sent = await producer.send("payments", b"42 EUR", key=b"alice")
    ...     print(sent.topic, sent.partition, sent.offset)
    payments 0 0
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str | None = "ottla-producer",
        security: Security = PLAINTEXT,
        acks: int | str = "all",
        enable_idempotence: bool = True,
        compression_type: str = "none",
        compression_level: int | None = None,
        batch_size: int = 128 * 1024,
        linger_ms: float = 0,
        buffer_memory: int = 32 * MEBIBYTE,
        max_request_size: int = MEBIBYTE,
        delivery_timeout_ms: float = 120_000,
        request_timeout_ms: float = 30_000,
        max_block_ms: float = 60_000,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        identity: Identity | None = None,
        max_versions: Mapping[int, int] | None = None,
        random: Callable[[], float] = RANDOM.random,
    ) -> None:
        self._settings = ProducerSettings(
            acks,
            enable_idempotence,
            compression_type,
            compression_level,
            batch_size,
            linger_ms,
            buffer_memory,
            max_request_size,
            delivery_timeout_ms,
            request_timeout_ms,
            max_block_ms,
            transactional_id,
            transaction_timeout_ms,
        )
        self._client = Client(
            bootstrap,
            client_id=client_id,
            security=security,
            request_timeout=request_timeout_ms / 1000,
            api_timeout=max_block_ms / 1000,
            max_versions=max_versions,
        )
        self._random = arguments.function("random", random)
        self._turns: dict[str, Turns] = {}
        self._sticky = StickyPartitioner(batch_size, random)
        self._sender = Sender(self._client, self._settings, random)
        self._transactions: Transactions | None = None
        if identity is not None:
            if transactional_id is None:
                raise BadArgument("identity: give the transactional_id that it belongs to, too")
            arguments.instance("identity", identity, Identity, "the Identity of a transaction")
        if transactional_id is not None:
            self._transactions = Transactions(
                self._client, self._sender, transactional_id, transaction_timeout_ms, identity
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Reach a broker now, in one attempt. Calls do this themselves, and are more patient.

        With a `transactional_id`, also fence every other producer that has it; when this returns,
        their open transactions have ended.
        """
        await self._client.connection_to("any")
        if self._transactions is not None:
            await self._transactions.initialise()

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        headers: RecordHeaders = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until it is acknowledged.

        `headers` are pairs of a name and bytes (names may repeat), or a mapping.

        >>> from ottla import Producer
        >>> async with Producer("127.0.0.1:9092") as producer:
        ...     await producer.send("orders", b"v", headers=[("h", b"1")], timestamp_ms=1000)
        RecordMetadata(topic='orders', partition=0, offset=3, timestamp_ms=1000)
        """
        self._check_topic(topic)
        if type(headers) is list:
            headers = tuple(headers)
        record = checked(ProducerRecord(value, key, headers, timestamp_ms, partition))
        batch, index, timestamp = await self._accept(topic, record, self._size(topic, record))
        delivered = await self._sender.waiter(batch)
        return _metadata(batch.partition, delivered, index, timestamp)

    async def send_many(
        self, topic: str, records: Iterable[ProducerRecord]
    ) -> list[RecordMetadata]:
        """Send records and wait for all of them; if some fail, the first failure is raised.

        >>> from ottla import Producer
        >>> from ottla import ProducerRecord
        >>> records = [ProducerRecord(b"a"), ProducerRecord(b"b", key=b"k")]
        >>> async with Producer("127.0.0.1:9092") as producer:
        ...     sent = await producer.send_many("orders", records)
        ...     print([one.offset for one in sent])
        [3, 4]
        """
        self._check_topic(topic)
        # All of them before the first is handed over, so that a wrong one leaves nothing behind.
        if not isinstance(records, Iterable):
            raise arguments.wrong_type("records", "ProducerRecords", records)
        checked_ones = [_record(at, one) for at, one in enumerate(records)]
        given = [(one, self._size(topic, one)) for one in checked_ones]
        accepted = []
        waiters: dict[Batch[Waiter], Waiter] = {}
        try:
            for record, size in given:
                batch, index, timestamp = await self._accept(topic, record, size)
                if batch not in waiters:
                    waiters[batch] = self._sender.waiter(batch)
                accepted.append((batch, index, timestamp))
        except BaseException:
            for waiter in waiters.values():
                waiter.cancel()
            raise
        await _all(waiters.values())
        return [
            _metadata(batch.partition, waiters[batch].result(), index, timestamp)
            for batch, index, timestamp in accepted
        ]

    async def send_arrow(
        self,
        topic: str,
        data: pa.RecordBatch | pa.Table,
        *,
        key: str | None = None,
        value: str = "value",
        headers: str | None = None,
        timestamp: str | None = None,
        partition: int | None = None,
    ) -> list[DeliveredRange]:
        """Send rows and wait for all of them. Needs the `arrow` extra.

        Columns are given by name; `key` and `headers` are the columns of these names where there
        are such. Rows with the same key, or for the same partition, stay in order.

        >>> import pyarrow as pa
        >>> from ottla import Producer
        >>> rows = pa.table({"key": [b"a", b"b"], "value": [b"1", b"2"]})
        >>> async with Producer("127.0.0.1:9092") as producer:
        ...     await producer.send_arrow("orders", rows)
        [DeliveredRange(topic='orders', partition=0, base_offset=3, records=2)]
        """
        arguments.text("topic", topic)
        if partition is not None:
            partition = arguments.whole("partition", partition)
        ticket = self._sender.ticket()
        encoding = await extras.arrow("producer.arrow", "send_arrow")
        columns = encoding.Columns.of(
            data, key=key, value=value, headers=headers, timestamp=timestamp
        )
        found = await self._topic(topic)
        if partition is not None:
            _check_partition(found, partition)
        candidates = _available(found) if partition is None else [partition]
        sending = encoding.ArrowSending(
            self._sender, self._settings, found, candidates, self._random, ticket
        )
        batches: dict[Batch[Waiter], Waiter] = await sending.send(
            data, columns, by_key=partition is None
        )
        await _all(batches.values())
        return [
            DeliveredRange(
                topic, batch.partition.partition, waiter.result().base_offset, batch.count
            )
            for batch, waiter in batches.items()
        ]

    def transaction(self) -> Transaction:
        """A block whose records are written together or not at all; needs a `transactional_id`.

        They are committed at its end, and aborted if an exception leaves it. The first one fences
        every other producer with the same `transactional_id`.

        >>> from ottla import Producer
        >>> from ottla import TopicPartition
        >>> async with Producer("127.0.0.1:9092", transactional_id="billing-1") as producer:
        ...     async with producer.transaction() as transaction:
        ...         sent = await producer.send("invoices", b"42 EUR")
        ...         await transaction.send_offsets("billing", {TopicPartition("orders", 0): 3})
        """
        if self._transactions is None:
            raise WrongTransactionState(
                "the producer has no transactional_id; make it with Producer(..., "
                "transactional_id=...), one for each process"
            )
        return Transaction(self._transactions)

    @property
    def throttled_seconds(self) -> float:
        """How long brokers have told this client to wait because it was over a quota.

        It sends such a broker nothing meanwhile; requests wait here.
        """
        return self._client.throttled_seconds

    async def flush(self) -> None:
        """Wait until everything handed over so far is acknowledged or given up."""
        self._client.check_loop()
        await self._sender.flush()

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # ends in time, raises nothing
        """Flush for up to `timeout` seconds (None: `delivery_timeout_ms`), then end.

        A transaction that is open is aborted.
        """
        timeout = arguments.optional_seconds("timeout", timeout)
        if self._sender.closed:
            return
        self._client.check_loop()
        patience = self._settings.delivery_timeout_ms / 1000 if timeout is None else timeout
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    if self._transactions is not None:
                        await self._transactions.close()
                    await self._sender.flush()
        finally:
            if self._transactions is not None:
                await self._transactions.stop()
            await self._sender.close()
            await self._client.close()

    def _check_topic(self, topic: str) -> None:
        if type(topic) is not str or topic not in self._client.view.topics:
            arguments.text("topic", topic)

    def _size(self, topic: str, record: Outgoing) -> int:
        """The most bytes the record can take up; one that cannot be sent at all is refused."""
        size = record_bound(record.key, record.value, record.headers)
        if size + HEADER_SIZE > self._settings.max_request_size:
            raise RecordTooLarge(
                f"a record of about {size} bytes for {topic!r} passes max_request_size "
                f"({self._settings.max_request_size}); raise it, and max.message.bytes of the topic"
            )
        return size

    async def _accept(
        self, topic: str, record: Outgoing, size: int
    ) -> tuple[Batch[Waiter], int, int]:
        """Hand one checked record over: its batch, its place there, its time."""
        ticket = self._sender.ticket()
        found = await self._topic(topic)
        await self._sender.reserve(size)
        try:
            self._sender.check(ticket)
            place = TopicPartition(topic, self._partition(found, record, size))
            timestamp = record.timestamp_ms
            if timestamp is None:
                timestamp = SYSTEM.wall_ms()
            now = asyncio.get_running_loop().time()
            batch, index = self._sender.records.append(place, record, timestamp, size, now)
        except BaseException:
            self._sender.release(size)
            raise
        self._sender.changed()
        return batch, index, timestamp

    async def _topic(self, name: str) -> Topic:
        """The topic, created where that is allowed."""
        if name not in self._client.view.topics:
            # In turns, so that calls for a topic that is not known yet keep their order.
            turns = self._turns.setdefault(name, Turns())
            try:
                await turns.take(lambda: name in self._client.view.topics, lambda: self._find(name))
            finally:
                self._turns.pop(name, None)
        # However old this is: the sender keeps it fresh, and calls must not overtake each other.
        return self._client.view.topics[name]

    async def _find(self, name: str) -> None:
        async def attempt() -> None:
            view = await self._client.refresh([name], create_missing=True)
            if view.missing.get(name) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                # Asked without creating it, the broker might say that it is missing.
                raise kafka_error(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    f"find topic {name!r}",
                    "it may not be written to, or does not exist and may not be created",
                )
            await self._client.topics([name])

        patience = self._client.api_timeout
        deadline = asyncio.get_running_loop().time() + patience
        missing = False
        for _ in range(MISSING_TOPIC_ROUNDS):
            try:
                return await self._client.retry(attempt, deadline=deadline)
            except UnknownTopic:
                missing = True
            except RequestTimedOut:
                if not missing:
                    raise  # and says what kept the brokers from answering
                raise RequestTimedOut(
                    f"topic {name!r}: not found in {patience:g} s; create it, or raise max_block_ms"
                ) from None
        raise UnknownTopic(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"send to {name!r}",
            "there is no such topic, and the broker does not make it; create it first",
        )

    def _partition(self, topic: Topic, record: Outgoing, size: int) -> int:
        if record.partition is not None:
            _check_partition(topic, record.partition)
            return record.partition
        if record.key is not None:
            return partition_of_key(record.key, len(topic.partitions))
        return self._sticky.pick(topic.name, _available(topic), size)


def _record(at: int, given: object) -> Outgoing:
    if not isinstance(given, ProducerRecord):
        wanted = 'a ProducerRecord such as ProducerRecord(b"v")'
        raise arguments.wrong_type(f"records[{at}]", wanted, given)
    return checked(given, at)


def _check_partition(topic: Topic, partition: int) -> None:
    if not 0 <= partition < len(topic.partitions):
        raise UnknownTopic(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"send to {topic.name}-{partition}",
            f"its partitions are 0 to {len(topic.partitions) - 1}",
        )


def _available(topic: Topic) -> list[int]:
    """The partitions that have a leader; all of them if none has."""
    led = [one.index for one in topic.partitions if one.leader != NO_LEADER]
    return led or [one.index for one in topic.partitions]


def _metadata(
    partition: TopicPartition, delivered: Delivered, index: int, timestamp: int
) -> RecordMetadata:
    base, append_time = delivered
    return RecordMetadata(
        partition.topic,
        partition.partition,
        base if base < 0 else base + index,
        timestamp if append_time < 0 else append_time,
    )


async def _all(waiters: Iterable[Waiter]) -> None:
    """Wait for all, then raise the first failure."""
    for outcome in await asyncio.gather(*waiters, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome

"""Producer without async. Made by scripts/generate_sync.py; do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.producer.producer import MEBIBYTE
from ottla.client.producer.producer import Producer as AsyncProducer
from ottla.client.security import PLAINTEXT
from ottla.randomness import RANDOM
from ottla.sync.transaction import Transaction
from ottla.sync.twin import Twin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from ottla.client.producer.batches import Identity
    from ottla.client.producer.types import (
        DeliveredRange,
        ProducerRecord,
        RecordHeaders,
        RecordMetadata,
    )
    from ottla.client.security import Security


class Producer(Twin[AsyncProducer]):
    """A context manager; `bootstrap` is "host:port,..." or a sequence of "host:port".

    Settings have Kafka's names and mostly its defaults: `batch_size` is larger, since a request
    costs more in Python; `linger_ms` is 0, since calls that run at the same time meet anyway.

    With a `transactional_id` it sends in transactions only, see `transaction`. With the `identity`
    of a transaction that is open elsewhere it sends in that one; see
    `ottla.client.transactions.requests`.

    >>> from ottla.sync import Producer
    >>> with Producer("127.0.0.1:9092", compression_type="zstd") as producer:
    ...     sent = producer.send("payments", b"42 EUR", key=b"alice")
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
        delivery_timeout_ms: float = 120000,
        request_timeout_ms: float = 30000,
        max_block_ms: float = 60000,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60000,
        identity: Identity | None = None,
        max_versions: Mapping[int, int] | None = None,
        random: Callable[[], float] = RANDOM.random,
    ) -> None:
        super().__init__(
            lambda: AsyncProducer(
                bootstrap,
                client_id=client_id,
                security=security,
                acks=acks,
                enable_idempotence=enable_idempotence,
                compression_type=compression_type,
                compression_level=compression_level,
                batch_size=batch_size,
                linger_ms=linger_ms,
                buffer_memory=buffer_memory,
                max_request_size=max_request_size,
                delivery_timeout_ms=delivery_timeout_ms,
                request_timeout_ms=request_timeout_ms,
                max_block_ms=max_block_ms,
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                identity=identity,
                max_versions=max_versions,
                random=random,
            )
        )

    def connect(self) -> None:
        """Reach a broker now, in one attempt. Calls do this themselves, and are more patient.

        With a `transactional_id`, also fence every other producer that has it; when this returns,
        their open transactions have ended.
        """
        self._run(self._async.connect())

    def send(
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

        >>> from ottla.sync import Producer
        >>> with Producer("127.0.0.1:9092") as producer:
        ...     producer.send("orders", b"v", headers=[("h", b"1")], timestamp_ms=1000)
        RecordMetadata(topic='orders', partition=0, offset=3, timestamp_ms=1000)
        """
        return self._run(
            self._async.send(
                topic,
                value,
                key=key,
                headers=headers,
                timestamp_ms=timestamp_ms,
                partition=partition,
            )
        )

    def send_many(self, topic: str, records: Iterable[ProducerRecord]) -> list[RecordMetadata]:
        """Send records and wait for all of them; if some fail, the first failure is raised.

        >>> from ottla.sync import Producer
        >>> from ottla import ProducerRecord
        >>> records = [ProducerRecord(b"a"), ProducerRecord(b"b", key=b"k")]
        >>> with Producer("127.0.0.1:9092") as producer:
        ...     sent = producer.send_many("orders", records)
        ...     print([one.offset for one in sent])
        [3, 4]
        """
        return self._run(self._async.send_many(topic, records))

    def send_arrow(
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
        >>> from ottla.sync import Producer
        >>> rows = pa.table({"key": [b"a", b"b"], "value": [b"1", b"2"]})
        >>> with Producer("127.0.0.1:9092") as producer:
        ...     producer.send_arrow("orders", rows)
        [DeliveredRange(topic='orders', partition=0, base_offset=3, records=2)]
        """
        return self._run(
            self._async.send_arrow(
                topic,
                data,
                key=key,
                value=value,
                headers=headers,
                timestamp=timestamp,
                partition=partition,
            )
        )

    def transaction(self) -> Transaction:
        """A block whose records are written together or not at all; needs a `transactional_id`.

        They are committed at its end, and aborted if an exception leaves it. The first one fences
        every other producer with the same `transactional_id`.

        >>> from ottla.sync import Producer
        >>> from ottla import TopicPartition
        >>> with Producer("127.0.0.1:9092", transactional_id="billing-1") as producer:
        ...     with producer.transaction() as transaction:
        ...         sent = producer.send("invoices", b"42 EUR")
        ...         transaction.send_offsets("billing", {TopicPartition("orders", 0): 3})
        """
        return Transaction._of(self._call(self._async.transaction))

    @property
    def throttled_seconds(self) -> float:
        """How long brokers have told this client to wait because it was over a quota.

        It sends such a broker nothing meanwhile; requests wait here.
        """
        return self._call(lambda: self._async.throttled_seconds)

    def flush(self) -> None:
        """Wait until everything handed over so far is acknowledged or given up."""
        self._run(self._async.flush())

    def close(self, timeout: float | None = None) -> None:
        """Flush for up to `timeout` seconds (None: `delivery_timeout_ms`), then end.

        A transaction that is open is aborted.
        """
        self._run(self._async.close(timeout))

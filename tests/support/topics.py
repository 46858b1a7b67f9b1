"""Whole topics through librdkafka: created, written and read back record for record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.wire.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PATIENCE: Final = 20.0


class Placed(NamedTuple):
    """A record and the partition it is in."""

    partition: int
    record: Record


def create_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    """Underscores in the names of settings stand for dots."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values():
        created.result()


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[Record],
    *,
    partition: int = 0,
    transaction: bool | None = None,
    config: Mapping[str, Any] | None = None,
) -> None:
    """Send the records; in a transaction that is committed (True) or aborted (False), if asked."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, **(config or {})})
    outcomes: list[Any] = []
    if transaction is not None:
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition=partition,
            timestamp=record.timestamp,
            headers=list(record.headers),
            on_delivery=lambda error, _: outcomes.append(error),
        )
    assert producer.flush(PATIENCE) == 0
    assert set(outcomes) == {None}
    if transaction is True:
        producer.commit_transaction(PATIENCE)
    elif transaction is False:
        producer.abort_transaction(PATIENCE)


def read_all(bootstrap: str, topic: str, *, isolation: str = "read_uncommitted") -> list[Placed]:
    """Every record of a topic as it is now, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "not joined",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # Ends are told by empty answers; these need not be waited for.
            "fetch.wait.max.ms": 10,
            "isolation.level": isolation,
        }
    )
    try:
        (found,) = consumer.list_topics(topic, PATIENCE).topics.values()
        open_partitions = set(found.partitions)
        consumer.assign([Position(topic, index, 0) for index in found.partitions])
        placed: list[Placed] = []
        while open_partitions:
            message = consumer.poll(PATIENCE)
            assert message is not None, f"partitions {open_partitions} have no end"
            error = message.error()
            if error is None:
                placed.append(_placed(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return sorted(placed, key=lambda one: (one.partition, one.record.offset))


def _placed(message: Any) -> Placed:
    _, timestamp = message.timestamp()
    headers = tuple(message.headers() or ())
    key, value = message.key(), message.value()
    return Placed(message.partition(), Record(message.offset(), timestamp, key, value, headers))

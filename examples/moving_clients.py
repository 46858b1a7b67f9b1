"""One topic, three clients: programs can move to Ottla's clients one at a time.

    python examples/moving_clients.py

confluent-kafka, aiokafka and Ottla write orders of the same customers; each customer's orders
stay in one partition and in order, whichever client wrote them.
"""

# %%
from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Final

import aiokafka
import confluent_kafka

import ottla
from ottla import sync

TOPIC: Final = "orders"
CUSTOMERS: Final = [f"customer-{number}" for number in range(50)]
# The default of confluent-kafka is another one; say this while both write.
JAVA_PARTITIONER: Final = {"partitioner": "murmur2_random"}

broker = ottla.EmbeddedBroker().start()
broker.create_topic(TOPIC, partitions=6)


# %% confluent-kafka: a queue, callbacks, and a flush to serve them.
def with_confluent() -> None:
    failed: list[object] = []
    settings = {"bootstrap.servers": broker.bootstrap, **JAVA_PARTITIONER}
    producer = confluent_kafka.Producer(settings)
    for customer in CUSTOMERS:
        producer.produce(
            TOPIC,
            b"confluent-kafka",
            key=customer,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    producer.flush()
    assert not failed


# %% aiokafka: start, stop, and a future for each record.
async def with_aiokafka() -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    try:
        for customer in CUSTOMERS:
            await producer.send_and_wait(TOPIC, b"aiokafka", key=customer.encode())
    finally:
        await producer.stop()


# %% Ottla: one call, and an exception if it fails. `await` in async programs, the twin elsewhere.
def with_ottla() -> None:
    records = [ottla.ProducerRecord(b"ottla", customer.encode()) for customer in CUSTOMERS]
    with sync.Producer(broker.bootstrap) as producer:
        producer.send_many(TOPIC, records)


with_confluent()
asyncio.run(with_aiokafka())
with_ottla()

# %% All three wrote each customer's orders to the same place.
places: dict[bytes | None, set[int]] = defaultdict(set)
writers: dict[bytes | None, list[bytes | None]] = defaultdict(list)
with sync.Reader(broker.bootstrap, TOPIC, stop="latest") as reader:
    for record in reader.records():
        places[record.key].add(record.partition)
        writers[record.key].append(record.value)
broker.stop()
assert all(len(partitions) == 1 for partitions in places.values())
assert all(found == [b"confluent-kafka", b"aiokafka", b"ottla"] for found in writers.values())
print(f"{len(places)} customers, {sum(map(len, writers.values()))} orders of three clients")
print("each customer's orders are in one partition, in order")

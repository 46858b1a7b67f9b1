"""A work queue: many workers, each order for one of them, and none lost that cannot be done.

    python examples/work_queue.py

Three kinds of trouble: an order that cannot be read (rejected at once), one that is refused the
first time (released, delivered again), and one that breaks the worker each time (given up at the
group's limit). Rejected and given-up orders are written to the dead-letter topic.
"""

# %%
from __future__ import annotations

import json
import logging
from collections import Counter
from typing import Final

import ottla
from ottla.sync import Admin, Producer, Reader

ORDERS: Final = 300
ATTEMPTS: Final = 3
UNREADABLE: Final = range(0, ORDERS, 50)
BUSY: Final = range(1, ORDERS, 10)
BROKEN: Final = range(2, ORDERS, 100)

# %% The worker logs each failure with its traceback; here they are expected.
logging.basicConfig(level=logging.CRITICAL)

# %% A topic for the work, a dead-letter topic, and a group that uses it.
broker = ottla.EmbeddedBroker().start()
with Admin(broker.bootstrap) as admin:
    admin.create_topic("orders", partitions=3)
    admin.create_topic("dlq.orders", configs={"errors.deadletterqueue.group.enable": "true"})
    settings = {
        "share.auto.offset.reset": "earliest",
        "share.delivery.count.limit": str(ATTEMPTS),
        "errors.deadletterqueue.topic.name": "dlq.orders",
    }
    admin.alter_configs("group", "packers", settings)

# %% Orders, some of them bad.
with Producer(broker.bootstrap) as producer:
    values = [
        b"no JSON" if number in UNREADABLE else json.dumps({"id": number}).encode()
        for number in range(ORDERS)
    ]
    producer.send_many("orders", [ottla.ProducerRecord(value) for value in values])

# %% The handler of one order. Eight of these run at a time.
packed: Counter[int] = Counter()


def pack(record: ottla.ShareRecord) -> str | None:
    try:
        number = json.loads(record.value or b"")["id"]
    except ValueError:
        return "reject"  # no attempt will read it
    if number in BUSY and record.delivery_count == 1:
        return "release"  # later, by this worker or another
    if number in BROKEN:
        raise RuntimeError(f"order {number} breaks the machine")  # released, too
    packed[number] += 1
    return None  # accepted


# %% Runs until SIGTERM or Ctrl-C; here, until there has been nothing to do for two seconds.
counts = ottla.share_worker(
    pack, broker.bootstrap, group="packers", topics=["orders"], concurrency=8, idle_timeout=2
)
print(f"{counts.accepted} orders packed, {counts.released} attempts released")

# %% The dead letters say where they come from and why.
reasons: Counter[str] = Counter()
with Reader(broker.bootstrap, "dlq.orders", stop="latest") as reader:
    for letter in reader.records():
        reason = dict(letter.headers)["__dlq.errors.message"] or b""
        reasons[reason.decode()] += 1
for text, letters in sorted(reasons.items()):
    print(f"{letters} dead letters: {text}")
broker.stop()

# %% Every order is packed once or is a dead letter.
assert set(packed.values()) == {1}
assert packed.total() + reasons.total() == ORDERS
print("every order is accounted for")

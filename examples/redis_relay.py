"""From Redis Streams to Kafka: a relay that goes on where it stopped, and the topic as a table.

    python examples/redis_relay.py redis://localhost:6379

Programs go on writing to Redis, and every Kafka client can read their messages. This example uses a
stream of its own and deletes it at the end.
"""

# %%
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from redis import Redis

import ottla
from ottla.sync import Reader

REDIS: Final = sys.argv[1] if len(sys.argv) > 1 else "redis://localhost:6379"
STREAM: Final = f"ottla-example-{os.getpid()}"
CUSTOMERS: Final = ("ann", "ben", "eve")
DAYS: Final = 3
ORDERS_PER_DAY: Final = 500

broker = ottla.EmbeddedBroker().start()
broker.create_topic("orders", partitions=3)
directory = tempfile.TemporaryDirectory()
redis = Redis.from_url(REDIS)


# %% A program that knows Redis only. `msg` is the message, `key` its key; other fields are headers.
def write(orders: int) -> int:
    """Write orders; the sum of their amounts."""
    for number in range(orders):
        order = json.dumps({"amount": number % 7})
        redis.xadd(STREAM, {"msg": order, "key": CUSTOMERS[number % 3], "shop": "web"})
    return sum(number % 7 for number in range(orders))


# %% The relay is a command. With `--offsets` it can be stopped and started at any time; without
# `--until-end` it waits for more. Ctrl-C and SIGTERM end it after the messages in flight.
def relay() -> None:
    command = [sys.executable, "-m", "ottla.cli", "relay"]
    command += ["--input", f"{REDIS}/{STREAM}", "--output", f"kafka://{broker.bootstrap}/orders"]
    command += ["--offsets", str(Path(directory.name) / "offsets"), "--until-end"]
    subprocess.run(command, check=True, capture_output=True)


# %% Each run copies the new entries.
expected = 0
for _ in range(DAYS):
    expected += write(ORDERS_PER_DAY)
    relay()

# %% In Kafka you can read the messages as a stream, a queue or a table. As a table, without Spark:
with Reader(broker.bootstrap, "orders", stop="latest") as reader:
    table = pa.Table.from_batches(reader)
amounts = pa.array([json.loads(value.as_py())["amount"] for value in table["value"]])
customers = pc.cast(table["key"], pa.string())
orders = pa.table({"customer": customers, "amount": amounts})
totals = orders.group_by("customer").aggregate([("amount", "sum"), ("amount", "count")])
for row in totals.sort_by("customer").to_pylist():
    print(f"{row['customer']}: {row['amount_count']} orders, {row['amount_sum']} pieces")

# %%
redis.delete(STREAM)
broker.stop()
directory.cleanup()
assert table.num_rows == DAYS * ORDERS_PER_DAY
assert pc.sum(amounts).as_py() == expected
print("every order was relayed once")

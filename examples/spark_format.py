"""A Spark program written for the `kafka` format, moved by changing the format's name.

    python examples/spark_format.py

A stream of orders becomes Parquet files, in two runs: the second goes on where the first stopped.
No jar, no `--packages`; Java comes with `ottla[spark]` where the machine has none.
"""

# %%
from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Final

from pyspark.sql import functions as f

import ottla
from ottla.spark.session import local_session
from ottla.sync import Producer

ORDERS: Final = 5_000

broker = ottla.EmbeddedBroker().start()
broker.create_topic("orders", partitions=3)
directory = tempfile.TemporaryDirectory()
table = str(Path(directory.name) / "orders")
checkpoint = str(Path(directory.name) / "checkpoint")
spark = local_session()
spark.sparkContext.setLogLevel("ERROR")


def order(first: int, last: int) -> None:
    records = [
        ottla.ProducerRecord(json.dumps({"id": n, "shop": f"shop-{n % 4}"}).encode())
        for n in range(first, last)
    ]
    with Producer(broker.bootstrap) as producer:
        producer.send_many("orders", records)


# %% The program. Its options are those of the `kafka` format, and so are its columns.
def run() -> None:
    orders = (
        spark.readStream.format("ottla")  # was: format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    fields = f.from_json(orders.value.cast("string"), "id long, shop string")
    query = (
        orders.select(fields.alias("fields"), "timestamp")
        .select("fields.*", "timestamp")
        .writeStream.format("parquet")
        .option("path", table)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


# %% Half of the orders, and then the rest.
order(0, ORDERS // 2)
run()
order(ORDERS // 2, ORDERS)
run()

# %%
written = spark.read.parquet(table)
for row in written.groupBy("shop").count().orderBy("shop").collect():
    print(f"{row['shop']}: {row['count']} orders")
ids = sorted(row["id"] for row in written.select("id").collect())
broker.stop()
directory.cleanup()
assert ids == list(range(ORDERS))
print("every order is in the table once")

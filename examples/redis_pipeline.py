"""Orders that a program writes to Redis, added up by shop: Redis, relay, Kafka, Spark.

    ottla relay --input redis://localhost:6379/orders \\
        --output kafka://127.0.0.1:9092/redis-orders --offsets ./offsets &
    ottla run examples/redis_pipeline.py --bootstrap 127.0.0.1:9092

Both can be stopped and started at any time: the relay has its offsets, the flow its checkpoint. An
entry is `XADD orders * msg '{"shop": "north", "amount": 2}'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from ottla.spark.pipelines import flow, source, topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

source("orders", topic="redis-orders", schema="shop string, amount long")


@flow("totals", reads=["orders"], writes=topic("redis-totals", key="shop"), mode="update")
def totals(orders: DataFrame) -> DataFrame:
    """What each shop has sold so far, as a record for each change."""
    return orders.groupBy("shop").agg(f.count("*").alias("orders"), f.sum("amount").alias("amount"))

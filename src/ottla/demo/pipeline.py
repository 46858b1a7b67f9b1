"""The Spark pipeline: sales per shop and window, as a table of Parquet files and as a topic.

Spark is a member of a share group; what a batch has taken is accepted when the batch is in Spark's
commit log. Each micro-batch rewrites the table, which is small, and sends its rows to the result
topic under the key "shop|window": the last value of a key is what holds.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from ottla.demo.child import watch_parent
from ottla.demo.orders import WINDOW_MS
from ottla.demo.stage import ORDERS, SALES, SALES_GROUP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.demo.stage import Stage

LOOK_EVERY_SECONDS: Final = 1
TRIGGER: Final = "1 second"
# It lives for a minute on a machine that has other things to do: what takes time to pay off is out.
SESSION: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
}
SCHEMA: Final = "shop STRING, at TIMESTAMP, cents BIGINT"


def run_pipeline(stage: Stage) -> None:
    """Run until told to end, or until the query fails, which is raised."""
    from ottla.spark.session import local_session

    ending = threading.Event()
    watch_parent(ending.set)
    spark = local_session(
        "ottla demo", config={**SESSION, "spark.local.dir": f"{stage.directory}/spark"}
    )
    spark.sparkContext.setLogLevel("ERROR")
    query = (
        sales(orders(spark, stage))
        .writeStream.outputMode("complete")
        .foreachBatch(lambda rows, _: write(rows, stage))
        .option("checkpointLocation", str(stage.checkpoint))
        .trigger(processingTime=TRIGGER)
        .start()
    )
    while not ending.is_set() and not query.awaitTermination(LOOK_EVERY_SECONDS):
        pass
    query.stop()
    spark.stop()


def orders(spark: SparkSession, stage: Stage) -> DataFrame:
    """The stream of orders: a queue that Spark takes from as a share group of its own."""
    return (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", stage.bootstrap)
        .option("subscribe", ORDERS)
        .option("shareGroup", SALES_GROUP)
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .load()
    )


def sales(records: DataFrame) -> DataFrame:
    """Orders and their value by shop and window; torn orders are left out."""
    from pyspark.sql import functions as f

    order = f.from_json(f.col("value").cast("string"), SCHEMA)
    return (
        records.select(order.alias("order"))
        .select("order.*")
        .where("shop IS NOT NULL AND at IS NOT NULL AND cents IS NOT NULL")
        .groupBy(f.window("at", f"{WINDOW_MS} milliseconds"), "shop")
        .agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))
        .select(
            "shop",
            f.unix_millis("window.start").alias("window_ms"),
            "orders",
            "cents",
        )
    )


def write(rows: DataFrame, stage: Stage) -> None:
    """The table, and the topic."""
    rows.persist()
    rows.coalesce(1).write.mode("overwrite").parquet(str(stage.sales_table))
    (
        rows.selectExpr("concat(shop, '|', window_ms) AS key", "to_json(struct(*)) AS value")
        .write.format("ottla")
        .option("kafka.bootstrap.servers", stage.bootstrap)
        .option("topic", SALES)
        .mode("append")
        .save()
    )
    rows.unpersist()

"""Orders of shops: bad ones set aside, the rest added up by shop.

    ottla run examples/orders.py --once

No broker is named, so one is started for the run and filled with the samples below. To read your
own orders: `ottla run examples/orders.py --bootstrap HOST:PORT`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from ottla.spark.pipelines import console, flow, reject, samples, source, topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

ORDERS = "order_id long, shop string, amount double, _corrupt_record string"

# With a share group the topic is a queue: several runs would divide the orders between them. An
# order is accepted when it is in one of the topics below and in Spark's log.
source("orders", topic="orders", share_group="billing", schema=ORDERS)


@flow("valid", reads=["orders"], writes=topic("valid-orders", key="shop"))
@reject(to="rejected-orders", when="_corrupt_record is not null or not amount > 0")
def valid(orders: DataFrame) -> DataFrame:
    """Orders that count; the others go to a topic of their own."""
    return orders


@flow("totals", reads=["valid"], writes=topic("totals", key="shop"), mode="update")
def totals(valid: DataFrame) -> DataFrame:
    """What each shop has sold, as a record for each change."""
    return valid.groupBy("shop").agg(
        f.count("*").alias("orders"), f.round(f.sum("amount"), 2).alias("amount")
    )


@flow("show", reads=["totals"], writes=console())
def show(totals: DataFrame) -> DataFrame:
    """The totals, where they can be seen."""
    return totals


@samples("orders")
def some_orders() -> Iterator[dict[str, object] | str]:
    """A thousand orders, a few of them bad."""
    shops = ("north", "east", "south", "west")
    for number in range(1000):
        amount = number % 97 + 0.5 if number % 100 else -1.0
        yield {"order_id": number, "shop": shops[number % 4], "amount": amount}
    yield "this is no order"

"""Fields that a flow names and its sources do not have. No Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f
from pyspark.sql.functions import col

from ottla.spark.pipelines.fields import nearest, unknown_in_function, unknown_in_sql

ORDERS = ("shop", "amount", "at", "customer")
SCHEMA = pa.schema([("shop", pa.string()), ("amount", pa.float64()), ("at", pa.timestamp("us"))])


def wrong(orders: Any, shops: Any) -> Any:
    kept = orders.where(orders.amont > 3).groupBy("anything").count().select("of another")
    large = orders.filter(f.col("ammount") > 3).drop("shop").select(f.col("whatever"))
    joined = orders.join(shops, f.col("elsewhere") == shops["nmae"])
    summed = orders.groupBy("shp", f.window("att", "1 day")).agg(f.sum("later"))
    return kept, large, joined, summed, orders["total"], orders.select(f.max("most"), col("shop"))


def right(orders: Any, shops: Any) -> Any:
    named = orders.select("*", "shop", "customer.name", f.col("AMOUNT").alias("x"), f.col("x"))
    kept = orders.withColumn("new", f.col("amount") * 2).where("anything > 2").select("new")
    schema = orders.schema, orders.columns, orders.rdd
    counted = orders.groupBy("shop").agg(f.sum("amount").alias("sum")).where(f.col("sum") > 3)
    other = orders.where(f.col("name") == shops.name)
    return named, kept, schema, counted, other, orders.groupBy("shop").count().orderBy("count")


def assigns(orders: Any) -> Any:
    orders = orders.withColumn("new", f.lit(1))
    return orders["new"]


def shadows(orders: Any) -> Any:
    return [orders["new"] for orders in (orders,)]


def shadows_in_a_function(orders: Any) -> Any:
    def inner(orders: Any) -> Any:
        return orders["newer"]

    return inner(orders)


def test_a_field_that_is_not_in_the_schema_is_found() -> None:
    found = unknown_in_function(wrong, {"orders": ORDERS, "shops": ("name",)})
    assert set(found) == {
        *[("orders", one) for one in ("amont", "anything", "ammount", "shp", "later")],
        *[("orders", one) for one in ("total", "most")],
        ("shops", "nmae"),
    }


@pytest.mark.parametrize(
    "function", [right, assigns, shadows, shadows_in_a_function, lambda orders: orders["x"]]
)
def test_what_is_not_certain_is_left_to_spark(function: Any) -> None:
    assert unknown_in_function(function, {"orders": ORDERS, "shops": ("name",)}) == []


def test_a_field_of_a_statement() -> None:
    tables = {"orders": SCHEMA}
    assert unknown_in_sql("select shop, sum(amont) from orders group by 1", tables) == "amont"
    assert unknown_in_sql("SELECT o.shp FROM orders o;", tables) == "shp"
    for fine in (
        "select Shop, sum(AMOUNT) from orders group by shop",
        'select * from orders where shop = "north"',
        "select from_json(shop, 'a int').a from orders",
        "select window(at, '1 minute') from orders",
        "not a statement",
    ):
        assert unknown_in_sql(fine, tables) is None, fine


def test_the_nearest_name_is_told() -> None:
    assert nearest("amont", ORDERS) == "did you mean amount?"
    assert nearest("zzz", ("a", "b")) == "it has a, b"

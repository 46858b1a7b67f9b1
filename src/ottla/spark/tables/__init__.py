"""Topics as tables in Spark: files by Spark's own Parquet reader, the rest from the log.

from ottla.spark import tables

orders = tables.table(spark, "orders")
stream = tables.stream(spark, "orders")
tables.views(spark, ["orders", "shops"])
spark.sql("select shop, sum(amount) from orders group by shop")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.tables.frames import stream, table, views

__all__ = ["stream", "table", "views"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from ottla.spark.tables import frames  # loads pyarrow, which options do without

        return getattr(frames, name)
    raise AttributeError(f"module 'ottla.spark.tables' has no attribute {name!r}")

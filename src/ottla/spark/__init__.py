"""Ottla in Spark: the `ottla` format as source and sink, and the session it runs best in.

Spark finds the format by itself (`pyspark_ottla` is a name it looks for); no call is needed to use
it. The planning modules (`options`, `offsets`, `planning`) import neither Spark nor a client;
`readers` and `sink` are the classes that Spark calls, and only delegate. `ottla.spark.table` gives
a topic's table as a frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.tables.frames import table

__all__ = ["table"]


def __getattr__(name: str) -> Any:
    if name == "table":
        from ottla.spark.tables.frames import table

        return table
    raise AttributeError(f"module 'ottla.spark' has no attribute {name!r}")

"""Pipelines: a Python file of decorated functions, run by `ottla run FILE`.

    from ottla.spark.pipelines import flow, source, topic

    source("orders", topic="orders", schema="shop string, amount double")

    @flow("totals", reads=["orders"], writes=topic("totals", key="shop"), mode="update")
    def totals(orders):
        return orders.groupBy("shop").sum("amount")

The declarations (`model`, `define`, `settings`, `graph`) and the supervision of flows (`progress`,
`supervision`, `runner`) do not import Spark; `compiler`, `listener` and `sessions` do. Decorated
functions stay plain functions of dataframes, which tests can call.
"""

from __future__ import annotations

from ottla.spark.pipelines.define import (
    console,
    flow,
    on_batch,
    registry,
    reject,
    samples,
    source,
    table,
    topic,
)
from ottla.spark.pipelines.errors import DefinitionError, EnvironmentProblem
from ottla.spark.pipelines.progress import Progress

__all__ = [
    "DefinitionError",
    "EnvironmentProblem",
    "Progress",
    "console",
    "flow",
    "on_batch",
    "registry",
    "reject",
    "samples",
    "source",
    "table",
    "topic",
]

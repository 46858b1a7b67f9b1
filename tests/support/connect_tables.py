"""A client of Spark Connect that reads topics as tables; what it found is JSON on stdout.

Its own process: one that has a session of Spark itself cannot have one of Connect.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from ottla.spark import tables
from tests.support.spark import pyspark_warnings
from tests.support.table_worker import NOON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMES = 3
SECOND = 13


def rows(frame: DataFrame) -> list[tuple[int, int, str]]:
    found = frame.select("_partition", "_offset", "value").collect()
    return sorted((one[0], one[1], bytes(one[2]).decode()) for one in found)


def main(url: str, bootstrap: str, moving: str, still: str, typed: str) -> None:
    with pyspark_warnings():
        spark = SparkSession.builder.remote(url).getOrCreate()

    def opened(topic: str, **arguments: Any) -> DataFrame:
        return tables.table(spark, topic, bootstrap=bootstrap, **arguments)

    seen = []
    for _ in range(TIMES):
        frame = opened(moving)
        first = rows(frame)
        assert rows(frame) == first, "another action has other rows"
        seen.append(first)
    time = datetime.fromtimestamp(NOON / 1000 + SECOND, UTC)
    tables.views(spark, [still, typed], bootstrap=bootstrap)
    joined = spark.sql(
        f"select count(*), sum(t.amount) from {still} s join {typed} t on s._offset = t._offset "
        "where s._partition = 0"
    )
    told = {
        "moving": seen,
        "at": rows(opened(still, at={"0": 22, "1": 7})),
        "at time": rows(opened(still, at=time)),
        "before": rows(opened(still, at={"0": 0, "1": 0})),
        "archive": opened(still, tail=False).count(),
        "joined": [list(one) for one in joined.collect()],
        "latest": opened(still, mode="latest").count(),
    }
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

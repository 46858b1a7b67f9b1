"""Scripts of `examples/` that use Spark, in the session that is running."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from ottla.sync import Reader
from tests.support.pipelines import run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing.embedded import EmbeddedBroker
    from tests.services import RedisServer

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.usefixtures("spark")
def test_spark_format(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "spark_format.py"))
    *shops, result = capsys.readouterr().out.splitlines()
    assert shops == [f"shop-{number}: 1250 orders" for number in range(4)]
    assert result == "every order is in the table once"


def test_redis_pipeline(
    spark: SparkSession, broker: EmbeddedBroker, redis_server: RedisServer, tmp_path: Path
) -> None:
    """From Redis to the totals."""
    with Redis.from_url(redis_server.url) as redis:
        for number in range(30):
            order = json.dumps({"shop": f"shop-{number % 3}", "amount": number})
            redis.xadd("pipeline-orders", {"msg": order})
    relay = [sys.executable, "-m", "ottla.cli", "relay", "--until-end", "--quiet"]
    relay += ["--input", f"{redis_server.url}/pipeline-orders", "--offsets", str(tmp_path / "o")]
    relay += ["--output", f"kafka://{broker.bootstrap}/redis-orders"]
    subprocess.run(relay, check=True, timeout=120)
    run_once(spark, broker.bootstrap, EXAMPLES / "redis_pipeline.py", tmp_path / "state")
    with Reader(broker.bootstrap, "redis-totals", stop="latest") as reader:
        last = {record.key: json.loads(record.value or b"") for record in reader.records()}
    assert last == {
        b"shop-%d" % shop: {
            "shop": f"shop-{shop}",
            "orders": 10,
            "amount": sum(range(shop, 30, 3)),
        }
        for shop in range(3)
    }

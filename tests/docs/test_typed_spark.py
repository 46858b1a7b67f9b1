"""The pages about Spark work as typed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pytest

from ottla.client.producer.types import ProducerRecord
from ottla.sync import Producer
from tests.support.desk import NEXT, ROOT, Desk
from tests.support.table_worker import NOON

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.jvm

STREAMED: Final = """
query.processAllAvailable()
query.stop()
assert spark.read.parquet("orders-by-day").count() == 5
spark.stop()
"""


def produce(desk: Desk, topic: str, numbers: range) -> None:
    with Producer(desk.bootstrap) as producer:
        records = [ProducerRecord(b"%d" % n, b"k%d" % n, timestamp_ms=NOON) for n in numbers]
        producer.send_many(topic, records)


def test_events_to_a_table(tmp_path: Path) -> None:
    with Desk("tutorial/events-to-a-table", tmp_path) as desk:
        desk.environment["OTTLA_REGISTRY_LISTENER"] = desk.registry
        desk.shell()
        desk.shell()
        assert desk.program("orders.py") == "1000 orders with schema 1\n"
        desk.shell()
        assert "334" in desk.shell()
        desk.run("python orders.py")
        query = "select shop, count(*) as orders from orders group by shop order by shop"
        assert "668" in desk.run(f'ottla sql "{query}"')
        assert "120" in desk.program()
        assert desk.program() == "version 2 of orders-value\n"
        found = desk.shell()
        assert "Ada" in found
        assert "2000" in found
        totals = desk.save("totals.py")
        assert "is well" in desk.shell()
        assert "shop-2" in desk.program()
        totals.write_text(totals.read_text().replace('"amount"', '"amuont"', 1))
        with pytest.raises(AssertionError, match="did you mean amount"):
            desk.run("ottla pipeline check totals.py")


def test_case_97_every_recipe_of_query_tables_runs_as_typed(tmp_path: Path) -> None:
    with Desk("how-to/query-tables", tmp_path) as desk:
        desk.run("ottla broker")
        for name in ("orders", "shops"):
            desk.run(f"ottla topic create {name} --config ottla.table.enable=true")
            desk.run(f"ottla topic alter {name} --config retention.ms=-1")
            produce(desk, name, range(3))
        desk.run("ottla table run --once")
        for name in ("orders", "shops"):
            produce(desk, name, range(3, 5))
        assert "k4" in desk.shell()
        desk.program()
        desk.session(NEXT, NEXT, STREAMED)


def test_pipelines(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with Desk("how-to/pipelines", tmp_path) as desk:
        address = desk.environment.pop("OTTLA_BOOTSTRAP")  # it starts a broker of its own
        desk.shell()
        desk.environment["OTTLA_BOOTSTRAP"] = address
        desk.save("quickstart.py")
        assert "is well" in desk.run("ottla pipeline check quickstart.py")
        desk.run("ottla broker")
        desk.shell()

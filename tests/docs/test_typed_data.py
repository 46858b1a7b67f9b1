"""The pages about tables, schemas, tiers, offsets and streams work as typed."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Final

import pytest

from ottla.client.cluster.view import TopicPartition
from ottla.client.producer.types import ProducerRecord
from ottla.sync import Admin, Producer
from tests.support.desk import NEXT, ROOT, Desk, wait_for
from tests.support.s3 import moto_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services import PostgresServer, RedisServer

pytestmark = pytest.mark.long

ORDER: Final = '{"type": "record", "name": "Order", "fields": [{"name": "shop", "type": "string"}'
TYPED: Final = (
    "--config ottla.table.value.format=json --config"
    " 'ottla.table.value.schema=shop string, amount decimal(4,2), user_id string, note string'"
)
NOTE: Final = ', {"name": "note", "type": "string", "default": ""}'


def test_schemas(tmp_path: Path) -> None:
    (tmp_path / "orders.avsc").write_text(f"{ORDER}]}}")
    (tmp_path / "orders-new.avsc").write_text(f"{ORDER}{NOTE}]}}")
    with Desk("how-to/schemas", tmp_path) as desk:
        desk.environment["OTTLA_REGISTRY_LISTENER"] = desk.registry
        shown = desk.shell()
        assert "orders-value version 1 has the id 1" in shown
        assert "orders-new.avsc may follow" in shown
        assert desk.program() == "[]\n"
        assert desk.session().startswith("1 ")  # it is the schema that orders-value has
        del desk.environment["OTTLA_REGISTRY_LISTENER"]
        desk.run("ottla broker")  # without a registry: one is run beside it
        assert "ottla registry ready: " in desk.shell()


def test_offsets(tmp_path: Path, postgres_server: PostgresServer) -> None:
    shown = {
        "postgresql://localhost/app": f"'{postgres_server.url}'",
        "file:///var/offsets": (tmp_path / "lance").as_uri(),
    }
    with Desk("how-to/offsets", tmp_path, shown) as desk:
        first = desk.save("first.py").read_text()
        desk.pass_over("tests/conformance/test_examples_offsets.py runs it")
        desk.session(first, NEXT)
        desk.run("ottla offsets set sqlite:///app.db billing orders 7 --shard 3")
        desk.run("ottla offsets set 'file:///var/offsets?lance=my-service' 100 7 1")
        printed = desk.shell()
        assert "42" in printed
        assert "1200" in printed


def test_streams(tmp_path: Path, redis_server: RedisServer) -> None:
    with Desk("how-to/streams", tmp_path, {"redis://localhost": redis_server.url}) as desk:
        assert desk.session().endswith('{"id":7}\n')
        assert desk.interrupted("blocking.py", lines=1).startswith("one\n")


def test_relay(tmp_path: Path, redis_server: RedisServer) -> None:
    shown = {"redis://localhost:6379/orders": f"{redis_server.url}/relayed-by-page"}
    with Desk("how-to/relay", tmp_path, shown) as desk:
        desk.run("ottla broker")
        send_to_redis(f"{redis_server.url}/relayed-by-page")
        desk.shell()
        wait_for(lambda: "orders" in desk.run("ottla topic list"), "the relay writes")
        desk.stop("ottla relay")
        assert desk.run("ottla consume orders --until-end").endswith("one\n")
        desk.pass_over("tests/spark/test_example_redis_pipeline.py runs the pipeline")


def send_to_redis(url: str) -> None:
    from ottla.sync import connect

    with connect(url) as streamer, streamer.producer() as producer:
        producer.send(b"one").wait()


def test_tier(tmp_path: Path) -> None:
    with moto_server() as endpoint, Desk("how-to/tier", tmp_path) as desk:
        import boto3

        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        store = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
        store.create_bucket(Bucket="my-bucket")
        settings = "remote.log.storage.system.enable=true\nrsm.config.url=s3://my-bucket/ottla\n"
        page = (ROOT / "docs/how-to/tier.md").read_text()
        assert f"```properties\n# server.properties\n{settings}```" in page
        (tmp_path / "server.properties").write_text(
            f"{settings}remote.log.manager.task.interval.ms=500\n"
        )
        desk.environment["AWS_ENDPOINT_URL"] = endpoint
        desk.shell()
        desk.run("ottla topic alter history --config segment.ms=500")
        for _ in range(2):
            desk.run("echo one | ottla produce history")
            time.sleep(0.6)  # longer than segment.ms
        wait_for(
            lambda: "finished" in desk.run("ottla tier list history").lower(), "a copy is done"
        )
        desk.shell()
        desk.session()


def test_tables(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with Desk("how-to/tables", tmp_path, {"/data/": f"{tmp_path}/data/"}) as desk:
        desk.run("ottla broker")
        desk.shell()
        desk.shell()  # with a warehouse of its own
        desk.stop("ottla table run")
        desk.shell()  # a worker of the broker
        (tmp_path / "tables.toml").write_text(desk.shown("toml"))
        desk.shell()  # a worker with a file of settings
        desk.stop("ottla table run")
        begin_again(desk)  # else the table would be elsewhere
        desk.run("ottla broker")
        desk.shell()  # columns
        produce(desk, {"shop": "a", "amount": 1.5}, {"shop": "b", "amount": "x"})
        assert "shop string" in desk.shell()
        desk.run("ottla table run --once")
        assert "malformed" in desk.shell()
        begin_again(desk)
        desk.environment["OTTLA_REGISTRY_LISTENER"] = desk.registry
        desk.shell()  # with a registry
        begin_again(desk)
        desk.run("ottla broker")
        desk.run(f"ottla topic create orders {TYPED} --config ottla.table.enable=true")
        produce(desk, {"shop": "a", "amount": 1.5, "user_id": "x"}, {"shop": "b", "amount": 12345})
        desk.run("ottla table run --once")
        assert rows(desk) == 1
        assert "orders" in desk.shell()  # status, verify
        desk.shell()  # reprocess
        assert rows(desk) == 2
        assert "2 rows" in desk.shell()  # rebuild
        files = (tmp_path / "ottla-tables").rglob("*.parquet")
        file = max(files, key=lambda one: one.stat().st_mtime_ns)  # older ones are not read now
        desk.call("0f3c...-0.parquet", file.name)
        file.write_bytes(b"damaged")
        desk.shell()
        assert rows(desk) == 2
        desk.shell()  # drop
        wider = TYPED.replace("(4,2)", "(10,2)")  # no dead letter, which erasing cannot search
        desk.run(f"ottla topic alter orders {wider} --config ottla.table.enable=true")
        desk.run("ottla table run --once")
        with Admin(desk.bootstrap) as admin:  # else erasing is not finished, and says so
            admin.delete_records({TopicPartition("orders", 0): -1})
        desk.shell()  # erase
        assert rows(desk) == 0


def rows(desk: Desk) -> int:
    query = "select count(*) as n from orders"
    _, count = desk.run(f'ottla sql "{query}" --no-tail --csv').split()
    return int(count)


def begin_again(desk: Desk) -> None:
    """Without topics and tables."""
    desk.stop("ottla broker")
    for name in ("ottla-data", "data", "ottla-tables"):
        shutil.rmtree(desk.directory / name, ignore_errors=True)


def produce(desk: Desk, *values: object) -> None:
    with Producer(desk.bootstrap) as producer:
        records = [ProducerRecord(json.dumps(value).encode(), b"k") for value in values]
        producer.send_many("orders", records)

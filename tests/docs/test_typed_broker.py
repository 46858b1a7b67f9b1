"""The pages about a broker and its clients work as typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ottla.client.producer.types import ProducerRecord
from ottla.sync import Admin, Producer, ShareConsumer
from tests.support.desk import NEXT, Desk, wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long


def test_readme(tmp_path: Path) -> None:
    with Desk("README", tmp_path) as desk:
        desk.shell()
        assert desk.shell().endswith("hello\n")
        assert desk.program() == "b'hello'\n"
        assert "1 passed" in desk.tests()


def test_index(tmp_path: Path) -> None:
    with Desk("index", tmp_path) as desk:
        desk.shell()


def test_first_steps(tmp_path: Path) -> None:
    with Desk("tutorial/first-steps", tmp_path) as desk:
        desk.shell()
        desk.shell()
        desk.shell()
        assert desk.program("order.py").count("is in partition") == 12
        assert desk.shell().count("coffee") == 12
        assert desk.program("bill.py") == "30 kilos to bill\n"
        assert desk.run("python bill.py") == "0 kilos to bill\n"
        desk.shell()
        assert desk.run("python bill.py") == "1 kilos to bill\n"
        group = desk.shell()
        assert "billing" in group
        packed = desk.interrupted("pack.py", lines=13)
        assert packed.endswith("12 packed, 1 rejected\n")
        share_group = desk.shell()
        with Admin(desk.bootstrap) as admin:
            assert {each.lag for each in admin.list_share_group_offsets("packers")} == {0}
        desk.run("ottla broker")
        assert desk.run("ottla group describe billing").split() == group.split()
        assert "packers" in share_group
        assert "packers" in desk.run("ottla share-group describe packers")


def test_demo(tmp_path: Path) -> None:
    with Desk("tutorial/demo", tmp_path) as desk:
        desk.pass_over("tests/e2e/test_demo.py runs it")


def test_broker(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=2\n")
    with Desk("how-to/broker", tmp_path) as desk:
        desk.shell()
        desk.shell()
        shown = desk.shell()
        assert "retention.ms=3600000" in shown
        assert '{\\"amount\\": 12}' in shown


def test_nodes(tmp_path: Path) -> None:
    with Desk("how-to/nodes", tmp_path) as desk:
        desk.shell()
        assert desk.program() == "1 active 2\n2 active 2\n3 active 2\n"
        desk.run("ottla topic create orders --partitions 6")
        assert "active" in desk.shell()
        desk.shell()
        desk.shell()
        desk.pass_over("node 4 is up; tests/integration/cli/test_cluster.py forgets one")


def test_console(tmp_path: Path) -> None:
    with Desk("how-to/console", tmp_path, {"/etc/ottla": str(tmp_path)}) as desk:
        desk.run("ottla broker")
        leave_dead_letters(desk.bootstrap, 20)
        (tmp_path / "client.properties").write_text("security.protocol=PLAINTEXT\n")
        assert "ottla console ready: " in desk.shell()
        redriven = desk.shell()
        assert "20" in redriven
        desk.shell()
        desk.shell()
        desk.shell("secret words", "secret words")
        assert (tmp_path / "users.toml").exists()
        desk.pass_over("no console with --write runs here; tests/console/test_api.py posts to one")
        desk.shell()
        assert list((tmp_path / "monitoring").iterdir())
        desk.shell()
        last = desk.shell()
        assert json.loads(last[last.rindex("\n{") :])
        desk.program()


def leave_dead_letters(bootstrap: str, count: int) -> None:
    """The queue `warehouse` of `orders` rejects all of its records."""
    with Admin(bootstrap) as admin:
        admin.create_topic("orders", partitions=1)
        admin.create_topic("orders-retry", partitions=1)
        allowed = {"errors.deadletterqueue.group.enable": "true"}
        admin.create_topic("dlq.orders", partitions=1, configs=allowed)
        wanted = {"errors.deadletterqueue.topic.name": "dlq.orders"}
        admin.alter_configs("group", "warehouse", wanted)
    with Producer(bootstrap) as producer:
        producer.send_many("orders", [ProducerRecord(b"%d" % n) for n in range(count)])
    with ShareConsumer(
        bootstrap,
        group="warehouse",
        topics=["orders"],
        ack_mode="explicit",
        auto_offset_reset="earliest",
    ) as consumer:
        rejected = 0
        while rejected < count:
            for record in consumer.poll(timeout=1.0):
                consumer.acknowledge(record, "reject")
                rejected += 1
        consumer.commit()


def test_testing(tmp_path: Path) -> None:
    with Desk("how-to/testing", tmp_path) as desk:
        desk.program()
        assert "1 passed" in desk.tests()
        desk.program()
        assert "1 passed" in desk.tests()
        desk.program()


def test_work_queue(tmp_path: Path) -> None:
    with Desk("how-to/work-queue", tmp_path) as desk:
        desk.run("ottla broker")
        desk.run("printf 'one\\ntwo\\nthree\\n' | ottla produce orders")
        assert "b'three' 1" in desk.interrupted("worker.py", lines=3)
        handled = desk.session(
            "import ottla\nclass TemporaryFailure(Exception): pass\nseen = []\n"
            "def handle(value):\n"
            "    if value == b'one': raise ValueError\n"
            "    seen.append(value)\n"
            "    if value == b'two' and seen.count(value) == 1: raise TemporaryFailure\n"
            "    if len(seen) == 3: raise SystemExit(print(seen))\n",
            NEXT,
        )
        assert handled == "[b'two', b'three', b'two']\n"
        desk.program()
        desk.session("import ottla", NEXT)
        assert "workers" in desk.shell()


def test_quotas(tmp_path: Path) -> None:
    with Desk("how-to/quotas", tmp_path) as desk:
        desk.run("ottla broker")
        assert "alice" in desk.shell()
        wait_for(lambda: "alice" not in desk.run("ottla quota list"), "the quota is gone")


def test_clients(tmp_path: Path) -> None:
    """Its programs are run by tests/docs/test_examples.py."""
    with Desk("how-to/clients", tmp_path, typed=["console"]) as desk:
        desk.run("ottla broker")
        (tmp_path / "orders.txt").write_text("key:value\n")
        assert '"hello"' in desk.shell()
        copied = desk.run("ottla consume copy --until-end")
        assert "hello" in copied
        assert "value" in copied

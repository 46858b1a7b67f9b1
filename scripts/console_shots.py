"""Pictures of the console for the documentation: `python -m scripts.console_shots docs/images`.

Runs a broker with its console and data, and takes pictures of pages with chromium, light and dark.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

from ottla.clock import SYSTEM
from ottla.metadata.names import PIPELINES_TOPIC
from ottla.schemas.registry_client import SchemaRegistry
from ottla.sync import Admin, Producer, ShareConsumer
from ottla.tables.pointer import Pointer, encode_pointer
from ottla.testing.embedded import EmbeddedBroker
from tests.support.pipeline_run import PipelineRun

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = {
    "queue": "c/local/queues/warehouse",
    "window": "c/local/queues/warehouse/orders/1",
    "queues": "c/local/queues",
    "overview": "c/local/",
    "topics": "c/local/topics",
    "topic": "c/local/topics/orders",
    "messages": "c/local/topics/orders/messages?contains=berlin",
    "record": "c/local/topics/orders/messages/0/3",
    "groups": "c/local/groups",
    "group": "c/local/groups/billing",
    "letters": "c/local/queues/warehouse/letters",
    "tables": "c/local/tables",
    "table": "c/local/tables/orders",
    "schemas": "c/local/schemas",
    "schema": "c/local/schemas/orders-value",
    "transactions": "c/local/transactions",
    "pipelines": "c/local/pipelines",
    "pipeline": "c/local/pipelines/orders",
    "settings": "c/local/queues/warehouse?tab=settings",
    "configs": "c/local/topics/orders?tab=configs",
    "produce": "c/local/topics/orders/produce?from=0@3",
    "security": "c/local/security",
    "doctor": "c/local/doctor",
}
SCHEMAS = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}',
    (
        '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},'
        '{"name":"shop","type":"string","default":""}]}'
    ),
)
SHOPS = ("berlin", "rome", "oslo", "lisbon")
FULL = "--full" in sys.argv
"""Whole pages, not only what a window shows of them."""
FIGURES_S = 23
"""Rates need two samples."""
SAMPLED_S = 11
"""And one more comes."""


def fill(producer: Producer, start: int, count: int) -> None:
    for number in range(start, start + count):
        shop = SHOPS[number % 4]
        value = f'{{"id": "A-{number}", "shop": "{shop}", "amount": {number % 97 + 0.5}}}'
        headers = [("source", b"web" if number % 3 else b"app")]
        producer.send(
            "orders",
            value.encode(),
            key=f"A-{number}".encode(),
            headers=headers,
            partition=number % 3,
        )


def letters(producer: Producer, count: int) -> None:
    for number in range(count):
        reason = (
            "Offset rejected by client."
            if number % 4
            else ("Offset delivery count exceeded the threshold.")
        )
        told = {"topic": "orders", "partition": number % 3, "offset": number, "group": "warehouse"}
        told |= {"delivery.count": 1 if number % 4 else 5, "message": reason}
        headers = [(f"__dlq.errors.{key}", str(value).encode()) for key, value in told.items()]
        value = f'{{"id": "A-{number}", "item": "unknown"}}'.encode()
        producer.send("dlq.orders", value, key=f"A-{number}".encode(), headers=headers)


async def register(url: str) -> None:
    async with SchemaRegistry(url) as registry:
        for text in SCHEMAS:
            await registry.register("orders-value", text, kind="avro")


def chromium() -> str:
    """The browser; ends the program if there is none."""
    found = os.environ.get("OTTLA_TEST_CHROMIUM") or shutil.which("chromium")
    if found is None:
        sys.exit("no chromium; sh scripts/install_services.sh --all installs it")
    return found


@contextmanager
def stage() -> Iterator[EmbeddedBroker]:
    """A broker with its console, whose pages all have something to show."""
    with EmbeddedBroker(console=True, registry=True) as broker:
        broker.create_topic("orders", partitions=3)
        for name in ("payments", "telemetry", "dlq.orders"):
            broker.create_topic(name, partitions=2)
        with Producer(broker.bootstrap) as producer, Admin(broker.bootstrap) as admin:
            fill(producer, 0, 900)
            for number in range(40):
                producer.send("payments", b"%d EUR" % number, key=b"p%d" % number)
            admin.alter_group_offsets(
                "billing", {("orders", 0): 120, ("orders", 1): 300, ("orders", 2): 260}
            )
            admin.alter_group_offsets("reports", {("payments", 0): 0, ("payments", 1): 0})
            asyncio.run(register(broker.registry_url))
            admin.create_topic("ottla.tables", 1, configs={"cleanup.policy": "compact"})
            position = {0: 280, 1: 300, 2: 300}
            pointer = Pointer(
                "orders", "id", "ottla.orders", "s3://lake/orders/metadata/7.json", "iceberg", 7,
                position,
            )  # fmt: skip
            producer.send("ottla.tables", encode_pointer(pointer), key=b"orders")
            admin.create_topic(PIPELINES_TOPIC, 1)
            run = PipelineRun(at_ms=SYSTEM.wall_ms())
            run.batch(1)
            for told in run.tell():
                producer.send(PIPELINES_TOPIC, told.value, key=told.key)
            admin.alter_configs(
                "group",
                "warehouse",
                {
                    "errors.deadletterqueue.topic.name": "dlq.orders",
                    # The locks are to last until all pictures are taken.
                    "share.record.lock.duration.ms": "60000",
                },
            )
            # Rates and attention need samples, which the console takes once somebody looks.
            urllib.request.urlopen(f"{broker.console_url}c/local/").close()
            began = time.monotonic()
            letters(producer, 3)
            while time.monotonic() - began < FIGURES_S:
                fill(producer, 900, 30)
                time.sleep(0.5)
            letters(producer, 9)
            with (
                ShareConsumer(
                    broker.bootstrap,
                    group="warehouse",
                    topics=["orders"],
                    ack_mode="explicit",
                    auto_offset_reset="earliest",
                    client_id="worker-3",
                ) as worker,
                Producer(
                    broker.bootstrap, transactional_id="billing-1", transaction_timeout_ms=900_000
                ) as billing,
                billing.transaction(),
            ):
                billing.send("payments", b"17 EUR")
                records = worker.poll(timeout=30)
                for index, record in enumerate(records[1:-60]):
                    if index % 7 == 3:
                        worker.acknowledge(record, "release")
                    elif index % 31 != 5:
                        worker.acknowledge(record)
                worker.commit()
                time.sleep(SAMPLED_S)
                yield broker


def main() -> None:
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with stage() as broker, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        for theme in ("light", "dark"):
            with browser.new_context(
                base_url=broker.console_url,
                color_scheme=theme,
                viewport={"width": 1280, "height": 800},
            ) as context:
                page = context.new_page()
                for name, path in PAGES.items():
                    page.goto(path)
                    page.screenshot(path=target / f"console-{name}-{theme}.png", full_page=FULL)
        with browser.new_context(
            base_url=broker.console_url, viewport={"width": 360, "height": 740}
        ) as context:
            page = context.new_page()
            for name, path in PAGES.items():
                page.goto(path)
                page.screenshot(path=target / f"console-{name}-narrow.png", full_page=FULL)
        browser.close()


if __name__ == "__main__":
    main()

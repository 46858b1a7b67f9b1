"""One browser and one broker with its console for each file: its loop must not outlive the file.

Playwright drives Debian's chromium, found by OTTLA_TEST_CHROMIUM or in PATH; no browser is
downloaded. Without one the tests skip, which CI does not allow.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

from ottla.client.producer.types import ProducerRecord
from ottla.clock import SYSTEM
from ottla.metadata.names import PIPELINES_TOPIC
from ottla.sync import Admin, Consumer, Producer, ShareConsumer
from ottla.testing.embedded import EmbeddedBroker
from tests.support.pipeline_run import PipelineRun

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from playwright.sync_api import Browser, Page

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    '<div hx-get="/x" hx-trigger="load">',
    "{{7*7}}",
    "\u202eevil\u200b",
)
INSTALL = "no chromium; sh scripts/install_services.sh --all installs it"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    found = os.environ.get("OTTLA_TEST_CHROMIUM") or shutil.which("chromium")
    if found is None:
        pytest.skip(INSTALL)
    with sync_playwright() as playwright:
        # The sandbox of chromium does not work for root, and pages here are our own.
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=found, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(console=True) as running:
        running.create_topic("orders", partitions=3)
        running.create_topic("hostile")
        running.create_topic(PIPELINES_TOPIC)
        _send_orders(running.bootstrap, [0])
        with ShareConsumer(
            running.bootstrap,
            group="warehouse",
            topics=["orders"],
            ack_mode="explicit",
            auto_offset_reset="earliest",
        ) as worker:
            # It holds records while the tests look: the head and some others of partition 0.
            records = worker.poll(timeout=30)
            for record in records[5:-20]:
                worker.acknowledge(record)
            worker.commit()
            _send_orders(running.bootstrap, [1, 2])
            _fill(running.bootstrap)
            with _strangers(running.bootstrap):
                yield running


@contextmanager
def _strangers(bootstrap: str) -> Iterator[None]:
    """Members whose groups, clients and transactions have names that no page may run."""
    group, queue, client = HOSTILE[1], HOSTILE[2], HOSTILE[0]
    with (
        Consumer(bootstrap, group=group, topics=["hostile"], client_id=client) as consumer,
        ShareConsumer(bootstrap, group=queue, topics=["hostile"], client_id=client) as worker,
        Producer(bootstrap, transactional_id=HOSTILE[4]) as producer,
    ):
        consumer.poll(timeout=10)
        worker.poll(timeout=1)
        with producer.transaction():
            producer.send("hostile", HOSTILE[4].encode())
        yield


def _send_orders(bootstrap: str, partitions: Container[int]) -> None:
    with Producer(bootstrap) as producer:
        producer.send_many(
            "orders",
            [
                ProducerRecord(
                    b'{"shop": "berlin", "amount": %d, "id": "A-%d"}' % (number, number),
                    key=b"A-%d" % number,
                    headers=[("source", b"web")],
                    partition=number % 3,
                )
                for number in range(200)
                if number % 3 in partitions
            ],
        )


def _fill(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send_many(
            "hostile",
            [
                ProducerRecord(text.encode(), key=text.encode(), headers=[(text, text.encode())])
                for text in HOSTILE
            ],
        )
        run = PipelineRun(at_ms=SYSTEM.wall_ms())
        run.board.enter("valid", "failed", HOSTILE[0])
        run.batch(1)
        told = [ProducerRecord(one.value, key=one.key) for one in run.tell()]
        producer.send_many(PIPELINES_TOPIC, told)
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets("billing", {("orders", 0): 5, ("orders", 1): 20})
        admin.alter_group_offsets(HOSTILE[0], {("orders", 0): 1})


@pytest.fixture
def page(chromium: Browser, broker: EmbeddedBroker) -> Iterator[Page]:
    with chromium.new_context(base_url=broker.console_url) as context:
        opened = context.new_page()
        opened.set_default_timeout(20_000)
        yield opened

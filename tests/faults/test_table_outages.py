"""`ottla table run` while its store, its catalogue and its registry are away (tables.md, case 69).

A process against moto's S3 server and PostgreSQL, each behind a gate that can be shut.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

import ottla
from ottla import EmbeddedBroker
from ottla.sync import Admin, Producer, SchemaRegistry
from tests.support.gate import Gate
from tests.support.names import fresh
from tests.support.s3 import moto_server, rsm_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ottla.client.admin.types import GroupOffset
    from tests.services import PostgresServer

pytestmark = pytest.mark.long

PATIENCE = 120
SCHEMA = '{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}'


class Outages:
    """A topic, the worker of its table, and gates before what the worker needs."""

    def __init__(self, broker: EmbeddedBroker, directory: Path, places: dict[str, str]) -> None:
        self.broker = broker
        self.topic = fresh("outage")
        self.written = 0
        self._directory = directory
        self._places = places
        broker.create_topic(
            self.topic,
            partitions=2,
            configs={
                "ottla.table.enable": "true",
                "ottla.table.commit.interval.ms": "1000",
                "ottla.table.value.format": "registry",
            },
        )
        with SchemaRegistry(broker.registry_url) as registry:
            self._id = registry.register(f"{self.topic}-value", SCHEMA).id

    def fill(self, count: int) -> None:
        values = [
            bytes([0]) + self._id.to_bytes(4) + _zigzag(n)
            for n in range(self.written, self.written + count)
        ]
        with Producer(self.broker.bootstrap) as producer:
            records = [
                ottla.ProducerRecord(one, partition=(self.written + at) % 2)
                for at, one in enumerate(values)
            ]
            producer.send_many(self.topic, records)
        self.written += count

    def table(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*args), env=self._environment, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip

    @contextmanager
    def worker(self, *args: str) -> Iterator[None]:
        command = self._command("run", "--topics", self.topic, *args)
        with (self._directory / "worker.log").open("ab") as log:
            process = subprocess.Popen(command, env=self._environment, stderr=log)
        try:
            yield
            assert process.poll() is None, self.said()
        finally:
            process.terminate()
            process.wait()

    def said(self) -> str:
        return (self._directory / "worker.log").read_text()[-3000:]

    def _command(self, *args: str) -> list[str]:
        places = [
            part for key in ("warehouse", "catalog") for part in (f"--{key}", self._places[key])
        ]
        return [
            *(sys.executable, "-m", "ottla.cli", "table", *args),
            *("--bootstrap", self.broker.bootstrap, *places),
        ]  # fmt: skip

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **{k: v for k, v in self._places.items() if k.startswith("AWS_")}}

    def _mirrored(self) -> list[GroupOffset]:
        """The position in the worker's group, which needs neither store nor catalogue."""
        with Admin(self.broker.bootstrap) as admin:
            return admin.list_group_offsets(f"ottla.table.{self.topic.replace('-', '_')}")

    def lag(self) -> int | None:
        found = self._mirrored()
        return self.written - sum(one.offset for one in found) if len(found) == 2 else None

    def note(self) -> str | None:
        """Why the worker waits."""
        return next((one.metadata for one in self._mirrored() if one.metadata), None)

    def wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, f"{what}: {self.said()}"
            time.sleep(0.2)


def _zigzag(number: int) -> bytes:
    """A long as Avro writes it."""
    left, found = number << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(registry=True) as running:
        yield running


def test_case_69_store_catalogue_and_registry_come_and_go(
    broker: EmbeddedBroker, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    socket = f"{postgres_server.socket_directory}/.s.PGSQL.5432"
    with (
        moto_server() as endpoint,
        Gate(urlsplit(endpoint).port or 0, fails_every=3) as store,
        Gate(socket) as catalogue,
        Gate(urlsplit(broker.registry_url).port or 0) as registry,
    ):
        config = rsm_config(endpoint, fresh("lake"))
        places = {
            "warehouse": config["rsm.config.url"],
            "catalog": f"postgresql://{postgres_server.user}@127.0.0.1:{catalogue.port}"
            f"/{postgres_server.database}",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.port}",
            "AWS_ACCESS_KEY_ID": config["rsm.config.access.key.id"],
            "AWS_SECRET_ACCESS_KEY": config["rsm.config.secret.access.key"],
            "AWS_REGION": config["rsm.config.region"],
        }
        outages = Outages(broker, tmp_path, places)
        url = f"http://127.0.0.1:{registry.port}"
        with outages.worker("--registry", url):
            for gate, why in (
                (registry, "its worker waits: .*registry"),
                (catalogue, "cannot open the catalogue postgresql:"),
                (store, "its worker waits: "),
            ):
                gate.shut()
                outages.fill(100)
                before = gate.turned_away
                outages.wait(lambda: outages.note() is not None, f"no word of {why}")
                outages.wait(lambda: gate.turned_away > before + 1, "nobody came")  # noqa: B023
                told = outages.table("status", outages.topic)
                assert told.returncode == 1, told
                assert re.search(why, told.stderr), told.stderr
                gate.open()
                outages.wait(lambda: outages.lag() == 0, f"still behind after {why}")
        assert store.failed > 0
        found = outages.table("verify", outages.topic)
        assert found.returncode == 0, found
        told = outages.table("status", outages.topic, "--json")
        [status] = json.loads(told.stdout)
        assert (told.returncode, status["rows"], status["lag"]) == (0, outages.written, 0)

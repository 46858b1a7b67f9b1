"""Topics with tables on a broker: make them, fill them, run a worker, read the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from ottla.client.admin.admin import Admin
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.tables.iceberg import IcebergTables
from ottla.tables.settings import WorkerSettings, worker_settings
from ottla.tables.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from typer.testing import Result

    from ottla.tables.format import TableState

_numbers = count()
DAY = 86_400_000


@dataclass
class Place:
    """A broker, a warehouse and a topic with a table."""

    bootstrap: str
    directory: Path
    topic: str
    store: dict[str, str] = field(default_factory=dict)
    catalog: str | None = None

    @property
    def settings(self) -> WorkerSettings:
        return worker_settings(
            self.store.get("rsm.config.url", f"file://{self.directory}/w"),
            self.catalog or f"sqlite:///{self.directory}/catalog.db",
            "ottla",
            {key: value for key, value in self.store.items() if key != "rsm.config.url"},
        )

    @property
    def table(self) -> str:
        return self.topic.replace("-", "_")

    def worker(self, **options: Any) -> Worker:
        return Worker(self.bootstrap, self.settings, topics=[self.topic], **options)

    async def run_once(self, **options: Any) -> dict[int, int]:
        async with self.worker(**options) as worker:
            return dict((await worker.run_once())[self.topic])

    async def create(self, partitions: int = 1, /, **configs: str) -> None:
        keys = {key.replace("_", "."): value for key, value in configs.items()}
        async with Admin(self.bootstrap) as admin:
            await admin.create_topic(
                self.topic, partitions, configs={"ottla.table.enable": "true", **keys}
            )

    async def fill(
        self, values: Iterable[bytes | None], partition: int = 0, **options: Any
    ) -> None:
        records = [ProducerRecord(one, partition=partition, **options) for one in values]
        async with Producer(self.bootstrap) as producer:
            await producer.send_many(self.topic, records)

    def command(self, *args: str) -> Result:
        """`ottla table ...` with the options of this place.

        It may take long on a machine that is busy: a broker in this process waits for kernels that
        are being compiled.
        """
        from typer.testing import CliRunner

        from ottla.cli.whole import app

        patience = [] if args[0] == "run" else ["--timeout", "120"]
        return CliRunner().invoke(
            app,
            [
                "table", *args, "--bootstrap", self.bootstrap,
                "--warehouse", f"file://{self.directory}/w",
                "--catalog", f"sqlite:///{self.directory}/catalog.db", *patience,
            ],
        )  # fmt: skip

    def tables(self) -> IcebergTables:
        return IcebergTables(self.settings)

    def state(self, table: str | None = None) -> TableState:
        tables = self.tables()
        try:
            state = tables.load(table or self.table)
        finally:
            tables.close()
        assert state is not None
        return state

    def rows(self, table: str | None = None) -> pa.Table:
        """All rows, as pyiceberg reads them, in order of partition and offset."""
        handle: Any = self.state(table).handle
        rows: pa.Table = handle.scan().to_arrow()
        return rows.sort_by([("_partition", "ascending"), ("_offset", "ascending")])

    def values(self) -> list[bytes | None]:
        found: list[bytes | None] = self.rows().column("value").to_pylist()
        return found

    def data_files(self) -> set[str]:
        return {f"file://{path}" for path in (self.directory / "w").rglob("*.parquet")}


def places(bootstrap: str, directory: Path) -> Iterator[Place]:
    """Places with topics of their own."""
    while True:
        yield Place(bootstrap, directory, f"table-{next(_numbers)}")

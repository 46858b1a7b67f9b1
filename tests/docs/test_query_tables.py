"""The recipes of "query topics as tables" work as typed: case 97 of the specification of tables."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from ottla.client.producer.types import ProducerRecord
from ottla.testing.embedded import EmbeddedBroker
from tests.support.table_worker import NOON, send, take

ADDRESS: Final = "127.0.0.1:9092"
PAGE: Final = (Path(__file__).parents[2] / "docs" / "how-to" / "query-tables.md").read_text()
BLOCKS: Final = re.findall(r"^```(console|python)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
AFTER: Final = """
query.processAllAvailable()
query.stop()
assert spark.read.parquet("orders-by-day").count() == 5
spark.stop()
"""


@pytest.mark.jvm
def test_case_97_every_recipe_runs_as_typed(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        for name in ("orders", "shops"):
            configs = {"ottla.table.enable": "true", "retention.ms": "-1"}
            broker.create_topic(name, partitions=1, configs=configs)
            records = [ProducerRecord(b"%d" % n, b"k%d" % n, timestamp_ms=NOON) for n in range(5)]
            send(broker, name, records[:3])
            take(broker, tmp_path, name)
            send(broker, name, records[3:])

        def run(command: list[str]) -> str:
            done = subprocess.run(
                command,
                cwd=tmp_path,
                env={**os.environ, "OTTLA_BOOTSTRAP": broker.bootstrap},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            return done.stdout

        shell = "".join(text for kind, text in BLOCKS if kind == "console")
        typed = "\n".join(line for line in shell.splitlines() if line.startswith("ottla sql"))
        assert typed.count("\n") == 2
        said = run(["sh", "-ec", f'ottla() {{ "{sys.executable}" -m ottla.cli "$@"; }}\n{typed}'])
        assert "k4" in said
        python = "\n".join(text for kind, text in BLOCKS if kind == "python")
        run([sys.executable, "-c", python.replace(ADDRESS, broker.bootstrap) + AFTER])

"""Topics as tables through Spark Connect (tables.md, case 83)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.client.producer.types import ProducerRecord
from tests.support import connect_tables, spark_cluster
from tests.support.table_worker import NOON, fill, new_topic, send, take

if TYPE_CHECKING:
    from ottla.testing.embedded import EmbeddedBroker

PATIENCE = 300
ROOT = Path(__file__).parents[2]


def written(first: int, end: int) -> list[list[Any]]:
    return sorted([n % 2, n // 2, str(n)] for n in range(first, end))


def test_case_83_tables_times_and_views_through_connect(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    moving, still = new_topic(broker, 2), new_topic(broker, 2)
    typed = new_topic(broker, value_format="json", value_schema="amount bigint")
    for name in (moving, still):
        fill(broker, name, range(40), partitions=2)
        take(broker, tmp_path, name)
    values = [b'{"amount": %d}' % n for n in range(30)]
    send(broker, typed, [ProducerRecord(one, timestamp_ms=NOON) for one in values[:20]])
    take(broker, tmp_path, typed)
    send(broker, typed, [ProducerRecord(one, timestamp_ms=NOON) for one in values[20:]])
    fill(broker, still, range(40, 50), partitions=2)
    done = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        at = 40
        try:
            while not done.is_set():
                fill(broker, moving, range(at, at + 30), partitions=2)
                at += 30
                take(broker, tmp_path, moving)
        except BaseException as error:  # noqa: BLE001  # raised below
            failures.append(error)

    worker = threading.Thread(target=work)
    with spark_cluster.connect_server(tmp_path) as url:
        worker.start()
        try:
            command = [sys.executable, "-m", connect_tables.__name__, url, broker.bootstrap]
            run = subprocess.run(
                [*command, moving, still, typed],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        finally:
            done.set()
            worker.join()
    assert not failures
    assert run.returncode == 0, run.stderr[-3000:]
    told = json.loads(run.stdout.splitlines()[-1])
    assert len(told["moving"]) == connect_tables.TIMES
    for found in told["moving"]:
        ends = [1 + max(offset for at, offset, _ in found if at == one) for one in (0, 1)]
        assert found == sorted(
            [one, offset, str(2 * offset + one)] for one in (0, 1) for offset in range(ends[one])
        )
    assert told["at"] == [row for row in written(0, 50) if row[1] < (22, 7)[row[0]]]
    assert told["at time"] == written(0, connect_tables.SECOND)
    assert told["before"] == []
    assert told["archive"] == 40
    assert told["joined"] == [[25, sum(range(25))]]
    assert told["latest"] == 50

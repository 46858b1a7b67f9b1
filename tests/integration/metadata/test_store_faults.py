"""The metadata store shared by processes that start, write and are killed."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ottla.metadata.stores.sqlite import SqliteMetadataStore

if TYPE_CHECKING:
    from pathlib import Path


KILLED = """
import sys
from ottla.metadata.changes.configs import SetFeature
from ottla.metadata.stores.sqlite import SqliteMetadataStore
store = SqliteMetadataStore(sys.argv[1], cluster_id="c", snapshot_interval=7)
level = store.snapshot().features.get("level", 0)
while True:
    level += 1
    store.propose(SetFeature("level", level), SetFeature("again", level))
    print(level, flush=True)
"""


SHARED = """
import sys
from ottla.metadata.changes.nodes import AllocateProducerIds
from ottla.metadata.stores.sqlite import SqliteMetadataStore
store = SqliteMetadataStore(sys.argv[1])
take = AllocateProducerIds(int(sys.argv[2]), 10)
ends = [store.propose(take).next_producer_id for _ in range(20)]
print(store.snapshot().cluster_id, *(end - 10 for end in ends))
store.close()
"""


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    answered = 0
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(20):
            answered = int(process.stdout.readline())
        process.kill()
        answered = max([answered, *map(int, process.stdout.read().split())])
        process.wait()
        process.stdout.close()
        store = SqliteMetadataStore(path)
        levels = store.snapshot().features
        store.close()
        # One more proposal may have been committed and not yet printed.
        assert levels["level"] in {answered, answered + 1}
        assert levels["level"] == levels["again"]


def test_processes_that_start_at_once_make_one_cluster(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SHARED, str(tmp_path / "m.db"), str(node)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for node in range(3)
    ]
    outputs = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len({cluster_id for cluster_id, *_ in outputs}) == 1
    starts = sorted(int(start) for _, *starts in outputs for start in starts)
    assert starts == list(range(0, 600, 10))


def test_nodes_that_start_at_once_make_one_new_store(tmp_path: Path) -> None:
    """SQLite does not wait for its lock when a new file gets a write-ahead log."""
    nodes = 4
    with ThreadPoolExecutor(nodes) as pool:
        for number in range(100):
            path = tmp_path / f"{number}.db"
            begin = threading.Barrier(nodes)

            def opened(path: Path = path, begin: threading.Barrier = begin) -> str:
                begin.wait()
                store = SqliteMetadataStore(path)
                store.close()
                return store.snapshot().cluster_id

            found = [pool.submit(opened) for _ in range(nodes)]
            assert len({one.result() for one in found}) == 1

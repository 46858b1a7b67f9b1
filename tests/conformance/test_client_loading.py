"""Nothing heavy is imported, and nothing compiled, in the thread of a running event loop."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import ottla

if TYPE_CHECKING:
    from pathlib import Path

IMPORTS = """
HEAVY = {"numpy", "numba", "llvmlite", "pyarrow"}

def note(event, arguments):
    # A module that is loaded already is no import; the event comes for both.
    if watching and event == "import" and threading.current_thread() is threading.main_thread():
        name = arguments[0]
        if name.partition(".")[0] in HEAVY and name not in sys.modules:
            seen.append(name)

sys.addaudithook(note)
"""

COMPILATIONS = """
import numba.core.event, pyarrow

class Listener(numba.core.event.Listener):
    def on_start(self, event):
        if watching and threading.current_thread() is threading.main_thread():
            seen.append(str(event.data["dispatcher"]))

    def on_end(self, event):
        pass

numba.core.event.register("numba:compile", Listener())
"""

CHILD = """
async def reader(where, topic):
    async with ottla.Reader(where, topic, stop="latest", columns=ALL) as reader:
        assert (await anext(reader)).num_rows

async def records(where, topic):
    async with ottla.Reader(where, topic, stop="latest") as reader:
        assert await reader.read_many()

async def share_consumer(where, topic):
    async with ottla.ShareConsumer(
        where, group=topic, topics=[topic], auto_offset_reset="earliest", ack_mode="explicit"
    ) as consumer:
        table = await consumer.poll_arrow(30)
        assert table.num_rows
        consumer.acknowledge(table)
        await consumer.commit()

async def producer(where, topic):
    def made():
        import pyarrow as pa
        return pa.table({"key": [b"k"], "value": [b"v"]})

    rows = await asyncio.to_thread(made)
    async with ottla.Producer(where) as producer:
        await producer.send_arrow(topic, rows)

ALL = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]

async def main():
    global watching
    watching = True
    await globals()[sys.argv[1]](sys.argv[2], sys.argv[3])
    watching = False
    print(seen)

asyncio.run(main())
"""


def test_imports_are_made_in_other_threads(
    ottla_broker: ottla.EmbeddedBroker, ottla_topic: str
) -> None:
    for what in ("reader", "share_consumer", "producer"):
        assert seen_in_the_loop(IMPORTS, what, ottla_broker.bootstrap, ottla_topic) == "[]\n"


@pytest.mark.long
@pytest.mark.parametrize("what", ["reader", "records", "share_consumer", "producer"])
def test_code_is_compiled_in_other_threads(
    what: str, ottla_broker: ottla.EmbeddedBroker, ottla_topic: str, tmp_path: Path
) -> None:
    # Compiled code of earlier runs is not to be found.
    cache = {"NUMBA_CACHE_DIR": str(tmp_path)}
    where = ottla_broker.bootstrap
    assert seen_in_the_loop(COMPILATIONS, what, where, ottla_topic, **cache) == "[]\n"


def seen_in_the_loop(watch: str, what: str, bootstrap: str, topic: str, **settings: str) -> str:
    with ottla.sync.Producer(bootstrap) as producer:
        producer.send(topic, b"v", key=b"k", headers=[("h", b"1")])
    begin = "import asyncio, sys, threading, ottla\nwatching = False\nseen = []\n"
    ended = subprocess.run(
        [sys.executable, "-c", begin + watch + CHILD, what, bootstrap, topic],
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=240,
        env={**os.environ, **settings},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_clients_of_a_plain_listener_load_nothing_of_security() -> None:
    program = """
import sys
import ottla
clients = (ottla.Admin, ottla.Producer, ottla.Consumer, ottla.Reader, ottla.ShareConsumer)
ottla.Admin("127.0.0.1:9092", security=ottla.Security())
names = ("hmac", "cryptography", "jwt", "urllib.request")
print(*[name for name in sys.modules if name.startswith("ottla.security") or name in names])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []

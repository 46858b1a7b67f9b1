"""The twins are their async classes: in name, argument, type and text, and in what they do."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, assert_type

import pytest

import ottla
import ottla.sync.streams as sync_streams
from ottla import streams
from ottla.client.errors import BrokerUnreachable
from ottla.client.reader.types import Record
from ottla.client.share.types import ShareRecord, UnacknowledgedRecords
from ottla.client.transactions.transaction import Transaction as AsyncTransaction
from ottla.sync import (
    Admin,
    Producer,
    Reader,
    SchemaRegistry,
    ShareConsumer,
    Transaction,
    WrongPlace,
    connect,
)
from ottla.sync.twin import Portal
from scripts.generate_sync import INTERNAL, main, without_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.client.share.types import Acknowledged
    from ottla.testing.embedded import EmbeddedBroker

TWINS: list[tuple[type, type]] = [
    (ottla.Admin, Admin),
    (ottla.Producer, Producer),
    (ottla.Reader, Reader),
    (ottla.SchemaRegistry, SchemaRegistry),
    (ottla.ShareConsumer, ShareConsumer),
    (AsyncTransaction, Transaction),
    *((getattr(streams, name), getattr(sync_streams, name)) for name in sync_streams.__all__[:-1]),
]
by_name = pytest.mark.parametrize(
    ("cls", "twin"), TWINS, ids=[f"{twin.__module__}.{twin.__name__}" for _, twin in TWINS]
)

SYNC_NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__await__": "wait",
}


def _public(cls: type) -> dict[str, object]:
    return {
        SYNC_NAMES.get(name, name): member
        for name, member in inspect.getmembers(cls)
        if (not name.startswith("_") or name in {*SYNC_NAMES, *SYNC_NAMES.values(), "__init__"})
        and not (inspect.getdoc(member) or "").startswith(INTERNAL)
    }


def _signature(member: object) -> str:
    function = member.fget if isinstance(member, property) else member
    assert inspect.isfunction(function)
    shown = str(inspect.signature(function)).replace("AsyncIterator", "Iterator")
    return re.sub(r"Generator\[object, None, (\w+)\]", r"\1", shown)


def test_the_twins_are_what_the_script_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["generate_sync.py", "--check"])
    assert main() == 0


@by_name
def test_signatures_and_texts_are_the_same(cls: type, twin: type) -> None:
    ours, theirs = _public(twin), _public(cls)
    for name, member in theirs.items():
        assert _signature(ours[name]) == _signature(member)
        if name not in ("__init__", "__enter__", "__exit__"):
            doc = inspect.getdoc(member)
            assert inspect.getdoc(ours[name]) == (doc and without_async(doc))
    # Attributes of the async object are properties of the twin, and there is nothing else.
    assert all(isinstance(ours[name], property) for name in ours.keys() - theirs.keys())
    assert inspect.getdoc(twin) == without_async(inspect.getdoc(cls) or "")


def test_connect_has_the_signature_and_text_of_its_async_function() -> None:
    assert inspect.signature(connect) == inspect.signature(streams.connect)
    assert inspect.getdoc(connect) == without_async(inspect.getdoc(streams.connect) or "")


def test_all_of_them_at_work(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    where = ottla_broker.bootstrap
    with Producer(where) as producer:
        assert producer.send(ottla_topic, b"first", key=b"k").offset == 0
        more = [ottla.ProducerRecord(b"%d" % number) for number in range(5)]
        assert_type(producer.send_many(ottla_topic, more), list[ottla.RecordMetadata])
    with Reader(where, ottla_topic, stop="latest") as reader:
        assert sum(batch.num_rows for batch in reader) == 6
        assert (reader.topic, reader.positions, list(reader)) == (ottla_topic, {0: 6}, [])
        reader.seek(4)
        found = list(reader.records())
        assert_type(found, list[Record])
        assert [one.value for one in found] == [b"3", b"4"]
    heard: list[Acknowledged] = []
    with ShareConsumer(
        where,
        group=f"of-{ottla_topic}",
        topics=[ottla_topic],
        ack_mode="explicit",
        auto_offset_reset="earliest",
        on_acknowledge=heard.append,
    ) as consumer:
        record = next(consumer)
        assert_type(record, ShareRecord)
        consumer.acknowledge(record)
        assert list(consumer.commit().values()) == [None]
        assert next(consumer).offset == 1
        with pytest.raises(UnacknowledgedRecords):
            consumer.poll()
    assert (heard[0].kind, heard[0].last_offset) == ("accept", 0)
    with Admin(where) as admin:
        [offset] = admin.list_share_group_offsets(consumer.group)
    assert offset.lag == 5


async def test_beside_a_running_event_loop(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    with Admin(ottla_broker.bootstrap) as admin:
        assert ottla_topic in [one.name for one in admin.list_topics()]
        # Beside each other, too: a twin may be shared by threads.
        names = await asyncio.gather(*(asyncio.to_thread(admin.describe_cluster) for _ in range(4)))
    assert len({one.cluster_id for one in names}) == 1


def test_failures_are_those_of_the_async_class() -> None:
    with pytest.raises(ValueError, match="expected 1 or more"):
        Reader("127.0.0.1:1", "orders", prefetch=0)
    with Producer("127.0.0.1:1", max_block_ms=50) as producer, pytest.raises(BrokerUnreachable):
        producer.send("orders", b"")


def test_a_callback_cannot_wait_for_its_own_loop() -> None:
    portal = Portal()
    with pytest.raises(WrongPlace, match="another thread"):
        portal.call(lambda: portal.call(os.getpid))


INTERRUPTED = """
import os, signal, sys, threading
from ottla.sync import ShareConsumer

signal.signal(signal.SIGINT, signal.default_int_handler)
consumer = ShareConsumer(sys.argv[1], group=sys.argv[2], topics=[sys.argv[2]])
consumer.__enter__()
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    consumer.poll(600)
except KeyboardInterrupt:
    print("interrupted", consumer.poll(0))
"""


FORKED = """
import os, sys
from ottla.sync import Admin

admin = Admin(sys.argv[1])
names = [one.name for one in admin.list_topics()]
if child := os.fork():
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print([one.name for one in admin.list_topics()] == names, status)
else:
    try:
        admin.list_topics()
    except RuntimeError as error:
        print(error, flush=True)
    with Admin(sys.argv[1]) as own:
        os._exit(7 if [one.name for one in own.list_topics()] == names else 1)
"""


FORK_ERROR = (
    "this client was made before the process forked, and its connections stayed with the parent; "
    "make another one in the child"
)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        # Neither consumer is closed: this is also about how a program ends.
        (INTERRUPTED, ["interrupted []"]),
        (FORKED, [FORK_ERROR, "True 7"]),
    ],
    ids=["interrupt", "fork"],
)
def test_in_a_process_of_its_own(
    script: str, said: list[str], ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", script, ottla_broker.bootstrap, ottla_topic],
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )
    assert (ended.stdout.splitlines(), ended.stderr, ended.returncode) == (said, "", 0)


@pytest.mark.parametrize("is_scheduled", [False, True])
def test_an_interrupt_at_any_moment_ends_the_work(
    is_scheduled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the loop has heard of the work, or right after."""
    portal = Portal()
    real = portal._loop.call_soon_threadsafe
    calls: list[object] = []

    def interrupted(callback: Callable[[], object]) -> object:
        calls.append(callback)
        if len(calls) > 1 or is_scheduled:
            real(callback)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return None

    async def work() -> None:
        await asyncio.sleep(600)

    coroutine = work()
    monkeypatch.setattr(portal._loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        portal.run(coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED

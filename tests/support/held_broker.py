"""A broker in the test's process and event loop, with workers that can be held, and its clients.

Clients speak the protocol over sockets. Whatever a client was told is noted, so that `check` can
compare it, byte for byte, with what the broker serves.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import struct
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.running.node import Node
from ottla.log.journal.files import STATE_FILE, decode_state
from ottla.metadata.config.broker import load_broker_config
from ottla.wire.error_codes import ErrorCode
from ottla.wire.messages import read_response, request_parts
from ottla.wire.records import iter_records
from ottla.wire.schema import API_NAMES
from ottla.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.schema.delete_topics import DeleteTopicsRequest
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.pausable_workers import PausableWorkers
from tests.support.raw_client import batch, batches_of, fetch_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import pytest

    from ottla.wire.batch import RecordBatch
    from ottla.wire.schema.fetch import PartitionData
    from ottla.wire.schema.produce import PartitionProduceResponse

API_KEYS: Final = {name: key for key, name in API_NAMES.items()}
PATIENCE: Final = 60.0
EARLIEST: Final = -2
TURNS: Final = 30  # more than any request or stop waits for workers
BATCH_FROM_MAGIC: Final = 16
"""From here on a batch stays as it was sent; before it are offset, length and leader epoch."""


class Client:
    """One connection; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    async def ask(self, api: str, version: int, body: Any) -> Any:
        async with asyncio.timeout(PATIENCE):
            self._correlation_id += 1
            parts = request_parts(API_KEYS[api], version, self._correlation_id, "held", body)
            self._writer.write(b"".join(parts))
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            frame = await self._reader.readexactly(size)
            correlation_id, answer = read_response(API_KEYS[api], version, memoryview(frame))
            assert correlation_id == self._correlation_id
            return answer

    async def close(self) -> None:
        self._writer.transport.abort()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@dataclass(eq=False)
class Topic:
    """What clients were told of one life of a name."""

    name: str
    compacts: bool = False
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """By offset, a batch of one record each, from the magic on."""
    sent: dict[bytes, bytes] = field(default_factory=dict)
    """Values, by what was sent."""
    start: int = 0
    """Answered by DeleteRecords, or raised by retention."""
    asked: int = 0
    """The most that DeleteRecords was asked for."""

    def check(self, start: int, batches: list[RecordBatch]) -> None:
        found = {}
        for one in batches:
            if self.compacts:  # batches are written anew, records are not
                for record in iter_records(one):
                    found[record.offset] = record.value or b""
            else:
                found[one.base_offset] = bytes(one.data[BATCH_FROM_MAGIC:])
        assert self.start <= start <= max(self.start, self.asked), f"{self.name} starts at {start}"
        sent = set(self.sent.values() if self.compacts else self.sent)
        foreign = {offset: data for offset, data in found.items() if data not in sent}
        assert not foreign, f"{self.name} has what was never sent to it: {foreign}"
        wanted = {offset: data for offset, data in self.acknowledged.items() if offset >= start}
        if self.compacts:  # of one key
            wanted = {offset: self.sent[wanted[offset]] for offset in sorted(wanted)[-1:]}
        missing = {offset: data for offset, data in wanted.items() if found.get(offset) != data}
        assert not missing, f"{self.name} lost {missing}, has {sorted(found)}"


class Place:
    """A node, its directory, and the topics that its clients have made."""

    def __init__(self, path: Path, *sets: str) -> None:
        self.path = path
        self._sets = sets
        self._config = load_broker_config(
            sets=[
                "listeners=PLAINTEXT://127.0.0.1:0",
                "offsets.topic.num.partitions=1",
                "log.cleaner.min.cleanable.ratio=0",
                # The test does these by itself.
                "log.cleaner.backoff.ms=3600000",
                "log.flush.offset.checkpoint.interval.ms=3600000",
                "log.retention.check.interval.ms=3600000",
                *sets,
            ]
        )
        self.topics: dict[str, Topic] = {}
        self._node: Node | None = None
        self._clients: list[Client] = []
        self._number = 0

    @property
    def node(self) -> Node:
        assert self._node is not None
        return self._node

    @property
    def workers(self) -> PausableWorkers:
        workers = self.node.workers
        assert isinstance(workers, PausableWorkers)
        return workers

    async def start(self) -> None:
        self._node = await Node.start(self._config, self.path)

    async def stop(self) -> None:
        for client in self._clients:
            await client.close()
        self._clients.clear()
        if self._node is not None:
            node, self._node = self._node, None
            await _connected(node)
            await node.stop()

    async def turn(self) -> None:
        """Let all go on that does not wait for what the test holds."""
        for _ in range(TURNS):
            await self.workers.run(int)  # workers do what they were given before this

    async def client(self) -> Client:
        ((host, port),) = self.node.addresses.values()
        client = Client(*await asyncio.open_connection(host, port))
        self._clients.append(client)
        return client

    # -- what clients do --------------------------------------------------------------------------

    async def create(
        self, name: str, configs: Mapping[str, str] | None = None, *, compacts: bool = False
    ) -> Topic:
        given = dict(configs or {})
        if compacts:
            given["cleanup.policy"] = "compact"
        rows = [CreatableTopicConfig(*one) for one in given.items()]
        request = CreateTopicsRequest([CreatableTopic(name, 1, -1, (), rows)])
        (made,) = (await (await self.client()).ask("create_topics", 7, request)).topics
        assert made.error_code == 0, ErrorCode(made.error_code)
        self.topics[name] = Topic(name, compacts)
        return self.topics[name]

    async def delete(self, name: str) -> None:
        client = await self.client()
        answer = await client.ask("delete_topics", 5, DeleteTopicsRequest(topic_names=[name]))
        assert answer.responses[0].error_code == 0, ErrorCode(answer.responses[0].error_code)
        self.topics.pop(name, None)

    async def produce(self, topic: Topic, count: int = 1, **settings: Any) -> list[int]:
        """Batches of one record each; the codes of the answers."""
        client = await self.client()
        codes = []
        for _ in range(count):
            self._number += 1
            value = b"%s %d" % (topic.name.encode(), self._number)
            data = bytes(batch(value, **settings))
            topic.sent[data[BATCH_FROM_MAGIC:]] = value
            rows = [TopicProduceData(topic.name, partition_data=[PartitionProduceData(0, data)])]
            answer = await client.ask("produce", 11, ProduceRequest(None, -1, 30_000, rows))
            told: PartitionProduceResponse = answer.responses[0].partition_responses[0]
            codes.append(told.error_code)
            if told.error_code == 0:
                topic.acknowledged[told.base_offset] = data[BATCH_FROM_MAGIC:]
        return codes

    async def delete_records(self, topic: Topic, offset: int) -> int:
        topic.asked = max(topic.asked, offset)
        rows = [DeleteRecordsTopic(topic.name, [DeleteRecordsPartition(0, offset)])]
        answer = await (await self.client()).ask(
            "delete_records", 2, DeleteRecordsRequest(rows, 30_000)
        )
        (told,) = answer.topics[0].partitions
        if told.error_code == 0:
            topic.start = max(topic.start, told.low_watermark)
        code: int = told.error_code
        return code

    async def list_offsets(self, name: str, timestamp: int) -> Any:
        asked = ListOffsetsPartition(0, -1, timestamp)
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, [asked])])
        answer = await (await self.client()).ask("list_offsets", 7, request)
        return answer.topics[0].partitions[0]

    async def fetch(self, name: str, offset: int, **settings: int) -> PartitionData:
        request = fetch_request({(name, 0): offset}, **settings)
        answer = await (await self.client()).ask("fetch", 12, request)
        data: PartitionData = answer.responses[0].partitions[0]
        return data

    # -- what must be true ------------------------------------------------------------------------

    async def check(self) -> None:
        """Every living topic has what was acknowledged, and nothing that was not sent to it."""
        for topic in self.topics.values():
            first = await self.list_offsets(topic.name, EARLIEST)
            assert first.error_code == 0, ErrorCode(first.error_code)
            batches: list[RecordBatch] = []
            offset, end = first.offset, -1
            while offset != end:
                data = await self._fetch_when_ready(topic.name, offset)
                assert data.error_code == 0, ErrorCode(data.error_code)
                found = batches_of(data)
                batches += found
                end = data.high_watermark
                assert found or offset == end, f"nothing from {offset} to {end}"
                offset = found[-1].next_offset if found else end
            topic.check(first.offset, batches)

    async def _fetch_when_ready(self, name: str, offset: int) -> PartitionData:
        """After a start the catalogue of the remote tier has to be read first."""
        async with asyncio.timeout(PATIENCE):
            while True:
                data = await self.fetch(name, offset)
                if data.error_code != ErrorCode.REPLICA_NOT_AVAILABLE:
                    return data
                await asyncio.sleep(0.01)

    async def check_everything(self) -> None:
        """Now, after a kill in this moment, and after a clean stop."""
        await self.check()
        async with asyncio.timeout(PATIENCE):
            while self.node.partitions._busy:  # noqa: ASYNC110 - workers are deleting
                await asyncio.sleep(0)
        killed = Place(self.path.with_name(self.path.name + "-killed"), *self._sets)
        copy_as_killed(self.path, killed.path)
        killed.topics = self.topics
        for place in (killed, self):
            await place.stop()
            await place.start()
            try:
                await place.check()
            finally:
                await place.stop()
        shutil.rmtree(killed.path)


async def _connected(node: Node) -> None:
    """Until the tier has connected to its own node, if there is one.

    A server of asyncio that is closed while it accepts leaks the socket (python/cpython#109564).
    """
    tiering = node.services.tiering.made
    async with asyncio.timeout(PATIENCE):
        while tiering is not None and tiering.manager is None:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)


def copy_as_killed(path: Path, target: Path) -> None:
    """What a kill in this moment would leave, but for what a worker may just be removing.

    A journal's files may just be made: either all that its state file names are there, or the copy
    is made again.
    """
    while True:
        with suppress(shutil.Error):  # a file has gone meanwhile
            shutil.copytree(path, target, ignore=shutil.ignore_patterns("*-delete", "*.tmp"))
            state = target / STATE_FILE
            files = decode_state(state.read_bytes()).files if state.exists() else 0
            if all((target / f"{STATE_FILE}.{number}").exists() for number in range(files)):
                return
        shutil.rmtree(target)


@asynccontextmanager
async def held_broker(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *sets: str
) -> AsyncIterator[Place]:
    """A place that is checked at the end: records, descriptors, tasks, errors in the log."""
    monkeypatch.setattr("ottla.broker.running.node.Workers", PausableWorkers)
    loop = asyncio.get_running_loop()
    unhandled: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    before = open_files()
    place = Place(path / "data", *sets)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(place.stop)
        await place.start()
        yield place
        await place.check_everything()
    gc.collect()
    await asyncio.sleep(0)  # transports close their sockets in the next turn
    assert not unhandled, unhandled
    left = open_files() - before
    assert not left, f"left open: {left}"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def open_files() -> frozenset[tuple[int, str]]:
    """Descriptors of this process, and what they are."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            found.append((int(name), str(Path(f"/proc/self/fd/{name}").readlink())))
        except FileNotFoundError:
            continue  # that of the listing
    return frozenset(found)

"""What a broker holds in memory when there are many of something. The bounds are in the docs.

`make test` takes fewer of each and the same bound for each one; `make verify` takes them all.
"""

from __future__ import annotations

import gc
import resource
import socket
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.log.producer_state import Origin
from ottla.log.sealed import Sealed
from ottla.log.tail import TailCache
from ottla.wire.error_codes import ErrorCode
from ottla.wire.messages import request_parts
from ottla.wire.records import ControlType
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.faults_broker import PATIENCE_SECONDS, BrokerProcess
from tests.support.log_batches import batch_of, marker
from tests.support.raw_client import RawClient, batch, fetch_request, produce_request

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.wire.batch import RecordBatch

KIB: Final = 1024
MIB: Final = 1024 * KIB
FETCH: Final = 1

PARTITION_BYTES: Final = 16 * KIB
"""Of the process, for each partition that was written: its log, its place among the others."""
ABORTED_BYTES: Final = 32
"""For each aborted transaction of a segment that still grows, and of those in the budget."""
SEALED_OBJECTS: Final = 50
"""For each segment that does not grow, however many transactions it has."""

many = pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.long)])


@many
def test_partitions_that_were_written_once(tmp_path: Path, count: int) -> None:
    each = 100
    with BrokerProcess(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        client.wait_longer(PATIENCE_SECONDS)
        names = [f"topic-{number}" for number in range(count // each)]
        write_each(client, "warm", 10)
        before = broker.rss_bytes()
        for name in names:
            write_each(client, name, each)
        grown = broker.rss_bytes() - before
        assert grown < count * PARTITION_BYTES, f"{grown / count:.0f} bytes each"
        assert broker.stop() == 0


def write_each(client: RawClient, topic: str, partitions: int) -> None:
    made = client.ask(
        "create_topics", 5, CreateTopicsRequest([CreatableTopic(topic, partitions, -1)])
    )
    assert made.topics[0].error_code == ErrorCode.NONE
    data = {index: batch(b"written once") for index in range(partitions)}
    answer = client.ask("produce", 11, produce_request(topic, data))
    codes = {row.error_code for row in answer.responses[0].partition_responses}
    assert codes == {ErrorCode.NONE}


@pytest.mark.parametrize("count", [10_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("segments", [1, 20])
def test_aborted_transactions(tmp_path: Path, count: int, segments: int) -> None:
    """Of one topic: what the growing segment knows of them, and one budget for all the others."""
    size = one_of(0).size + marker(ControlType.ABORT, 1, 0).size
    sealed = Sealed(descriptors=8, index_bytes=64 * KIB)
    config = LogConfig(segment_bytes=size * ((count + 200) // segments))
    log = PartitionLog.open(tmp_path / "t-0", config, now_ms=0, tail=TailCache(0), sealed=sealed)
    abort(log, 100)
    gc.collect()
    before = sys.getallocatedblocks()
    abort(log, count, first=100)
    for segment in log.segments:  # a reader of all of it
        assert log.aborted_transactions(segment.base_offset, segment.base_offset + 10)
    gc.collect()
    objects = sys.getallocatedblocks() - before
    assert len(log.segments) >= segments
    growing = log.segments[-1].aborted
    if segments == 1:
        assert len(growing) >= count
    assert growing.nbytes == len(growing) * ABORTED_BYTES
    assert objects < 1000 + len(log.segments) * SEALED_OBJECTS, "nothing is kept for each of them"
    assert sealed.indexes.used <= sealed.indexes.limit
    log.close()


def abort(log: PartitionLog, count: int, first: int = 0) -> None:
    ends = marker(ControlType.ABORT, 1, 0)
    for number in range(first, first + count):
        log.append(one_of(number), leader_epoch=0, now_ms=0)
        log.append(ends, leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
        log.advance_high_watermark(log.log_end_offset)


def one_of(sequence: int) -> RecordBatch:
    return batch_of(b"v", producer_id=1, epoch=0, sequence=sequence, transactional=True)


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 6_000,
    reason="the system does not let a process have 6,000 files open (ulimit -Hn)",
)
@pytest.mark.parametrize("count", [500, pytest.param(5_000, marks=pytest.mark.long)])
def test_clients_that_do_not_read(tmp_path: Path, count: int) -> None:
    """Each asks for all there is, again and again; they share one budget, whatever they ask."""
    limit = 32 * MIB
    config = {"ottla.queued.max.response.bytes": str(limit)}
    with BrokerProcess(tmp_path, config=config) as broker, ExitStack() as stack:
        client = stack.enter_context(RawClient(broker.bootstrap))
        client.wait_longer(PATIENCE_SECONDS)
        write_each(client, "large", 1)
        for _ in range(12):
            told = client.produce("large", batch(bytes(900_000)))
            assert told.error_code == ErrorCode.NONE
        before = broker.rss_bytes()
        request = fetch_request({("large", 0): 0}, partition_max_bytes=50 * MIB)
        asks = b"".join(request_parts(FETCH, 11, 1, "greedy", request)) * 5
        for _ in range(count):
            greedy = stack.enter_context(socket.socket())
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            greedy.connect(("127.0.0.1", broker.port))
            greedy.sendall(asks)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (held := broker.stats())["unsent"] < limit // 2:
            assert time.monotonic() < deadline, held
        for _ in range(10):
            fetched = client.fetch_one("large", 0)
            assert fetched.error_code == ErrorCode.NONE
            assert fetched.records, "one that reads is served"
            assert broker.stats()["unsent"] <= 2 * limit + MIB
        grown = broker.peak_bytes() - before
        assert grown <= 2 * limit + 40 * MIB, f"{grown // MIB} MiB"
        stack.close()
        assert broker.stop() == 0

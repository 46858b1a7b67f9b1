"""Tiered storage: uploads, cold reads, reads without the broker, and what all that costs others.

    python -m benchmarks.tier [--quick]

The object store is MinIO on loopback where it is installed (see tests/support/s3.py), else moto's
server, and the tables say which. `--quick` uses less data. Every pair is measured in one run.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks._harness import Row, Timing, faster, report, take_turns
from benchmarks._ottla import OttlaProcess
from ottla import Admin, Reader
from ottla import Producer as OttlaProducer
from ottla.objects.location import open_store, parse_location
from ottla.tier.catalogue.codec import encode_event
from ottla.tier.catalogue.event_log import InProcessMetadataEventLog
from ottla.tier.catalogue.segments import (
    EpochStart,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SegmentState,
    TopicIdPartition,
)
from ottla.tier.catalogue.topic_rlmm import TopicBasedRemoteLogMetadataManager
from ottla.tier.reader import ListingSource, RemoteReader, stream_split
from ottla.tier.store.storage_manager import LogSegmentData, RemoteStorageManager
from tests.support.s3 import BUCKET, minio_program, minio_server, moto_server, rsm_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.tier.reader import Split

QUICK: Final = "--quick" in sys.argv
MIB: Final = 1024 * 1024
ROUNDS: Final = 3
UPLOAD_BYTES: Final = 64 * MIB if QUICK else 1024 * MIB
UPLOAD_ROUNDS: Final = 9 if QUICK else 3
COLD_BYTES: Final = 256 * MIB if QUICK else 512 * MIB
COPIED_BYTES: Final = 256 * MIB if QUICK else 1024 * MIB
SENDS: Final = 1000 if QUICK else 3000  # in each round, with copies and without
SEGMENTS: Final = 10_000 if QUICK else 100_000
SEGMENT_BYTES: Final = 16 * MIB
VALUE_BYTES: Final = 1000
IN_FLIGHT: Final = 2  # splits of one process; one begins to arrive while the other is decoded
PATIENCE: Final = 600.0
COLD, WARM, BACKLOG = "cold", "warm", "backlog"
COPY_DISABLE: Final = "remote.log.copy.disable"
TIERED: Final = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES)}


@dataclass(frozen=True)
class Place:
    """An object store and its name."""

    name: str
    endpoint: str
    directory: Path

    def settings(self, prefix: str) -> dict[str, str]:
        return rsm_config(self.endpoint, prefix)

    def storage(self, prefix: str) -> RemoteStorageManager:
        location = parse_location(self.settings(prefix))
        return RemoteStorageManager(open_store(location), location.prefix, "")


def main() -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-bench-")))
        if minio_program() is None:
            place = Place("moto", stack.enter_context(moto_server()), directory)
        else:
            objects = directory / "objects"
            objects.mkdir()
            place = Place("MinIO", stack.enter_context(minio_server(objects)), directory)
        rows = [upload_row(place)]
        rows += broker_rows(place)
    rows.append(restart_row())
    report(f"Tiered storage, {place.name} on loopback", rows, ["obstore", "boto3"])


def mb_per_second(size: int) -> Callable[[Timing], str]:
    return lambda timing: f"{size / timing.median / 1e6:.0f} MB/s"


# -- uploads --------------------------------------------------------------------------------------


def upload_row(place: Place) -> Row:
    import boto3

    log = place.directory / "upload.log"
    with log.open("wb") as file:
        for _ in range(UPLOAD_BYTES // MIB):
            file.write(os.urandom(MIB))
    data = LogSegmentData(log, log, log, log, b"")
    metadata = segment(0, size=UPLOAD_BYTES)
    config = place.settings("")
    client = boto3.client(
        "s3",
        endpoint_url=place.endpoint,
        region_name="us-east-1",
        aws_access_key_id=config["rsm.config.access.key.id"],
        aws_secret_access_key=config["rsm.config.secret.access.key"],
    )

    storage = place.storage("upload")  # kept, with its connections, as the peer's client is

    def upload() -> None:
        """With the checksum that goes into the catalogue."""
        asyncio.run(storage.copy_log(metadata, data))

    own, theirs = take_turns(
        upload, lambda: client.upload_file(str(log), BUCKET, "upload/peer"), rounds=UPLOAD_ROUNDS
    )
    client.close()
    log.unlink()
    what = f"upload of a log of {UPLOAD_BYTES // MIB} MiB, peer boto3 upload_file"
    return faster(what, own, theirs, 1.0, mb_per_second(UPLOAD_BYTES))


# -- through a broker -----------------------------------------------------------------------------


def broker_rows(place: Place) -> list[Row]:
    config = place.settings("broker") | {
        "remote.log.storage.system.enable": "true",
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
        "ottla.flush.mode": "os",
    }
    with OttlaProcess(config) as broker:
        count = asyncio.run(prepare(broker.bootstrap))
        cold, warm = take_turns(
            lambda: consume(broker.bootstrap, COLD, count),
            lambda: consume(broker.bootstrap, WARM, count),
            rounds=ROUNDS,
        )
        size = mb_per_second(count * VALUE_BYTES)
        rows = [faster("cold sequential read by Fetch, peer a local one", cold, warm, 0.3, size)]
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            direct, fetched = take_turns(
                lambda: read_directly(place, pool, count),
                lambda: asyncio.run(read_by_fetch(broker.bootstrap, count)),
                rounds=ROUNDS,
            )
        what = "tier.reader to Arrow in 2 processes, peer Fetch to Arrow"
        rows.append(faster(what, direct, fetched, 1.5, size))
        rows.append(asyncio.run(produce_row(broker.bootstrap)))
    return rows


async def prepare(bootstrap: str) -> int:
    """The same records in a topic that is cold and in one that is local; how many are cold."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic(COLD, 1, configs=TIERED | {"local.retention.bytes": "1"})
        await admin.create_topic(WARM, 1, configs={"segment.bytes": str(SEGMENT_BYTES)})
        for topic in (COLD, WARM):
            await asyncio.to_thread(fill, bootstrap, topic, COLD_BYTES)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            (start,) = (await admin.list_offsets([COLD], "earliest-local")).values()
            (end,) = (await admin.list_offsets([COLD], "latest")).values()
            if (end.offset - start.offset) * VALUE_BYTES < 2 * SEGMENT_BYTES:
                return start.offset
            await asyncio.sleep(0.2)
    raise TimeoutError(f"the segments of {COLD} do not leave the local disk")


def fill(bootstrap: str, topic: str, size: int) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.kbytes": 65_536}
    )
    for number in range(size // VALUE_BYTES):
        while True:
            try:
                producer.produce(topic, number.to_bytes(8) * (VALUE_BYTES // 8))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(PATIENCE) == 0


def consume(bootstrap: str, topic: str, count: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": count,
            # A full queue makes the client pause for a second, which punishes the faster side.
            "queued.max.messages.kbytes": 2_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    left = count
    while left:
        left -= len(consumer.consume(min(10_000, left), timeout=10))
    consumer.close()


def read_directly(place: Place, pool: ProcessPoolExecutor, count: int) -> None:
    """The records that are cold, planned from a listing, read by the processes of the pool."""
    settings = place.settings("broker")

    async def plan() -> tuple[Split, ...]:
        storage = place.storage("broker")
        found = await RemoteReader(storage, ListingSource(storage)).plan(
            COLD, 0, end_offset=count, isolation_level="read_uncommitted", split_bytes=SEGMENT_BYTES
        )
        return found.splits

    splits = asyncio.run(plan())
    rows = sum(pool.map(_read_splits, [settings] * 2, [splits[0::2], splits[1::2]]))
    assert rows == count


def _read_splits(settings: Mapping[str, str], splits: tuple[Split, ...]) -> int:
    async def read() -> int:
        store = open_store(parse_location(settings))
        turn = asyncio.Semaphore(IN_FLIGHT)

        async def rows_of(split: Split) -> int:
            async with turn:
                return sum([rows.num_rows async for rows in stream_split(store, split)])

        return sum(await asyncio.gather(*map(rows_of, splits)))

    return asyncio.run(read())


async def read_by_fetch(bootstrap: str, count: int) -> None:
    rows = 0
    async with Reader(bootstrap, COLD, start="earliest", stop={0: count}) as reader:
        async for batch in reader:
            rows += batch.num_rows
    assert rows == count


async def produce_row(bootstrap: str) -> Row:
    """Acknowledgement times of single records, without and with copies of a backlog under way.

    The same sends in turns; no quota holds copies back, only what the broker does by itself to
    spare its clients. The row says how fast they went.
    """
    alone: list[list[float]] = []
    copying: list[list[float]] = []
    copied = seconds = 0.0
    async with Admin(bootstrap) as admin, OttlaProducer(bootstrap) as producer:
        await admin.create_topic("sent", 1)
        await admin.create_topic(BACKLOG, 1, configs=TIERED | {COPY_DISABLE: "true"})
        await asyncio.to_thread(fill, bootstrap, BACKLOG, COPIED_BYTES)
        await send_all(producer)
        for _ in range(ROUNDS):
            before = await settled(admin)
            alone.append(await send_all(producer))
            await admin.alter_configs("topic", BACKLOG, {COPY_DISABLE: "false"})
            began = time.perf_counter()
            copying.append(await send_all(producer))
            seconds += time.perf_counter() - began
            after = await tiered(admin)
            await admin.alter_configs("topic", BACKLOG, {COPY_DISABLE: "true"})
            assert before < after, "nothing was copied meanwhile"
            copied += (after - before) * VALUE_BYTES
        assert (await settled(admin)) * VALUE_BYTES < COPIED_BYTES - 2 * SEGMENT_BYTES, "all copied"
    ratios = [p99(one) / p99(other) for one, other in zip(copying, alone, strict=True)]
    ours, peer = (p99(list(chain.from_iterable(one))) for one in (copying, alone))
    return Row(
        f"p99 of produce while copying ({copied / seconds / 1e6:.0f} MB/s), peer without",
        f"{ours * 1e3:.2f} ms",
        f"{peer * 1e3:.2f} ms",
        ours / peer,
        (min(ratios), max(ratios)),
        2.0,
        at_most=True,
    )


def p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]


async def tiered(admin: Admin) -> int:
    (found,) = (await admin.list_offsets([BACKLOG], "latest-tiered")).values()
    return found.offset


async def settled(admin: Admin) -> int:
    """The last offset in the tier, once the copy that was under way is done."""
    before = -2
    while (now := await tiered(admin)) != before:
        before = now
        await asyncio.sleep(2)
    return now


async def send_all(producer: OttlaProducer) -> list[float]:
    seconds = []
    for _ in range(SENDS):
        began = time.perf_counter()
        await producer.send("sent", b"v" * VALUE_BYTES)
        seconds.append(time.perf_counter() - began)
        await asyncio.sleep(0.001)
    return seconds


# -- restarts -------------------------------------------------------------------------------------

PARTITIONS: Final = 100  # that share the segments


def segment(number: int, *, size: int = SEGMENT_BYTES) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(_tip(number % PARTITIONS), UUID(int=number + 2)),
        1000 * number,
        1000 * number + 999,
        1_700_000_000_000,
        1,
        1_700_000_000_000,
        size,
        (EpochStart(0, 1000 * number),),
    )


def _tip(partition: int) -> TopicIdPartition:
    return TopicIdPartition(UUID(int=42), COLD, partition)


def restart_row() -> Row:
    """Until the catalogue has answered a question, with the snapshot and without."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        directory = Path(name)
        own, theirs = asyncio.run(_restarts(directory))
    what = f"restart with {SEGMENTS} segments in the catalogue, peer full replay"
    return faster(what, own, theirs, 10.0, lambda timing: f"{timing.median:.2f} s")


async def _restarts(directory: Path) -> tuple[Timing, Timing]:
    log = InProcessMetadataEventLog(1)
    finished = SegmentState.COPY_SEGMENT_FINISHED
    for number in range(SEGMENTS):
        one = segment(number)
        await log.publish(0, encode_event(one))
        update = one.update(finished, broker_id=1, now_ms=one.event_timestamp_ms)
        await log.publish(0, encode_event(update))
    snapshot, nothing = directory / "snapshot", directory / "nothing"
    await _start(log, snapshot)
    own = [await _start(log, snapshot) for _ in range(ROUNDS)]
    theirs = [await _start(log, nothing / str(number)) for number in range(ROUNDS)]
    return Timing(tuple(own)), Timing(tuple(theirs))


async def _start(log: InProcessMetadataEventLog, directory: Path) -> float:
    began = time.perf_counter()
    manager = await TopicBasedRemoteLogMetadataManager.start(log, directory, "bench")
    await manager.reconcile_assignment([0])
    while not manager.is_ready(_tip(7)):  # noqa: ASYNC110  # what is measured; nobody tells
        await asyncio.sleep(0.001)
    assert manager.remote_log_segment_metadata(_tip(7), 0, 7500) is not None
    seconds = time.perf_counter() - began
    await manager.close()
    return seconds


if __name__ == "__main__":
    main()

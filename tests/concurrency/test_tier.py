"""A topic is deleted, or the broker stops, while a worker reads for the remote tier or from it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest
from crc32c import crc32c

from ottla.log.storage import Entry
from ottla.objects import local
from ottla.tier.store import storage_manager
from tests.support.gates import Gate
from tests.support.held_broker import PATIENCE, held_broker, open_files
from tests.support.raw_client import batches_of, now_ms

if TYPE_CHECKING:
    from io import FileIO
    from pathlib import Path

    from tests.support.held_broker import Place, Topic

TIERED: Final = {
    "remote.storage.enable": "true",
    "segment.ms": "1000",
    "file.delete.delay.ms": "0",
}


def settings(store: Path) -> tuple[str, ...]:
    return (
        "remote.log.storage.system.enable=true",
        f"rsm.config.url={store.as_uri()}",
        "rlmm.config.remote.log.metadata.topic.num.partitions=1",
        "remote.log.manager.task.interval.ms=20",
    )


def segment_files() -> list[str]:
    """Segments of the topic that this process has open, wherever its directory is by now."""
    found = (name for _, name in open_files() if "/orders-0" in name)
    return [name for name in found if name.removesuffix(" (deleted)").endswith(".log")]


async def test_delete_while_a_tier_copy_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The copy is given up, its worker keeps its file until it has read, then closes it."""
    gate = Gate()

    def held(data: bytes, before: int = 0) -> int:
        gate.stop()  # in the worker, in the middle of a read
        return crc32c(data, before)

    async with held_broker(tmp_path, monkeypatch, caplog, *settings(tmp_path / "store")) as place:
        monkeypatch.setattr(storage_manager, "crc32c", held)
        tiering = place.node.services.tiering()
        other = await place.create("other")
        assert await place.produce(other, 3) == [0, 0, 0]
        orders = await place.create("orders", TIERED)
        begin = now_ms()
        for number in range(2):
            assert await place.produce(orders, timestamp=begin + number * 2000) == [0]
        await gate.wait()
        ((_, copied),) = tiering.partitions.items()
        task = copied.copier._task
        assert task is not None
        await place.delete("orders")
        await asyncio.wait([task], timeout=PATIENCE)
        assert task.cancelled(), "nobody waits for the worker any more"
        orders = await place.create("orders", TIERED)
        assert await place.produce(orders, timestamp=begin) == [0]
        held_files = [name.removesuffix(" (deleted)") for name in segment_files()]
        assert any(name.endswith("-delete/" + "0" * 20 + ".log") for name in held_files), held_files
        gate.open()
        async with asyncio.timeout(PATIENCE):
            while len(segment_files()) > 1:  # noqa: ASYNC110 - a worker's doing
                await asyncio.sleep(0.01)
        await place.check()
    assert not list((tmp_path / "store").rglob("*.meta")), "no copy was finished"


async def test_stop_while_a_tier_copy_opens_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The directory that the worker looks into stays open until it has found its file."""
    gate = Gate()
    opened = Entry.open_for_reading

    def held(entry: Entry) -> FileIO:
        gate.stop()
        return opened(entry)

    async with held_broker(tmp_path, monkeypatch, caplog, *settings(tmp_path / "store")) as place:
        monkeypatch.setattr(Entry, "open_for_reading", held)
        orders = await place.create("orders", TIERED)
        begin = now_ms()
        for number in range(2):
            assert await place.produce(orders, timestamp=begin + number * 2000) == [0]
        await gate.wait()
        log = place.node.partitions.find("orders", 0).log
        await place.stop()
        directory = log.files
        assert not directory._is_closed, "the worker is inside"
        gate.open()
        async with asyncio.timeout(PATIENCE):
            while not directory._is_closed or segment_files():  # noqa: ASYNC110 - a worker's doing
                await asyncio.sleep(0.01)
        await place.start()


async def cold_topic(place: Place) -> Topic:
    """One whose first two segments are in the store alone."""
    topic = await place.create("orders", TIERED | {"local.retention.bytes": "1"})
    begin = now_ms()
    for number in range(3):
        assert await place.produce(topic, timestamp=begin + number * 2000) == [0]
    log = place.node.partitions.find("orders", 0).log
    async with asyncio.timeout(PATIENCE):
        while log.local_start_offset < 2:
            await place.node.jobs._retain()
            await asyncio.sleep(0.01)
    return topic


@pytest.mark.parametrize("again", [False, True])
async def test_delete_while_a_cold_read_waits_for_the_store(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    again: bool,
) -> None:
    """The reader gets what it asked for or an error; what was read is never the new topic's."""
    gate = Gate()
    read = local._read

    def held(path: Path, start: int, end: int | None, etag: str | None) -> memoryview:
        if path.suffix == ".log":
            gate.stop()
        return read(path, start, end, etag)

    async with held_broker(tmp_path, monkeypatch, caplog, *settings(tmp_path / "store")) as place:
        monkeypatch.setattr(local, "_read", held)
        old = await cold_topic(place)
        cold = asyncio.create_task(place.fetch("orders", 0, max_wait_ms=0))
        await gate.wait()
        await place.delete("orders")
        if again:
            await cold_topic(place)
            await place.check()  # its own cold reads, of the same offsets
        gate.open()
        told = await cold
        if told.error_code == 0:
            assert {bytes(one.data[16:]) for one in batches_of(told)} <= set(old.sent)
        await place.check()

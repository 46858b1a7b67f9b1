"""A store, a catalogue and a disk that fail; and much at once."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import OperationalError

from ottla.client.admin.admin import Admin
from ottla.client.producer.producer import Producer
from ottla.client.security import PLAINTEXT
from ottla.clock import SYSTEM
from ottla.objects import local
from ottla.tables import parquet_files, taking
from ottla.tables.errors import TableRunFailed
from ottla.tables.iceberg_io import SyncedFileIO
from ottla.tables.inspecting import status, verify
from ottla.tables.settings import topic_settings
from ottla.tables.table_task import TableTask
from ottla.tables.upkeep import Upkeep
from ottla.tables.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ottla.tables.settings import TopicSettings
    from tests.support.tables import Place

pytestmark = pytest.mark.long

GRACE = 7 * 3_600_000
PATIENCE = 120


class FlakyStore:
    """Fails every third request: every other time after it was done."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._requests = count(1)
        self.failed = 0

    async def put_pieces(self, key: str, pieces: AsyncIterator[bytes]) -> None:
        number = self._before()
        await self._store.put_pieces(key, pieces)
        self._after(number)

    async def delete(self, key: str) -> None:
        number = self._before()
        await self._store.delete(key)
        self._after(number)

    async def list(self, prefix: str) -> AsyncIterator[Any]:
        self._before()
        async for one in self._store.list(prefix):
            yield one

    def _before(self) -> int:
        number = next(self._requests)
        if number % 6 == 3:
            self._fail()
        return number

    def _after(self, number: int) -> None:
        if number % 6 == 0:
            self._fail()

    def _fail(self) -> None:
        self.failed += 1
        raise OSError("503 Slow Down")


class FlakyCatalogue:
    """While it is down every call fails; metadata cannot be written every seventh time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_down = False
        self.calls = 0
        self._writes = count(1)
        for name in ("load_table", "commit_table", "create_table"):
            monkeypatch.setattr(SqlCatalog, name, self._guarded(getattr(SqlCatalog, name)))
        output = SyncedFileIO.new_output

        def written(io: SyncedFileIO, location: str) -> Any:
            if next(self._writes) % 7 == 0:
                raise OSError("503 Slow Down")
            return output(io, location)

        monkeypatch.setattr(SyncedFileIO, "new_output", written)

    def _guarded(self, whole: Any) -> Any:
        def guarded(*args: Any, **options: Any) -> Any:
            if self.is_down:
                self.calls += 1
                raise OperationalError("select", None, ConnectionError("refused"))
            return whole(*args, **options)

        return guarded


def settings_of(place: Place) -> TopicSettings:
    found = topic_settings(place.topic, {"ottla.table.enable": "true"})
    assert found is not None
    return replace(found, commit_interval=0.05)


async def sound(place: Place) -> None:
    """Every offset is there once, nothing waits, and after a sweep no file is left over."""
    settings, tables = settings_of(place), place.tables()
    async with Admin(place.bootstrap) as admin:
        found = await verify(place.bootstrap, PLAINTEXT, admin, tables, settings)
        told = await status(admin, tables, settings, SYSTEM.wall_ms())
    assert [one for one in found if one.is_wrong] == []
    assert (told.lag, told.problem) == (0, None)
    await Upkeep(tables, Warehouse(place.settings.warehouse), settings).sweep(
        SYSTEM.wall_ms() + GRACE
    )
    named = tables.named_files(place.state())
    tables.close()
    assert place.data_files() <= named


async def test_case_69_a_store_and_a_catalogue_that_fail_lose_no_row(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.tables.rounds.FIRST_PAUSE", 0.01)
    monkeypatch.setattr("ottla.tables.rounds.LONGEST_PAUSE", 0.05)
    await place.create(2)
    catalogue = FlakyCatalogue(monkeypatch)
    async with place.worker() as worker:
        store = FlakyStore(worker.warehouse._store)
        monkeypatch.setattr(worker.warehouse, "_store", store)
        task = asyncio.create_task(TableTask(worker, settings_of(place)).run())
        async with asyncio.timeout(PATIENCE):
            for turn in range(6):
                catalogue.is_down = turn % 2 == 1
                await place.fill([b"%d" % turn] * 50, turn % 2)
                if catalogue.is_down:
                    # Longer than it takes until pauses do not grow any more.
                    wanted = catalogue.calls + 20
                    while catalogue.calls < wanted:
                        assert not task.done(), task
                        await asyncio.sleep(0.01)
                    catalogue.is_down = False
                ends = {number: sum(50 for one in range(turn + 1) if one % 2 == number)
                        for number in (0, 1)}  # fmt: skip
                while await reached(place) != ends:
                    assert not task.done(), task
                    await asyncio.sleep(0.05)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    monkeypatch.undo()
    assert store.failed > 0
    await sound(place)


async def reached(place: Place) -> dict[int, int] | None:
    """The position, None if the table is not there yet."""
    tables = place.tables()
    try:
        state = await asyncio.to_thread(tables.load, place.table)
    finally:
        tables.close()
    return None if state is None else dict(state.next)


async def test_case_70_a_full_disk_halves_the_round(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: the same round was tried again for ever."""
    await place.create()
    for _ in range(8):
        await place.fill([b"x" * 1000] * 20)
    monkeypatch.setattr(taking, "ROUND_BYTES", 150_000)
    monkeypatch.setattr(taking, "CHUNK_ROWS", 20)
    monkeypatch.setattr(taking, "LEAST_ROUND_BYTES", 20_000)
    write = parquet_files.write_parquet
    refused = []

    def full(path: Any, columns: Any, batches: Any) -> None:
        rows = list(batches)
        if sum(one.num_rows for one in rows) > 60:
            refused.append(path)
            path.write_bytes(b"half a file")
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, columns, iter(rows))

    monkeypatch.setattr(parquet_files, "write_parquet", full)
    async with place.worker() as worker:
        task = TableTask(worker, settings_of(place))
        while True:
            try:
                await task.run_once()
            except TableRunFailed as error:
                assert "No space left" in str(error)  # noqa: PT017  # every other fails the test
                assert len(refused) <= 3
            else:
                break
            assert not any(one.exists() for one in refused)
    assert len(refused) == 2
    await sound(place)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "the warehouse is full: free space"),
        (errno.EROFS, "the warehouse cannot be written: let this user write there"),
    ],
)
async def test_a_warehouse_that_cannot_be_written_is_told_with_what_to_do(
    place: Place, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    await place.create()
    await place.fill([b"x"])

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    async with place.worker() as worker:
        with monkeypatch.context() as patched:
            patched.setattr(local, "_write", refuse)
            with pytest.raises(TableRunFailed, match=advice):
                await worker.run_once()
        await worker.run_once()
    await sound(place)


async def test_case_70_a_value_that_is_larger_than_a_chunk(place: Place) -> None:
    large = b"x" * (4 * taking.CHUNK_BYTES)
    await place.create(max_message_bytes=str(2 * len(large)))
    await place.fill([b"before"])
    async with Producer(
        place.bootstrap, max_request_size=2 * len(large), buffer_memory=2 * len(large)
    ) as producer:
        await producer.send(place.topic, large, partition=0)
    await place.fill([b"after"])
    assert await place.run_once() == {0: 3}
    assert [len(one or b"") for one in place.values()] == [6, len(large), 5]
    await sound(place)


async def test_case_70_a_thousand_partitions_are_one_file(place: Place) -> None:
    await place.create(1000)
    async with Producer(place.bootstrap) as producer:
        sent = [producer.send(place.topic, b"%d" % n, partition=n) for n in range(1000)]
        await asyncio.gather(*sent)
    assert await place.run_once() == dict.fromkeys(range(1000), 1)
    assert place.values() == [b"%d" % n for n in range(1000)]
    assert len(place.data_files()) == 1
    await sound(place)

"""The File backend: following, seeking, resuming, groups, several producers, repair."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.offsets import (
    LockFileOffsetStore,
    MemoryOffsetStore,
    OffsetCorrupt,
    OffsetKey,
    StaleOffset,
)
from ottla.streams import (
    BEGINNING,
    END,
    WILDCARD,
    At,
    AutoCommit,
    Consumer,
    ConsumerOptions,
    Create,
    FileOptions,
    Mode,
    Reset,
    connect,
)
from ottla.streams.errors import (
    CommitNotAllowed,
    ConnectError,
    DeliveryError,
    FileLimitExceeded,
    InvalidBeaconInterval,
    LatestButNotLive,
    NoWildcardInGroup,
    PositionOutOfRange,
    SameGroupSameMode,
    SeekOutOfRange,
    StreamEnded,
    TruncatedFile,
)
from ottla.streams.ss.encoder import Encoder, Entry
from ottla.streams.ss.format import HEADER_SIZE, Header
from ottla.streams.ss.reader import SsReader
from ottla.streams.ss.survey import find_end
from ottla.streams.ss.writer import SsWriter, runs
from ottla.streams.types import Message, Outgoing, Receipts
from tests.support.sizes import some
from tests.support.stream_files import LINUX, REPLAY, open_file, poll_never, replay, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

T = 1_700_000_000_000
FOLLOW = ConsumerOptions(reset=Reset.EARLIEST)


def three_streams(path: Path, count: int = 400) -> list[Message]:
    """A file of 3 streams and 2 shards with many beacons; what a linear scan gives."""
    chance = random.Random(50)
    encoder = Encoder(1024, HEADER_SIZE)
    last: dict[tuple[bytes, int], int] = {}
    for i in range(count):
        key, shard = chance.choice([b"a", b"bb", b"rare"][: 2 + (i % 50 == 0)]), chance.randrange(2)
        seq = last[key, shard] = last.get((key, shard), 0) + 1
        encoder.add(Entry(key, shard, seq, T + i // 3, bytes(chance.randrange(60))))
    path.write_bytes(Header(path.name, T, 1024).encode() + encoder.take())
    reader = SsReader(str(path))
    found = reader.read(count)
    while more := reader.read(count):
        found += more
    reader.close()
    return found


async def test_messages_come_back_in_order_and_survive_a_reopen(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    await write(path, [f"m{i}" for i in range(300)])
    await write(path, [f"m{i}" for i in range(300, 600)])
    found = await replay(path)
    assert [m.payload.decode() for m in found] == [f"m{i}" for i in range(600)]
    assert [m.seq for m in found] == list(range(1, 601))


async def test_d9_a_reopened_file_is_what_one_writer_would_have_made(tmp_path: Path) -> None:
    path, once = tmp_path / "x.ss", Encoder(1024, HEADER_SIZE)
    out = []
    for part in range(5):
        writer = SsWriter(str(path), FileOptions(create=Create.IF_MISSING, beacon_interval=1024))
        out += [Outgoing("a", bytes(part * 40 + 7), timestamp_ns=T * 1_000_000)] * 9
        writer.append(runs(out[-9:]))
        writer.close()
    for seq, message in enumerate(out, 1):
        once.add(Entry(b"a", 0, seq, T, message.payload))
    assert path.read_bytes()[HEADER_SIZE:] == once.take()


async def test_t09_cancelled_reads_of_a_growing_file_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(9)
    path = tmp_path / "x.ss"
    seen: list[int] = []
    async with (
        open_file(path) as streamer,
        streamer.consumer("a", options=FOLLOW) as consumer,
        streamer.producer("a") as producer,
    ):
        for number in range(1000):
            if number % 2:
                await producer.send(str(number))
            task = asyncio.create_task(consumer.next())
            await asyncio.sleep(chance.choice((0, 0, 0, 0.001)))
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                seen.append((await task).seq)
        while len(seen) < 500:
            seen.append((await consumer.next(5)).seq)
    assert seen == list(range(1, 501))


@pytest.mark.parametrize("live", [True, False])
async def test_t22_rewind_behind_the_end(tmp_path: Path, live: bool) -> None:
    path = tmp_path / "x.ss"
    await write(path, ["1", "2", "3"])
    options = FOLLOW if live else REPLAY
    async with open_file(path) as streamer, streamer.consumer("a", options=options) as consumer:
        assert (await consumer.next()).seq == 1
        if not live:
            with pytest.raises(SeekOutOfRange):
                await consumer.rewind(At(4))
            assert (await consumer.next()).seq == 2
            return
        await consumer.rewind(At(5))
        assert await consumer.batch(10, 0.02) == []
        await write(path, ["4", "5", "6"])
        assert (await consumer.next(5)).seq == 5


async def test_t20_rewind_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    await write(path, [str(i) for i in range(1, 101)])
    async with open_file(path) as streamer, streamer.consumer("a", options=FOLLOW) as consumer:
        for n in (50, 1, 100, 33):
            await consumer.rewind(At(n))
            assert (await consumer.next(5)).seq == n
        await consumer.rewind(BEGINNING)
        assert (await consumer.next(5)).seq == 1
        await consumer.rewind(END)
        assert await consumer.batch(1, 0.02) == []
        assert list((await consumer.lag()).values()) == [None]


def test_t50_d10_seeking_equals_a_linear_scan(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    found = three_streams(path)
    reader = SsReader(str(path))
    for stream, shard in sorted({(m.stream, m.shard) for m in found}):
        mine = [m for m in found if (m.stream, m.shard) == (stream, shard)]
        for target in mine:
            reader.to_seq(stream, shard, target.seq, wait=False)
            assert reader.read(1) == [target]
        with pytest.raises(SeekOutOfRange):
            reader.to_seq(stream, shard, mine[-1].seq + 1, wait=False)
        for moment in sorted({m.timestamp_ns for m in mine}):
            later = [m for m in mine if m.timestamp_ns > moment]
            if later:
                reader.to_time(stream, shard, moment, wait=False)
                assert reader.read(1) == [later[0]]
            else:
                with pytest.raises(SeekOutOfRange):
                    reader.to_time(stream, shard, moment, wait=False)
    reader.close()


async def test_t21_seek_delivers_a_later_millisecond(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    three_streams(path)
    async with open_file(path) as streamer, streamer.consumer("a", options=REPLAY) as consumer:
        everything = [m async for m in consumer]
        target = next(m for m in everything if m.shard == 0 and m.seq == 60)
        await consumer.seek(target.timestamp)
        first = await consumer.next()
        assert first.timestamp_ns > target.timestamp_ns
        assert first == next(
            m for m in everything if m.shard == 0 and m.timestamp_ns > target.timestamp_ns
        )


async def test_assigned_shards_are_a_filter_from_the_next_rewind(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    three_streams(path)
    async with (
        open_file(path) as streamer,
        streamer.consumer("a", "bb", options=REPLAY) as consumer,
    ):
        consumer.assign("bb", 1)
        await consumer.rewind(BEGINNING)
        assert {(m.stream, m.shard) async for m in consumer} == {("bb", 1)}


@pytest.mark.sampled
def test_t48_v7_cut_at_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # two thousand of them, and no power cut
    encoder = Encoder(1024, HEADER_SIZE)
    for i in range(50):
        encoder.add(Entry(b"hello", 1, i, T + i, b"hello-%d" % i))
    encoder.eos(T + 50)
    whole = Header("v.ss", T, 1024).encode() + encoder.take()
    assert len(whole) == 2502
    path = tmp_path / "v.ss"
    for size in some(range(len(whole) + 1), turn=0):
        path.write_bytes(whole[:size])
        found = read_cut(path, size)
        assert [m.seq for m in found] == list(range(len(found)))
        writer = SsWriter(str(path), FileOptions())
        [receipts] = writer.append(runs([Outgoing("hello", b"new", shard=1)]))
        writer.close()
        again = SsReader(str(path))
        both = read_all(again)
        again.check_whole()
        again.close()
        assert both[:-1] == found
        assert (both[-1].payload, both[-1].seq) == (b"new", len(found) if found else 1)
        assert isinstance(receipts, Receipts)
        assert receipts.nth(0).seq == both[-1].seq


def read_cut(path: Path, size: int) -> list[Message]:
    """What a bounded reader gives of a file that was cut, having complained if it must."""
    if size < HEADER_SIZE:
        with pytest.raises(TruncatedFile):
            SsReader(str(path))
        return []
    reader = SsReader(str(path))
    found = read_all(reader)
    if not reader.ended:
        if find_end(reader.survey()).offset == size:
            reader.check_whole()
        elif reader.offset != size:
            with pytest.raises(TruncatedFile):
                reader.check_whole()
    reader.close()
    return found


def read_all(reader: SsReader) -> list[Message]:
    found = []
    while more := reader.read(1000):
        found += more
    return found


async def test_t70_a_consumer_does_not_start_without_its_position(tmp_path: Path) -> None:
    path, store = tmp_path / "x.ss", LockFileOffsetStore(tmp_path / "offsets")
    await write(path, ["1", "2"])
    await store.save(OffsetKey("g", "a"), 2)
    (data,) = (tmp_path / "offsets").rglob("*.offset")
    data.write_bytes(b"")
    options = ConsumerOptions(mode=Mode.RESUMABLE, group="g", offsets=store)
    async with open_file(path) as streamer:
        with pytest.raises(OffsetCorrupt):
            await streamer.consumer("a", options=options).__aenter__()


async def test_t49_d12_appending_after_an_end_mark(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    await write(path, ["long " * 20], end_with_eos=True)
    assert path.read_bytes().endswith(b"EOS\xed\x7c\r")
    await write(path, [""])
    found = await replay(path)
    assert [m.payload for m in found] == [b"long " * 20, b""]
    assert b"EOS" not in path.read_bytes()


@LINUX
async def test_t52_the_watcher_tells_of_a_file_that_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll_never(monkeypatch)
    path = tmp_path / "x.ss"
    await write(path, ["first"])
    async with open_file(path) as streamer, streamer.consumer("a") as consumer:
        ending = asyncio.create_task(consumer.next(120))
        await asyncio.sleep(0.05)
        path.unlink()
        with pytest.raises(StreamEnded):
            await ending


async def test_t54_the_size_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    async with (
        open_file(path, file_size_limit=2048) as streamer,
        streamer.producer("a") as producer,
    ):
        await (await producer.send(bytes(1000)))
        refused = await producer.send(bytes(1000))
        with pytest.raises(FileLimitExceeded):
            await refused
        await (await producer.send(b"small"))
    assert [len(m.payload) for m in await replay(path)] == [1000, 5]
    async with open_file(path, file_size_limit=1024) as streamer:
        with pytest.raises(FileLimitExceeded, match="more than"):
            await streamer.producer("a").__aenter__()


GROUP = ConsumerOptions(mode=Mode.LOAD_BALANCED, group="g", auto_commit=AutoCommit.NEXT)


async def test_t55_groups_take_turns_and_a_leaver_leaves_its_share(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    async with (
        open_file(path) as streamer,
        streamer.producer("a") as producer,
        streamer.consumer("a", "b", options=GROUP) as one,
    ):
        two = await streamer.consumer("a", "b", options=GROUP).__aenter__()

        async def send(count: int) -> None:
            for stream in "ab":
                for _ in range(count):
                    await producer.send("x", stream=stream)
            await producer.flush()

        async def take(consumer: Consumer, count: int) -> list[tuple[str, int]]:
            taken: list[Message] = []
            while len(taken) < count:
                taken.append(await consumer.next(5))
            return sorted((m.stream, m.seq) for m in taken)

        await send(4)
        assert await take(one, 4) == [("a", 2), ("a", 4), ("b", 2), ("b", 4)]
        assert await take(two, 4) == [("a", 1), ("a", 3), ("b", 1), ("b", 3)]
        async with streamer.consumer("a", options=GROUP) as three:
            await send(2)
            assert await take(three, 1) == [("a", 5)]
            await take(one, 2)
            await take(two, 1)
        await send(2)
        await asyncio.sleep(0.05)
        await two.close()
        assert len(await take(one, 4)) == 4


async def test_t23_a_seek_detaches_from_the_group(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    await write(path, ["1", "2", "3"])
    async with open_file(path) as streamer, streamer.consumer("a", options=GROUP) as consumer:
        assert consumer.group == "g"
        await consumer.commit()
        await consumer.seek(datetime(2020, 1, 1, tzinfo=UTC))
        assert consumer.group is None
        with pytest.raises(CommitNotAllowed, match="group"):
            await consumer.commit()
        assert [m.seq for m in await consumer.batch(10, 5)] == [1, 2, 3]


async def test_t56_wildcards_and_wrong_options(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    await write(path, ["1"], end_with_eos=True)
    await write(path, ["2"], stream="b", end_with_eos=True)
    assert [(m.stream, m.payload) for m in await replay(path)] == [("a", b"1"), ("b", b"2")]
    async with open_file(path) as streamer:
        with pytest.raises(NoWildcardInGroup):
            streamer.consumer(WILDCARD, options=GROUP)
        with pytest.raises(LatestButNotLive):
            streamer.consumer("a", options=ConsumerOptions(file=FileOptions(follow=False)))
        async with streamer.consumer("a", options=GROUP):
            earliest = ConsumerOptions(mode=Mode.LOAD_BALANCED, group="g", reset=Reset.EARLIEST)
            with pytest.raises(SameGroupSameMode):
                streamer.consumer("a", options=earliest)
    with pytest.raises(ConnectError, match="if_missing"):
        await connect(f"file://{tmp_path}/none.ss").__aenter__()
    with pytest.raises(InvalidBeaconInterval):
        SsWriter(str(path), FileOptions(beacon_interval=1000))
    with pytest.raises(ConnectError, match="EXCLUSIVE"):
        SsWriter(str(path), FileOptions(create=Create.EXCLUSIVE))


def resumable(store: MemoryOffsetStore, **more: object) -> ConsumerOptions:
    return ConsumerOptions(
        mode=Mode.RESUMABLE,
        group="me",
        auto_commit=AutoCommit.DISABLED,
        offsets=store,
        **more,  # type: ignore[arg-type]  # options by name
    )


@LINUX
async def test_consumers_of_one_file_share_a_descriptor_and_a_thread(tmp_path: Path) -> None:
    """SeaStreamer shares the handle of consumers at the end; places are each one's own."""
    path = tmp_path / "x.ss"
    await write(path, [str(n) for n in range(3)])
    before = _open_files()
    async with contextlib.AsyncExitStack() as stack:
        streamer = await stack.enter_async_context(open_file(path))
        earliest = ConsumerOptions(reset=Reset.EARLIEST)
        consumers = [
            await stack.enter_async_context(streamer.consumer("a", options=options))
            for options in (None, None, None, earliest)
        ]
        # One for the file, one for the system's word on it.
        shared = Counter({str(path): 1, "anon_inode:inotify": 1})
        assert _open_files() - before == shared
        assert len(_readers()) == 1
        assert [(await consumers[3].next()).payload for _ in range(3)] == [b"0", b"1", b"2"]
        await consumers[0].rewind(At(2))
        assert (await consumers[0].next()).payload == b"1"
        assert _open_files() - before == shared
        await consumers[3].close()
        async with streamer.producer("a") as producer:
            await producer.send("3")
        assert [(await one.next()).payload for one in consumers[1:3]] == [b"3", b"3"]
    assert _open_files() - before == Counter()


@LINUX
async def test_a_file_that_takes_over_a_name_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    await write(path, ["old"])
    async with open_file(path) as streamer, streamer.consumer("a", options=REPLAY) as old:
        path.rename(tmp_path / "moved.ss")
        await write(path, ["new"])
        assert [message.payload for message in await replay(path)] == [b"new"]
        assert (await old.next()).payload == b"old"


def _open_files() -> Counter[str]:
    """What this process has open, by the names that the system has for it."""
    names: Counter[str] = Counter()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # of the listing itself
            names[str(link.readlink())] += 1
    return names


def _readers() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("ottla-file-reader")]


async def test_t57_resuming(tmp_path: Path) -> None:
    path, store = tmp_path / "x.ss", MemoryOffsetStore()
    await write(path, [str(i) for i in range(1, 101)])

    def session(**more: object) -> AbstractAsyncContextManager[Consumer]:
        return streamer.consumer("a", options=resumable(store, **more))

    async with open_file(path) as streamer:
        async with session() as consumer:
            for message in await consumer.batch(40, 5):
                if message.seq != 33:
                    consumer.ack(message)
            await consumer.commit()
        async with session() as consumer:
            taken = [await consumer.next(5)]
            while taken[-1].seq < 100:
                taken += await consumer.batch(100, 5)
            assert [m.seq for m in taken] == list(range(33, 101))
            for message in taken:
                consumer.ack(message)
            await consumer.commit()
            # After a rewind the store takes a lower position once.
            await consumer.rewind(At(10))
            consumer.ack(await consumer.next(5))
            assert list((await consumer.commit()).values()) == [11]
    path.unlink()
    await write(path, ["other"])
    async with open_file(path) as streamer:
        with pytest.raises(StaleOffset):
            await session().__aenter__()
        lenient = FileOptions(on_stale="earliest")
        async with session(file=lenient) as consumer:
            assert (await consumer.next(5)).payload == b"other"


async def test_t57_a_position_behind_the_end(tmp_path: Path) -> None:
    path, store = tmp_path / "x.ss", MemoryOffsetStore()
    await write(path, ["1", "2", "3"])
    async with (
        open_file(path) as streamer,
        streamer.consumer("a", options=resumable(store)) as consumer,
    ):
        for message in await consumer.batch(3, 5):
            consumer.ack(message)
        await consumer.commit()
    data = path.read_bytes()
    reader = SsReader(str(path))
    reader.to_seq("a", 0, 2, wait=False)
    path.write_bytes(data[: reader.offset])
    reader.close()
    async with open_file(path) as streamer:
        with pytest.raises(PositionOutOfRange):
            await streamer.consumer("a", options=resumable(store)).__aenter__()
        waiting = resumable(store, on_out_of_range="wait")
        async with streamer.consumer("a", options=waiting) as consumer:
            await write(path, ["2", "3", "4"])
            assert (await consumer.next(5)).payload == b"4"


async def test_t57_a_removed_file_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    await write(path, ["1", "2"])
    async with open_file(path) as streamer, streamer.consumer("a", options=FOLLOW) as consumer:
        assert (await consumer.next(5)).seq == 1
        path.unlink()
        assert (await consumer.next(5)).seq == 2
        with pytest.raises(StreamEnded):
            await consumer.next(5)


async def test_t47_a_bounded_reader_names_a_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    await write(path, ["1", "2"])
    os.truncate(path, path.stat().st_size - 1)
    async with open_file(path) as streamer, streamer.consumer("a", options=REPLAY) as consumer:
        assert (await consumer.next(5)).seq == 1
        with pytest.raises(TruncatedFile):
            await consumer.next(5)


async def test_a_follower_survives_the_repair_of_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    await write(path, ["1", "2" * 500])
    os.truncate(path, path.stat().st_size - 100)
    async with open_file(path) as streamer, streamer.consumer("a", options=FOLLOW) as consumer:
        assert (await consumer.next(5)).seq == 1
        await asyncio.sleep(0.02)
        await write(path, ["3", "4"])
        assert [(await consumer.next(5)).payload for _ in range(2)] == [b"3", b"4"]


async def test_explicit_timestamps_and_the_state_of_new_streams(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    await write(path, ["x" * 100] * 40)
    moment = datetime(2030, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    async with open_file(path) as streamer, streamer.producer() as producer:
        receipt = await (await producer.send(b"n", stream="new", shard=3, timestamp=moment))
        assert (receipt.shard, receipt.seq) == (3, 1)
    [found] = await replay(path, "new")
    assert found.timestamp == moment - timedelta(microseconds=456)


def test_a_shard_that_no_beacon_of_late_tells_of_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    options = FileOptions(create=Create.IF_MISSING, beacon_interval=1024)
    writer = SsWriter(str(path), options)
    writer.append(runs([Outgoing("old", b"1"), Outgoing("old", b"2")]))
    writer.append(runs([Outgoing(name, bytes(200)) for name in ["x", "y", "z"] * 10]))
    writer.close()
    writer = SsWriter(str(path), options)
    [receipts] = writer.append(runs([Outgoing("old", b"3")]))
    writer.close()
    assert isinstance(receipts, Receipts)
    assert receipts.nth(0).seq == 3


async def test_what_a_frame_cannot_hold_is_refused_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    async with open_file(path) as streamer, streamer.producer("a") as p:
        good = await p.send(b"1")
        early = await p.send(b"2", timestamp=datetime(1960, 1, 1, tzinfo=UTC))
        wide = await p.send(b"3", shard=2**64)
        later = await p.send(b"4")
        assert ((await good).seq, (await later).seq) == (1, 2)
        for refused in (early, wide):
            with pytest.raises(DeliveryError, match="from 1970 on"):
                await refused
    reader = SsReader(str(path))
    reader.to_start()
    assert [message.payload for message in reader.read(10)] == [b"1", b"4"]
    reader.close()


def test_a_failed_write_leaves_a_valid_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.ss"
    writer = SsWriter(str(path), FileOptions(create=Create.IF_MISSING, beacon_interval=1024))
    writer.append(runs([Outgoing("a", b"1")]))
    size = path.stat().st_size
    real: Callable[[int, memoryview, int], int] = os.pwrite

    def full(fd: int, data: memoryview, offset: int) -> int:
        monkeypatch.setattr(os, "pwrite", broken)
        return real(fd, data[:10], offset)

    def broken(fd: int, data: memoryview, offset: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        writer.append(runs([Outgoing("a", b"2")]))
    assert path.stat().st_size == size
    monkeypatch.setattr(os, "pwrite", real)
    [receipts] = writer.append(runs([Outgoing("a", b"3")]))
    writer.close()
    assert isinstance(receipts, Receipts)
    assert receipts.nth(0).seq == 2

"""The image on the loop: order, refusals, cancelling, watchers, and a store that waits."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from ottla.metadata.changes.apply import carry_out
from ottla.metadata.changes.configs import SetFeature
from ottla.metadata.changes.nodes import SetClusterId
from ottla.metadata.changes.topics import CreateTopic
from ottla.metadata.errors import StoreBusy, StoreUnavailable, TopicExists
from ottla.metadata.image import MetadataImage, random_topic_id
from ottla.metadata.metadata import Metadata
from ottla.metadata.producer_ids import ProducerIds
from ottla.metadata.stores.memory import MemoryMetadataStore
from ottla.metadata.stores.sqlite import SqliteMetadataStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.metadata.changes.apply import Change, Decision

AGES = 3600.0


class Gated:
    """A store in memory whose proposals go through one by one, when the test lets them."""

    def __init__(self) -> None:
        self.image = carry_out(MetadataImage(), [SetClusterId("c")])[1]
        self.gate = threading.Semaphore(0)
        self.began = threading.Semaphore(0)
        self.fails: Exception | None = None
        self.threads: set[int] = set()
        self.closed = False

    def snapshot(self) -> MetadataImage:
        return self.image

    def propose(self, *steps: Change | Decision, wait: float) -> MetadataImage:
        self.threads.add(threading.get_ident())
        self.began.release()
        self.gate.acquire()
        if self.fails is not None:
            raise self.fails
        self.image = carry_out(self.image, steps)[1]
        return self.image

    def poll(self) -> MetadataImage:
        self.threads.add(threading.get_ident())
        return self.image

    def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        self.threads.add(threading.get_ident())
        return make()

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed = True


async def opened(store: Gated) -> Metadata:
    return await Metadata.open(lambda: store, wait=AGES)


async def test_secrets_come_from_the_thread_of_the_store() -> None:
    store = Gated()
    metadata = await opened(store)
    assert await metadata.secret("s", lambda: b"made") == b"made"
    assert store.threads
    assert threading.get_ident() not in store.threads
    await metadata.close()


async def begun(store: Gated) -> None:
    """Until the store works on a proposal."""
    await asyncio.to_thread(store.began.acquire)


def feature(level: int) -> SetFeature:
    return SetFeature("f", level)


async def test_everything_is_asked_of_the_store_in_one_thread_that_is_not_the_loops() -> None:
    store = Gated()
    store.gate.release(2)
    metadata = await opened(store)
    await metadata.change(feature(1))
    await asyncio.gather(metadata.poll(), metadata.change(feature(2)))
    await metadata.close()
    assert store.closed
    assert len(store.threads) == 1
    assert threading.get_ident() not in store.threads


async def test_the_loop_goes_on_while_the_store_waits_and_the_image_moves_on_the_loop() -> None:
    store = Gated()
    metadata = await opened(store)
    before = metadata.image
    seen: list[int] = []
    metadata.watch(lambda _, after: seen.append(threading.get_ident()))
    proposal = asyncio.ensure_future(metadata.change(feature(1)))
    await begun(store)
    assert metadata.image is before
    store.gate.release()
    assert await proposal is metadata.image
    assert seen == [threading.get_ident()]
    await metadata.close()


async def test_each_proposal_gets_its_own_image_and_watchers_see_each_move_in_order() -> None:
    store = Gated()
    store.gate.release(5)
    metadata = await opened(store)
    moves: list[tuple[int, int]] = []
    metadata.watch(lambda before, after: moves.append((before.version, after.version)))
    images = await asyncio.gather(*(metadata.change(feature(level)) for level in range(1, 6)))
    assert [image.features["f"] for image in images] == [1, 2, 3, 4, 5]
    assert moves == [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
    await metadata.close()


async def test_watchers_have_run_when_change_returns() -> None:
    store = Gated()
    store.gate.release()
    metadata = await opened(store)
    seen: list[int] = []
    metadata.watch(lambda _, after: seen.append(after.version))
    image = await metadata.change(feature(1), feature(2))
    assert seen == [image.version] == [3]
    await metadata.close()


async def test_a_watcher_that_fails_keeps_neither_the_others_nor_the_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Gated()
    store.gate.release()
    metadata = await opened(store)
    seen: list[int] = []

    def fail(before: MetadataImage, after: MetadataImage) -> None:
        raise LookupError("no such partition")

    metadata.watch(fail)
    metadata.watch(lambda _, after: seen.append(after.version))
    await metadata.change(feature(1))
    assert seen == [2]
    assert metadata.image.version == 2
    assert "no such partition" in caplog.text
    assert "version 2" in caplog.text
    await metadata.close()


async def test_a_watch_ends() -> None:
    store = Gated()
    store.gate.release(2)
    metadata = await opened(store)
    seen: list[int] = []
    end = metadata.watch(lambda _, after: seen.append(after.version))
    await metadata.change(feature(1))
    end()
    await metadata.change(feature(2))
    assert seen == [2]
    await metadata.close()


@pytest.mark.parametrize("blocks", [True, False])
async def test_of_two_that_create_a_topic_one_is_refused(blocks: bool) -> None:
    metadata = await Metadata.open(MemoryMetadataStore, blocks=blocks)
    results = await asyncio.gather(
        *(metadata.change(CreateTopic("t", random_topic_id(), ((1,),))) for _ in range(2)),
        return_exceptions=True,
    )
    assert isinstance(results[0], MetadataImage)
    assert isinstance(results[1], TopicExists)
    assert metadata.image is results[0]
    await metadata.close()


async def test_a_store_that_never_blocks_needs_no_thread() -> None:
    before = threading.active_count()
    metadata = await Metadata.open(MemoryMetadataStore, blocks=False)
    seen: list[int] = []
    metadata.watch(lambda _, after: seen.append(after.version))
    first, second = await asyncio.gather(metadata.change(feature(1)), metadata.change(feature(2)))
    assert (first.features, second.features) == ({"f": 1}, {"f": 2})
    assert metadata.image is second is await metadata.poll()
    assert seen == [first.version, second.version]
    made = [await metadata.secret("key", lambda: b"first"), await metadata.secret("key", bytes)]
    assert made == [b"first", b"first"]
    assert threading.active_count() == before
    await metadata.close()
    with pytest.raises(StoreUnavailable):
        await metadata.change(feature(3))


async def test_a_failure_of_the_store_is_its_proposals_alone() -> None:
    store = Gated()
    metadata = await opened(store)
    store.fails = StoreUnavailable("a writable database", "disk full", "m.db")
    failing = asyncio.ensure_future(metadata.change(feature(1)))
    await begun(store)
    store.gate.release()
    with pytest.raises(StoreUnavailable, match="disk full"):
        await failing
    store.fails = None
    store.gate.release()
    assert (await metadata.change(feature(2))).features == {"f": 2}
    await metadata.close()


async def test_cancelling_the_caller_does_not_undo_what_is_committed() -> None:
    store = Gated()
    metadata = await opened(store)
    adopted: asyncio.Future[MetadataImage] = asyncio.get_running_loop().create_future()
    metadata.watch(lambda _, after: adopted.set_result(after))
    caller = asyncio.ensure_future(metadata.change(feature(1)))
    await begun(store)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    store.gate.release()
    assert (await adopted).features == {"f": 1}
    assert metadata.image.features == {"f": 1}
    await metadata.close()


async def test_a_proposal_whose_caller_left_before_its_turn_is_dropped() -> None:
    store = Gated()
    metadata = await opened(store)
    first = asyncio.ensure_future(metadata.change(feature(1)))
    await begun(store)
    second = asyncio.ensure_future(metadata.change(feature(2)))
    third = asyncio.ensure_future(metadata.change(SetFeature("g", 1)))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    store.gate.release(2)
    await first
    assert (await third).features == {"f": 1, "g": 1}
    await metadata.close()


async def test_close_comes_after_what_was_proposed_and_nothing_comes_after_close() -> None:
    store = Gated()
    metadata = await opened(store)
    proposal = asyncio.ensure_future(metadata.change(feature(1)))
    await begun(store)
    closing = asyncio.ensure_future(metadata.close())
    await asyncio.sleep(0)
    store.gate.release()
    await closing
    assert (await proposal).features == {"f": 1}
    assert store.closed
    with pytest.raises(StoreUnavailable, match="stopped"):
        await metadata.change(feature(2))
    await metadata.close()


async def test_a_store_that_nobody_waited_for_is_closed() -> None:
    store = Gated()
    may_open, was_closed = threading.Event(), threading.Event()
    store.close = was_closed.set  # type: ignore[method-assign]  # to be told of it

    def make() -> Gated:
        may_open.wait()
        return store

    opening = asyncio.ensure_future(Metadata.open(make))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    may_open.set()
    await asyncio.to_thread(was_closed.wait)


async def test_changes_of_another_process_are_adopted_by_poll(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    one = await Metadata.open(lambda: SqliteMetadataStore(path))
    other = await Metadata.open(lambda: SqliteMetadataStore(path))
    seen: list[int] = []
    one.watch(lambda _, after: seen.append(after.version))
    image = await other.change(feature(1))
    assert await one.poll() == image == one.image
    await one.poll()
    assert seen == [image.version]
    await one.close()
    await other.close()


async def test_a_decision_is_made_by_the_newest_image(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    nodes = [await Metadata.open(lambda: SqliteMetadataStore(path)) for _ in range(2)]

    def one_more(image: MetadataImage) -> list[Change]:
        return [feature(image.features.get("f", 0) + 1)]

    await asyncio.gather(*(node.change(one_more) for node in nodes for _ in range(20)))
    assert (await nodes[0].poll()).features == {"f": 40}
    for node in nodes:
        await node.close()


async def test_producer_ids_come_in_blocks_and_never_twice(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    nodes = [await Metadata.open(lambda: SqliteMetadataStore(path)) for _ in range(2)]
    sources = [ProducerIds(node, number, 10) for number, node in enumerate(nodes)]
    ids = await asyncio.gather(*(source.next() for _ in range(25) for source in sources))
    assert len(set(ids)) == 50
    # 25 ids of each are three blocks of each: those who wait at once share one proposal.
    assert (await nodes[0].poll()).next_producer_id == 60
    for node in nodes:
        await node.close()


async def test_all_who_wait_for_a_block_hear_of_its_failure_and_may_try_again() -> None:
    store = Gated()
    metadata = await opened(store)
    ids = ProducerIds(metadata, 1, 10)
    store.fails = StoreBusy("the write lock in time", "database is locked", "m.db")
    waiting = [asyncio.ensure_future(ids.next()) for _ in range(3)]
    await begun(store)
    store.gate.release()
    failed = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in failed] == [StoreBusy] * 3
    store.fails = None
    store.gate.release()
    assert await ids.next() == 0
    await metadata.close()

"""The consumer shell: states, delivery, acknowledgement, commit, redelivery, closing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from ottla.streams.consumer import Consumer
from ottla.streams.errors import (
    AckNotAllowed,
    CommitNotAllowed,
    ConfigError,
    ConnectError,
    ConsumerBusy,
    ConsumerClosed,
    SeekOutOfRange,
    ShardNotAssigned,
    StreamEnded,
    StreamError,
    StreamKeyEmpty,
    StreamKeyNotFound,
)
from ottla.streams.life import ConsumerState
from ottla.streams.producer import Producer, make_pipe
from ottla.streams.types import (
    At,
    AutoCommit,
    ConsumerOptions,
    Message,
    Mode,
    ProducerOptions,
    ShardKey,
)
from tests.support.list_source import ListDriver, ListSink, ListSource, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.base import Progress

A0 = ShardKey("a", 0)
RESUMABLE = ConsumerOptions(mode=Mode.RESUMABLE)


def make(source: ListSource, options: ConsumerOptions | None = None) -> Consumer:
    driver = ListDriver(source)

    def dead_letters() -> Producer:
        return Producer(lambda: make_pipe(driver.the_sink, ProducerOptions()))

    return Consumer(driver, source, ("a",), options or ConsumerOptions(), dead_letters=dead_letters)


def policy(auto_commit: AutoCommit, **more: object) -> ConsumerOptions:
    return ConsumerOptions(mode=Mode.RESUMABLE, auto_commit=auto_commit, **more)  # type: ignore[arg-type]  # options by name


async def until(true: Callable[[], bool], within: float = 60) -> None:
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110 - what is awaited has no event
            await asyncio.sleep(0.01)


async def test_t07_one_owner_at_a_time_and_nothing_after_close() -> None:
    consumer = make(ListSource(messages(3)))
    async with consumer:
        iterator = aiter(consumer)
        assert (await anext(iterator)).seq == 1
        assert consumer.state is ConsumerState.ITERATING
        for call in (consumer.next(), consumer.batch(1, 0), consumer.rewind(At(1))):
            with pytest.raises(ConsumerBusy):
                await call
        with pytest.raises(ConsumerBusy):
            aiter(consumer)
        with pytest.raises(ConsumerBusy):
            consumer.assign("a", 0)
        del iterator
        assert consumer.state.name == "READY"
        assert (await consumer.next()).seq == 2
    assert consumer.state.name == "CLOSED"
    calls: list[Callable[[], object]] = [
        lambda: aiter(consumer),
        lambda: consumer.assign("a", 0),
        lambda: consumer.unassign("a", 0),
        consumer.positions,
        lambda: consumer.ack(messages(1)[0]),
        lambda: consumer.nack(messages(1)[0]),
    ]
    for call_now in calls:
        with pytest.raises(ConsumerClosed):
            call_now()
    later = (
        consumer.next(),
        consumer.batch(1, 0),
        consumer.commit(),
        consumer.seek(datetime.now(UTC)),
        consumer.rewind(At(1)),
        consumer.lag(),
    )
    for awaitable in later:
        with pytest.raises(ConsumerClosed):
            await awaitable
    await consumer.close()


async def test_a_loop_that_is_cancelled_gives_the_consumer_back() -> None:
    source = ListSource([])

    async def read() -> None:
        async for _ in consumer:
            pass

    async with make(source) as consumer:
        task = asyncio.create_task(read())
        await until(lambda: consumer.state is ConsumerState.ITERATING)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:  # keeps the traceback
            await task
        assert consumer.state is ConsumerState.READY
        with pytest.raises(TimeoutError) as expired:
            await asyncio.wait_for(read(), 0.01)
        source.add(messages(3))
        assert (await consumer.next(5)).seq == 1
        async for message in consumer:
            assert message.seq == 2
            break
        del cancelled, expired


async def test_an_iterator_whose_wait_was_cancelled_owns_the_consumer_when_it_is_asked_again() -> (
    None
):
    source = ListSource([])
    async with make(source) as consumer:
        iterator = aiter(consumer)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(iterator), 0.01)
        other = aiter(consumer)
        with pytest.raises(ConsumerBusy):
            await anext(iterator)
        del other
        source.add(messages(1))
        assert (await anext(iterator)).seq == 1
        with pytest.raises(ConsumerBusy):
            await consumer.next()


async def test_t08_ten_tasks_share_a_thousand_messages() -> None:
    async with make(ListSource(messages(1000), ends=True, chunk=7)) as consumer:
        seen: list[int] = []

        async def read() -> None:
            while True:
                try:
                    seen.append((await consumer.next()).seq)
                except StreamEnded:
                    return
                await asyncio.sleep(0)

        await asyncio.gather(*(read() for _ in range(10)))
        assert sorted(seen) == list(range(1, 1001))
        assert consumer.state is ConsumerState.ENDED


async def test_t09_cancelled_next_loses_nothing() -> None:
    chance = random.Random(9)
    source = ListSource([], chunk=3)
    seen: list[int] = []
    async with make(source) as consumer:
        written = 0
        for _ in range(1000):
            task = asyncio.create_task(consumer.next(chance.choice((None, 0.0005))))
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                source.add(messages(1, first=written + 1))
                written += 1
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                seen.append((await task).seq)
        while len(seen) < written:
            seen.append((await consumer.next(5)).seq)
    assert seen == list(range(1, written + 1))


async def test_t12_next_redelivers_what_the_loop_failed_on_and_acks_the_last() -> None:
    source = ListSource(messages(5), ends=True)

    async def work() -> None:
        async with make(source, RESUMABLE) as consumer:
            async for message in consumer:
                if message.seq == 3:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert source.commits[-1].positions == {A0: 3}
    source = ListSource(messages(5), ends=True)
    async with make(source, RESUMABLE) as consumer:
        assert [m.seq async for m in consumer] == [1, 2, 3, 4, 5]
    assert source.commits[-1].positions == {A0: 6}


async def test_t15_delayed_and_immediate_refuse_ack_and_real_time_refuses_commit() -> None:
    source = ListSource(messages(3))
    options = policy(AutoCommit.DELAYED, auto_commit_delay=3600)
    async with make(source, options) as consumer:
        await consumer.next()
        with pytest.raises(AckNotAllowed):
            consumer.ack(messages(1)[0])
        assert await consumer.commit() == {}
        await consumer.next()
    # What the reader moved past is flushed at the end, the last message is not.
    assert [c.positions for c in source.commits] == [{A0: 2}]

    source = ListSource(messages(3))
    async with make(source, policy(AutoCommit.IMMEDIATE)) as consumer:
        assert source.fetches == 0, "no prefetch"
        message = await consumer.next()
        with pytest.raises(AckNotAllowed):
            consumer.ack(message)
        assert source.at == 1
        assert [c.positions for c in source.commits] == [{A0: 2}], "before it was handed out"
        assert await consumer.commit() == {A0: 2}
        source.fail_commit = StreamError("no")
        with pytest.raises(StreamError, match="no"):
            await consumer.next()
        assert consumer.state is ConsumerState.FAILED
        source.fail_commit = None
    assert [c.positions for c in source.commits] == [{A0: 2}], "what nobody saw is not passed"

    async with make(ListSource(messages(3))) as consumer:
        with pytest.raises(CommitNotAllowed, match="RESUMABLE"):
            await consumer.commit()


async def test_t15_delayed_acks_after_the_delay() -> None:
    source = ListSource(messages(3))
    async with make(source, policy(AutoCommit.DELAYED, auto_commit_delay=0)) as consumer:
        await consumer.batch(2, 1)
        assert await consumer.commit() == {A0: 3}


async def test_t16_a_rolling_commit_lands_on_an_idle_stream() -> None:
    source = ListSource(messages(2))
    async with make(source, policy(AutoCommit.ROLLING, auto_commit_interval=0.05)) as consumer:
        consumer.ack(await consumer.next())
        await until(lambda: bool(source.commits), within=60)
        assert source.commits[0].positions == {A0: 2}


async def test_commit_every_n() -> None:
    source = ListSource(messages(10))
    options = policy(AutoCommit.ROLLING, auto_commit_interval=3600, commit_every=3)
    async with make(source, options) as consumer:
        for _ in range(3):
            consumer.ack(await consumer.next())
        await until(lambda: bool(source.commits))
        assert source.commits[0].positions == {A0: 4}


async def test_t17_what_closing_commits() -> None:
    source = ListSource(messages(5))
    async with make(source, policy(AutoCommit.DISABLED)) as consumer:
        consumer.ack(await consumer.next())
    assert source.commits == []

    # A clean end says that what was given last is done, an error that it is not.
    source = ListSource(messages(5))
    async with make(source, RESUMABLE) as consumer:
        for _ in range(3):
            await consumer.next()
    assert source.commits[-1].positions == {A0: 4}
    source = ListSource(messages(5))
    consumer = make(source, RESUMABLE)
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the consumer sees the error
        async with consumer:
            await consumer.batch(2, 1)
            await consumer.batch(2, 1)
            raise ZeroDivisionError
    assert source.commits[-1].positions == {A0: 3}


async def test_under_next_a_commit_covers_what_the_committing_task_holds() -> None:
    source = ListSource(messages(9))
    async with make(source, policy(AutoCommit.NEXT, auto_commit_interval=3600)) as consumer:
        assert len(await consumer.batch(5, 1)) == 5
        assert await consumer.commit() == {A0: 6}
        await consumer.batch(2, 1)
        # Another task cannot know whether the batch is done.
        assert await asyncio.create_task(consumer.commit()) == {A0: 6}


async def test_under_next_a_clean_close_covers_the_last_batch_and_an_exception_does_not() -> None:
    source = ListSource(messages(9))
    async with make(source, policy(AutoCommit.NEXT, auto_commit_interval=3600)) as consumer:
        assert len(await consumer.batch(5, 1)) == 5
    assert [commit.positions for commit in source.commits] == [{A0: 6}]
    source = ListSource(messages(9))
    with pytest.raises(ZeroDivisionError):
        await _fail_in_a_batch(make(source, policy(AutoCommit.NEXT, auto_commit_interval=3600)))
    assert source.commits == []


async def _fail_in_a_batch(opening: Consumer) -> None:
    async with opening as consumer:
        await consumer.batch(5, 1)
        1 / 0  # noqa: B018


async def test_under_next_a_second_task_cannot_mark_the_message_of_the_first_as_done() -> None:
    source = ListSource(messages(9))
    async with make(source, policy(AutoCommit.NEXT, auto_commit_interval=3600)) as consumer:
        working, go_on = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            assert (await consumer.next()).seq == 1
            working.set()
            await go_on.wait()
            assert (await consumer.next()).seq == 2

        task = asyncio.create_task(first())
        await working.wait()
        assert len(consumer._queue) > 1  # there is no need to wait, which was the only check
        with pytest.raises(ConfigError, match="another one holds a message"):
            await consumer.next()
        assert consumer.positions() == {}
        go_on.set()
        await task
        # A task that has ended holds nothing: asyncio.wait_for makes one for each call.
        assert (await asyncio.wait_for(consumer.next(), 5)).seq == 3
        assert (await asyncio.wait_for(consumer.next(), 5)).seq == 4


@pytest.mark.parametrize("kind", [AutoCommit.NEXT, AutoCommit.ROLLING, AutoCommit.DISABLED])
async def test_t17_drain_waits_for_the_running_handler(kind: AutoCommit) -> None:
    source = ListSource(messages(5))
    consumer = make(source, policy(kind, auto_commit_interval=3600))
    await consumer.__aenter__()
    working, go_on = asyncio.Event(), asyncio.Event()

    async def handler() -> None:
        async for message in consumer:
            working.set()
            await go_on.wait()
            if kind is not AutoCommit.NEXT:
                consumer.ack(message)
            if kind is AutoCommit.DISABLED:
                await consumer.commit()

    task = asyncio.create_task(handler())
    await working.wait()
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0.02)
    assert not closing.done()
    go_on.set()
    await closing
    with pytest.raises(ConsumerClosed):
        await task
    assert source.commits[-1].positions == {A0: 2}


async def test_t18_nack_redelivers_then_buries() -> None:
    source = ListSource(messages(2))
    options = policy(AutoCommit.ROLLING, max_deliveries=2, dead_letter="graves")
    consumer = make(source, options)
    async with consumer:
        first = await consumer.next()
        consumer.nack(first)
        second = await consumer.next()
        again = await consumer.next()
        assert (again.seq, again.delivery, second.seq) == (1, 2, 2)
        consumer.ack(second)
        assert consumer.positions() == {A0: 1}
        consumer.nack(again.id)
        await until(lambda: consumer.positions() == {A0: 3})
        assert consumer._again._dead_letters is not None
        sink = consumer._again._dead_letters._pipe().sink
        assert isinstance(sink, ListSink)
        [letter] = sink.taken
        assert (letter.stream, letter.payload) == ("graves", b"1")
        assert dict(letter.headers)["ottla-seq"] == b"1"


async def test_t19_assignment() -> None:
    async with make(ListSource([])) as consumer:
        with pytest.raises(StreamKeyNotFound):
            consumer.assign("b", 0)
        with pytest.raises(ShardNotAssigned):
            consumer.unassign("a", 0)
        consumer.assign("a", 0)
        with pytest.raises(StreamKeyEmpty):
            consumer.unassign("a", 0)
        consumer.assign("a", 1)
        consumer.unassign("a", 0)
        with pytest.raises(StreamKeyEmpty):
            consumer.unassign("a", 1)


async def test_t20_rewind_discards_the_queue_and_commits_nothing() -> None:
    source = ListSource(messages(50), chunk=10)
    async with make(source, policy(AutoCommit.DISABLED)) as consumer:
        for _ in range(20):
            consumer.ack(await consumer.next())
        await consumer.rewind(At(7))
        assert [m.seq for m in await consumer.batch(3, 1)] == [7, 8, 9]
        assert consumer.positions() == {A0: 7}
    assert source.commits == []


async def test_a_failed_rewind_keeps_the_old_position() -> None:
    async with make(ListSource(messages(50), chunk=10)) as consumer:
        assert (await consumer.next()).seq == 1
        with pytest.raises(SeekOutOfRange):
            await consumer.rewind(At(999))
        assert (await consumer.next()).seq == 2


async def test_a_cancelled_rewind_finishes_in_the_background() -> None:
    async with make(ListSource(messages(50))) as consumer:
        await consumer.next()
        task = asyncio.create_task(consumer.rewind(At(30)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert consumer.state is ConsumerState.SEEKING
        assert (await consumer.next(1)).seq == 30


async def test_a_rewind_revives_an_ended_consumer() -> None:
    async with make(ListSource(messages(2), ends=True)) as consumer:
        assert [m.seq async for m in consumer] == [1, 2]
        with pytest.raises(StreamEnded):
            await consumer.next()
        await consumer.rewind(At(2))
        assert (await consumer.next()).seq == 2


async def test_a_failed_source_fails_every_call() -> None:
    source = ListSource(messages(2))
    async with make(source) as consumer:
        await consumer.batch(2, 1)
        source.fail_fetch = ConnectError("gone")
        for _ in range(2):
            with pytest.raises(ConnectError, match="gone"):
                await consumer.next()
        assert consumer.state is ConsumerState.FAILED
        with pytest.raises(ConnectError):
            await consumer.lag()
    assert source.closed


async def test_a_failed_commit_reaches_the_next_caller_and_is_tried_again() -> None:
    class FailsOnce(ListSource):
        async def commit(self, progress: Progress) -> None:
            try:
                await super().commit(progress)
            finally:
                self.fail_commit = None

    source = FailsOnce(messages(5))
    async with make(source, policy(AutoCommit.ROLLING, auto_commit_interval=0.01)) as consumer:
        source.fail_commit = ConnectError("no disk")
        consumer.ack(await consumer.next())
        await until(lambda: bool(source.commits))
        with pytest.raises(ConnectError, match="no disk"):
            await consumer.next()
        assert await consumer.commit() == {A0: 2}


async def test_an_automatic_commit_survives_any_error(caplog: pytest.LogCaptureFixture) -> None:
    source = ListSource(messages(5))
    async with make(source, policy(AutoCommit.ROLLING, auto_commit_interval=0.01)) as consumer:
        source.fail_commit = sqlite3.OperationalError("disk I/O error")
        consumer.ack(await consumer.next())
        await until(lambda: "an automatic commit failed" in caplog.text)
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            await consumer.next()
        source.fail_commit = None
        await until(lambda: bool(source.commits))  # without being asked
        assert source.commits[-1].positions == {A0: 2}


async def test_two_readers_under_next_are_refused() -> None:
    async with make(ListSource([]), RESUMABLE) as consumer:
        waiting = asyncio.create_task(consumer.next())
        await asyncio.sleep(0)
        with pytest.raises(ConfigError, match="ROLLING"):
            await consumer.next()
        waiting.cancel()


async def test_what_is_fetched_ahead_is_bounded_in_bytes() -> None:
    large = [one._replace(payload=bytes(1000)) for one in messages(500)]
    source = ListSource(large, chunk=10)
    async with make(source, ConsumerOptions(prefetch_bytes=25_000)) as consumer:
        await until(lambda: source.fetches >= 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert source.at == 30  # the third fetch passed the limit, there is no fourth
        for number in range(500):
            assert (await consumer.next(5)).seq == number + 1
            assert len(consumer._queue) <= 35
    tiny = ListSource(messages(3), chunk=1)
    async with make(tiny, ConsumerOptions(prefetch_bytes=1)) as consumer:
        # A message that is larger than the limit comes alone.
        assert [(await consumer.next(5)).seq for _ in range(3)] == [1, 2, 3]


async def test_what_waits_to_be_sent_is_bounded_in_bytes() -> None:
    sink = ListSink()
    sink.gate.clear()
    pipe = make_pipe(sink, ProducerOptions(max_pending_bytes=2500))
    async with Producer(lambda: pipe, "a") as producer:
        for _ in range(3):
            await producer.send(bytes(1000))
        fourth = asyncio.create_task(producer.send(bytes(1000)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not fourth.done()
        sink.gate.set()
        await (await fourth)
        await producer.flush()
    assert len(sink.taken) == 4


async def test_revoked_shards_settle_commit_and_are_forgotten() -> None:
    source = ListSource([*messages(2), *messages(2, shard=1)])
    async with make(source, policy(AutoCommit.ROLLING, auto_commit_interval=3600)) as consumer:
        first = await consumer.next()
        assert source.host is not None
        revoking = asyncio.create_task(source.host.revoke([A0], lost=False, within=5))
        await asyncio.sleep(0.01)
        assert not revoking.done()
        consumer.ack(first)
        await revoking
        assert source.commits[-1].positions == {A0: 2}
        consumer.ack(first)
        assert consumer.dropped_acks == 1
        assert (await consumer.next()).shard == 1
        await source.host.revoke([ShardKey("a", 1)], lost=True, within=5)
        assert consumer.positions() == {}


async def test_entries_are_committed_one_by_one_and_again_after_a_failure() -> None:
    class Entries(ListSource):
        per_entry = True

    source = Entries(messages(4))
    async with make(source, policy(AutoCommit.DISABLED)) as consumer:
        batch: list[Message] = await consumer.batch(4, 1)
        consumer.ack(batch[2])
        consumer.ack(batch[0])
        source.fail_commit = ConnectError("down")
        with pytest.raises(ConnectError):
            await consumer.commit()
        source.fail_commit = None
        await consumer.commit()
        assert source.commits[-1].acked == [batch[2].id, batch[0].id]


async def test_a_store_that_redelivers_gets_the_nacks() -> None:
    class Sharing(ListSource):
        per_entry = True
        redelivers = True

    source = Sharing(messages(2))
    async with make(source, policy(AutoCommit.ROLLING, auto_commit_interval=3600)) as consumer:
        first = await consumer.next()
        consumer.nack(first)
        await until(lambda: bool(source.commits))
        assert source.commits[0].released == [first.id]


async def test_lag_counts_from_what_is_done() -> None:
    async with make(ListSource(messages(10)), policy(AutoCommit.ROLLING)) as consumer:
        consumer.ack(await consumer.next())
        assert await consumer.lag() == {A0: 9}


async def test_t79_closing_and_seeking_leave_the_store_untouched() -> None:
    source = ListSource(messages(10))
    async with make(source, policy(AutoCommit.DISABLED)) as consumer:
        await consumer.batch(5, 1)
        await consumer.rewind(At(2))
        await consumer.batch(5, 1)
    assert source.commits == []


async def test_a_commit_that_fails_after_its_caller_went_away_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = ListSource(messages(1))
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(progress: Progress) -> None:
        begun.set()
        await go_on.wait()
        raise StreamError("down")

    unheard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: unheard.append(what))
    async with make(source, policy(AutoCommit.DISABLED)) as consumer:
        consumer.ack(await consumer.next(1))
        monkeypatch.setattr(source, "commit", slowly)
        committing = asyncio.create_task(consumer.commit())
        await begun.wait()
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        go_on.set()
        await until(lambda: "caller was cancelled failed: down" in caplog.text)
    gc.collect()
    assert unheard == []


async def test_a_consumer_is_opened_once() -> None:
    """A second opening would leave the first connection behind."""
    source = ListSource(messages(2))
    consumer = make(source)
    async with consumer:
        with pytest.raises(ConsumerBusy, match="open already"):
            await consumer.__aenter__()
        assert (await consumer.next(1)).seq == 1
    with pytest.raises(ConsumerClosed, match="make another one"):
        await consumer.__aenter__()

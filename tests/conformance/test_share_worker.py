"""Work queues: `share_worker` and `ShareWorker`, and the renewal of locks that they rest on."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from ottla import ShareWorker
from ottla.errors import BadArgument, UnknownVerdict, WrongAckMode
from tests.support.share_member import LOCK_MS
from tests.support.share_place import PATIENCE, Place, numbers, poll_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.client.share.types import Acknowledged, ShareRecord
    from ottla.client.share.worker import WorkerCounts

IDLE = 1.0


def worker_of(place: Place, fn: Callable[[ShareRecord], object], **options: Any) -> Any:
    options = {"auto_offset_reset": "earliest", "max_wait": 0.05, "idle_timeout": IDLE, **options}
    return ShareWorker(fn, place.bootstrap, group=place.group, topics=[place.topic], **options)


async def left_over(place: Place) -> list[int]:
    """What a group still has to do."""
    async with place.consumer() as consumer:
        return numbers(await consumer.poll(timeout=0.5))


async def test_each_record_is_handled_once_and_so_many_at_a_time(place: Place) -> None:
    await place.produce(*range(100))
    seen: list[int] = []
    running = most = 0

    async def handle(record: ShareRecord) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        seen.append(int(record.value or b""))
        if len(seen) == 100:
            worker.stop()

    worker = worker_of(place, handle, concurrency=4, idle_timeout=PATIENCE)
    counts: WorkerCounts = await worker.run()
    assert sorted(seen) == list(range(100))
    assert 1 < most <= 4
    assert (counts.handled, counts.accepted, counts.failed) == (100, 100, 0)
    assert await left_over(place) == []


async def test_plain_functions_run_in_threads(own: Place) -> None:
    await own.produce(*range(8))
    together = threading.Barrier(4)

    def handle(_: ShareRecord) -> None:
        together.wait(PATIENCE)

    counts = await worker_of(own, handle, concurrency=4).run()
    assert (counts.handled, counts.accepted) == (8, 8)


@pytest.mark.parametrize("on_error", ["release", "reject"])
async def test_a_call_that_raises(
    own: Place, on_error: str, caplog: pytest.LogCaptureFixture
) -> None:
    await own.produce(*range(5))
    attempts: list[tuple[int, int]] = []

    def handle(record: ShareRecord) -> None:
        attempts.append((record.offset, record.delivery_count))
        if record.offset == 3 and record.delivery_count == 1:
            raise RuntimeError("not now")

    with caplog.at_level(logging.CRITICAL, "ottla.client.share.worker"):
        counts = await worker_of(own, handle, on_error=on_error).run()
    assert counts.failed == 1
    assert (counts.released, counts.rejected) == ((1, 0) if on_error == "release" else (0, 1))
    again = [(3, 2)] if on_error == "release" else []
    assert sorted(attempts) == sorted([(offset, 1) for offset in range(5)] + again)
    assert await left_over(own) == []


async def test_a_bare_next_in_a_plain_function_is_a_failed_call(
    own: Place, caplog: pytest.LogCaptureFixture
) -> None:
    await own.produce(0)
    nothing: list[int] = []

    def handle(_: ShareRecord) -> None:
        next(iter(nothing))

    async with asyncio.timeout(PATIENCE):
        counts = await worker_of(own, handle, on_error="reject").run()
    assert (counts.failed, counts.rejected) == (1, 1)
    assert "the handler raised StopIteration" in caplog.text


@pytest.mark.parametrize("raised", [asyncio.CancelledError, SystemExit])
async def test_what_ends_a_task_is_a_failed_call(
    own: Place, raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a cancelled task that a handler waits for: it counts, and is tried again later."""
    await own.produce(0)

    async def handle(record: ShareRecord) -> None:
        if record.delivery_count == 1:
            raise raised

    async with asyncio.timeout(PATIENCE):
        counts = await worker_of(own, handle).run()
    assert (counts.failed, counts.released, counts.accepted) == (1, 1, 1)
    assert f"the handler raised {raised.__name__}()" in caplog.text


async def test_a_call_can_decide(own: Place) -> None:
    await own.produce(*range(4))

    async def handle(record: ShareRecord) -> object:
        if record.delivery_count > 1:
            return None
        return ["accept", "release", "reject", None][record.offset]

    counts = await worker_of(own, handle).run()
    assert (counts.accepted, counts.released, counts.rejected) == (3, 1, 1)


@pytest.mark.parametrize("said", ["rejected", False, 1])
async def test_what_is_no_verdict_is_a_failure(
    own: Place, said: object, caplog: pytest.LogCaptureFixture
) -> None:
    await own.produce(0)
    with caplog.at_level(logging.ERROR, "ottla.client.share.worker"):
        counts = await worker_of(own, lambda _: said, on_error="reject").run()
    assert (counts.handled, counts.failed, counts.accepted, counts.rejected) == (0, 1, 0, 1)
    [line] = caplog.records
    assert line.getMessage() == f"handler failed for {own.topic}-0 offset 0; rejected"
    assert line.exc_info is not None
    assert isinstance(line.exc_info[1], UnknownVerdict)
    assert 'return None, "accept", "release" or "reject"' in str(line.exc_info[1])


async def test_others_hear_of_acknowledgements_too(own: Place) -> None:
    await own.produce(*range(3))
    heard: list[Acknowledged] = []
    counts = await worker_of(own, lambda _: None, on_acknowledge=heard.append).run()
    assert counts.accepted == 3
    assert sum(one.last_offset - one.first_offset + 1 for one in heard) == 3


@pytest.mark.long("waits for four retries, 18 seconds in all")
async def test_a_record_that_always_fails_is_retried_later_and_given_up(
    own: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays locked while it waits, longer each time than a lock lasts: no delivery is lost."""
    await own.set_lock(LOCK_MS)
    await own.produce(0, 1)
    loop = asyncio.get_running_loop()
    calls: list[tuple[int, float]] = []

    async def handle(record: ShareRecord) -> None:
        if record.offset == 0:
            calls.append((record.delivery_count, loop.time()))
            raise RuntimeError("never")

    first = 1.2 * LOCK_MS / 1000
    with caplog.at_level(logging.ERROR, "ottla.client.share.worker"):
        counts = await worker_of(own, handle, concurrency=1, retry_delay=first).run()
    assert [count for count, _ in calls] == [1, 2, 3, 4, 5]
    waits = [b[1] - a[1] for a, b in pairwise(calls)]
    assert all(wait >= first * 2**n for n, wait in enumerate(waits)), waits
    assert (counts.failed, counts.given_up, counts.accepted, counts.unconfirmed) == (5, 1, 1, 0)
    assert caplog.records[-1].getMessage() == f"gave up {own.topic}-0 offset 0 after 5 deliveries"
    assert await left_over(own) == []


async def test_records_that_wait_do_not_take_the_place_of_others(own: Place) -> None:
    await own.produce(*range(20))
    seen: list[int] = []

    async def handle(record: ShareRecord) -> None:
        if record.offset < 10:
            raise RuntimeError("not now")
        seen.append(record.offset)
        if len(seen) == 10:
            worker.stop()

    worker = worker_of(own, handle, concurrency=1, retry_delay=PATIENCE, idle_timeout=PATIENCE)
    counts = await asyncio.wait_for(worker.run(), PATIENCE)
    assert seen == list(range(10, 20))
    # What waited went back when the worker ended.
    assert (counts.accepted, counts.released) == (10, 10)
    assert await left_over(own) == list(range(10))


async def test_a_new_group_is_told_where_it_starts(
    own: Place, caplog: pytest.LogCaptureFixture
) -> None:
    def worker(**options: Any) -> ShareWorker:
        return ShareWorker(
            print, own.bootstrap, group=own.group, topics=[own.topic], idle_timeout=0.01, **options
        )

    await worker().run()
    [line] = [one.getMessage() for one in caplog.records if "is new" in one.getMessage()]
    assert 'starts at latest: pass auto_offset_reset="earliest"' in line
    caplog.clear()
    await worker(auto_offset_reset="earliest").run()
    assert not [one for one in caplog.records if "is new" in one.getMessage()]


@pytest.mark.long
async def test_locks_last_as_long_as_a_call(place: Place) -> None:
    await place.set_lock(LOCK_MS)
    await place.produce(*range(3))
    seen: list[int] = []

    async def handle(record: ShareRecord) -> None:
        seen.append(record.delivery_count)
        await asyncio.sleep(2.5 * LOCK_MS / 1000)

    counts = await worker_of(place, handle, concurrency=3, idle_timeout=3 * IDLE).run()
    assert seen == [1, 1, 1]
    assert (counts.accepted, counts.unconfirmed) == (3, 0)


async def test_stopping_waits_for_calls_and_takes_nothing_more(own: Place) -> None:
    await own.produce(*range(20))
    seen: list[int] = []

    async def handle(record: ShareRecord) -> None:
        worker.stop()
        await asyncio.sleep(0.05)
        seen.append(record.offset)

    worker = worker_of(own, handle, concurrency=2)
    counts = await worker.run()
    assert counts.accepted == counts.handled == len(seen) <= 2
    assert sorted(await left_over(own) + seen) == list(range(20))


@pytest.mark.parametrize("twice", [True, False])
async def test_calls_that_take_too_long_are_given_up(own: Place, *, twice: bool) -> None:
    await own.produce(0)

    async def handle(_: ShareRecord) -> None:
        worker.stop()
        if twice:
            worker.stop()
        await asyncio.sleep(PATIENCE)

    worker = worker_of(own, handle, drain_timeout=PATIENCE if twice else 0.1)
    counts = await asyncio.wait_for(worker.run(), PATIENCE)
    assert (counts.handled, counts.accepted, counts.released) == (0, 0, 1)
    async with own.consumer() as consumer:
        [again] = await poll_until(consumer, 1)
        assert again.delivery_count == 2


STUCK = """
import sys, ottla, time
def handle(record):
    print("working", flush=True)
    time.sleep(600)
print(ottla.share_worker(handle, sys.argv[1], group=sys.argv[2], topics=[sys.argv[3]],
                         auto_offset_reset="earliest", concurrency=2, drain_timeout=0.2))
"""


async def test_a_call_that_is_stuck_does_not_hold_the_process(own: Place) -> None:
    await own.produce(0)
    process = await launched(STUCK, own)
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE) == b"working\n"
        process.send_signal(signal.SIGTERM)
        said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0
    assert b"handled=0" in said
    assert b"released=1" in said


async def launched(code: str, place: Place) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        place.bootstrap,
        place.group,
        place.topic,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


WORKER = """
import sys, ottla, time
def handle(record):
    sys.stdout.write(f"{record.offset}\\n")  # in one piece: there are two threads
    sys.stdout.flush()
    time.sleep(0.2)
print(ottla.share_worker(handle, sys.argv[1], group=sys.argv[2], topics=[sys.argv[3]],
                         auto_offset_reset="earliest", concurrency=2))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_drain_a_process(own: Place, number: signal.Signals) -> None:
    await own.produce(*range(50))
    process = await launched(WORKER, own)
    assert process.stdout is not None
    try:
        first = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        process.send_signal(number)
        rest, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0
    *more, summary = (first + rest).decode().splitlines()
    started = {int(line) for line in more}
    assert f"accepted={len(started)}," in summary
    assert sorted([*started, *await left_over(own)]) == list(range(50))


async def test_what_cannot_be(own: Place) -> None:
    with pytest.raises(BadArgument, match="concurrency: expected 1 or more"):
        worker_of(own, print, concurrency=0)
    with pytest.raises(BadArgument, match="a worker needs some"):
        ShareWorker(print, own.bootstrap, group="g", topics=[])
    for option in ("ack_mode", "auto_renew"):
        with pytest.raises(BadArgument, match=f"{option}: a worker decides .*; leave it out"):
            worker_of(own, print, **{option: "implicit"})
    with pytest.raises(ValueError, match="on_error: expected one of release, reject"):
        worker_of(own, print, on_error="accept")
    async with own.consumer() as consumer:
        with pytest.raises(WrongAckMode, match="explicit"):
            await consumer.take(1)


# Renewed at its half: a machine that stands still for a second must not end it.
SLOW_LOCK_MS = 2500


@pytest.mark.long
async def test_a_slow_reader_keeps_its_records(place: Place) -> None:
    """Automatic renewal without a worker: by iteration, of which most records wait."""
    await place.set_lock(SLOW_LOCK_MS)
    await place.produce(*range(4))
    heard: list[Acknowledged] = []
    began = time.monotonic()
    async with place.consumer(auto_renew=True, on_acknowledge=heard.append) as consumer:
        async for record in consumer:
            assert record.delivery_count == 1
            await asyncio.sleep(0.6 * SLOW_LOCK_MS / 1000)
            if record.offset == 3:
                break
    assert time.monotonic() - began > 2 * SLOW_LOCK_MS / 1000
    assert {(one.kind, one.error) for one in heard} == {("accept", None)}
    assert await left_over(place) == []

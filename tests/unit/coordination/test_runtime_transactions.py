"""What stands in transactions, through the runtime: batches, order, refusals, replay."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.coordination.machine import Batch, Decision, Marker, Token, Transactional
from ottla.coordination.runtime import CoordinatorRuntime, NotCoordinator, RefusedByLog
from ottla.wire.error_codes import ErrorCode
from tests.support.clocks import ManualClock
from tests.support.groups_log import MemoryLog, Pair

if TYPE_CHECKING:
    from ottla.clock import Now

P, Q = Transactional(1, 0), Transactional(2, 0)


class Ledger:
    """Writes down what it is asked to and answers how much that is; an empty text only reads."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    def replay(self, key: bytes, value: bytes | None) -> None:
        self.entries.append(key.decode())

    def replay_transactional(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        self.entries.append(f"{producer_id} {key.decode()}")

    def replay_marker(self, marker: Marker) -> None:
        self.entries.append(f"{marker.producer_id} {'commits' if marker.commit else 'aborts'}")

    def loaded(self, now: Now) -> None:
        pass

    def decide(self, request: str, token: Token, now: Now) -> Decision[str, list[str]]:
        decision: Decision[str, list[str]] = Decision()
        if request:
            self.entries.append(request)
            if not request.endswith(("commits", "aborts")):
                decision.records.append(request.rsplit(maxsplit=1)[-1])
        decision.reply(token, list(self.entries))
        return decision

    def tick(self, now: Now) -> Decision[str, list[str]]:
        return Decision()

    def next_deadline(self) -> int | None:
        return None

    def encode(self, record: str) -> Pair:
        return record.encode(), b""


class PlainLedger(Ledger):
    """One that knows nothing of transactions."""

    replay_transactional = replay_marker = None  # type: ignore[assignment]  # as if not there


def commits(producer: Transactional, coordinator_epoch: int = 0) -> Marker:
    return Marker(*producer, coordinator_epoch, True)


async def hosted(log: MemoryLog) -> CoordinatorRuntime[str, str, list[str]]:
    runtime = CoordinatorRuntime(log, lambda _index: Ledger(), ManualClock())
    await runtime.load(0)
    return runtime


async def some_turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_append_keeps_the_order_and_a_batch_for_each_transaction() -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    log.gate.clear()
    plain = [runtime.submit(0, "a")]
    await some_turns()
    plain.append(runtime.submit(0, "b"))
    third = Transactional(3, 0)
    inside = asyncio.gather(
        runtime.submit_in(0, P, "1 c"),
        runtime.submit_in(0, Q, "2 d"),
        runtime.submit_in(0, commits(third), "3 commits"),
    )
    await some_turns()
    plain += [runtime.submit(0, name) for name in ("e", "f")]
    log.gate.set()
    order = ["a", "b", "1 c", "2 d", "3 commits", "e", "f"]
    assert [*(await inside), await plain[-1]] == [order[:3], order[:4], order[:5], order]
    assert log.appends == [
        [Batch([(b"a", b"")])],
        [
            Batch([(b"b", b"")]),
            Batch([(b"c", b"")], P),
            Batch([(b"d", b"")], Q),
            Batch([], commits(third)),
            Batch([(b"e", b""), (b"f", b"")]),
        ],
    ]


async def test_what_only_reads_in_a_transaction_is_not_written() -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    assert await runtime.submit_in(0, P, "") == []
    assert log.appends == []


async def test_a_replay_tells_of_transactions_in_order() -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    await runtime.submit_in(0, P, "1 a")
    await runtime.submit(0, "b")
    await runtime.submit_in(0, Marker(*P, 0, commit=False), "1 aborts")
    await runtime.submit_in(0, P, "1 c")
    await runtime.submit_in(0, commits(P), "1 commits")
    live = await runtime.submit(0, "")
    await runtime.load(0)
    assert await runtime.submit(0, "") == live
    assert live == ["1 a", "b", "1 aborts", "1 c", "1 commits"]


async def test_a_machine_without_transactions_never_sees_any() -> None:
    log = MemoryLog()
    log.appends = [[Batch([(b"a", b"")], P), Batch([(b"b", b"")]), Batch([], commits(P))]]
    runtime = CoordinatorRuntime(log, lambda _index: PlainLedger(), ManualClock())
    await runtime.load(0)
    assert await runtime.submit(0, "") == ["b"]


@pytest.mark.parametrize(
    ("late", "code"),
    [
        (Transactional(1, 4), ErrorCode.INVALID_PRODUCER_EPOCH),
        (Marker(1, 4, 9, True), ErrorCode.INVALID_PRODUCER_EPOCH),
        (Marker(1, 5, 6, True), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ],
)
async def test_who_is_fenced_is_refused_alone(
    late: Transactional | Marker, code: ErrorCode
) -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    await runtime.submit_in(0, Marker(1, 5, 7, True), "1 commits")
    log.gate.clear()
    before = runtime.submit(0, "a")
    with pytest.raises(RefusedByLog) as refused:
        await runtime.submit_in(0, late, "1 b")
    assert refused.value.error_code == code
    log.gate.set()
    assert await before == ["1 commits", "a"]
    assert await runtime.submit(0, "") == ["1 commits", "a"]


async def test_a_producer_waits_until_the_log_knows_its_last_word() -> None:
    """Decided at once, the late one would be refused by the log, and the partition lost."""
    log = MemoryLog()
    runtime = await hosted(log)
    log.gate.clear()
    newer = asyncio.ensure_future(runtime.submit_in(0, Marker(1, 5, 0, True), "1 commits"))
    await some_turns()
    late = asyncio.ensure_future(runtime.submit_in(0, Transactional(1, 4), "1 a"))
    other = asyncio.ensure_future(runtime.submit_in(0, Q, "2 b"))
    await some_turns()
    newer.cancel()  # a client that went away takes nothing back
    await some_turns()
    assert not late.done()
    log.gate.set()
    with pytest.raises(RefusedByLog):
        await late
    assert await other == ["1 commits", "2 b"]


async def test_requests_of_one_producer_follow_each_other() -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    names = [f"1 {name}" for name in "abcd"]
    answers = await asyncio.gather(*(runtime.submit_in(0, P, name) for name in names))
    assert answers[-1] == names
    assert [batch.transaction for append in log.appends for batch in append] == [P] * 4


async def test_a_failed_append_sends_everybody_away_who_waits() -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    log.broken = OSError("disk")
    log.gate.clear()
    first = asyncio.ensure_future(runtime.submit_in(0, P, "1 a"))
    second = asyncio.ensure_future(runtime.submit_in(0, P, "1 b"))
    await some_turns()
    log.gate.set()
    for waiting in (first, second):
        with pytest.raises(NotCoordinator):
            await waiting
    log.broken = None
    await some_turns()
    assert await runtime.submit(0, "") == []


async def test_unload_sends_away_who_waits_for_a_producer() -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    log.gate.clear()
    first = asyncio.ensure_future(runtime.submit_in(0, P, "1 a"))
    second = asyncio.ensure_future(runtime.submit_in(0, P, "1 b"))
    await some_turns()
    runtime.unload(0)
    for waiting in (first, second):
        with pytest.raises(NotCoordinator):
            await waiting
    log.gate.set()
    await runtime.close()
    assert log.batches == [[(b"a", b"")]]

"""Messages, watermarks, dispatch and the producer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.streams.dispatch import Member, Roster
from ottla.streams.errors import (
    AlreadyAnchored,
    ConfigError,
    DeliveryError,
    NotAnchored,
    PayloadDecodeError,
    ProducerEnded,
)
from ottla.streams.producer import Producer, make_pipe
from ottla.streams.types import (
    AutoCommit,
    ConsumerOptions,
    Message,
    MessageId,
    Mode,
    ProducerOptions,
    Reset,
    ShardKey,
    from_ns,
    timestamp_text,
    to_ns,
)
from ottla.streams.watermark import Watermark
from tests.support.list_source import ListSink, messages

A0 = ShardKey("a", 0)


def at(*sequences: int) -> list[Message]:
    return [Message("a", 0, seq, 0, b"") for seq in sequences]


def test_t04_text_and_json() -> None:
    bad = Message("a", 0, 1, 0, b"\xff{")
    with pytest.raises(PayloadDecodeError) as caught:
        bad.text()
    assert caught.value.payload == b"\xff{"
    assert bad.text("replace") == "\ufffd{"
    value = {"ä": [1, None, 2.5]}
    assert Message("a", 0, 1, 0, '{"ä": [1, null, 2.5]}'.encode()).json() == value
    assert Message("a", 0, 1, 0, b"").id == MessageId("a", 0, 1)


@given(st.integers(0, 4_000_000_000_000_000_000))
def test_t04_times_are_never_rounded_up(timestamp_ns: int) -> None:
    assert to_ns(from_ns(timestamp_ns)) == timestamp_ns // 1000 * 1000
    shown = datetime.fromisoformat(timestamp_text(timestamp_ns)).replace(tzinfo=UTC)
    assert to_ns(shown) == timestamp_ns // 1_000_000 * 1_000_000


def test_t13_watermark() -> None:
    mark = Watermark()
    mark.deliver(at(1, 2, 3, 4, 5))
    for seq, expected in ((2, 1), (3, 1), (5, 1), (1, 4), (4, 6)):
        assert mark.ack(MessageId("a", 0, seq))
        assert mark.positions() == {A0: expected}
    assert not mark.ack(MessageId("a", 0, 4))
    assert not mark.ack(MessageId("b", 0, 4))


@given(st.lists(st.integers(0, 50), unique=True, min_size=1).map(sorted), st.randoms())
def test_t14_watermark_with_holes_in_any_order(sequences: list[int], chance: object) -> None:
    mark = Watermark()
    mark.deliver(at(*sequences))
    order = list(sequences)
    chance.shuffle(order)  # type: ignore[attr-defined]  # a Random
    pending = set(sequences)
    for seq in order:
        assert mark.ack(MessageId("a", 0, seq))
        pending.remove(seq)
        assert mark.positions() == {A0: min(pending, default=sequences[-1] + 1)}
        assert mark.pending() == len(pending)


def test_t14_watermark_vectors() -> None:
    mark = Watermark()
    mark.deliver(at(1, 2, 4, 6))
    for seq in (2, 4, 6):
        mark.ack(MessageId("a", 0, seq))
    assert mark.positions() == {A0: 1}
    mark.ack(MessageId("a", 0, 1))
    assert mark.positions() == {A0: 7}


def test_t55_d31_turns_by_sequence_over_members_of_each_stream() -> None:
    roster = Roster()
    both, one = Member(["a", "b"]), Member(["a"])
    roster.join(both)
    roster.join(one)
    roster.dispatch([*messages(4), *messages(3, stream="b"), *messages(1, stream="c")])
    assert [(m.stream, m.seq) for m in one.queue] == [("a", 1), ("a", 3)]
    assert [m.seq for m in both.queue if m.stream == "a"] == [2, 4]
    assert [m.seq for m in both.queue if m.stream == "b"] == [1, 2, 3]
    roster.leave(one)
    assert sorted(m.seq for m in both.queue if m.stream == "a") == [1, 2, 3, 4]
    roster.leave(both)


def producer(sink: ListSink, stream: str | None = None, max_pending: int = 100) -> Producer:
    pipe = make_pipe(sink, ProducerOptions(max_pending=max_pending))
    return Producer(lambda: pipe, stream)


async def test_t10_anchors_and_failures_nobody_awaited() -> None:
    sink = ListSink()
    async with producer(sink) as free:
        with pytest.raises(NotAnchored):
            await free.send(b"x")
        free.anchor("a")
        with pytest.raises(AlreadyAnchored):
            free.anchor("b")
        receipt = await (await free.send("text"))
        assert (receipt.stream, receipt.seq) == ("a", 1)
        await (await free.send(json={"n": 1}))
        assert [m.payload for m in sink.taken] == [b"text", b'{"n":1}']
        sink.refuse = DeliveryError("full")
        await free.send(b"lost")
        with pytest.raises(DeliveryError, match="full"):
            await free.flush()
        await free.flush()
        seen = await free.send(b"lost, but noticed")
        with pytest.raises(DeliveryError):
            await seen
        await free.flush()
    with pytest.raises(ProducerEnded):
        await free.send(b"late")
    assert sink.ended


async def test_t11_a_full_queue_waits_and_a_cancelled_send_is_all_or_nothing() -> None:
    sink = ListSink()
    async with producer(sink, "a", max_pending=2) as full:
        sink.gate.clear()
        await full.send(b"1")
        await full.send(b"2")
        waiting = asyncio.create_task(full.send(b"3"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(TimeoutError):
            await full.flush(0.01)
        sink.gate.set()
        await full.flush()
        await full.send(b"4")
        await full.flush()
    assert [m.payload for m in sink.taken] == [b"1", b"2", b"4"]


async def test_clones_end_on_their_own() -> None:
    sink = ListSink()
    async with producer(sink, "a") as first:
        async with first.clone() as second:
            await (await second.send(b"1"))
        assert not sink.ended
        await (await first.send(b"2"))
    assert sink.ended


async def test_a_sink_that_fails_in_a_way_nobody_foresaw_fails_its_batch_alone() -> None:
    sink = ListSink()
    async with producer(sink, "a") as hardy:
        sink.refuse = ZeroDivisionError("unforeseen")
        delivery = await hardy.send(b"bad")
        with pytest.raises(DeliveryError, match="unforeseen"):
            await delivery
        sink.refuse = None
        await (await hardy.send(b"good"))
    assert [one.payload for one in sink.taken] == [b"good"]


def test_options_take_words_for_members() -> None:
    words: dict[str, Any] = {"mode": "resumable", "reset": "earliest", "auto_commit": "disabled"}
    options = ConsumerOptions(**words)
    assert options.mode is Mode.RESUMABLE
    assert options.reset is Reset.EARLIEST
    assert options.auto_commit is AutoCommit.DISABLED
    bad: Any = "resumeable"
    with pytest.raises(ConfigError, match=r"mode is one of 'real_time', 'resumable', .* not"):
        ConsumerOptions(mode=bad)

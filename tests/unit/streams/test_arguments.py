"""Wrong arguments of every kind: an error that names the argument, and the next good call works."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.streams.consumer import Consumer
from ottla.streams.errors import InvalidArgument, InvalidStreamKey, StreamError
from ottla.streams.modes import validate
from ottla.streams.producer import Producer, make_pipe
from ottla.streams.types import (
    BEGINNING,
    AutoCommit,
    Backend,
    ConsumerOptions,
    Mode,
    ProducerOptions,
    SeqPos,
)
from tests.support.list_source import ListDriver, ListSink, ListSource, messages

if TYPE_CHECKING:
    from collections.abc import Awaitable

ODD: st.SearchStrategy[Any] = st.one_of(
    st.floats(max_value=-0.5),
    st.just(float("nan")),
    st.complex_numbers(),
    st.integers(max_value=-1),
    st.dictionaries(st.text(), st.binary(), min_size=1),
    st.sets(st.integers(), min_size=1),
    st.just(object()),
)
"""What no argument of these calls can be."""

NO_NUMBER = st.one_of(ODD, st.text(), st.binary(), st.booleans())
NO_BYTES = st.one_of(ODD, st.text(), st.integers(), st.booleans())
NO_PAIRS = st.one_of(
    NO_BYTES,
    st.lists(NO_BYTES, min_size=1),
    st.lists(st.tuples(st.text(), NO_BYTES), min_size=1),
    st.lists(
        st.tuples(NO_NUMBER.filter(lambda one: not isinstance(one, str)), st.binary()), min_size=1
    ),
    st.lists(st.tuples(st.text(), st.binary(), st.binary()), min_size=1),
)
NO_TIME = st.one_of(NO_NUMBER, st.integers())
SENDS = st.one_of(
    st.fixed_dictionaries({"payload": st.one_of(ODD, st.integers(), st.booleans())}),
    st.fixed_dictionaries({"payload": st.just("\ud800")}),
    st.fixed_dictionaries({"json": st.one_of(st.just(object()), st.sets(st.integers()))}),
    st.fixed_dictionaries({"payload": st.binary(), "json": st.integers()}),
    st.fixed_dictionaries({"payload": st.binary(), "key": NO_BYTES}),
    st.fixed_dictionaries({"payload": st.binary(), "headers": NO_PAIRS}),
    st.fixed_dictionaries({"payload": st.binary(), "shard": NO_NUMBER}),
    st.fixed_dictionaries(
        {"payload": st.binary(), "timestamp": st.one_of(NO_NUMBER, st.integers())}
    ),
    st.fixed_dictionaries({"payload": st.binary(), "stream": st.one_of(ODD, st.just("a b"))}),
)


@given(wrong=st.lists(SENDS, min_size=1, max_size=5))
def test_a_wrong_send_wedges_nothing(wrong: list[dict[str, Any]]) -> None:
    async def work() -> None:
        sink = ListSink()
        pipe = make_pipe(sink, ProducerOptions())
        async with Producer(lambda: pipe, "a", ListDriver(ListSource([]), sink)) as producer:
            for options in wrong:
                with pytest.raises((InvalidArgument, InvalidStreamKey)):
                    await producer.send(**options)
                async with asyncio.timeout(10):
                    await (await producer.send(b"good", key=b"k", headers=(("h", None),)))
        assert [one.payload for one in sink.taken] == [b"good"] * len(wrong)

    asyncio.run(work())


async def called(consumer: Consumer, name: str, args: tuple[Any, ...]) -> None:
    found: Awaitable[object] | None = getattr(consumer, name)(*args)
    if found is not None:
        await found


CALLS = st.one_of(
    st.tuples(st.just("next"), st.tuples(NO_NUMBER)),
    st.tuples(st.just("batch"), st.tuples(st.one_of(NO_NUMBER, st.just(0)), st.just(1))),
    st.tuples(st.just("batch"), st.tuples(st.just(1), NO_NUMBER)),
    st.tuples(st.just("ack"), st.tuples(st.one_of(NO_NUMBER, st.integers()))),
    st.tuples(st.just("nack"), st.tuples(st.one_of(NO_NUMBER, st.integers()))),
    st.tuples(st.just("seek"), st.tuples(st.one_of(NO_NUMBER, st.integers()))),
    st.tuples(st.just("rewind"), st.tuples(st.one_of(NO_NUMBER, st.integers()))),
    st.tuples(st.just("rewind"), st.tuples(st.just(SeqPos("at", -1)))),
    st.tuples(st.just("assign"), st.tuples(st.just("a"), NO_NUMBER)),
    st.tuples(st.just("unassign"), st.tuples(st.just("a"), NO_NUMBER)),
)


@given(calls=st.lists(CALLS, min_size=1, max_size=5))
def test_a_wrong_call_of_a_consumer_changes_nothing(
    calls: list[tuple[str, tuple[Any, ...]]],
) -> None:
    async def work() -> None:
        source = ListSource(messages(20))
        options = ConsumerOptions(mode=Mode.RESUMABLE, auto_commit=AutoCommit.DISABLED)
        async with Consumer(ListDriver(source), source, ("a",), options) as consumer:
            for number, (name, args) in enumerate(calls, 1):
                with pytest.raises(InvalidArgument):
                    await called(consumer, name, args)
                message = await consumer.next(10)
                assert message.seq == number
                consumer.ack(message)
            assert await consumer.commit() == {("a", 0): len(calls) + 1}
            await consumer.seek(datetime.fromtimestamp(0, UTC))
            await consumer.rewind(BEGINNING)

    asyncio.run(work())


@pytest.mark.parametrize("wrong", ["1", -1, float("nan"), True])
async def test_a_wrong_timeout_does_not_mark_the_last_message_as_done(wrong: Any) -> None:
    source = ListSource(messages(3))
    options = ConsumerOptions(mode=Mode.RESUMABLE)
    async with Consumer(ListDriver(source), source, ("a",), options) as consumer:
        await consumer.next()
        with pytest.raises(InvalidArgument, match="timeout is"):
            await consumer.next(wrong)
        assert consumer.positions() == {}
        assert (await consumer.next(10)).seq == 2


@given(
    name=st.sampled_from(("prefetch", "prefetch_bytes", "commit_every", "max_deliveries")),
    wrong=st.one_of(NO_NUMBER, st.just(0)),
)
def test_wrong_options_are_named(name: str, wrong: Any) -> None:
    options = ConsumerOptions(**{name: wrong})
    with pytest.raises(StreamError, match=f"{name} is"):
        validate(Backend.FILE, {}, ("a",), options)

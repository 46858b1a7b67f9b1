"""Wrong arguments of every kind: an error that names the argument, and the next good call works."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.security import Security
from ottla.streams.consumer import Consumer
from ottla.streams.errors import (
    ConfigError,
    InvalidArgument,
    InvalidStreamKey,
    InvalidType,
    StreamError,
    UrlError,
)
from ottla.streams.producer import Producer, make_pipe
from ottla.streams.streamer import connect
from ottla.streams.types import (
    BEGINNING,
    AutoCommit,
    ConnectOptions,
    ConsumerOptions,
    FileOptions,
    KafkaOptions,
    Mode,
    ProducerOptions,
    RedisOptions,
    SeqPos,
    StdioOptions,
)
from tests.support.list_source import ListDriver, ListSink, ListSource, messages

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

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
        connect("stdio:///a").consumer(options=options)


@pytest.mark.parametrize("url", [None, 7, b"stdio:///a", ["stdio:///a"]])
def test_a_url_is_text(url: Any) -> None:
    with pytest.raises(InvalidType, match=r"url is .* it must be a str"):
        connect(url)


WRONG_OPTIONS: list[tuple[Any, str]] = [
    (lambda: ConnectOptions(timeout="1"), "timeout is '1' of type str"),  # type: ignore[arg-type]
    (lambda: ConnectOptions(kafka="x"), r"kafka is 'x' of type str, it must be KafkaOptions\("),  # type: ignore[arg-type]
    (lambda: ConnectOptions(file=KafkaOptions()), r"it must be FileOptions\("),  # type: ignore[arg-type]
    (lambda: FileOptions(follow="no"), "follow is 'no' of type str, it must be True or False"),  # type: ignore[arg-type]
    (lambda: FileOptions(on_stale="ignore"), "on_stale is one of"),
    (lambda: FileOptions(beacon_interval=1.5), "beacon_interval is 1.5 of type float"),  # type: ignore[arg-type]
    (lambda: StdioOptions(newline="x"), "newline is one of"),
    (lambda: RedisOptions(block=-1), "block is -1"),
    (lambda: RedisOptions(shards=0), "shards is 0, it must be at least 1"),
    (lambda: KafkaOptions(extra=[]), "extra is .* of type _Hidden"),  # type: ignore[arg-type]
    (lambda: KafkaOptions(transactional_id=1), "transactional_id is 1 of type int"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "said"), WRONG_OPTIONS)
def test_options_of_a_connection_are_checked_by_connect(make: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        connect("stdio:///a", make())


def test_security_of_the_wrong_type_is_not_shown() -> None:
    wrong: Any = {"sasl.password": "s3cret"}
    for one in ({"options": KafkaOptions(security=wrong)}, {"security": wrong}):
        with pytest.raises(InvalidType, match="security is") as caught:
            connect("kafka://h/a", **one)
        assert "s3cret" not in str(caught.value)


def test_security_is_given_once_and_to_kafka() -> None:
    one = Security("SSL")
    with pytest.raises(ConfigError, match="security is given twice"):
        connect("kafka://h/a", KafkaOptions(security=one), security=one)
    with pytest.raises(ConfigError, match="security is for kafka:// URLs, not for redis://"):
        connect("redis://h/a", security=one)
    with pytest.raises(ConfigError, match=r"\?config= is for kafka:// URLs"):
        connect("stdio:///a?config=x.properties")


def test_the_file_that_a_url_names(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SSL\nssl.truststore.location=ca.pem\n")
    streamer = connect(f"kafka://h/a?config={path}")
    assert streamer.driver.options.kafka is not None
    assert streamer.driver.options.kafka.security == Security("SSL", ssl_ca="ca.pem")
    path.write_text("security.protocol=SASL_SSL\n")
    with pytest.raises(ConfigError, match="sasl_mechanism is missing"):
        connect(f"kafka://h/a?config={path}")
    path.write_text("security.protocol=SSL\n")
    with pytest.raises(ConfigError, match="security is given twice"):
        connect(f"kafka://h/a?config={path}", security=Security("SSL"))


def test_credentials_in_a_kafka_url_are_refused_case_105() -> None:
    with pytest.raises(UrlError, match=r"security=ottla\.Security.*\?config=FILE") as caught:
        connect("kafka://user:s3cret@h:9092/a")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("latest", r"options is 'latest' of type str, it must be ConsumerOptions\("),
        (ConsumerOptions(kafka="x"), "kafka is 'x'"),  # type: ignore[arg-type]
        (ConsumerOptions(start_position=5), "start_position is 5 of type int"),  # type: ignore[arg-type]
        (ConsumerOptions(start_position=SeqPos("at", -1)), "the sequence of At is -1"),
        (ConsumerOptions(on_out_of_range="never"), "on_out_of_range is one of"),
        (ConsumerOptions(offsets="./offsets"), "it must be an offset store"),  # type: ignore[arg-type]
        (ConsumerOptions(prefetch=0), "prefetch is 0, it must be at least 1"),
    ],
)
def test_options_of_a_consumer_are_checked_and_the_next_one_works(options: Any, said: str) -> None:
    streamer = connect("stdio:///a", StdioOptions(loopback=True))
    with pytest.raises(InvalidArgument, match=said):
        streamer.consumer(options=options)
    assert streamer.consumer().streams == ("a",)


@pytest.mark.parametrize("options", [ConsumerOptions(), {}, 0, ProducerOptions(max_pending=0)])
def test_options_of_a_producer_are_checked(options: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"options is|max_pending is 0"):
        connect("stdio:///a").producer(options=options)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("redis://[::1]/a", "::1", 6379),
        ("redis://[::1]:7000/a", "::1", 7000),
        ("redis://u:p@[fe80::2]/2/a", "fe80::2", 6379),
        ("redis://h/a", "h", 6379),
        ("redis://h:1/a", "h", 1),
    ],
)
def test_the_address_of_a_redis_server(url: str, host: str, port: int) -> None:
    settings = connect(url).driver._settings()  # type: ignore[attr-defined]
    assert (settings["host"], settings["port"]) == (host, port)

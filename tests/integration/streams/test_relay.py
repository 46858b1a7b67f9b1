"""`ottla relay`, `ottla clock`, `ottla file ...`, and what they are made of."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import confluent_kafka as kafka
import pytest
from redis.asyncio import Redis
from typer.testing import CliRunner

from ottla import Producer, Reader
from ottla.cli.relay import RELAY_EXAMPLES
from ottla.cli.whole import app
from ottla.client.admin.admin import Admin
from ottla.offsets import MemoryOffsetStore
from ottla.streams import (
    ConnectOptions,
    ConsumerOptions,
    Create,
    FileOptions,
    ProducerOptions,
    Reset,
    connect,
)
from ottla.streams.backends.redis_lane import Lane
from ottla.streams.backends.redis_source import RedisSource
from ottla.streams.errors import ConfigError, DeliveryError, FileLimitExceeded, Unsupported
from ottla.streams.relay import Tally, _Copy, relay_streams, tick

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ottla import EmbeddedBroker
    from ottla.streams import Message, ShardKey
    from ottla.streams.backends.redis_lane import Found
    from tests.services import RedisServer

run = CliRunner()


async def payloads(url: str) -> list[str]:
    options = ConnectOptions(file=FileOptions(follow=False))
    earliest = ConsumerOptions(reset=Reset.EARLIEST)
    async with connect(url, options) as streamer, streamer.consumer(options=earliest) as consumer:
        return [message.text() async for message in consumer]


async def test_t61_stdio_file_redis_kafka_file_keeps_payloads_and_order(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    redis_server: RedisServer,
    ottla_broker: EmbeddedBroker,
    ottla_topic: str,
) -> None:
    lines = [f"line {i}" for i in range(2500)]
    pipe = io.TextIOWrapper(io.BytesIO("\n".join(f"[a] {line}" for line in lines).encode()))
    monkeypatch.setattr(sys, "stdin", pipe)
    monkeypatch.setattr("ottla.streams.backends.stdio._process_hub", None)
    legs = [
        "stdio:///a",
        f"file://{tmp_path}/1.ss/a",
        f"{redis_server.url}/relayed-{tmp_path.name}",
        f"kafka://{ottla_broker.bootstrap}/{ottla_topic}",
        f"file://{tmp_path}/2.ss/b",
    ]
    for source, target in pairwise(legs):
        tally = Tally()
        await relay_streams(source, target, until_end=source != legs[0], tally=tally)
        assert tally.total == 2500
    assert await payloads(legs[-1]) == lines


async def test_a_relay_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first, second = f"file://{tmp_path}/1.ss/a", f"file://{tmp_path}/2.ss/b"
    store = MemoryOffsetStore()
    for _ in range(3):
        await tick(first, 0, 4)
        await relay_streams(first, second, until_end=True, offsets=store)
    assert await payloads(second) == ["tick-0", "tick-1", "tick-2", "tick-3"] * 3
    with pytest.raises(ConfigError, match="same stream"):
        await relay_streams(first, first)


async def test_a_relay_from_kafka_ends_where_nothing_is_new(
    tmp_path: Path, ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    url, target = f"kafka://{ottla_broker.bootstrap}/{ottla_topic}", f"file://{tmp_path}/o.ss/o"
    store, tally = MemoryOffsetStore(), Tally()
    async with asyncio.timeout(60):
        await relay_streams(url, target, until_end=True, offsets=store, tally=tally)
        await tick(url, 0, 2)
        for _ in range(2):
            await relay_streams(url, target, until_end=True, offsets=store, tally=tally)
        await relay_streams(url, target, until_end=True, from_start=False, tally=tally)
    assert tally.total == 2
    assert await payloads(target) == ["tick-0", "tick-1"]


async def test_a_relay_from_kafka_ends_behind_a_transaction(
    tmp_path: Path, ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    """The last offset is that of a marker, which no consumer is given."""
    async with (
        Producer(ottla_broker.bootstrap, transactional_id=ottla_topic) as producer,
        producer.transaction(),
    ):
        await producer.send(ottla_topic, b"v")
    url, target = f"kafka://{ottla_broker.bootstrap}/{ottla_topic}", f"file://{tmp_path}/o.ss/o"
    store = MemoryOffsetStore()
    async with asyncio.timeout(60):
        for _ in range(2):
            await relay_streams(url, target, until_end=True, offsets=store)
        await relay_streams(url, f"file://{tmp_path}/p.ss/o", until_end=True)
    assert await payloads(target) == ["v"]


async def test_the_examples_in_the_help_of_relay_run(
    tmp_path: Path, redis_server: RedisServer, ottla_broker: EmbeddedBroker
) -> None:
    (tmp_path / "app.log").write_text("one\ntwo\n")
    await tick(f"file://{tmp_path}/x.ss/orders", 0, 2)
    await tick(f"kafka://{ottla_broker.bootstrap}/a", 0, 2)
    examples = [line.strip() for line in RELAY_EXAMPLES.splitlines() if "ottla relay" in line]
    assert len(examples) == 3
    for example in examples:
        # A copy that ends, with the servers of this test.
        line = example.replace("tail -F", "cat").replace("--until-end", "") + " --until-end"
        line = line.replace("ottla relay", f"{sys.executable} -m ottla.cli relay")
        line = line.replace("127.0.0.1:9092", ottla_broker.bootstrap)
        line = line.replace("redis://localhost", redis_server.url)
        done = await asyncio.to_thread(
            subprocess.run, line, shell=True, cwd=tmp_path, capture_output=True, timeout=60
        )
        assert (done.returncode, done.stderr.splitlines()[-1]) == (0, b"relayed 2 messages"), line


@pytest.mark.parametrize("url", ["stdio:///", "kafka://{}/no-such-topic"])
def test_a_relay_whose_input_fails_makes_no_output(
    url: str, tmp_path: Path, ottla_broker: EmbeddedBroker
) -> None:
    words = ["--input", url.format(ottla_broker.bootstrap), "--output", f"file://{tmp_path}/o.ss/o"]
    failed = run.invoke(app, ["relay", *words])
    assert failed.exit_code == 1
    assert not (tmp_path / "o.ss").exists()


async def test_keys_and_headers_are_refused_where_they_would_be_dropped(tmp_path: Path) -> None:
    await tick(f"file://{tmp_path}/1.ss/a", 0, 1)
    async with connect(f"file://{tmp_path}/1.ss/a") as streamer, streamer.producer() as producer:
        with pytest.raises(Unsupported, match="message keys"):
            await producer.send(b"x", key=b"k")
        with pytest.raises(Unsupported, match="message headers"):
            await producer.send(b"x", headers=(("h", b"v"),))


def test_ctrl_c_ends_a_relay_gracefully(tmp_path: Path) -> None:
    path = tmp_path / "1.ss"
    assert run.invoke(app, ["clock", "--output", f"file://{path}/a", "--count", "3"]).exit_code == 0
    words = ["relay", "--input", f"file://{path}/a", "--output", "stdio:///b", "--json"]
    program = "from ottla.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        for number in range(3):
            assert f"tick-{number}".encode() in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert err == b"ottla: the output does not keep binary payloads: lines are UTF-8 text\n"
    assert json.loads(out)["messages"] == 3


def test_file_commands(tmp_path: Path) -> None:
    path = tmp_path / "1.ss"
    url = f"file://{path}/a"
    assert (
        run.invoke(app, ["clock", "--output", url, "--count", "3", "--interval", "1ms"]).exit_code
        == 0
    )
    shown = run.invoke(app, ["file", "inspect", str(path)])
    assert shown.exit_code == 0
    assert "not ended; whole" in shown.output
    found = json.loads(run.invoke(app, ["file", "inspect", str(path), "--json"]).output)
    assert (found["messages"], found["shards"][0]["last"]) == (3, 3)
    assert run.invoke(app, ["file", "verify", str(path)]).exit_code == 0
    os.truncate(path, path.stat().st_size - 1)
    torn = run.invoke(app, ["file", "verify", str(path)])
    assert torn.exit_code == 1
    assert "ottla file repair" in torn.output
    fixed = run.invoke(app, ["file", "repair", str(path), "--json"])
    assert json.loads(fixed.output)["cut_bytes"] == 38
    assert "3 messages" not in run.invoke(app, ["file", "verify", str(path)]).output
    assert "nothing to repair" in run.invoke(app, ["file", "repair", str(path)]).output


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["relay", "--input", "stdio:///a", "--output", "amqp://h/a"], 1, "unknown scheme"),
        (["relay", "--input", "file://./none.ss/a", "--output", "stdio:///a"], 1, "does not exist"),
        (["relay", "--input", "a", "--output", "b", "--from", "middle"], 2, "start or end"),
        (["clock", "--output", "kafka://127.0.0.1:99999/a"], 1, "number from 1 to 65535"),
        (["clock", "--interval", "soon"], 2, "ms, s or m"),
        (["file", "verify", "none.ss"], 1, "cannot open"),
    ],
)
def test_failures_are_sentences(words: list[str], status: int, sentence: str) -> None:
    result = run.invoke(app, words)
    assert result.exit_code == status
    assert sentence in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("words", [["clock"], ["relay", "--input", "stdio:///a"]])
def test_a_port_that_never_answers_is_given_up_after_the_timeout(words: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/a"
        result = run.invoke(app, [*words, "--output", url, "--timeout", "0.2"])
    assert result.exit_code == 1
    assert "127.0.0.1" in result.stderr
    assert "StreamUrl" not in result.output


@pytest.mark.parametrize(
    "store", ["file://{tmp_path}/none.ss/a", "{redis}/no-such-key", "stdio:///"]
)
def test_errors_of_an_input_do_not_speak_python(
    store: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    url = store.format(tmp_path=tmp_path, redis=redis_server.url)
    result = run.invoke(app, ["relay", "--input", url, "--output", "stdio:///b"])
    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ottla: ")
    assert "(" not in last


def test_a_store_that_cannot_be_opened_is_told_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "in.ss"
    assert run.invoke(app, ["clock", "--output", f"file://{path}/a", "--count", "1"]).exit_code == 0
    args = ["relay", "--input", f"file://{path}/a", "--output", f"file://{tmp_path}/out.ss/a"]
    done = run.invoke(app, [*args, "--until-end", "--offsets", "sqlite:////nonexistent/x.db"])
    assert done.exit_code == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(
        "ottla: SQLite database /nonexistent/x.db: unable to open database file;"
    )


def test_what_is_no_store_or_no_directory_is_said_in_a_sentence(tmp_path: Path) -> None:
    source = f"file://{tmp_path}/x.ss/log"
    assert run.invoke(app, ["clock", "--output", source, "--count", "1"]).exit_code == 0
    args = ["relay", "--input", source, "--until-end"]
    (tmp_path / "in.txt").write_text("hello")
    output = f"file://{tmp_path}/o.ss/log"
    done = run.invoke(app, [*args, "--output", output, "--offsets", str(tmp_path / "in.txt")])
    assert done.exit_code == 2
    assert "is a file, name a directory" in " ".join(done.stderr.replace("│", " ").split())
    done = run.invoke(app, [*args, "--output", f"file://{tmp_path}/new/n.ss/log"])
    assert done.exit_code == 1
    assert f"there is no directory {tmp_path}/new; create it first" in done.stderr


AGO = 1_700_000_000_000
ODD: tuple[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int], ...] = (
    # key, value, headers, timestamp: everything that Kafka tells apart
    (b"k", None, [("a", b"1"), ("b", None), ("a", b""), ("z", b"2")], AGO),
    (None, b"", [], AGO + 5),
    (b"", b"v", [("b", b"x"), ("a", b"y")], AGO + 1),
    (b"k", b"", [("n", None)], 0),
)
Told = list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], tuple[int, int]]]


def write_odd(bootstrap: str, topic: str) -> None:
    producer = kafka.Producer({"bootstrap.servers": bootstrap})
    for key, value, headers, at in ODD:
        producer.produce(topic, value, key, headers=headers or None, timestamp=at)  # type: ignore[arg-type]  # a null header is one
    producer.flush(30)


def records(bootstrap: str, topic: str, count: int) -> Told:
    """As librdkafka reads them, with the type of the timestamp."""
    consumer = kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "x", "auto.offset.reset": "earliest"}
    )
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    found: Told = []
    while len(found) < count:
        [one] = consumer.consume(1, 30)
        assert one.error() is None
        headers = cast("list[tuple[str, bytes | None]]", one.headers() or [])
        found.append((one.key(), one.value(), headers, one.timestamp()))
    consumer.close()
    return found


async def test_kafka_to_kafka_is_exact(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    bootstrap = ottla_broker.bootstrap
    await asyncio.to_thread(write_odd, bootstrap, ottla_topic)
    url, other = f"kafka://{bootstrap}/{ottla_topic}", f"{ottla_topic}-copy"
    # Neither a loss nor anything else to say: --strict has nothing to refuse.
    await relay_streams(url, f"kafka://{bootstrap}/{other}", until_end=True, strict=True)
    before = await asyncio.to_thread(records, bootstrap, ottla_topic, len(ODD))
    assert [value for _, value, _, _ in before] == [None, b"", b"v", b""]
    assert await asyncio.to_thread(records, bootstrap, other, len(ODD)) == before


async def test_what_the_broker_stamps_is_told_before_anything_is_copied(
    ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    bootstrap = ottla_broker.bootstrap
    stamped = f"{ottla_topic}-stamped"
    async with Admin(bootstrap) as admin:
        await admin.create_topic(
            stamped, partitions=1, configs={"message.timestamp.type": "LogAppendTime"}
        )
    await asyncio.to_thread(write_odd, bootstrap, ottla_topic)
    plain, stamping = (f"kafka://{bootstrap}/{one}" for one in (ottla_topic, stamped))
    with pytest.raises(ConfigError, match=r"timestamps: .*-stamped has LogAppendTime"):
        await relay_streams(plain, stamping, until_end=True, strict=True)
    await relay_streams(plain, stamping, until_end=True, strict=True, new_timestamps=True)
    with pytest.raises(ConfigError, match=r"timestamp type of .*-stamped: a broker alone"):
        await relay_streams(stamping, f"{plain}-back", until_end=True, strict=True)
    said: list[str] = []
    await relay_streams(stamping, f"{plain}-back", until_end=True, warn=said.append)
    assert [sentence.partition(":")[0] for sentence in said] == [
        f"the output does not keep the timestamp type of {stamped}"
    ]
    kept = [
        (when, kind)
        for *_, (kind, when) in await asyncio.to_thread(
            records, bootstrap, f"{ottla_topic}-back", len(ODD)
        )
    ]
    appended = await asyncio.to_thread(records, bootstrap, stamped, len(ODD))
    assert kept == [(when, 1) for *_, (_, when) in appended]  # the time stays, the type does not


async def test_redis_to_redis_keeps_key_headers_and_time(redis_server: RedisServer) -> None:
    first, second = "exact-a", "exact-b"
    async with connect(f"{redis_server.url}/{first}") as streamer, streamer.producer() as producer:
        for number in range(3):
            await (
                await producer.send(
                    b"",
                    key=b"k",
                    headers=(("b", b"1"), ("a", b""), ("b", b"2")),
                    timestamp=datetime.fromtimestamp(AGO / 1000 + number, UTC),
                )
            )
    await relay_streams(
        f"{redis_server.url}/{first}", f"{redis_server.url}/{second}", until_end=True, strict=True
    )
    kept = []
    for name in (first, second):
        options = ConsumerOptions(reset=Reset.EARLIEST)
        async with (
            connect(f"{redis_server.url}/{name}") as streamer,
            streamer.consumer(options=options) as consumer,
        ):
            got = [await consumer.next(10) for _ in range(3)]
            kept.append([(m.payload, m.key, m.headers, m.timestamp_ns) for m in got])
    assert kept[0] == kept[1]


async def test_file_to_file_keeps_the_time(tmp_path: Path) -> None:
    async with (
        connect(
            f"file://{tmp_path}/1.ss/a", ConnectOptions(file=FileOptions(create=Create.IF_MISSING))
        ) as streamer,
        streamer.producer() as producer,
    ):
        await (await producer.send(b"\x00\xff", timestamp=datetime.fromtimestamp(AGO / 1000, UTC)))
    await relay_streams(
        f"file://{tmp_path}/1.ss/a", f"file://{tmp_path}/2.ss/a", until_end=True, strict=True
    )
    options = ConnectOptions(file=FileOptions(follow=False))
    async with (
        connect(f"file://{tmp_path}/2.ss/a", options) as streamer,
        streamer.consumer(options=ConsumerOptions(reset=Reset.EARLIEST)) as consumer,
    ):
        [message] = [message async for message in consumer]
    assert (message.payload, message.timestamp_ns) == (b"\x00\xff", AGO * 1_000_000)


def test_strict_refuses_with_status_2_and_without_it_the_losses_are_told(
    tmp_path: Path, ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    write_odd(ottla_broker.bootstrap, ottla_topic)
    args = ["relay", "--input", f"kafka://{ottla_broker.bootstrap}/{ottla_topic}", "--until-end"]
    args += ["--output", f"file://{tmp_path}/x.ss/a"]
    refused = run.invoke(app, [*args, "--strict"])
    assert refused.exit_code == 2
    assert "message keys: a frame holds" in refused.stderr
    assert "null payloads and null headers: a frame has a payload" in refused.stderr
    assert not (tmp_path / "x.ss").exists()
    done = run.invoke(app, args)
    assert done.exit_code == 0
    assert done.stderr.count("ottla: the output does not keep ") == 3
    assert "relayed 4 messages" in done.stderr


@pytest.fixture
async def odd_one(tmp_path: Path) -> str:
    """A file whose third message is larger than Kafka takes, and has two lines."""
    url = f"file://{tmp_path}/in.ss/a"
    async with (
        connect(url, FileOptions(create=Create.IF_MISSING)) as streamer,
        streamer.producer() as producer,
    ):
        for number in range(2000):
            await producer.send("\n" * 3_000_000 if number == 2 else str(number))
    return url


@pytest.mark.parametrize("limit", ["5000000", "2000"])
async def test_nothing_is_written_past_a_message_that_kafka_refuses(
    odd_one: str, limit: str, ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    """By librdkafka itself, and by the broker: messages behind it were in flight already."""
    topic = f"{ottla_topic}-small"
    output = f"kafka://{ottla_broker.bootstrap}/{topic}"
    async with Admin(ottla_broker.bootstrap) as admin:
        await admin.create_topic(topic, 1, configs={"max.message.bytes": limit})
    store, tally = MemoryOffsetStore(), Tally()
    for _ in range(2):  # and the next one ends there again, after no repeats
        with pytest.raises(DeliveryError, match="a/0 at 3 was refused, and nothing after it"):
            await relay_streams(odd_one, output, until_end=True, offsets=store, tally=tally)
    assert tally.total == 2
    async with Reader(ottla_broker.bootstrap, topic, stop="latest") as reader:
        assert [record.value for record in await reader.read_many(9)] == [b"0", b"1"]


async def test_batches_in_flight_behind_a_refused_one_are_not_written(
    tmp_path: Path, ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    url, topic = f"file://{tmp_path}/in.ss/a", f"{ottla_topic}-tiny"
    async with (
        connect(url, FileOptions(create=Create.IF_MISSING)) as streamer,
        streamer.producer() as producer,
    ):
        for number in range(900):
            # More than the topic takes, and little enough for librdkafka.
            await producer.send(os.urandom(900_000) if number == 500 else str(number))
    async with Admin(ottla_broker.bootstrap) as admin:
        await admin.create_topic(topic, 1, configs={"max.message.bytes": "100000"})
    with pytest.raises(DeliveryError, match="was refused, and nothing after it"):
        await relay_streams(url, f"kafka://{ottla_broker.bootstrap}/{topic}", until_end=True)
    async with Reader(ottla_broker.bootstrap, topic, stop="latest") as reader:
        written = [int(record.value or b"") for record in await reader.read_many(900)]
    assert written == list(range(len(written)))
    assert len(written) <= 500


async def test_nothing_is_written_past_a_message_that_a_pipe_refuses(
    odd_one: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out))
    monkeypatch.setattr("ottla.streams.backends.stdio._process_hub", None)
    with pytest.raises(DeliveryError, match="a/0 at 3 was refused"):
        await relay_streams(odd_one, "stdio:///b", until_end=True)
    assert [line.rpartition(b" ")[2] for line in out.getvalue().splitlines()] == [b"0", b"1"]


async def test_nothing_is_written_past_a_message_that_redis_refuses(
    redis_server: RedisServer,
) -> None:
    """An entry older than the last one is refused; the one after it would not be."""
    first, second = (f"{redis_server.url}/refused-{which}" for which in "ab")
    for url, times in ((first, (1000, 3000)), (second, (2000,))):
        async with connect(url) as streamer, streamer.producer() as producer:
            for at in times:
                await producer.send(str(at), timestamp=datetime.fromtimestamp(at, UTC))
    with pytest.raises(DeliveryError, match="was refused, and nothing after it is copied: refused"):
        await relay_streams(first, second, until_end=True)
    options = ConsumerOptions(reset=Reset.EARLIEST)
    async with connect(second) as streamer, streamer.consumer(options=options) as consumer:
        assert [one.text() for one in await consumer.batch(9, 10)] == ["2000"]
        assert set((await consumer.lag()).values()) <= {0, None}


async def test_a_file_that_is_full_takes_nothing_more(tmp_path: Path) -> None:
    full = FileOptions(create=Create.IF_MISSING, file_size_limit=4096)
    options = ProducerOptions(stop_at_failure=True)
    url = f"file://{tmp_path}/full.ss/a"
    async with connect(url, full) as streamer:
        producer = streamer.producer(options=options)
        await producer.__aenter__()
        sent = [await producer.send(b"x" * size) for size in (10, 10, 5000, 10)]
        await sent[0]
        with pytest.raises(FileLimitExceeded):
            await sent[2]
        with pytest.raises(DeliveryError, match="not sent, because an earlier message failed"):
            await sent[3]
        with pytest.raises(DeliveryError, match="not sent"):
            await (await producer.send(b"later"))
    assert await payloads(url) == ["x" * 10] * 2


async def test_the_time_0_is_told_or_refused_and_never_turned_into_now_unsaid(
    ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    """librdkafka takes 0 for "no time given"."""
    bootstrap, copy = ottla_broker.bootstrap, f"{ottla_topic}-copy"
    urls = [f"kafka://{bootstrap}/{topic}" for topic in (ottla_topic, copy)]
    async with Producer(bootstrap) as producer:
        for at in (AGO, AGO, 0, AGO + 1):
            await producer.send(ottla_topic, b"v", timestamp_ms=at)
    with pytest.raises(DeliveryError, match="librdkafka cannot write the time 0"):
        await relay_streams(*urls, until_end=True, strict=True)
    async with Reader(bootstrap, copy, stop="latest") as reader:
        assert len(await reader.read_many(9)) == 2
    said: list[str] = []
    await relay_streams(*urls, until_end=True, warn=said.append)
    assert [sentence.partition(":")[0] for sentence in said] == [
        f"the output does not keep the time 0 of {ottla_topic}/0 at 2"
    ]
    async with connect(urls[1]) as streamer, streamer.producer() as sender:
        with pytest.raises(DeliveryError, match="librdkafka cannot write the time 0"):
            await (await sender.send(b"x", timestamp=datetime.fromtimestamp(0, UTC)))


async def test_a_relay_from_redis_that_hears_nothing_yet_goes_on(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis cannot say how much is left, only whether something is."""
    url = f"{redis_server.url}/slow-{tmp_path.name}"
    await tick(url, 0, 3)
    asked, lags = asyncio.Event(), list[object]()
    read, lag = Lane.read, RedisSource.lag

    async def late(lane: Lane, limit: int) -> list[Found]:
        with suppress(TimeoutError):  # a relay that does not ask again reads nothing before its end
            await asyncio.wait_for(asked.wait(), 5)
        return await read(lane, limit)

    async def counted(
        source: RedisSource, positions: Mapping[ShardKey, int]
    ) -> dict[ShardKey, int | None]:
        if lags:
            asked.set()
        lags.append(positions)
        return await lag(source, positions)

    monkeypatch.setattr(Lane, "read", late)
    monkeypatch.setattr(RedisSource, "lag", counted)
    tally = Tally()
    async with asyncio.timeout(30):
        await relay_streams(url, f"file://{tmp_path}/o.ss/o", until_end=True, tally=tally)
    assert tally.total == 3


async def test_a_relay_from_redis_ends_where_the_last_entries_were_deleted(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    stream = f"cut-{tmp_path.name}"
    await tick(f"{redis_server.url}/{stream}", 0, 3)
    async with Redis.from_url(redis_server.url) as client:
        last: Any = await client.xrevrange(stream, count=1)
        assert await client.xdel(stream, last[0][0]) == 1
    output = f"file://{tmp_path}/o.ss/o"
    async with asyncio.timeout(30):
        await relay_streams(f"{redis_server.url}/{stream}", output, until_end=True)
    assert await payloads(output) == ["tick-0", "tick-1"]


@pytest.mark.parametrize("store", ["kafka", "redis"])
async def test_a_relay_ends_although_messages_keep_coming(
    tmp_path: Path,
    redis_server: RedisServer,
    ottla_broker: EmbeddedBroker,
    ottla_topic: str,
    monkeypatch: pytest.MonkeyPatch,
    store: str,
) -> None:
    """The end is that of the moment the relay starts."""
    servers = {"kafka": f"kafka://{ottla_broker.bootstrap}", "redis": redis_server.url}
    url = f"{servers[store]}/{ottla_topic}"
    await tick(url, 0, 3)
    deliver = _Copy._deliver
    offsets, tally = MemoryOffsetStore(), Tally()

    async def and_one_more(copy: _Copy, messages: Sequence[Message], tally: Tally) -> None:
        await deliver(copy, messages, tally)
        await tick(url, 0, 1)

    monkeypatch.setattr(_Copy, "_deliver", and_one_more)
    output = f"file://{tmp_path}/o.ss/o"
    async with asyncio.timeout(30):
        for least in (3, 4):  # the second run has the one more of the first
            await relay_streams(url, output, until_end=True, offsets=offsets, tally=tally)
            assert tally.total >= least

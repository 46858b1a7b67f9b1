"""Redis without groups on a real server: starts, moves, shards, ids, connections."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import pytest
from redis.asyncio import Redis

from ottla.offsets import MemoryOffsetStore, OffsetKey
from ottla.streams import (
    BEGINNING,
    END,
    At,
    AutoCommit,
    ConnectOptions,
    ConsumerOptions,
    Mode,
    ProducerOptions,
    RedisOptions,
    Reset,
    connect,
)
from ottla.streams.backends.redis import RedisDriver
from ottla.streams.errors import (
    ConnectError,
    DeliveryError,
    GroupIsSet,
    GroupNotSet,
    NoStoredPosition,
    PositionOutOfRange,
    StreamError,
    StreamKeyNotFound,
    Unsupported,
)
from ottla.streams.types import from_ns
from tests.services import running_redis
from tests.support.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from ottla.streams import Consumer, Message
    from tests.services import RedisServer

_numbers = count()
FAST = RedisOptions(block=0.2, shard_refresh=0.2)
EARLIEST = ConsumerOptions(reset=Reset.EARLIEST)


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[Any]:
    async with Redis(host=redis_server.host, port=redis_server.port) as one:
        yield one


@pytest.fixture
def stream() -> str:
    return f"plain-{next(_numbers)}"


@pytest.fixture
def url(redis_server: RedisServer, stream: str) -> str:
    return f"{redis_server.url}/{stream}"


def fast(**more: Any) -> ConnectOptions:
    return ConnectOptions(timeout=10, redis=replace(FAST, **more))


async def take(consumer: Consumer, number: int) -> list[Message]:
    return [await consumer.next(5) for _ in range(number)]


async def test_t20_t21_rewind_is_inclusive_and_seek_goes_to_a_later_millisecond(url: str) -> None:
    start = datetime(2020, 1, 1, tzinfo=UTC)
    async with connect(url, fast()) as streamer:
        async with streamer.producer() as producer:
            for number in range(6):  # two in each millisecond
                when = start + timedelta(milliseconds=number // 2)
                await (await producer.send(b"%d" % number, timestamp=when))
        async with streamer.consumer(options=EARLIEST) as consumer:
            every = await take(consumer, 6)
            assert [one.timestamp_ns // 10**6 % 10 for one in every] == [0, 0, 1, 1, 2, 2]
            await consumer.rewind(At(every[3].seq))
            assert (await consumer.next(5)).payload == b"3"
            await consumer.seek(every[0].timestamp)
            assert (await consumer.next(5)).payload == b"2"
            await consumer.rewind(BEGINNING)
            assert (await consumer.next(5)).payload == b"0"
            await consumer.rewind(END)
            assert await consumer.batch(1, 0.3) == []


async def test_t24_the_first_message_of_a_quiet_stream_is_not_lost(
    redis_server: RedisServer, client: Any, stream: str
) -> None:
    busy, quiet = f"{stream}-busy", f"{stream}-quiet"
    await client.xadd(busy, {"msg": b"old"})
    await client.xadd(quiet, {"msg": b"old"})
    async with (
        connect(f"{redis_server.url}/{busy},{quiet}", fast()) as streamer,
        streamer.consumer() as consumer,
    ):
        for _ in range(20):
            await client.xadd(busy, {"msg": b"b"})
        await client.xadd(quiet, {"msg": b"q"})
        taken = await take(consumer, 21)
    assert [one.payload for one in taken if one.stream == quiet] == [b"q"]


async def test_t27_a_missing_stream(url: str, client: Any, stream: str) -> None:
    for options in (
        ConsumerOptions(),
        ConsumerOptions(mode=Mode.RESUMABLE, group="g"),
        ConsumerOptions(mode=Mode.LOAD_BALANCED, group="g"),
    ):
        async with connect(url, fast()) as streamer:
            with pytest.raises(StreamKeyNotFound, match="mkstream"):
                async with streamer.consumer(options=options):
                    pass
    for options in (ConsumerOptions(), ConsumerOptions(mode=Mode.RESUMABLE, group="g")):
        async with (
            connect(url, fast(mkstream=True)) as streamer,
            streamer.consumer(options=options) as consumer,
        ):
            assert await consumer.batch(1, 0.1) == []
            await client.xadd(stream, {"msg": b"x"})
            assert (await consumer.next(5)).payload == b"x"
        await client.delete(stream)


@pytest.mark.long("the driver's timeout is 5 seconds")
async def test_t32_a_read_blocks_longer_than_the_drivers_timeout(
    url: str, client: Any, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    await client.xadd(stream, {"msg": b"old"})
    # redis-py gives up after 5 s unless it is told otherwise; here the connection itself is silent.
    options = ConnectOptions(timeout=10, redis=RedisOptions(block=6.0))
    async with connect(url, options) as streamer, streamer.consumer() as consumer:
        await asyncio.sleep(0.1)
        before = {one["id"] for one in await client.client_list()}
        assert await consumer.batch(1, 5.8) == []
        assert {one["id"] for one in await client.client_list()} >= before
        await client.xadd(stream, {"msg": b"new"})
        assert (await consumer.next(5)).payload == b"new"
    assert "lost" not in caplog.text


@pytest.mark.parametrize("extra", [{"protocol": 2}, {"protocol": 3}, {"legacy_responses": False}])
async def test_t33_every_protocol_gives_equal_messages(
    url: str, client: Any, stream: str, extra: dict[str, object]
) -> None:
    await client.xadd(stream, {"msg": b"x", "h": b"1"}, id="5-1")
    async with connect(url, fast(extra=extra)) as streamer:
        group = replace(EARLIEST, mode=Mode.RESUMABLE, group="g", auto_commit=AutoCommit.DISABLED)
        for options in (EARLIEST, group):
            for delivery in (1,) if options is EARLIEST else (1, 2):
                async with streamer.consumer(options=options) as consumer:
                    (message,) = await take(consumer, 1)
                assert (message.payload, message.headers, message.native_id) == (
                    b"x",
                    (("h", b"1"),),
                    "5-1",
                )
                assert message.delivery == delivery


async def test_t34_shards_are_found_also_later(url: str, client: Any, stream: str) -> None:
    await client.set(f"{stream}:7", "a string")
    await client.xadd(f"{stream}:x", {"msg": b"no shard"})
    async with connect(url, fast()) as streamer:
        sharded = ProducerOptions(redis=RedisOptions(shards=3))
        async with streamer.producer(options=sharded) as producer:
            receipts = [await (await producer.send(b"%d" % n)) for n in range(6)]
        assert [one.shard for one in receipts] == [0, 1, 2, 0, 1, 2]
        async with streamer.consumer(options=EARLIEST) as consumer:
            taken = await take(consumer, 6)
            assert {(one.shard, one.payload) for one in taken} == {
                (n % 3, b"%d" % n) for n in range(6)
            }
            await client.xadd(f"{stream}:11", {"msg": b"late"})
            late = await consumer.next(5)
            assert (late.shard, late.payload) == (11, b"late")


async def test_assigned_shards_are_the_only_ones_read(url: str, client: Any, stream: str) -> None:
    for shard in range(3):
        await client.xadd(f"{stream}:{shard}", {"msg": b"%d" % shard})
    async with connect(url, fast()) as streamer, streamer.consumer(options=EARLIEST) as consumer:
        consumer.assign(stream, 1)
        await consumer.rewind(BEGINNING)
        assert [one.payload for one in await consumer.batch(9, 5)] == [b"1"]
        assert await consumer.batch(9, 0.5) == []


async def test_t35_field_and_explicit_timestamp(url: str, client: Any, stream: str) -> None:
    when = datetime(2021, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)
    async with connect(url, fast(field="data")) as streamer, streamer.producer() as producer:
        receipt = await (await producer.send(b"x", timestamp=when))
        assert from_ns(receipt.timestamp_ns) == when
        with pytest.raises(DeliveryError, match="older than the last"):
            await (await producer.send(b"y", timestamp=when - timedelta(seconds=1)))
        ((native, fields),) = await client.xrange(stream)
        assert (native, fields) == (b"%d-0" % (when.timestamp() * 1000), {b"data": b"x"})
        async with streamer.consumer(options=EARLIEST) as consumer:
            assert (await consumer.next(5)).timestamp == when


async def test_t26_nanosecond_ids_on_the_server(url: str) -> None:
    async with connect(url, fast(timestamp_format="ns")) as streamer:
        async with streamer.producer() as producer:
            receipt = await (await producer.send(b"x"))
        async with streamer.consumer(options=EARLIEST) as consumer:
            message = await consumer.next(5)
    assert (message.seq, message.timestamp_ns) == (receipt.seq, receipt.timestamp_ns)
    assert abs(message.timestamp - datetime.now(UTC)) < timedelta(minutes=1)


async def test_t09_cancelling_next_loses_nothing(url: str) -> None:
    rng = random.Random(9)
    async with connect(url, fast()) as streamer:
        async with streamer.producer() as producer:
            for number in range(1500):
                await producer.send(b"%d" % number)
            await producer.flush()
        options = ConsumerOptions(
            mode=Mode.RESUMABLE,
            group="g",
            reset=Reset.EARLIEST,
            auto_commit=AutoCommit.ROLLING,
            drain_timeout=0,
        )
        got: list[bytes] = []
        async with streamer.consumer(options=options) as consumer:

            async def one() -> None:
                message = await consumer.next()
                got.append(message.payload)
                consumer.ack(message)

            for _ in range(1000):
                task = asyncio.create_task(one())
                for _ in range(rng.randrange(3)):
                    await asyncio.sleep(0)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            while len(got) < 1500:
                await asyncio.wait_for(one(), 5)
    assert got == [b"%d" % number for number in range(1500)]


async def test_an_external_store_says_where_to_start(url: str, client: Any, stream: str) -> None:
    store = MemoryOffsetStore()
    for number in range(5):
        await client.xadd(stream, {"msg": b"%d" % number}, id=f"{number + 1}-0")
    options = ConsumerOptions(
        mode=Mode.RESUMABLE, group="g", offsets=store, auto_commit=AutoCommit.DISABLED
    )
    async with connect(url, fast()) as streamer:
        async with streamer.consumer(options=options) as consumer:
            taken = await take(consumer, 3)
            for message in taken[:2]:
                consumer.ack(message)
            await consumer.commit()
        assert await store.load(OffsetKey("g", stream, 0)) == taken[2].seq
        async with streamer.consumer(options=options) as consumer:
            assert [one.payload for one in await take(consumer, 3)] == [b"2", b"3", b"4"]
    assert await client.xinfo_groups(stream) == []


async def test_positions_that_cannot_be_are_refused(url: str, client: Any, stream: str) -> None:
    await client.xadd(stream, {"msg": b"x"}, id="5-0")
    store = MemoryOffsetStore()
    group = ConsumerOptions(mode=Mode.RESUMABLE, group="g", reset=Reset.NONE)
    async with connect(url, fast()) as streamer:
        with pytest.raises(NoStoredPosition):
            async with streamer.consumer(options=group):
                pass
        await store.save(OffsetKey("g", stream, 0), 9 << 16)
        stored = ConsumerOptions(mode=Mode.RESUMABLE, group="g", offsets=store)
        with pytest.raises(PositionOutOfRange, match="on_out_of_range"):
            async with streamer.consumer(options=stored):
                pass


async def test_trim(url: str, client: Any, stream: str) -> None:
    for number in range(10):
        await client.xadd(stream, {"msg": b""}, id=f"{number + 1}-0")
    async with connect(url, fast()) as streamer:
        driver = streamer.driver
        assert isinstance(driver, RedisDriver)
        assert await driver.trim(stream, maxlen=8, approximate=False) == 2
        later = datetime(1970, 1, 1, microsecond=6000, tzinfo=UTC)
        assert await driver.trim(stream, min_ts=later, approximate=False) == 3


def test_t05_groups_and_what_redis_cannot_do(url: str) -> None:
    streamer = connect(url)
    with pytest.raises(GroupIsSet):
        streamer.consumer(options=ConsumerOptions(group="g"))
    with pytest.raises(GroupNotSet):
        streamer.consumer(options=ConsumerOptions(mode=Mode.LOAD_BALANCED))
    with pytest.raises(Unsupported, match="LOAD_BALANCED"):
        streamer.consumer(options=ConsumerOptions(mode=Mode.SHARED, group="g"))


async def test_credentials_and_database_of_the_url_count() -> None:
    with running_redis() as server:
        where = f"{server.host}:{server.port}"
        async with Redis(host=server.host, port=server.port) as client:
            await client.config_set("requirepass", "secret")
        with pytest.raises(ConnectError, match="credentials"):
            async with connect(f"redis://{where}/a", fast()):
                pass
        async with connect(f"redis://:secret@{where}/3/a", fast()) as streamer:
            async with streamer.producer() as producer:
                await (await producer.send(b"x"))
            async with streamer.consumer(options=EARLIEST) as consumer:
                assert (await consumer.next(5)).payload == b"x"
        async with Redis(host=server.host, port=server.port, password="secret", db=3) as client:
            assert await client.xlen("a") == 1


async def test_a_server_that_is_not_there() -> None:
    with pytest.raises(ConnectError, match="check that the server runs"):
        async with connect("redis://127.0.0.1:1/a", fast()):
            pass


def certify(certificate: Path, key: Path) -> None:
    what = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1")
    whom = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run(["openssl", *what, *whom, *files], check=True, capture_output=True)


async def test_a_consumer_closes_while_its_server_is_gone() -> None:
    with running_redis() as server:
        streamer = connect(f"{server.url}/a", fast(mkstream=True))
        await streamer.__aenter__()
        consumer = await streamer.consumer().__aenter__()
    await asyncio.sleep(0.5)  # some attempts fail, and the next is a second away
    async with asyncio.timeout(5):
        await consumer.close()
        await streamer.close()


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port that nobody listens on, nor will."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def direct(pool: Any, port: int) -> None:
    """Connections are made to this port from now on, also by those that are in use."""
    pool.connection_kwargs["port"] = port
    for connection in (*pool._available_connections, *pool._in_use_connections):
        connection.port = port


@pytest.mark.parametrize("mode", [Mode.REAL_TIME, Mode.RESUMABLE, Mode.LOAD_BALANCED])
async def test_a_consumer_goes_on_after_an_outage(
    redis_server: RedisServer,
    nobody: int,
    client: Any,
    stream: str,
    mode: Mode,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also if it looks for new shards meanwhile; and its calls raise errors of ours."""
    group = None if mode is Mode.REAL_TIME else "g"
    options = ConsumerOptions(
        mode=mode, group=group, reset=Reset.EARLIEST, auto_commit=AutoCommit.DISABLED
    )
    await client.xadd(stream, {"msg": b"before"})
    async with (
        connect(f"{redis_server.url}/{stream}", fast(shard_refresh=0.05)) as streamer,
        streamer.consumer(options=options) as consumer,
    ):
        assert (await consumer.next(5)).payload == b"before"
        pool: Any = cast("Redis", consumer.native).connection_pool
        port = pool.connection_kwargs["port"]
        direct(pool, nobody)
        await pool.disconnect()
        async with asyncio.timeout(10):
            while "could not look for new shards" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for call in (
            consumer.lag,
            lambda: consumer.rewind(BEGINNING),
            lambda: cast("RedisDriver", streamer.driver).trim(stream, maxlen=1),
            lambda: streamer.consumer(options=options).__aenter__(),
        ):
            with pytest.raises(StreamError, match="Redis could not"):
                await call()
        direct(pool, port)
        await client.xadd(stream, {"msg": b"after"})
        assert (await consumer.next(10)).payload == b"after"


async def test_a_rewind_beyond_all_ids_is_refused(url: str, client: Any, stream: str) -> None:
    await client.xadd(stream, {"msg": b"x"})
    async with connect(url, fast()) as streamer, streamer.consumer(options=EARLIEST) as consumer:
        with pytest.raises(StreamError, match="beyond the ids of Redis"):
            await consumer.rewind(At(1 << 80))
        assert (await consumer.next(5)).payload == b"x"


async def test_a_key_of_another_type_is_told(url: str, client: Any, stream: str) -> None:
    await client.set(stream, b"x")
    async with connect(url, fast()) as streamer:
        for options in (EARLIEST, ConsumerOptions(mode=Mode.LOAD_BALANCED, group="g")):
            with pytest.raises(StreamError, match="could not open the streams: WRONGTYPE"):
                async with streamer.consumer(options=options):
                    pass


async def test_a_key_that_becomes_another_type_is_told(url: str, client: Any, stream: str) -> None:
    await client.xadd(stream, {"msg": b"x"})
    async with connect(url, fast()) as streamer, streamer.consumer(options=EARLIEST) as consumer:
        await consumer.next(5)
        await client.set(stream, b"x")
        with pytest.raises(StreamError, match="could not read the streams: WRONGTYPE"):
            await consumer.next(5)


async def test_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certify(certificate, key)
    with running_redis() as plain:
        port = plain.port
    tls = ("--tls-port", str(port), "--tls-auth-clients", "no")
    files = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    with running_redis(*tls, *files) as server:
        url = f"rediss://{server.host}:{port}/a"
        async with connect(url, fast(tls_ca_file=str(certificate))) as streamer:
            async with streamer.producer() as producer:
                await (await producer.send(b"x"))
            async with streamer.consumer(options=EARLIEST) as consumer:
                assert (await consumer.next(5)).payload == b"x"
        with pytest.raises(ConnectError):
            async with connect(url, fast()):
                pass


async def become_a_cluster(server: RedisServer) -> None:
    """Of one node, which refuses commands on several slots like any other."""
    node: Any = Redis(host=server.host, port=server.port)
    async with node, asyncio.timeout(20):
        await node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        while (await node.cluster("INFO"))["cluster_state"] != "ok":  # noqa: ASYNC110  # no event
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("hash_tag", [False, True])
async def test_a_cluster_never_sees_keys_of_two_slots_in_one_command(hash_tag: bool) -> None:
    # The bus would be ten thousand ports above, which may be more than there are.
    (bus,) = free_ports(1)
    with running_redis("--cluster-enabled", "yes", "--cluster-port", str(bus)) as server:
        await become_a_cluster(server)
        options = fast(cluster=True, hash_tag=hash_tag, shards=3)
        async with connect(f"{server.url}/a,b", options) as streamer:
            async with streamer.producer() as producer:
                for number in range(30):
                    await producer.send(b"%d" % number, stream="ab"[number % 2])
                await producer.flush()
            group = ConsumerOptions(mode=Mode.LOAD_BALANCED, group="g", reset=Reset.EARLIEST)
            async with streamer.consumer(options=group) as consumer:
                taken = [one.payload for one in await take(consumer, 30)]
    assert sorted(taken) == sorted(b"%d" % number for number in range(30))

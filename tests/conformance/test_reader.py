"""The Reader against real brokers: what confluent-kafka writes is read back, whatever happens.

Most tests use Ottla's broker. Those of `bootstrap` run against Apache Kafka as well, where there is
a JVM. Leaders that move and answers that are lost are in tests/integration/client/test_reader.py.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

import ottla
from ottla.client.cluster.cluster import Client
from ottla.client.errors import ClientClosed, KafkaError
from ottla.client.reader.types import DataLost, Timestamp, TopicRecreated
from ottla.wire.arrow import SCHEMA
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

NOW = 1_700_000_000_000
PATIENCE = 30.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FILLER = b"ottla " * 60

_numbers = count(1)


def produce(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    keys: Sequence[bytes] = (b"k",),
    stamp: int = NOW,
    **settings: Any,
) -> None:
    """One record per value, a millisecond apart, under keys in turn."""
    # One request at a time, lest a retry change the order; an idempotent one would wait for its id
    # half a second each time.
    fixed = {"bootstrap.servers": bootstrap, "log_level": 0, "max.in.flight": 1}
    client = Producer({**fixed, "linger.ms": 5, **settings})
    for number, value in enumerate(values):
        client.produce(
            topic,
            value,
            keys[number % len(keys)],
            partition=partition,
            timestamp=stamp + number,
            headers=[("n", b"%d" % number), ("none", None)],
        )
    assert client.flush(PATIENCE) == 0


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


async def values(reader: ottla.Reader, limit: int | None = None) -> list[bytes | None]:
    """All values to the end, or until there are this many; a read that hangs is a failure."""
    found: list[bytes | None] = []
    async with asyncio.timeout(PATIENCE):
        async for batch in reader:
            found += batch.column("value").to_pylist()
            if limit is not None and len(found) >= limit:
                break
    return found


@pytest.fixture(params=["ottla", "apache"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Each of the brokers that must not make a difference."""
    if request.param == "apache":
        found: str = request.getfixturevalue("apache_bootstrap")
        return found
    broker: ottla.EmbeddedBroker = request.getfixturevalue("ottla_broker")
    return broker.bootstrap


@pytest.fixture
async def topic(bootstrap: str) -> str:
    """A topic of two partitions on that broker."""
    name = f"reader-{next(_numbers)}"
    async with ottla.Admin(bootstrap) as admin:
        await admin.create_topic(name, partitions=2)
    return name


@pytest.mark.parametrize("codec", CODECS)
async def test_every_codec_reads_back_equal(bootstrap: str, topic: str, codec: str) -> None:
    wanted: list[bytes | None] = [FILLER + b"%d" % n for n in range(1000)]
    wanted[7:9] = [None, b""]
    settings: dict[str, Any] = {"compression.type": codec, "batch.num.messages": 100}
    produce(bootstrap, topic, wanted, partition=1, keys=(b"a", b""), **settings)
    columns = SCHEMA.names
    async with ottla.Reader(bootstrap, topic, stop="latest", columns=columns) as reader:
        table = pa.Table.from_batches([batch async for batch in reader], SCHEMA)
        assert reader.positions == {0: 0, 1: 1000}
        assert await reader.lag() == {0: 0, 1: 0}
    assert table.column("value").to_pylist() == wanted
    assert table.column("key").to_pylist() == [b"a", b""] * 500
    assert table.column("offset").to_pylist() == list(range(1000))
    assert set(table.column("partition").to_pylist()) == {1}
    assert set(table.column("topic").to_pylist()) == {topic}
    stamps = table.column("timestamp").cast(pa.int64()).to_pylist()
    assert stamps == [(NOW + n) * 1000 for n in range(1000)]
    assert table.column("headers").to_pylist()[3] == [
        {"key": "n", "value": b"3"},
        {"key": "none", "value": None},
    ]


async def test_starts_and_stops(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, numbered(0, 100))
    produce(bootstrap, topic, numbered(0, 10), partition=1)

    async def read(**where: Any) -> list[bytes | None]:
        async with ottla.Reader(bootstrap, topic, partitions=[0], **where) as reader:
            return await values(reader)

    at_50 = datetime.fromtimestamp((NOW + 50) / 1000, UTC)
    assert await read(stop="latest") == numbered(0, 100)
    assert await read(start=90, stop="latest") == numbered(90, 100)
    assert await read(start=20, stop=30) == numbered(20, 30)
    assert await read(start=at_50, stop=Timestamp(NOW + 60)) == numbered(50, 60)
    assert await read(start=Timestamp(NOW + 1000), stop="latest") == []
    assert await read(start="latest", stop="latest") == []
    assert await read(start=30, stop=30) == []
    assert await read(start="earliest", stop="earliest") == []
    async with ottla.Reader(
        bootstrap, topic, start={0: 95, 1: "earliest"}, stop={0: "latest", 1: 3}
    ) as reader:
        assert set(await values(reader)) == {*numbered(95, 100), *numbered(0, 3)}
        assert reader.positions == {0: 100, 1: 3}


async def test_what_comes_later_is_followed(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, numbered(0, 10))
    async with ottla.Reader(bootstrap, topic, start="latest") as reader:
        assert reader.positions == {0: 10, 1: 0}
        await asyncio.to_thread(produce, bootstrap, topic, numbered(10, 20))
        assert await values(reader, 10) == numbered(10, 20)
        assert reader.positions == {0: 20, 1: 0}


async def test_records_one_by_one(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, numbered(0, 2500))
    async with ottla.Reader(bootstrap, topic, stop="latest", partitions=[0]) as reader:
        records = reader.records()
        first = [await anext(records) for _ in range(1500)]
        assert reader.positions == {0: 1500}
        await records.aclose()  # type: ignore[attr-defined]  # it is a generator
        rest = await values(reader)
    assert [record.value for record in first] + rest == numbered(0, 2500)
    assert first[3] == ((topic, 0, 3, NOW + 3, 0, b"k", b"3", (("n", b"3"), ("none", None))))


async def test_seeks(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, numbered(0, 100))
    async with ottla.Reader(bootstrap, topic, stop={0: 50}, max_batch_rows=7) as reader:
        assert (await anext(reader)).column("value").to_pylist() == numbered(0, 7)
        await reader.seek(40)
        assert reader.positions == {0: 40}
        assert await values(reader) == numbered(40, 50)
        await reader.seek({0: Timestamp(NOW + 45)})
        assert await values(reader) == numbered(45, 50)
        await reader.seek("latest")
        assert await values(reader) == []
        with pytest.raises(ValueError, match=r"partitions \[1\] are not read"):
            await reader.seek({1: 0})


async def test_a_transaction_that_was_aborted(apache_bootstrap: str) -> None:
    name = f"reader-{next(_numbers)}"
    async with ottla.Admin(apache_bootstrap) as admin:
        await admin.create_topic(name)

    def write() -> None:
        producer = Producer(
            {"bootstrap.servers": apache_bootstrap, "transactional.id": name, "log_level": 0}
        )
        producer.init_transactions(PATIENCE)
        for number in range(6):
            producer.begin_transaction()
            for at in range(10):
                producer.produce(name, b"%d.%d" % (number, at))
            producer.flush(PATIENCE)
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(PATIENCE)

    await asyncio.to_thread(write)
    every = [b"%d.%d" % (number, at) for number in range(6) for at in range(10)]
    committed = [value for value in every if value[:1] in b"024"]
    # The last marker may be yet to be written; a stop by offset waits for it.
    async with ottla.Reader(apache_bootstrap, name, stop=66) as reader:
        assert await values(reader) == every
        assert reader.positions == {0: 66}
    async with ottla.Reader(
        apache_bootstrap, name, stop=66, isolation_level="read_committed"
    ) as reader:
        assert await values(reader) == committed
        assert reader.positions == {0: 66}


# -- Ottla's broker alone: it can be stopped, and told to delete -----------------------------------


async def test_a_broker_that_restarts_in_the_middle(tmp_path: Path) -> None:
    port = free_port()
    broker = ottla.EmbeddedBroker(tmp_path, port=port)
    broker.start()
    try:
        broker.create_topic("t")
        produce(broker.bootstrap, "t", numbered(0, 1000))
        async with ottla.Reader(broker.bootstrap, "t", max_batch_rows=100) as reader:
            first = (await anext(reader)).column("value").to_pylist()
            await asyncio.to_thread(broker.stop)
            broker = ottla.EmbeddedBroker(tmp_path, port=port)
            await asyncio.to_thread(broker.start)
            await asyncio.to_thread(produce, broker.bootstrap, "t", numbered(1000, 1500))
            assert first + await values(reader, 1400) == numbered(0, 1500)
    finally:
        broker.stop()


async def test_cancelling_loses_nothing(
    ottla_broker: ottla.EmbeddedBroker, ottla_topic: str
) -> None:
    found: list[bytes | None] = []
    async with ottla.Reader(ottla_broker.bootstrap, ottla_topic) as reader:
        for number in range(0, 200, 10):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.001 * (number % 30)):
                    while True:
                        found += (await anext(reader)).column("value").to_pylist()
            more = numbered(number, number + 10)
            await asyncio.to_thread(produce, ottla_broker.bootstrap, ottla_topic, more)
        found += await values(reader, 200 - len(found))
    assert found == numbered(0, 200)


async def test_compaction_leaves_gaps(tmp_path: Path) -> None:
    config = {"log.cleaner.backoff.ms": "50", "log.segment.bytes": "1048576"}
    with ottla.EmbeddedBroker(tmp_path, config=config) as broker:
        broker.create_topic(
            "t", configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        )
        keys = [b"%d" % number for number in range(10)]
        for start in range(0, 1000, 100):
            values_of = [b"%d" % n + b"x" * 5000 for n in range(start, start + 100)]
            produce(broker.bootstrap, "t", values_of, keys=keys)

        async def read() -> list[int]:
            async with ottla.Reader(broker.bootstrap, "t", stop="latest") as reader:
                batches = [batch async for batch in reader]
                assert reader.positions == {0: 1000}
            return [one for batch in batches for one in batch.column("offset").to_pylist()]

        async with asyncio.timeout(PATIENCE):
            while len(offsets := await read()) == 1000:
                pass
        assert offsets == sorted(set(offsets))
        assert offsets[-10:] == list(range(990, 1000))


async def test_retention_moves_the_start_under_the_reader(
    ottla_broker: ottla.EmbeddedBroker, ottla_topic: str
) -> None:
    bootstrap = ottla_broker.bootstrap
    for start in range(0, 100, 10):
        produce(bootstrap, ottla_topic, numbered(start, start + 10))
    async with ottla.Admin(bootstrap) as admin:
        await admin.delete_records({(ottla_topic, 0): 60})
    async with ottla.Reader(bootstrap, ottla_topic, start=5, stop="latest") as reader:
        for _ in range(2):
            with pytest.raises(DataLost, match=r"at offset 5: OFFSET_OUT_OF_RANGE; .*on_data_loss"):
                await anext(reader)
        assert reader.positions == {0: 5}
        await reader.seek("earliest")
        assert await values(reader) == numbered(60, 100)
    lossy: dict[str, Any] = {"stop": "latest", "on_data_loss": "earliest"}
    async with ottla.Reader(bootstrap, ottla_topic, start=5, **lossy) as reader:
        assert await values(reader) == numbered(60, 100)
    lossy["stop"] = 50
    async with ottla.Reader(bootstrap, ottla_topic, start=5, **lossy) as reader:
        assert await values(reader) == []
        assert reader.positions == {0: 60}


async def test_a_topic_that_is_made_anew(
    ottla_broker: ottla.EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    bootstrap = ottla_broker.bootstrap
    name = new_topic()
    produce(bootstrap, name, numbered(0, 10))
    async with (
        ottla.Reader(bootstrap, name) as strict,
        ottla.Reader(bootstrap, name, on_data_loss="earliest") as lax,
    ):
        assert await values(strict, 10) == await values(lax, 10) == numbered(0, 10)
        ottla_broker.delete_topic(name)
        ottla_broker.create_topic(name, partitions=2)
        await asyncio.to_thread(produce, bootstrap, name, numbered(50, 60), partition=1)
        with pytest.raises(TopicRecreated, match="deleted and created again"):
            await anext(strict)
        assert await values(lax, 10) == numbered(50, 60)
    async with Client(bootstrap) as client:
        with pytest.raises(TopicRecreated):
            async with ottla.Reader(client, name, topic_id=b"x" * 16):
                pass
        async with ottla.Reader(client, name, stop="latest") as reader:
            assert await values(reader) == numbered(50, 60)
        assert name in (await client.topics([name]))


async def test_partitions_that_are_added_are_read(
    ottla_broker: ottla.EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    bootstrap, name = ottla_broker.bootstrap, new_topic()
    async with ottla.Reader(bootstrap, name, start="latest", metadata_max_age=0.05) as reader:
        async with ottla.Admin(bootstrap) as admin:
            await admin.create_partitions(name, 3)
        await asyncio.to_thread(produce, bootstrap, name, numbered(0, 5), partition=2)
        assert await values(reader, 5) == numbered(0, 5)
        assert reader.partitions == [0, 1, 2]


async def test_reading_ahead_is_bounded(
    ottla_broker: ottla.EmbeddedBroker, ottla_topic: str
) -> None:
    bootstrap = ottla_broker.bootstrap
    limit = 200_000
    small_batches: dict[str, Any] = {"batch.num.messages": 10}
    produce(bootstrap, ottla_topic, [b"x" * 1000] * 3000, **small_batches)
    async with ottla.Reader(bootstrap, ottla_topic, stop="latest", prefetch=limit) as reader:
        rows = largest = 0
        async for batch in reader:
            rows += batch.num_rows
            await asyncio.sleep(0.002)
            largest = max(largest, reader.buffered_bytes)
        # Offsets, timestamps and lengths come on top of what was fetched.
        assert rows == 3000
        assert limit / 4 < largest < limit * 1.2


async def test_slices_of_rows_and_bytes(
    ottla_broker: ottla.EmbeddedBroker, ottla_topic: str
) -> None:
    produce(ottla_broker.bootstrap, ottla_topic, numbered(0, 1000))
    options: dict[str, Any] = {"stop": "latest", "columns": ["value"]}
    each: list[dict[str, Any]] = [
        {"max_batch_rows": 64},
        {"max_batch_bytes": 640},
        {"max_batch_bytes": 1},
    ]
    for limits in each:
        async with ottla.Reader(ottla_broker.bootstrap, ottla_topic, **options, **limits) as reader:
            found: list[bytes | None] = []
            async for batch in reader:
                assert batch.schema.names == ["value"]
                assert batch.num_rows <= limits.get("max_batch_rows", 640)
                found += batch.column("value").to_pylist()
                assert reader.positions == {0: len(found)}
            assert found == numbered(0, 1000)
    async with ottla.Reader(ottla_broker.bootstrap, ottla_topic, columns=["value"]) as reader:
        with pytest.raises(ValueError, match="need all columns"):
            await anext(reader.records())


async def test_a_topic_that_is_not_there(ottla_broker: ottla.EmbeddedBroker) -> None:
    with pytest.raises(KafkaError, match="find topic 'nowhere': UNKNOWN_TOPIC_OR_PARTITION"):
        async with ottla.Reader(ottla_broker.bootstrap, "nowhere"):
            pass


async def test_a_partition_that_is_not_there(
    ottla_broker: ottla.EmbeddedBroker, ottla_topic: str
) -> None:
    with pytest.raises(KafkaError, match=rf"{ottla_topic}-7: UNKNOWN_TOPIC_OR_PARTITION"):
        async with ottla.Reader(ottla_broker.bootstrap, ottla_topic, partitions=[7]):
            pass


async def test_a_reader_that_is_closed(
    ottla_broker: ottla.EmbeddedBroker, ottla_topic: str
) -> None:
    async with ottla.Reader(ottla_broker.bootstrap, ottla_topic) as reader:
        pass
    with pytest.raises(ClientClosed, match=r"\(async\) with"):
        await anext(reader)

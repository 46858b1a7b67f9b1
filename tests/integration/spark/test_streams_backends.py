"""Redis Streams and `.ss` files as sources."""

from __future__ import annotations

import itertools
import pickle
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import redis

from ottla.spark.backend import Backend, Limit, make_backend
from ottla.spark.errors import BadOption, DataLoss, SparkError
from ottla.spark.options import Mode, parse_source
from ottla.spark.stores import redis as redis_backend
from ottla.spark.stores import ss as ss_backend
from ottla.spark.stores.redis import IDS
from ottla.streams.ss.writer import SsWriter, runs
from ottla.streams.types import Create, FileOptions, Outgoing
from ottla.wire.arrow import SCHEMA
from ottla.wire.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ottla.spark.backend import Offset
    from tests.services import RedisServer

ALL = Limit()
_names = itertools.count(1)


def rows(
    source: Backend, start: Offset, end: Offset, columns: Sequence[str] = ("topic", "value")
) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for task in pickle.loads(pickle.dumps(source.plan(start, end))):
        for batch in source.read(task, columns):
            assert batch.schema.names == list(columns)
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return found


# -- Redis -----------------------------------------------------------------------------------------


class Stream:
    """A stream of one Redis, and sources that read it."""

    def __init__(self, server: RedisServer, client: redis.Redis) -> None:
        self.url = f"redis://{server.host}:{server.port}/0"
        self.name = f"spark-{next(_names)}"
        self.client = client

    def add(self, count: int, key: str | None = None) -> list[str]:
        client: Any = self.client
        return [
            client.xadd(key or self.name, {"msg": str(number)}).decode() for number in range(count)
        ]

    def source(self, mode: Mode = "stream", /, **options: str) -> Backend:
        given = {"store": "redis", "path": self.url, "subscribe": self.name, "longPollMs": "1"}
        given["startingOffsets"] = "earliest"
        return make_backend(parse_source({**given, **options}, mode))


@pytest.fixture
def stream(redis_server: RedisServer) -> Iterator[Stream]:
    client = redis.Redis(host=redis_server.host, port=redis_server.port, protocol=2)
    yield Stream(redis_server, client)
    client.close()


def test_entries_are_rows(stream: Stream) -> None:
    added: Any = stream.client.xadd(stream.name, {"msg": "v", "key": "k", "shop": "7"})
    native = added.decode()
    source = stream.source("batch", includeHeaders="true")
    bounds = source.bounds()
    (task,) = source.plan(*bounds)
    (batch,) = source.read(task, COLUMNS)
    assert batch.schema == SCHEMA
    (row,) = batch.to_pylist()
    milliseconds = int(native.partition("-")[0])
    assert int(row.pop("timestamp").timestamp() * 1000 + 0.5) == milliseconds
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": stream.name,
        "partition": 0,
        "offset": IDS.to_seq(native),
        "timestampType": 0,
        "headers": [{"key": "shop", "value": b"7"}],
    }


def test_batches_are_the_same_when_they_are_read_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_backend, "PAGE", 3)
    stream.add(10)
    source = stream.source()
    start = source.bounds().first
    end = source.advance(start, ALL)
    stream.add(2)
    expected = [(stream.name, str(number).encode()) for number in range(10)]
    assert rows(source, start, end) == expected
    # Another process knows the batch by its end alone.
    assert rows(stream.source(startingOffsets="latest"), {}, end) == expected
    more = source.advance(end, ALL)
    assert rows(source, end, more) == expected[:2]
    assert source.advance(more, ALL) is more


def test_limits_available_now_and_shards(stream: Stream) -> None:
    for shard in range(3):
        stream.add(5, key=f"{stream.name}:{shard}")
    source = stream.source()
    source.freeze()
    stream.add(1, key=f"{stream.name}:0")
    at = source.bounds().first
    sizes = []
    while (end := source.advance(at, Limit(max_rows=6))) is not at:
        found = rows(source, at, end, ("partition", "value"))
        assert {partition for partition, _ in found} == {0, 1, 2}
        sizes.append(len(found))
        at = end
    assert sizes == [6, 6, 3]


def test_latest_times_and_offsets(stream: Stream) -> None:
    native = stream.add(4)
    latest = stream.source(startingOffsets="latest")
    start = latest.bounds().first
    assert latest.advance(start, ALL) is start
    place = IDS.to_seq(native[2])
    given = stream.source("batch", startingOffsets=f'{{"{stream.name}": {{"0": {place}}}}}')
    assert [value for _, value in rows(given, *given.bounds())] == [b"2", b"3"]
    at = int(native[0].partition("-")[0])
    by_time = stream.source("batch", startingTimestamp=str(at))
    assert len(rows(by_time, *by_time.bounds())) == 4
    later = stream.source("batch", startingTimestamp=str(at + 10**6))
    assert rows(later, *later.bounds()) == []


def test_entries_that_are_gone_are_loss_and_those_done_with_are_not(stream: Stream) -> None:
    native = stream.add(6)
    strict, lenient = stream.source(), stream.source(failOnDataLoss="false")
    start = strict.bounds().first
    end = strict.advance(start, ALL)
    stream.client.xdel(stream.name, *native[3:])
    with pytest.raises(DataLoss, match=r"has been deleted or trimmed.*failOnDataLoss=false"):
        rows(strict, start, end)
    assert len(rows(lenient, start, end)) == 3
    stream.client.xtrim(stream.name, maxlen=0)
    assert strict.advance(end, ALL) is end
    stream.add(1)
    assert len(rows(strict, end, strict.advance(end, ALL))) == 1


def test_what_is_wrong_with_redis_is_told(stream: Stream) -> None:
    stream.client.xadd(stream.name, {"body": "x"})
    source = stream.source("batch")
    with pytest.raises(SparkError, match=r"no field 'msg'.*redisField"):
        rows(source, *source.bounds())
    named = stream.source("batch", redisField="body")
    assert rows(named, *named.bounds()) == [(stream.name, b"x")]
    with pytest.raises(SparkError, match="is the server running"):
        stream.source(path="redis://127.0.0.1:1/0").bounds()
    stream.client.set(f"{stream.name}-text", "x")
    with pytest.raises(BadOption, match="is not a stream"):
        stream.source(subscribe=f"{stream.name}-text").bounds()
    with pytest.raises(BadOption, match="redis://host:port/db"):
        stream.source(path="redis://h:port").bounds()


# -- .ss -------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "events.ss"
    append(path, 100)
    return path


def append(path: Path, count: int, *, eos: bool = False, first: int = 0) -> None:
    options = FileOptions(create=Create.IF_MISSING, beacon_interval=1024)
    with closing(SsWriter(str(path), options)) as writer:
        writer.append(
            runs(
                [
                    Outgoing("odd" if number % 2 else "even", b"%d" % number * 10, number % 3)
                    for number in range(first, first + count)
                ]
            )
        )
        writer.sync(eos=eos)


def ss(path: Path, mode: Mode = "stream", /, **options: str) -> Backend:
    given = {"store": "ss", "path": str(path), "startingOffsets": "earliest", "longPollMs": "1"}
    return make_backend(parse_source({**given, **options}, mode))


def numbers(found: list[tuple[Any, ...]]) -> list[int]:
    return [int(value[: len(value) // 10]) for _, value in found]


@pytest.mark.parametrize("task_bytes", [1, 2048, 1 << 30])
def test_a_file_is_read_whole_in_any_number_of_tasks(
    file: Path, monkeypatch: pytest.MonkeyPatch, task_bytes: int
) -> None:
    monkeypatch.setattr(ss_backend, "TASK_BYTES", task_bytes)
    source = ss(file, "batch")
    bounds = source.bounds()
    assert (len(source.plan(*bounds)) > 1) == (task_bytes < 1 << 30)
    assert numbers(rows(source, *bounds)) == list(range(100))


def test_a_file_grows_and_a_limit_holds(file: Path) -> None:
    source = ss(file)
    start = source.bounds().first
    end = source.advance(start, Limit(max_rows=30))
    assert numbers(rows(source, start, end)) == list(range(30))
    assert numbers(rows(ss(file, startingOffsets="latest"), {}, end)) == list(range(30))
    rest = source.advance(end, ALL)
    assert numbers(rows(source, end, rest)) == list(range(30, 100))
    assert source.advance(rest, ALL) is rest
    append(file, 10, first=100, eos=True)
    more = source.advance(rest, ALL)
    assert numbers(rows(source, rest, more)) == list(range(100, 110))
    assert source.advance(more, ALL) is more


def test_streams_of_a_file_are_chosen_by_name(file: Path) -> None:
    odd = ss(file, "batch", subscribe="odd")
    columns = ("topic", "partition", "offset", "value")
    found = rows(odd, *odd.bounds(), columns)
    assert {row[0] for row in found} == {"odd"}
    assert sorted(numbers([(row[0], row[3]) for row in found])) == list(range(1, 100, 2))
    by_shard = [[row[2] for row in found if row[1] == shard] for shard in range(3)]
    assert all(len(one) > 10 and one == sorted(set(one)) for one in by_shard)


def test_a_file_that_was_cut_is_loss(file: Path) -> None:
    strict, lenient = ss(file), ss(file, failOnDataLoss="false")
    start = strict.bounds().first
    end = strict.advance(start, ALL)
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(DataLoss, match=r"events\.ss ends at 2000, before"):
        strict.plan(start, end)
    with pytest.raises(DataLoss, match=r"events\.ss-0 ends at \d+, before"):
        strict.advance(end, ALL)
    found = numbers(rows(lenient, start, end))
    assert 10 < len(found) < 100
    assert found == list(range(len(found)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"store": "queue"}, "store is one of kafka, segments, redis, ss"),
        ({"store": "redis", "subscribe": "s"}, "needs the option path, which begins with redis://"),
        ({"store": "redis", "path": "redis://h"}, "needs the option subscribe"),
        ({"store": "ss", "path": "events.ss"}, "begins with /"),
        ({"store": "ss", "path": "/f", "offsetsGroup": "g"}, "offsetsGroup is for topics"),
        ({"store": "ss", "path": "/f", "minPartitions": "4"}, "minPartitions is for topics"),
    ],
)
def test_case_01_wrong_options(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        parse_source(options, "stream")


def test_places_that_a_file_does_not_have(file: Path) -> None:
    with pytest.raises(BadOption, match="names other-0, which the query does not read"):
        ss(file, startingOffsets='{"other": {"0": 5}}').bounds()
    with pytest.raises(BadOption, match="times cannot be looked up"):
        ss(file, startingTimestamp="5").bounds()

"""Tiered segments as a source: what comes from objects, what from the broker, and what is loss."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.log.index import OffsetIndex
from ottla.spark.backend import Limit
from ottla.spark.errors import BadOption, DataLoss
from ottla.spark.log import reading as log_reading
from ottla.spark.log.backend import LogBackend
from ottla.spark.log.pushdown import Bound, clipped
from ottla.spark.options import Mode, parse_source
from ottla.spark.tier import planning as tier_planning
from ottla.spark.tier.planning import Piece, cut, packed
from ottla.testing.embedded import EmbeddedBroker
from ottla.tier.reader import Split
from ottla.wire.arrow import batches_to_arrow
from tests.support import tiered_broker
from tests.support.s3 import moto_server, rsm_config
from tests.support.spark_source import delete_below, new_topic, rows, task_rows
from tests.support.spark_tier import upload_log, upload_topic
from tests.support.tier_logs import make_log
from tests.support.tiering import TIP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from ottla.log.partition import PartitionLog
    from ottla.spark.log.planning import Range
    from ottla.spark.options import SourceOptions
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata, TopicIdPartition

ALL = Limit()
RECORDS = 120
PARTITIONS = 2


class Tiered(NamedTuple):
    """A topic with most of its log in a store, and the rest with a broker."""

    broker: EmbeddedBroker
    topic: str
    url: str
    store: Path
    ends: dict[int, int]

    def source(self, mode: Mode = "stream", /, **options: str) -> LogBackend:
        found = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "tierUrl": self.url,
            "tierMinBytes": "0",
            "longPollMs": "20",
            **{name.replace("__", "."): value for name, value in options.items()},
        }
        return LogBackend(parse_source(found, mode))

    def offsets(self, at: int) -> dict[str, dict[str, int]]:
        return {self.topic: {str(number): at for number in range(PARTITIONS)}}

    def rows(self, first: int, end: int) -> list[tuple[int, int, bytes]]:
        return [
            (partition, number, value(partition, number))
            for partition in range(PARTITIONS)
            for number in range(first, end)
        ]

    def objects(self, suffix: str = ".log", partition: int = 0) -> list[Path]:
        return sorted(self.store.glob(f"{self.topic}-*/{partition}/*{suffix}"))


def value(partition: int, number: int) -> bytes:
    return b"%d:%d " % (partition, number) + b"x" * 60


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedBroker, Path]]:
    data = tmp_path_factory.mktemp("data")
    with EmbeddedBroker(data) as broker:
        yield broker, data


@pytest.fixture
def tiered(running: tuple[EmbeddedBroker, Path], tmp_path: Path) -> Tiered:
    broker, data = running
    topic = new_topic(broker, PARTITIONS)

    async def send() -> None:
        async with Producer(broker.bootstrap) as producer:
            for first in range(0, RECORDS, 4):
                await producer.send_many(
                    topic,
                    [
                        ProducerRecord(value(partition, number), partition=partition)
                        for partition in range(PARTITIONS)
                        for number in range(first, first + 4)
                    ],
                )

    asyncio.run(send())
    store = tmp_path / "store"
    url = f"file://{store}"
    return Tiered(broker, topic, url, store, upload_topic(broker, data, topic, url, tmp_path))


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[Range]:
    """What is read from the broker."""
    found: list[Range] = []
    real = log_reading.read_ranges

    def spy(
        ranges: Sequence[Range], options: SourceOptions, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        found.extend(ranges)
        return real(ranges, options, columns)

    monkeypatch.setattr(log_reading, "read_ranges", spy)
    return found


def test_case_46_segments_first_and_then_the_live_log(tiered: Tiered, fetched: list[Range]) -> None:
    assert all(0 < end < RECORDS for end in tiered.ends.values())
    source = tiered.source()
    start = source.bounds().first
    end = source.advance(start, ALL)
    assert end == {**tiered.offsets(RECORDS), "@initial": tiered.offsets(0)}
    assert rows(source, start, end) == tiered.rows(0, RECORDS)
    assert [(one.partition, one.first, one.end) for one in sorted(fetched)] == [
        (partition, reached, RECORDS) for partition, reached in sorted(tiered.ends.items())
    ]


@pytest.mark.parametrize(("first", "end"), [(0, 1), (3, 7), (5, 61), (37, 90), (90, RECORDS)])
def test_case_46_boundaries_inside_segments(
    tiered: Tiered, monkeypatch: pytest.MonkeyPatch, first: int, end: int
) -> None:
    monkeypatch.setattr(tier_planning, "PIECE_BYTES", 500)
    source = tiered.source()
    assert rows(source, tiered.offsets(first), tiered.offsets(end)) == tiered.rows(first, end)


def test_case_46_without_a_broker(tiered: Tiered, fetched: list[Range]) -> None:
    down = tiered.source("batch", tier="only", kafka__bootstrap__servers="127.0.0.1:1")
    first, last = down.bounds()
    assert (first, last) == (tiered.offsets(0), {tiered.topic: _json(tiered.ends)})
    expected = [row for row in tiered.rows(0, RECORDS) if row[1] < tiered.ends[row[0]]]
    assert rows(down, first, last) == expected
    assert not fetched


def test_case_46_only_needs_no_address_and_follows_the_tier(tiered: Tiered) -> None:
    given = {"subscribePattern": "spark-.*", "tier": "only", "tierUrl": tiered.url}
    given |= {"startingOffsets": "earliest", "longPollMs": "1", "metadataTtlMs": "0"}
    source = LogBackend(parse_source(given, "stream"))
    hidden = [(one, one.read_bytes()) for one in tiered.objects(".meta")[-2:]]
    for one, _ in hidden:
        one.unlink()
    start = source.bounds().first
    end = source.advance(start, ALL)
    assert end[tiered.topic]["0"] < tiered.ends[0]
    assert source.advance(end, ALL) is end
    for one, content in hidden:
        one.write_bytes(content)
    more = source.advance(end, ALL)
    assert more == {tiered.topic: _json(tiered.ends)}
    assert {row[0] for row in rows(source, end, more)} == {0}


def test_case_46_times_are_found_in_the_tier(tmp_path: Path) -> None:
    log, url = aborted_log(tmp_path)
    times = table(log, committed=False)["timestamp"].to_pylist()
    at = int(times[len(times) // 2].timestamp() * 1000)
    source = only(url, startingTimestamp=str(at))
    (found,) = {*source.bounds().first[TIP.topic].values()}
    assert found == table(log, committed=False)["offset"].to_pylist()[len(times) // 2]
    with pytest.raises(BadOption, match="no record at or after the time"):
        only(url, startingTimestamp=str(10**14)).bounds()
    log.close()


@pytest.mark.parametrize("damage", ["missing", "corrupt", "short"])
def test_case_46_what_is_wrong_with_an_object_costs_a_fetch(
    tiered: Tiered, fetched: list[Range], damage: str
) -> None:
    source = tiered.source()
    tasks = pickle.loads(pickle.dumps(source.plan(tiered.offsets(0), tiered.offsets(RECORDS))))
    spoil(tiered.objects()[1], damage)
    found = sorted(row for task in tasks for row in task_rows(source, task))
    assert found == tiered.rows(0, RECORDS)
    assert len(fetched) == PARTITIONS + 1


@pytest.mark.parametrize("mode", ["auto", "only"])
def test_case_46_what_nobody_has_is_loss(tiered: Tiered, mode: str) -> None:
    lost = tiered.objects()[1]
    first, following = (int(one.name[:20]) for one in tiered.objects()[1:3])
    strict = tiered.source(tier=mode)
    lenient = tiered.source(tier=mode, failOnDataLoss="false")
    end = {tiered.topic: _json(tiered.ends)}
    plans = [source.plan(tiered.offsets(0), end) for source in (strict, lenient)]
    spoil(lost, "missing")
    delete_below(tiered.broker, tiered.topic, 0, RECORDS)
    with pytest.raises(DataLoss, match="failOnDataLoss=false"):
        _read(strict, plans[0])
    expected = [row for row in tiered.rows(0, RECORDS) if row[1] < tiered.ends[row[0]]]
    assert _read(lenient, plans[1]) == [
        row for row in expected if row[0] or not first <= row[1] < following
    ]


def test_case_46_offsets_that_the_tier_does_not_have(tiered: Tiered, fetched: list[Range]) -> None:
    for one in (tiered.objects(".meta")[0], tiered.objects(".log")[0]):
        one.unlink()
    assert rows(tiered.source(), tiered.offsets(0), tiered.offsets(60)) == tiered.rows(0, 60)
    assert [(one.partition, one.first) for one in fetched] == [(0, 0)]
    alone = tiered.source(tier="only")
    with pytest.raises(DataLoss, match=r"does not have all of spark-\d+-0 0\.\."):
        alone.plan(tiered.offsets(0), tiered.offsets(60))


def test_case_46_a_small_range_and_a_store_that_fails_are_left_to_the_broker(
    tiered: Tiered, fetched: list[Range], caplog: pytest.LogCaptureFixture
) -> None:
    small = tiered.source(tierMinBytes=str(64 * 1024 * 1024))
    assert rows(small, tiered.offsets(0), tiered.offsets(60)) == tiered.rows(0, 60)
    assert sorted((one.first, one.end) for one in fetched) == [(0, 60)] * PARTITIONS
    tiered.objects(".meta")[0].write_bytes(b"nothing")
    assert rows(tiered.source(), tiered.offsets(0), tiered.offsets(60)) == tiered.rows(0, 60)
    assert "reading from the broker instead" in caplog.text
    assert len(fetched) == 2 * PARTITIONS


def test_a_query_that_keeps_up_does_not_ask_the_store_each_time(
    tiered: Tiered, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tiered.source()
    asked: list[object] = []
    real = tier_planning.Manifests.refresh

    async def spy(
        self: tier_planning.Manifests, tip: TopicIdPartition
    ) -> list[RemoteLogSegmentMetadata]:
        asked.append(tip)
        return await real(self, tip)

    monkeypatch.setattr(tier_planning.Manifests, "refresh", spy)
    for _ in range(3):
        source.plan(tiered.offsets(RECORDS - 1), tiered.offsets(RECORDS))
    assert len(asked) == PARTITIONS


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_case_46_epochs_overlaps_and_aborted_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    monkeypatch.setattr(tier_planning, "PIECE_BYTES", 300)
    log, url = aborted_log(tmp_path)
    # The same ranges once more, under other ids: two leaders have copied them.
    upload_log(log, TIP, {"rsm.config.url": url}, first_number=2000)
    source = only(url, **{"kafka.isolation.level": isolation})
    first, last = source.bounds()
    expected = table(log, committed=isolation == "read_committed")
    expected = expected.slice(
        0, sum(o < last[TIP.topic]["3"] for o in expected["offset"].to_pylist())
    )
    assert [(o, v) for _, o, v in rows(source, first, last)] == list(
        zip(expected["offset"].to_pylist(), expected["value"].to_pylist(), strict=True)
    )
    log.close()


def test_case_46_a_topic_that_was_made_anew_has_to_be_named_by_its_id(tmp_path: Path) -> None:
    log, url = aborted_log(tmp_path)
    other = TIP._replace(topic_id=UUID(int=77))
    upload_log(log, other, {"rsm.config.url": url})
    with pytest.raises(BadOption, match=r"several topics 'clicks'.*tierTopicId"):
        only(url).bounds()
    named = next((tmp_path / "store").glob("clicks-*")).name.removeprefix("clicks-")
    assert only(url, tierTopicId=named).bounds().last[TIP.topic]["3"] > 0
    log.close()


def test_case_46_segments_on_s3(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log", batches=60)
    with moto_server() as endpoint:
        config = rsm_config(endpoint, "some/where")
        upload_log(log, TIP, config)
        given = {name.replace("rsm.config", "tier"): text for name, text in config.items()}
        source = only(given.pop("tier.url"), **given)
        first, last = source.bounds()
        found = rows(source, first, last)
    expected = table(log, committed=False)
    assert [v for _, _, v in found] == expected["value"].to_pylist()[: len(found)]
    assert len(found) == last[TIP.topic]["3"] > 100
    log.close()


def test_case_28_filters_cut_pieces(tiered: Tiered) -> None:
    source = tiered.source()
    tasks = source.plan(tiered.offsets(0), tiered.offsets(60))
    bounds = [Bound("partition", "==", 1), Bound("offset", ">=", 17), Bound("offset", "<", 41)]
    found = sorted(row for task in clipped(tasks, bounds) for row in task_rows(source, task))
    assert found == [row for row in tiered.rows(17, 41) if row[0] == 1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tier": "maybe"}, "tier is one of auto, off, only"),
        ({"tier": "only"}, "tier=only needs the option tierUrl"),
        ({"tierUrl": "ftp://there"}, "tierUrl: expected s3://"),
        ({"tierUrl": "file:///d", "tierMinBytes": "x"}, "tierMinBytes"),
        ({"tierUrl": "file:///d", "tier": "only", "offsetsGroup": "g"}, "offsetsGroup"),
        ({"tierUrl": "file:///d", "tier": "only", "startingOffsets": "group:g"}, "groups"),
    ],
)
def test_case_01_wrong_options(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        parse_source({"kafka.bootstrap.servers": "x:1", "subscribe": "t", **options}, "stream")


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    piece=st.integers(5, 100),
    data=st.data(),
)
def test_case_46_pieces_cover_every_offset_once(
    sizes: list[int], piece: int, data: st.DataObject
) -> None:
    """Batches of one to three records and so many bytes, some of them in the index."""
    index = OffsetIndex()
    batches = []
    position = offset = 0
    for size in sizes:
        records = 1 + size % 3
        batches.append((position, position + size, offset, offset + records - 1))
        if position and data.draw(st.booleans()):
            index.append(offset + records - 1, position)
        position, offset = position + size, offset + records
    first = data.draw(st.integers(0, offset - 1))
    last = data.draw(st.integers(first, offset - 1))
    whole = Split("t", 0, "k", None, 0, position, first, last)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tier_planning, "PIECE_BYTES", piece)
        found = cut(whole, index, 0, position)
    assert [one.first_offset for one in found] == [
        first,
        *(one.last_offset + 1 for one in found[:-1]),
    ]
    assert found[-1].last_offset == last
    for one in found:
        needed = [b for b in batches if b[3] >= one.first_offset and b[2] <= one.last_offset]
        assert one.start <= needed[0][0]
        assert one.end >= needed[-1][1]
        assert one.start in [b[0] for b in batches]
        assert one.end in [b[1] for b in batches]


def _json(offsets: dict[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _read(source: LogBackend, tasks: Sequence[object]) -> list[tuple[int, int, bytes | None]]:
    return sorted(row for task in tasks for row in task_rows(source, task))


def only(url: str, /, **options: str) -> LogBackend:
    given = {"subscribe": TIP.topic, "tier": "only", "tierUrl": url, **options}
    return LogBackend(parse_source(given, "batch"))


def aborted_log(tmp_path: Path) -> tuple[PartitionLog, str]:
    log = make_log(tmp_path / "log", batches=120, epochs=3, aborts=True)
    url = f"file://{tmp_path}/store"
    upload_log(log, TIP, {"rsm.config.url": url})
    return log, url


def table(log: PartitionLog, *, committed: bool) -> pa.RecordBatch:
    """The rows of a log, from its files."""
    data = b"".join(s.storage.read_file(s.path(".log")) for s in log.segments)
    aborted = [
        (one.producer_id, one.first_offset)
        for one in log.aborted_transactions(0, log.log_end_offset)
    ]
    return batches_to_arrow(data, TIP.topic, TIP.partition, aborted=aborted if committed else ())


def spoil(path: Path, damage: str) -> None:
    """With the same ETag where that is possible: what the plan saw is what is found."""
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "corrupt":
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    else:
        path.write_bytes(content[:-5])


@pytest.mark.parametrize(
    ("partitions", "each", "least", "tasks"),
    [
        (1, 12, None, 1),
        (2, 12, None, 2),
        (200, 1, None, 25),  # small ones share
        (1, 96, None, 3),  # a large one is divided
        (2, 12, 6, 6),
        (2, 12, 100, 24),
    ],
)
def test_pieces_are_packed_into_tasks(
    partitions: int, each: int, least: int | None, tasks: int
) -> None:
    split = Split("t", 0, "key", None, 0, tier_planning.PIECE_BYTES, 0, 9)
    pieces = [
        Piece("t", None, number, at * 10, at * 10 + 10, split)
        for number in range(partitions)
        for at in range(each)
    ]
    found = packed(pieces, least)
    assert len(found) == tasks
    assert [piece for task in found for piece in task] == pieces


def test_tasks_are_small_to_send(tiered: Tiered) -> None:
    tasks = tiered.source().plan(tiered.offsets(0), tiered.offsets(60))
    assert any(isinstance(one, Piece) for task in tasks for one in task)  # type: ignore[attr-defined]  # of this backend
    assert all(len(pickle.dumps(task)) < 100_000 for task in tasks)


def test_case_46_what_a_broker_has_tiered_itself(tmp_path: Path, fetched: list[Range]) -> None:
    sent = tiered_broker.values(4000)
    with tiered_broker.tiered_broker(tmp_path / "store", tmp_path / "data") as broker:
        broker.create_topic("archive", configs=tiered_broker.TIERED)
        tiered_broker.produce(broker.bootstrap, "archive", sent)
        tiered_broker.eventually(
            lambda: len(tiered_broker.stored(tmp_path / "store", ".meta")) >= 3, "three copies"
        )
        url = (tmp_path / "store").as_uri()
        given = {"subscribe": "archive", "tierUrl": url, "tierMinBytes": "0"}
        both = parse_source({"kafka.bootstrap.servers": broker.bootstrap, **given}, "batch")
        source = LogBackend(both)
        assert [row[2] for row in rows(source, *source.bounds())] == sent
        assert 0 < sum(one.size for one in fetched) < 2000
    fetched.clear()
    alone = LogBackend(parse_source({"tier": "only", **given}, "batch"))
    found = rows(alone, *alone.bounds())
    assert 2000 < len(found) < 4000
    assert [row[2] for row in found] == sent[: len(found)]
    assert not fetched

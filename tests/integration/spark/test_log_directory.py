"""A broker's log directory as a source, with the broker gone and while it runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.client.producer.producer import Producer
from ottla.log.checkpoints import Checkpoint, TopicPartition, encode_offsets
from ottla.spark.backend import Limit
from ottla.spark.errors import BadOption, DataLoss
from ottla.spark.log import directory as log_directory
from ottla.spark.log.backend import LogBackend
from ottla.spark.options import Mode, parse_source
from ottla.spark.tier import planning as tier_planning
from ottla.testing.embedded import EmbeddedBroker
from tests.support.spark_source import delete_below, fill, new_topic, rows, values
from tests.support.tier_logs import NOW_MS, make_log

if TYPE_CHECKING:
    from pathlib import Path

ALL = Limit()


def source(path: Path, mode: Mode = "stream", /, **options: str) -> LogBackend:
    given = {"store": "segments", "path": str(path), "startingOffsets": "earliest"}
    return LogBackend(parse_source({**given, "longPollMs": "1", **options}, mode))


def log_directory_of(data: Path) -> Path:
    return next(data.rglob("meta.properties")).parent


def test_the_rows_are_those_of_the_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        topic = new_topic(broker, 2)
        fill(broker, topic, {0: 50, 1: 70})
        delete_below(broker, topic, 1, 20)
        stream = source(log_directory_of(tmp_path), subscribe=topic)
        start = stream.bounds().first
        end = stream.advance(start, ALL)
        assert {row for row in rows(stream, start, end) if row[0] == 0} == {*values({0: (0, 50)})}
        assert stream.advance(end, ALL) is end

        async def one() -> None:
            async with Producer(broker.bootstrap) as producer:
                await producer.send(topic, b"late", partition=0)

        asyncio.run(one())
        more = stream.advance(end, ALL)
        assert rows(stream, end, more) == [(0, 50, b"late")]
    batch = source(log_directory_of(tmp_path), "batch", subscribePattern="spark-.*")
    first, last = batch.bounds()
    assert (first, last) == ({topic: {"0": 0, "1": 20}}, {topic: {"0": 51, "1": 70}})
    assert rows(batch, first, last) == [
        *values({0: (0, 50)}),
        (0, 50, b"late"),
        *values({1: (20, 70)}),
    ]


@pytest.mark.parametrize("indexes", ["kept", "gone"])
def test_many_segments_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexes: str
) -> None:
    monkeypatch.setattr(tier_planning, "PIECE_BYTES", 400)
    monkeypatch.setattr(log_directory, "INDEX_INTERVAL", 200)
    log = make_log(tmp_path / "clicks-3")
    log.close()
    if indexes == "gone":
        for path in tmp_path.rglob("*.index"):
            path.unlink()
    end = log.log_end_offset
    stream = source(tmp_path, "batch", assign='{"clicks": [3]}')
    bounds = stream.bounds()
    assert bounds == ({"clicks": {"3": 0}}, {"clicks": {"3": end}})
    (task,) = stream.plan(*bounds)
    assert len(task) > 12  # type: ignore[arg-type]  # a tuple of pieces
    for first, last in ((0, end), (7, end - 20), (end - 1, end)):
        found = rows(stream, {"clicks": {"3": first}}, {"clicks": {"3": last}})
        assert [offset for _, offset, _ in found] == list(range(first, last))


def test_a_torn_end_is_not_read_and_times_are_found(tmp_path: Path) -> None:
    log = make_log(tmp_path / "clicks-3", segment_bytes=1 << 20)
    log.close()
    path = tmp_path / "clicks-3" / f"{0:020d}.log"
    torn = source(tmp_path, "batch", subscribe="clicks")
    path.write_bytes(path.read_bytes()[:-1])
    last = torn.bounds().last["clicks"]["3"]
    assert log.log_end_offset - 5 <= last < log.log_end_offset
    at = source(tmp_path, "batch", subscribe="clicks", startingTimestamp=str(NOW_MS + 30_000))
    first = at.bounds().first["clicks"]["3"]
    assert 30 <= first <= 150
    with pytest.raises(BadOption, match="no record at or after"):
        source(tmp_path, subscribe="clicks", startingTimestamp=str(NOW_MS * 2)).bounds()


def test_what_was_deleted_is_loss(tmp_path: Path) -> None:
    make_log(tmp_path / "clicks-3").close()
    checkpoint = encode_offsets({TopicPartition("clicks", 3): 40})
    (tmp_path / Checkpoint.LOG_START.value).write_bytes(checkpoint)
    begin, end = {"clicks": {"3": 30}}, {"clicks": {"3": 50}}
    strict = source(tmp_path, subscribe="clicks")
    with pytest.raises(DataLoss, match=r"does not have all of clicks-3 30\.\.40"):
        strict.plan(begin, end)
    lenient = source(tmp_path, subscribe="clicks", failOnDataLoss="false")
    assert [offset for _, offset, _ in rows(lenient, begin, end)] == list(range(40, 50))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "logs"}, "absolute directory"),
        ({"tierUrl": "file:///d"}, "leave it out with store=segments"),
        ({"offsetsGroup": "g"}, "groups are kept by brokers"),
        ({"kafka.isolation.level": "read_committed"}, "read_committed"),
    ],
)
def test_case_01_wrong_options(tmp_path: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        source(tmp_path, subscribe="t", **options)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="does not exist"):
        source(tmp_path / "nothing", subscribe="t").bounds()

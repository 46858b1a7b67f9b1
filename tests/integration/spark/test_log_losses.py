"""The log as a source when records, topics or brokers are gone, and when they only seem to be."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ottla.client.reader.types import CorruptRecords
from ottla.spark.backend import Limit
from ottla.spark.errors import DataLoss, NoProgress
from ottla.testing.embedded import EmbeddedBroker
from tests.support.ports import free_port
from tests.support.spark_source import (
    backend,
    delete_below,
    fill,
    new_topic,
    rows,
    task_rows,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.spark.log.backend import LogBackend

ALL = Limit()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def everything(source: LogBackend) -> list[tuple[int, int, bytes | None]]:
    first, last = source.bounds()
    return rows(source, first, last)


def test_case_07_gaps_are_no_loss(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, {0: 10})
    delete_below(broker, topic, 0, 4)
    source = backend(broker, "batch", subscribe=topic)
    assert everything(source) == values({0: (4, 10)})


@pytest.mark.parametrize("gone", ["some", "all"])
def test_case_26_retention_past_the_start(broker: EmbeddedBroker, gone: str) -> None:
    topic = new_topic(broker)
    fill(broker, topic, {0: 10})
    begin = {topic: {"0": 2}}
    end = {topic: {"0": 8}}
    delete_below(broker, topic, 0, 5 if gone == "some" else 10)
    strict = backend(broker, subscribe=topic)
    with pytest.raises(DataLoss, match=r"was to be read from offset 2 to 8 .*failOnDataLoss=false"):
        rows(strict, begin, end)
    lenient = backend(broker, subscribe=topic, failOnDataLoss="false")
    assert rows(lenient, begin, end) == values({0: (5, 8)} if gone == "some" else {})


def test_case_26_a_topic_that_is_gone_or_was_made_anew(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, {0: 10})
    options = {"subscribe": topic, "startingOffsets": "earliest", "metadataTtlMs": "0"}
    strict = backend(broker, **options)
    lenient = backend(broker, **options, failOnDataLoss="false", fetchOffset__numRetries="0")
    first = strict.bounds().first
    assert lenient.bounds().first == first
    end = strict.advance(first, ALL)
    [task] = strict.plan(first, end)
    broker.delete_topic(topic)
    with pytest.raises(DataLoss, match=f"{topic}-0 no longer exist"):
        strict.advance(end, ALL)
    broker.create_topic(topic)
    fill(broker, topic, {0: 3})
    with pytest.raises(DataLoss, match="deleted and created again"):
        strict.advance(end, ALL)
    with pytest.raises(DataLoss, match="deleted and created again"):
        task_rows(strict, task)
    assert task_rows(lenient, task) == []
    assert lenient.advance(end, ALL) == {topic: {"0": 3}}


def test_case_26_a_log_that_ends_before_our_place(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, {0: 3})
    options = {"subscribe": topic, "fetchOffset__retryIntervalMs": "50"}
    source = backend(broker, **options)
    with pytest.raises(DataLoss, match="ends at offset 3, before offset 5"):
        source.advance({topic: {"0": 5}}, ALL)
    timer = threading.Timer(0.1, fill, (broker, topic, {0: 2}))
    timer.start()
    patient = backend(broker, **options, fetchOffset__numRetries="100")
    end = patient.advance({topic: {"0": 5}}, ALL)
    timer.join()
    assert end[topic] == {"0": 5}


def test_case_27_a_broker_that_restarts_is_waited_out(tmp_path: Path) -> None:
    port = free_port()
    with EmbeddedBroker(tmp_path, port=port) as broker:
        topic = new_topic(broker)
        fill(broker, topic, {0: 2000})
        source = backend(
            broker, "batch", subscribe=topic, readBatchRows="100", prefetchBytes="1000"
        )
        first, last = source.bounds()
        [task] = source.plan(first, last)
        batches = source.read(task, ("offset",))
        found = next(batches).column(0).to_pylist()
    with EmbeddedBroker(tmp_path, port=port):
        for batch in batches:
            found += batch.column(0).to_pylist()
        source.close()
    assert found == list(range(2000))


def test_no_progress_is_an_error_in_time(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, {0: 3})
    source = backend(broker, subscribe=topic, kafkaConsumer__pollTimeoutMs="1000")
    with pytest.raises(NoProgress, match=f"{topic}-0 at offset 3"):
        rows(source, {topic: {"0": 0}}, {topic: {"0": 9}})


def test_case_07_the_last_offsets_of_a_compacted_log_are_missing(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        topic = new_topic(broker)
        for _ in range(10):
            fill(broker, topic, {0: 1})
    # As the cleaner leaves it: the newest segment is empty, the one before lacks its last records.
    [segment] = tmp_path.rglob(f"{topic}-0/*.log")
    batches = segment.read_bytes()
    segment.write_bytes(batches[: len(batches) * 8 // 10])
    for index in segment.parent.glob("*index"):
        index.unlink()
    segment.with_name(f"{10:020}.log").touch()
    with EmbeddedBroker(tmp_path) as broker:
        source = backend(broker, "batch", subscribe=topic)
        first, last = source.bounds()
        assert last == {topic: {"0": 10}}
        assert [row[1] for row in rows(source, first, last)] == list(range(8))
        source.close()


def test_case_09_a_broken_batch_is_named_by_its_place(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        topic = new_topic(broker)
        for _ in range(10):
            fill(broker, topic, {0: 1})
    [segment] = tmp_path.rglob(f"{topic}-0/*.log")
    batches = bytearray(segment.read_bytes())
    batches[len(batches) * 6 // 10 - 2] ^= 0xFF  # in the value of the sixth record
    segment.write_bytes(batches)
    with EmbeddedBroker(tmp_path) as broker:
        source = backend(broker, "batch", subscribe=topic)
        first, last = source.bounds()
        with pytest.raises(CorruptRecords, match=f"{topic}-0: batch at offset 5"):
            rows(source, first, last)
        source.close()
        careless = backend(broker, "batch", subscribe=topic, verifyCrc="false")
        assert len(everything(careless)) == 10
        careless.close()

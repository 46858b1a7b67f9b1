"""The exactly-once sink without Spark: writers pickled, tasks run and batches ended by hand."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import TaskContext
from pyspark.sql.types import StructType

from ottla.client.cluster.view import TopicPartition
from ottla.client.producer.partitioner import partition_of_key
from ottla.client.transactions.requests import TransactionCoordinator
from ottla.spark.errors import BadOption, BatchLost, OwnerRule, TaskRepeated
from ottla.spark.sink.exactly_once import OnceBatchWriter, Task, WrittenOnce, check_owners
from ottla.spark.sink.options import parse_sink
from ottla.spark.sink.owners import key_hashes
from ottla.spark.sink.transaction import Batch
from ottla.testing.embedded import EmbeddedBroker
from tests.support.spark_sink import SCHEMA, Sink, rows, task
from tests.support.spark_source import new_topic
from tests.support.topics import read_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.spark.sink.exactly_once import OnceStreamWriter

UNKEYED: Final = StructType().add("value", "binary")
KEYED: Final = StructType().add("key", "binary").add("value", "binary")
WITH_TOPIC: Final = StructType().add("value", "binary").add("topic", "string")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config={"transaction.max.timeout.ms": "600000"}) as running:
        yield running


@pytest.fixture
def sink(broker: EmbeddedBroker) -> Sink:
    return Sink(broker.bootstrap, new_topic(broker, 3))


def test_a_batch_is_seen_when_it_is_committed_and_not_before(sink: Sink) -> None:
    for batch in range(2):
        planned = sink.planned()
        before = sink.seen()
        written = [
            task(planned, [rows(0, b"a")], batch=batch),
            task(planned, [rows(1, b"b"), rows(2, b"c")], number=1, batch=batch),
        ]
        assert written[1].rows == {TopicPartition(sink.topic, n): 1 for n in (1, 2)}
        assert sink.seen() == before
        sink.writer().commit([*pickle.loads(pickle.dumps(written)), None], batch)
        assert sink.seen() == sorted([*before, (0, b"a"), (1, b"b"), (2, b"c")])


@pytest.mark.parametrize("steps", range(6))
def test_case_40_whoever_goes_on_finds_a_batch_whole_or_not_at_all(
    sink: Sink, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver ends after so many steps of its second batch, and another one takes over."""
    first = sink.planned()
    sink.writer().commit([task(first, [rows(0, b"a")]), task(first, [rows(1, b"b")], number=1)], 0)
    done = sink.seen()
    second = [(number, [rows(number, b"c"), rows(number, b"d")]) for number in (0, 1)]

    def steps_of_a_batch() -> Iterator[None]:
        planned = sink.planned()
        yield
        written = []
        for number, data in second:
            written.append(task(planned, data, number=number, batch=1))
            yield
        with monkeypatch.context() as patch:
            patch.setattr(TransactionCoordinator, "end", _no_end)
            sink.writer().commit([*written], 1)
        yield
        sink.writer().commit([*written], 1)
        yield

    going = steps_of_a_batch()
    for _ in range(steps):
        next(going)
    whole = sorted([*done, *((n, value) for n in (0, 1) for value in (b"c", b"d"))])
    assert sink.seen() == (whole if steps == 5 else done)
    for _ in range(2):  # it is the same to a third one
        planned = sink.planned()
        written = [task(planned, data, number=number, batch=1) for number, data in second]
        sink.writer().commit([*written], 1)
        assert sink.seen() == whole


async def _no_end(*_: object, **__: object) -> None:
    """The driver ends before it asks for the end of the transaction."""


def test_a_lease_is_taken_once_for_a_planned_batch_and_by_nobody_else(sink: Sink) -> None:
    writer = sink.planned()
    twice: list[OnceStreamWriter] = [pickle.loads(pickle.dumps(writer)) for _ in range(2)]
    assert writer._lease is not None
    assert twice[0]._lease == twice[1]._lease == writer._lease
    assert sink.writer()._lease is None  # the process that commits would fence its own batch
    assert sink.planned()._lease != writer._lease


def test_to_pickle_a_writer_takes_no_lease(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = sink.writer()

    def network(*_: object, **__: object) -> None:
        raise AssertionError("a lease was taken")

    monkeypatch.setattr("ottla.spark.sink.exactly_once.take_lease", network)
    assert pickle.loads(pickle.dumps(writer))._lease is None


def test_a_batch_that_is_there_is_not_written_again(sink: Sink) -> None:
    planned = sink.planned()
    sink.writer().commit([task(planned, [rows(0, b"a")], batch=7)], 7)
    for batch in (3, 7):
        again = task(sink.planned(), [rows(0, b"other rows")], batch=batch)
        assert again.rows == {}
        sink.writer().commit([again], batch)
    assert sink.seen() == [(0, b"a")]
    planned = sink.planned()
    sink.writer().commit([task(planned, [rows(0, b"b")], batch=8)], 8)
    # A checkpoint made anew counts from 0, and is another query to Spark.
    planned = sink.planned()
    sink.writer().commit([task(planned, [rows(0, b"c")], query="anew")], 0)
    assert sink.seen() == [(0, b"a"), (0, b"b"), (0, b"c")]


def test_topics_by_row_share_the_transaction_and_the_marker(broker: EmbeddedBroker) -> None:
    one, other = new_topic(broker), new_topic(broker)
    sink = Sink(broker.bootstrap, one, WITH_TOPIC)

    def data(*topics: str) -> list[pa.RecordBatch]:
        return [pa.record_batch({"value": [b"v"] * len(topics), "topic": list(topics)})]

    sink.writer().commit([task(sink.planned(), data(one, other))], 0)
    sink.writer().commit([task(sink.planned(), data(other), batch=1)], 1)
    assert task(sink.planned(), data(one), batch=1).rows == {}
    assert (sink.seen(one), sink.seen(other)) == ([(0, b"v")], [(0, b"v")] * 2)


@pytest.mark.parametrize("second", [(b"x",), (b"x", b"y")], ids=["same count", "another count"])
def test_case_42_a_partition_of_two_tasks_is_refused(sink: Sink, second: tuple[bytes]) -> None:
    planned = sink.planned()
    written = task(planned, [rows(0, b"a")])
    with pytest.raises(OwnerRule, match="each partition has to be written by one task"):
        task(planned, [rows(0, *second)], number=1)
    sink.writer().abort([written, None], 0)
    assert sink.seen() == []


def test_case_42_two_owners_are_found_before_the_commit(sink: Sink) -> None:
    written = task(sink.planned(), [rows(0, b"a")])
    with pytest.raises(OwnerRule, match=f"have written to {sink.topic}-0; each partition has to"):
        sink.writer().commit([written, written], 0)
    check_owners([written, WrittenOnce({TopicPartition(sink.topic, 1): 1})])
    assert sink.seen() == []


def test_case_42_a_task_is_not_tried_twice(sink: Sink) -> None:
    with pytest.raises(TaskRepeated, match="task 1 of an exactly-once batch has failed"):
        task(sink.planned(), [rows(0, b"a")], number=1, attempt=1)


def test_case_41_who_comes_later_fences_who_came_before(sink: Sink) -> None:
    older = sink.planned()
    written = task(older, [rows(0, b"older")])
    newer = sink.planned()
    for call in (
        lambda: task(older, [rows(1, b"older")], number=1),
        lambda: sink.writer().commit([written], 0),
    ):
        with pytest.raises(BatchLost, match="another run of the query has taken over"):
            call()
    sink.writer().abort([written, None], 0)  # says so in the log, no more
    sink.writer().commit([task(newer, [rows(0, b"newer")])], 0)
    assert sink.seen() == [(0, b"newer")]


def test_an_abort_leaves_nothing_and_never_raises(sink: Sink) -> None:
    written = task(sink.planned(), [rows(0, b"a")])
    writer = sink.writer()
    writer.abort([None], 0)  # nobody knows what there is to abort
    writer.abort([written, None], 0)
    writer.abort([written, None], 0)
    sink.writer().commit([task(sink.planned(), [rows(0, b"b")])], 0)
    assert sink.seen() == [(0, b"b")]
    impatient = {"kafka.default.api.timeout.ms": "100", "kafka.request.timeout.ms": "100"}
    Sink("127.0.0.1:1", sink.topic, **impatient).writer().abort([written], 0)


def test_rows_that_may_go_anywhere_go_to_a_partition_of_their_task(broker: EmbeddedBroker) -> None:
    sink = Sink(broker.bootstrap, new_topic(broker, 3), UNKEYED)
    some = [pa.record_batch({"value": [b"v"] * 10})]
    for batch in range(2):
        planned = sink.planned()
        written = [task(planned, some, number=number, batch=batch) for number in range(2)]
        owned = [[place.partition for place in one.rows] for one in written]
        assert owned == [[batch], [batch + 1]]
        sink.writer().commit([*written], batch)
    with pytest.raises(OwnerRule, match="task 3 has no partition of its own"):
        task(sink.planned(), some, number=3, batch=2)


def test_keys_decide_and_rows_without_one_do_not_follow_them(broker: EmbeddedBroker) -> None:
    sink = Sink(broker.bootstrap, new_topic(broker, 3), KEYED)
    keys = [b"a", None, b"b", None, b"c"]
    data = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": [b"v"] * 5})
    sink.writer().commit([task(sink.planned(), [data], batch=2)], 2)
    found = read_all(broker.bootstrap, sink.topic)
    for one in found:
        key = one.record.key
        assert one.partition == (2 if key is None else partition_of_key(key, 3))
    assert len(found) == 5


def test_the_result_of_a_query_is_one_transaction(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 2)
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    for ends_well in (False, True):
        options = parse_sink({**given, "delivery": "exactly-once"}, SCHEMA)
        assert options.transactional is not None
        writer = OnceBatchWriter.leased(options, options.transactional)
        planned: OnceBatchWriter = pickle.loads(pickle.dumps(writer))
        written = [
            planned._write(iter([rows(number, b"%d" % ends_well)]), Task(number, 0, None))
            for number in range(2)
        ]
        assert read_all(broker.bootstrap, topic, isolation="read_committed") == []
        if ends_well:
            planned.commit([*written])
        else:
            planned.abort([written[0], None])
    found = read_all(broker.bootstrap, topic, isolation="read_committed")
    assert [one.record.value for one in found] == [b"1", b"1"]


def test_a_batch_query_has_no_part_in_the_batch_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    context = TaskContext()
    context._partitionId, context._attemptNumber = 3, 1
    context._localProperties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}
    monkeypatch.setattr(TaskContext, "_taskContext", context)
    assert Task.current(stream=True) == Task(3, 1, Batch("q", 7))
    assert Task.current(stream=False) == Task(3, 1, None)  # as inside foreachBatch


def test_the_name_of_a_sink() -> None:
    def name(*, stream: bool = True, **given: str) -> str:
        all_of_them = {"kafka.bootstrap.servers": "x:1", "topic": "t", **given}
        options = parse_sink({**all_of_them, "delivery": "exactly-once"}, SCHEMA, stream=stream)
        assert options.transactional is not None
        return options.transactional.sink_id

    there = name(checkpointLocation="/there", queryName="q")
    assert there.startswith("ottla-q-")
    assert name(checkpointLocation="/there/", queryName="q") == there
    assert name(checkpointLocation="/there") != there
    assert name(checkpointLocation="/elsewhere", queryName="q") != there
    assert name(checkpointLocation="s3a://there") != name(checkpointLocation="s3a://elsewhere")
    assert name(checkpointLocation="/there", sinkId="mine") == "mine"
    assert name(stream=False) != name(stream=False)
    with pytest.raises(BadOption, match="set sinkId, or checkpointLocation"):
        name()


def test_what_an_exactly_once_sink_refuses(broker: EmbeddedBroker, sink: Sink) -> None:
    for wrong, said in [
        ({"kafka.acks": "1"}, "needs kafka.acks=all"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence=true"),
        ({"transactionTimeoutMs": "0"}, "a number of 1 or more, not '0'"),
        ({"transactionTimeoutMs": "1m"}, "not '1m'"),
        ({"kafka.transactional.id": "x"}, "sinkId to name it"),
        ({"delivery": "at-least-once"}, "sinkId belongs to delivery=exactly-once"),
    ]:
        with pytest.raises(BadOption, match=said):
            Sink(broker.bootstrap, sink.topic, **wrong).writer()
    with pytest.raises(BadOption, match=r"raise transaction\.max\.timeout\.ms of the broker"):
        Sink(broker.bootstrap, sink.topic, transactionTimeoutMs="600001").planned()


@given(st.lists(st.binary(max_size=40)), st.integers(1, 1000))
def test_hashes_of_keys_are_those_of_the_partitioner(keys: list[bytes], partitions: int) -> None:
    found = key_hashes(pa.array([b"before", *keys], pa.binary()).slice(1)).to_pylist()
    assert [one % partitions for one in found] == [partition_of_key(k, partitions) for k in keys]

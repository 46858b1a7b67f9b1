"""Verdicts in a topic, through crashes and transactions; no Spark."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ottla.client.cluster.view import TopicPartition
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.client.reader.reader import Reader
from ottla.spark.backend import Limit
from ottla.spark.background import background
from ottla.spark.errors import NoProgress
from ottla.spark.share.machine import parse_offset
from ottla.spark.share.ranges import Span
from ottla.spark.share.verdict_topic import VerdictTopic
from ottla.testing.embedded import EmbeddedBroker
from tests.support.spark_share import (
    BROKER_CONFIG,
    kill,
    lags,
    new_group,
    rows,
    share_backend,
)
from tests.support.spark_source import delete_below, fill, new_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.spark.backend import Offset
    from ottla.spark.share.backend import ShareBackend

PATIENCE = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=BROKER_CONFIG) as running:
        yield running


def verdict(topic: str, offset: int) -> bytes:
    return json.dumps({"topic": topic, "partition": 0, "offset": offset}).encode()


def write(broker: EmbeddedBroker, topic: str, *values: bytes | None) -> None:
    async def send() -> None:
        async with Producer(broker.bootstrap) as producer:
            await producer.send_many(topic, [ProducerRecord(one, partition=0) for one in values])

    asyncio.run(send())


class Queue:
    """A topic, a topic of verdicts on it, and a group whose rejected records are letters."""

    def __init__(self, broker: EmbeddedBroker, grace: str) -> None:
        self.broker = broker
        self.topic, self.verdicts = new_topic(broker), new_topic(broker)
        self.letters = f"dlq.{self.topic}"
        enabled = {"errors.deadletterqueue.group.enable": "true"}
        broker.create_topic(self.letters, configs=enabled)
        self.group = new_group(
            broker.bootstrap,
            errors_deadletterqueue_topic_name=self.letters,
            share_session_grace_ms=grace,
        )

    def source(self) -> ShareBackend:
        option = {"share__verdicts": f"topic:{self.verdicts}"}
        return share_backend(self.broker.bootstrap, self.group, self.topic, **option)

    def judge(self, *offsets: int) -> None:
        write(self.broker, self.verdicts, *(verdict(self.topic, at) for at in offsets))

    def rejected(self, count: int) -> list[int]:
        async def read() -> list[int]:
            found: list[int] = []
            async with asyncio.timeout(PATIENCE), Reader(self.broker.bootstrap, self.letters) as it:
                while len(found) < count:
                    headers = [dict(letter.headers) for letter in await it.read_many()]
                    found += [int(one["__dlq.errors.offset"] or b"") for one in headers]
            return sorted(found)

        return asyncio.run(read())


def until(source: ShareBackend, start: Offset, done: Callable[[Offset], bool]) -> Offset:
    async def look() -> Offset:
        async with asyncio.timeout(PATIENCE):
            while not done(end := await asyncio.to_thread(source.advance, start, Limit())):
                pass
            return end

    return asyncio.run(look())


def test_case_35_verdicts_outlive_a_crash_before_they_are_read(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    queue = Queue(broker, grace="60000")
    fill(broker, queue.topic, {0: 20})
    queue.judge(1)  # on a batch of long ago, it seems
    source = queue.source()
    start = source.bounds().first
    end = until(source, start, lambda end: end != start)
    assert parse_offset(end, queue.group).verdicts == {TopicPartition(queue.verdicts, 0): 1}
    assert len(rows(source, start, end)) == 20
    queue.judge(11, 3, 4, 3, 999)
    other = b'{"topic": "another", "partition": 0, "offset": 5}'
    write(broker, queue.verdicts, b"no verdict", None, b"[" * 100_000, other)
    # The batch is in Spark's commit log when its driver dies.
    kill(source)
    again = queue.source()
    again.settle(end)
    told = {"held": 0, "waiting": 0, "ghosts": 0, "lostLocks": 0, "badVerdicts": 3}
    assert again.latest() == told
    assert queue.rejected(3) == [3, 4, 11]
    assert lags(broker.bootstrap, queue.group) == {0: 0}
    [warning] = [one for one in caplog.messages if "no verdicts" in one]
    assert "3 so far" in warning
    assert "b'no verdict' in partition 0 at offset 6" in warning
    # The next batch begins where these verdicts ended.
    fill(broker, queue.topic, {0: 1})
    later = until(again, end, lambda found: found != end)
    assert parse_offset(later, queue.group).verdicts == {TopicPartition(queue.verdicts, 0): 10}
    again.close()


def test_case_31_35_a_rejected_ghost_is_rejected_when_it_comes_again(
    broker: EmbeddedBroker,
) -> None:
    queue = Queue(broker, grace="0")
    fill(broker, queue.topic, {0: 10})
    source = queue.source()
    start = source.bounds().first
    end = until(source, start, lambda end: end != start)
    queue.judge(7)
    kill(source)
    again = queue.source()
    again.settle(end)
    assert (again.latest() or {})["ghosts"] == 10
    # As long as it is a ghost, a life after this one has to find the verdict, too.
    assert background().call(again._verdicts_since(end)) == parse_offset(end, queue.group).verdicts
    until(again, end, lambda _: not (again.latest() or {})["ghosts"])
    assert queue.rejected(1) == [7]
    assert background().call(again._verdicts_since(end)) == {TopicPartition(queue.verdicts, 0): 1}
    assert lags(broker.bootstrap, queue.group) == {0: 0}
    again.close()


def test_transactions_count_when_they_are_committed_and_are_waited_for(
    broker: EmbeddedBroker,
) -> None:
    queue = Queue(broker, grace="0")
    options = queue.source()._options
    topic = VerdictTopic(options, queue.verdicts)
    hasty = VerdictTopic(replace(options, poll_timeout=0.3), queue.verdicts)
    missing = VerdictTopic(options, "no-such-topic")
    place, at = TopicPartition(queue.topic, 0), TopicPartition(queue.verdicts, 0)

    def read(since: int | None = None, by: VerdictTopic = topic) -> object:
        return background().call(by.read({} if since is None else {at: since}, wanted))

    wanted = {place: [Span(0, 9)]}

    async def judge() -> None:
        async with Producer(broker.bootstrap, transactional_id="judge") as producer:
            async with producer.transaction():
                await producer.send(queue.verdicts, verdict(queue.topic, 1))
            async with producer.transaction():
                await producer.send(queue.verdicts, verdict(queue.topic, 2))
                await asyncio.to_thread(read, None, hasty)

    with pytest.raises(NoProgress, match="no transaction on it is left open"):
        asyncio.run(judge())
    queue.judge(3)
    assert read() == {place: [Span(1, 1), Span(3, 3)]}
    assert read(2) == {place: [Span(3, 3)]}
    assert read(1000) == read(), "a topic that was made anew"
    delete_below(broker, queue.verdicts, 0, 2)
    assert read(0) == {place: [Span(3, 3)]}
    assert read(by=missing) == background().call(missing.ends()) == {}
    for one in (topic, hasty, missing):
        background().call(one.close())

"""What a fetch of a session costs the broker when one partition has news, by the session's size."""

from __future__ import annotations

import statistics
from typing import Final

from benchmarks._harness import Row
from benchmarks._ottla import OttlaProcess
from tests.support.raw_client import RawClient, batch, fetch_request, produce_request

SMALL, LARGE = 10, 1_000
FETCHES: Final = 2_000
ROUNDS: Final = 5
# A session a hundred times as large may cost a little more: its tables are larger.
TARGET: Final = 1.5


def session_row() -> Row:
    """CPU of the broker for one record and the fetch that brings it, in turns of both sizes."""
    with OttlaProcess({"ottla.flush.mode": "os"}) as broker:
        sizes = {size: f"session-{size}" for size in (SMALL, LARGE)}
        micros: dict[int, list[float]] = {size: [] for size in sizes}
        for _ in range(ROUNDS):
            for size, topic in sizes.items():
                micros[size].append(_one(broker, topic, size))
    large, small = statistics.median(micros[LARGE]), statistics.median(micros[SMALL])
    ratios = [a / b for a, b in zip(micros[LARGE], micros[SMALL], strict=True)]
    return Row(
        f"one record and its fetch in a session of {LARGE:,} partitions, against {SMALL}",
        f"{large:.0f} us CPU",
        f"{small:.0f} us CPU",
        large / small,
        (min(ratios), max(ratios)),
        TARGET,
        at_most=True,
    )


def _one(broker: OttlaProcess, topic: str, size: int) -> float:
    with RawClient(broker.bootstrap) as client:
        _create(client, topic, size)
        first = batch(b"first")
        client.ask("produce", 11, produce_request(topic, dict.fromkeys(range(size), first)))
        end = client.offset(topic, -1, partition=0).offset
        starts = {(topic, index): 0 if index else end for index in range(size)}
        opened = client.fetch(fetch_request(starts, session_epoch=0, max_bytes=1 << 26))
        session, epoch = opened.session_id, 1
        # What the other partitions hold is fetched once, so that the session has no more news.
        ends = {
            (topic, index): client.offset(topic, -1, partition=index).offset
            for index in range(1, size)
        }
        client.fetch(fetch_request(ends, session_id=session, session_epoch=epoch))
        records = batch(b"news")
        began = broker.cpu_seconds()
        for number in range(FETCHES):
            client.produce(topic, records, partition=0)
            epoch += 1
            wanted = {(topic, 0): end + number}
            answer = client.fetch(
                fetch_request(wanted, session_id=session, session_epoch=epoch, max_wait_ms=1000)
            )
            assert answer.error_code == 0, answer.error_code
            (found,) = answer.responses
            assert len(found.partitions) == 1
        return (broker.cpu_seconds() - began) / FETCHES * 1e6


def _create(client: RawClient, topic: str, partitions: int) -> None:
    from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest

    asked = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    client.ask("create_topics", 7, CreateTopicsRequest(topics=[asked], timeout_ms=20_000))
